"""From kubeconfig files or a pod's service account to a connection, or to one sentence that names the file."""

import asyncio
import base64
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.credentials import ExecPlugin, TokenFile
from fairlead.cluster.errors import ConfigurationError
from fairlead.cluster.kubeconfig import Connection, connect_by_kubeconfig, connect_in_cluster
from fairlead.model.kinds import CONFIG_MAPS
from fairlead.testing.clock import ManualClock
from fairlead.testing.scripted_server import ScriptedServer, failure, reply
from tests.cluster.kit import config_map, held
from tests.rigs.kube.certificates import Authority, KeyPair

SERVER = "https://cluster.example:6443"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("kubeconfig") / "ca")


@pytest.fixture(scope="module")
def pair(authority: Authority) -> KeyPair:
    return authority.client("ann")


def write(
    path: Path,
    *,
    cluster: Mapping[str, Any] | None = None,
    user: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
    current: str = "c",
) -> Path:
    """A kubeconfig with one context `c`, and what the test is about."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": current,
        "clusters": [{"name": "k", "cluster": {"server": SERVER, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", **(context or {})}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def connect(*paths: Path, context: str = "", clock: Clock | None = None) -> Connection:
    return connect_by_kubeconfig(paths, clock or ManualClock(), context)


def refusal(*paths: Path, context: str = "") -> str:
    with pytest.raises(ConfigurationError) as caught:
        connect(*paths, context=context)
    return str(caught.value)


# --- which cluster, as whom -------------------------------------------------------------------------------


async def test_a_plain_kubeconfig(tmp_path: Path) -> None:
    path = write(tmp_path / "config", user={"token": "t"}, context={"namespace": "mine"})
    made = connect(path)
    assert (made.server, made.namespace, made.server_name, made.proxy) == (SERVER, "mine", None, None)
    assert made.described_as == f"context 'c' of {path}"
    assert await made.credentials.headers() == {"Authorization": "Bearer t"}


def test_everything_else_a_cluster_may_say(tmp_path: Path) -> None:
    cluster = {"server": f"{SERVER}/", "tls-server-name": "inner", "proxy-url": "http://proxy:3128"}
    made = connect(write(tmp_path / "config", cluster=cluster, user={"as": "bob"}))
    assert (made.server, made.namespace, made.server_name) == (SERVER, "default", "inner")
    assert (made.proxy, made.impersonate) == ("http://proxy:3128", {"Impersonate-User": "bob"})


def test_a_context_by_name_beats_the_current_one(tmp_path: Path) -> None:
    first = write(tmp_path / "1")
    content = yaml.safe_load(first.read_text())
    content["clusters"].append({"name": "other", "cluster": {"server": "https://other"}})
    content["contexts"].append({"name": "d", "context": {"cluster": "other"}})
    first.write_text(yaml.safe_dump(content))
    assert connect(first).server == SERVER
    assert connect(first, context="d").server == "https://other"


async def test_of_several_files_the_first_to_name_a_thing_wins(tmp_path: Path) -> None:
    one = tmp_path / "1"
    one.write_text(yaml.safe_dump({"users": [{"name": "u", "user": {"token": "first"}}]}))
    two = write(tmp_path / "2", user={"token": "second"}, current="c")
    three = write(tmp_path / "3", cluster={"server": "https://third"}, user={"token": "third"}, current="x")
    made = connect(one, tmp_path / "missing", two, three)
    assert made.server == SERVER
    assert await made.credentials.headers() == {"Authorization": "Bearer first"}


def test_paths_are_relative_to_the_file_that_holds_them(tmp_path: Path, authority: Authority, pair: KeyPair) -> None:
    users, clusters = tmp_path / "users", tmp_path / "clusters"
    for folder in (users, clusters):
        folder.mkdir()
    (clusters / "ca.pem").write_bytes(authority.ca_file.read_bytes())
    (users / "cert.pem").write_bytes(pair.cert.read_bytes())
    (users / "key.pem").write_bytes(pair.key.read_bytes())
    ours = write(clusters / "config", cluster={"certificate-authority": "ca.pem"})
    content = yaml.safe_load(ours.read_text())
    content.pop("users")
    ours.write_text(yaml.safe_dump(content))
    user = {"client-certificate": "cert.pem", "client-key": "key.pem"}
    theirs = users / "config"
    theirs.write_text(yaml.safe_dump({"users": [{"name": "u", "user": user}]}))
    assert connect(ours, theirs).tls is not None


# --- how the server proves itself, and how we do -----------------------------------------------------------


@pytest.mark.parametrize("way", ["inline", "files"])
async def test_both_sides_prove_themselves(tmp_path: Path, authority: Authority, pair: KeyPair, way: str) -> None:
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca_file)
    theirs.verify_mode = ssl.CERT_REQUIRED
    theirs.load_cert_chain(*authority.server())
    if way == "inline":
        cluster = {"certificate-authority-data": inline(authority.ca_file)}
        user = {"client-certificate-data": inline(pair.cert), "client-key-data": inline(pair.key)}
    else:
        cluster = {"certificate-authority": str(authority.ca_file)}
        user = {"client-certificate": str(pair.cert), "client-key": str(pair.key)}
    async with ScriptedServer(theirs) as server:
        server.always("*", reply(config_map()))
        path = write(tmp_path / "config", cluster={"server": server.url, **cluster}, user=user)
        async with Client(connect(path), clock=ManualClock()) as api:
            assert await api.get(CONFIG_MAPS, "a", "ns") == held()


async def test_verification_is_off_only_where_that_is_written(tmp_path: Path, authority: Authority) -> None:
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(*authority.server())
    async with ScriptedServer(theirs) as server:
        server.always("*", reply(config_map()))
        path = write(tmp_path / "config", cluster={"server": server.url, "insecure-skip-tls-verify": True})
        async with Client(connect(path), clock=ManualClock()) as api:
            assert await api.get(CONFIG_MAPS, "a", "ns") == held()
    tls = connect(write(tmp_path / "other")).tls
    assert tls is not None
    assert (tls.check_hostname, tls.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_plain_http_needs_no_certificates(tmp_path: Path) -> None:
    assert connect(write(tmp_path / "config", cluster={"server": "http://127.0.0.1:8001"})).tls is None


# --- credentials ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        pytest.param({}, {}, id="nobody"),
        pytest.param({"token": "t"}, {"Authorization": "Bearer t"}, id="token"),
        pytest.param({"token": "t", "tokenFile": "token"}, {"Authorization": "Bearer file"}, id="the file wins"),
        pytest.param({"username": "ann", "password": "pw"}, {"Authorization": "Basic YW5uOnB3"}, id="password"),
    ],
)
async def test_who_we_are(tmp_path: Path, user: dict[str, Any], expected: dict[str, str]) -> None:
    (tmp_path / "token").write_text("file\n")
    assert await connect(write(tmp_path / "config", user=user)).credentials.headers() == expected


def exec_user(command: str, version: str = "v1", **rest: Any) -> dict[str, Any]:
    return {"exec": {"apiVersion": f"client.authentication.k8s.io/{version}", "command": command, **rest}}


def write_plugin(path: Path, status: str, version: str = "v1") -> None:
    answer = f'{{"apiVersion": "client.authentication.k8s.io/{version}", "kind": "ExecCredential", "status": {status}}}'
    path.write_text(f"#!/bin/sh\ncat <<END\n{answer}\nEND\n")
    path.chmod(0o755)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("command", ["./plugin", "{}/plugin"], ids=["relative", "absolute"])
async def test_an_exec_plugin_is_run_with_what_the_file_says(tmp_path: Path, version: str, command: str) -> None:
    write_plugin(tmp_path / "plugin", '{"token": "$1-$REGION"}', version)
    user = exec_user(command.format(tmp_path), version, args=["arg"], env=[{"name": "REGION", "value": "north"}])
    made = connect(write(tmp_path / "config", user=user))
    assert isinstance(made.credentials, ExecPlugin)
    assert await made.credentials.headers() == {"Authorization": "Bearer arg-north"}


async def test_an_exec_plugin_is_told_of_the_cluster_where_it_asks(tmp_path: Path, authority: Authority) -> None:
    write_plugin(tmp_path / "plugin", '{"token": "t"}')
    (tmp_path / "plugin").write_text(
        (tmp_path / "plugin").read_text().replace("cat", f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/told\ncat', 1)
    )
    path = write(
        tmp_path / "config",
        cluster={"certificate-authority": str(authority.ca_file), "tls-server-name": "inner"},
        user=exec_user("./plugin", provideClusterInfo=True),
    )
    await connect(path).credentials.headers()
    assert json.loads((tmp_path / "told").read_text())["spec"]["cluster"] == {
        "server": SERVER,
        "certificate-authority-data": inline(authority.ca_file),
        "insecure-skip-tls-verify": False,
        "tls-server-name": "inner",
    }


async def test_a_certificate_from_a_plugin_is_shown_on_a_new_connection(
    tmp_path: Path, authority: Authority, pair: KeyPair
) -> None:
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca_file)
    theirs.verify_mode = ssl.CERT_REQUIRED
    theirs.load_cert_chain(*authority.server())
    status = {"clientCertificateData": pair.cert.read_text(), "clientKeyData": pair.key.read_text()}
    write_plugin(tmp_path / "plugin", json.dumps(status).replace("\\n", "\\\\n"))
    async with ScriptedServer(theirs) as server:
        # Two connections that show the first certificate, then its end: both calls are refused on them.
        slow = reply(config_map()).drip(200, 0.01)
        server.on("*", slow, slow, failure(401), failure(401))
        server.always("*", reply(config_map()))
        cluster = {"server": server.url, "certificate-authority": str(authority.ca_file)}
        path = write(tmp_path / "config", cluster=cluster, user=exec_user("./plugin"))
        async with Client(connect(path), clock=ManualClock()) as api:
            for _ in range(2):
                got = await asyncio.gather(*(api.get(CONFIG_MAPS, "a", "ns") for _ in range(2)))
                assert got == [held()] * 2
    old = {seen.connection for seen in server.requests[:4]}
    assert len(old) == 2
    assert {seen.connection for seen in server.requests[4:]}.isdisjoint(old)


# --- a pod's own account ----------------------------------------------------------------------------------


@pytest.fixture
def account(tmp_path: Path, authority: Authority) -> Path:
    (tmp_path / "token").write_text("pod-token")
    (tmp_path / "ca.crt").write_bytes(authority.ca_file.read_bytes())
    (tmp_path / "namespace").write_text("home\n")
    return tmp_path


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
async def test_in_a_pod(account: Path, host: str, server: str) -> None:
    made = connect_in_cluster(host, "443", ManualClock(), account)
    assert (made.server, made.namespace, made.described_as) == (server, "home", "the pod's service account")
    assert isinstance(made.credentials, TokenFile)
    assert await made.credentials.headers() == {"Authorization": "Bearer pod-token"}
    assert made.tls is not None


def test_in_a_pod_without_a_namespace_file(account: Path) -> None:
    (account / "namespace").unlink()
    assert connect_in_cluster("10.0.0.1", "443", ManualClock(), account).namespace == "default"


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_in_a_pod_what_is_missing_is_named(account: Path, name: str) -> None:
    (account / name).unlink()
    with pytest.raises(ConfigurationError, match=f"{account / name} is missing: is automountServiceAccountToken off"):
        connect_in_cluster("10.0.0.1", "443", ManualClock(), account)


def test_in_a_pod_a_broken_authority_is_named(account: Path) -> None:
    (account / "ca.crt").write_text("garbage")
    with pytest.raises(ConfigurationError, match=f"{account / 'ca.crt'} is not PEM"):
        connect_in_cluster("10.0.0.1", "443", ManualClock(), account)


# --- mistakes ---------------------------------------------------------------------------------------------


def test_no_file_at_all(tmp_path: Path) -> None:
    said = refusal(tmp_path / "a", tmp_path / "b")
    assert said == f"no kubeconfig at {tmp_path / 'a'}, {tmp_path / 'b'}: name one with --kubeconfig"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"{", "is not YAML: ", id="not YAML"),
        pytest.param(b"\x00", "is not YAML: ", id="control characters"),
        pytest.param(b"\xff\xfe\xff", "is not a kubeconfig: it is not text", id="not text"),
        pytest.param(b"[1]", "is not a kubeconfig: Expected `object`, got `array`", id="a list"),
        pytest.param(
            b"clusters: 3", "is not a kubeconfig: Expected `array | null`, got `int` - at `$.clusters`", id="3"
        ),
        pytest.param(
            b"users: [{name: u, user: {token: 12}}]",
            "is not a kubeconfig: Expected `str`, got `int` - at `$.users[0].user.token`",
            id="a number for a token",
        ),
        pytest.param(b"", "has no current-context: set one or name it with --context", id="empty"),
        pytest.param(b"current-context: x", "has no context 'x'; it has: none", id="no contexts"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path} {said}")


def test_a_folder_is_no_kubeconfig(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path} cannot be read: Is a directory"


def test_a_context_that_is_not_there(tmp_path: Path) -> None:
    path = write(tmp_path / "config")
    assert refusal(path, context="z") == f"{path} has no context 'z'; it has: c"


@pytest.mark.parametrize(("part", "called"), [("cluster", "cluster"), ("user", "user")])
def test_a_context_that_names_what_is_not_there(tmp_path: Path, part: str, called: str) -> None:
    path = write(tmp_path / "config", context={part: "z"})
    assert refusal(path) == f"context 'c' of {path} names the {called} 'z', which is not there"


GARBAGE = base64.b64encode(b"garbage").decode()
PLUGIN = {"apiVersion": "client.authentication.k8s.io/v1", "command": "plugin"}


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        pytest.param({"server": ""}, {}, "the server is ''; it must be https://host:port", id="no server"),
        pytest.param({"server": "k:6443"}, {}, "the server is 'k:6443'; it must be https://host:port", id="no scheme"),
        pytest.param(
            {"certificate-authority": "none.pem"},
            {},
            "certificate-authority: {}/none.pem cannot be read: No such file or directory",
            id="no authority",
        ),
        pytest.param(
            {"certificate-authority": "der"}, {}, "certificate-authority: {}/der is not PEM text", id="authority in DER"
        ),
        pytest.param(
            {"certificate-authority-data": "*"}, {}, "certificate-authority-data is not base64 of PEM text", id="base64"
        ),
        pytest.param(
            {"certificate-authority-data": GARBAGE}, {}, "the cluster's certificate-authority is not PEM: ", id="PEM"
        ),
        pytest.param(
            {"certificate-authority-data": "AUTHORITY", "insecure-skip-tls-verify": True},
            {},
            "insecure-skip-tls-verify and a certificate-authority exclude each other: remove one",
            id="trusted and not checked",
        ),
        pytest.param(
            {},
            {"client-certificate-data": GARBAGE, "client-key-data": GARBAGE},
            "the client certificate and key do not make a pair: ",
            id="certificate and key",
        ),
        pytest.param(
            {},
            {"client-certificate-data": "CERTIFICATE", "client-key": "locked.key"},
            "the client certificate and key do not make a pair: ",
            id="a key under a passphrase",
        ),
        pytest.param(
            {},
            {"client-certificate-data": "CERTIFICATE"},
            "the client certificate and key do not make a pair: ",
            id="no key",
        ),
        pytest.param(
            {}, {"auth-provider": {"name": "gcp"}}, "auth-provider was removed from Kubernetes in 1.26", id="provider"
        ),
        pytest.param({}, {"as-groups": ["g"]}, "as-groups is not supported", id="groups"),
        pytest.param(
            {},
            {"exec": {**PLUGIN, "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
            "the exec plugin 'plugin' uses 'client.authentication.k8s.io/v1alpha1'; Fairlead knows ",
            id="an old plugin",
        ),
        pytest.param(
            {}, {"exec": {**PLUGIN, "interactiveMode": "Always"}}, "the exec plugin 'plugin' needs a terminal", id="tty"
        ),
    ],
)
def test_a_mistake_is_a_sentence_that_names_the_file(
    tmp_path: Path,
    authority: Authority,
    pair: KeyPair,
    cluster: dict[str, Any],
    user: dict[str, Any],
    said: str,
) -> None:
    (tmp_path / "der").write_bytes(b"\x30\x82\xff\xfe")
    (tmp_path / "locked.key").write_bytes(locked(pair.key))
    known = {"AUTHORITY": inline(authority.ca_file), "CERTIFICATE": inline(pair.cert)}
    path = write(
        tmp_path / "config",
        cluster={name: known.get(str(value), value) for name, value in cluster.items()},
        user={name: known.get(str(value), value) for name, value in user.items()},
    )
    assert refusal(path).startswith(f"{path}: {said.format(tmp_path)}")


def locked(key: Path) -> bytes:
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.BestAvailableEncryption(b"secret"),
    )


async def test_a_certificate_from_a_plugin_for_plain_http(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugin", '{"clientCertificateData": "c"}')
    path = write(tmp_path / "config", cluster={"server": "http://127.0.0.1:1"}, user=exec_user("./plugin"))
    with pytest.raises(ConfigurationError, match="gave a certificate, but the server is plain http"):
        await connect(path).credentials.headers()
