"""From a kubeconfig, or a pod's service account, to a Connection: where the server is and who we are to it.

Files are named by the caller (`settings` finds them); entries of several files merge as kubectl merges them:
the first to name a thing wins.
"""

import base64
import contextlib
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from fairlead.cluster.clock import Clock
from fairlead.cluster.credentials import Credentials, ExecPlugin, Fixed, TokenFile, basic, bearer
from fairlead.cluster.errors import ConfigurationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(slots=True)
class Connection:
    """Everything a client needs to reach one API server as one user."""

    server: str
    credentials: Credentials
    tls: ssl.SSLContext | None
    namespace: str = "default"
    server_name: str | None = None
    proxy: str | None = None
    impersonate: Mapping[str, str] = field(default_factory=dict)
    described_as: str = ""


class Dashed(msgspec.Struct, frozen=True, rename="kebab"):
    """kubeconfig spells most keys with dashes."""


class Cluster(Dashed, frozen=True):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""


class EnvironmentEntry(msgspec.Struct, frozen=True):
    name: str
    value: str


class Exec(msgspec.Struct, frozen=True, rename="camel"):
    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[EnvironmentEntry] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class User(Dashed, frozen=True):
    token: str = ""
    # Spelled in camelCase in the real file, alone among its neighbours.
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    exec: Exec | None = None
    auth_provider: dict[str, Any] | None = None
    as_: str = msgspec.field(default="", name="as")
    as_groups: list[str] = []


class Context(Dashed, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: Cluster


class NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: User = User()


class NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: Context


class File(Dashed, frozen=True):
    current_context: str = ""
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None


def connect_by_kubeconfig(paths: Sequence[Path], clock: Clock, context: str = "") -> Connection:
    """The Connection that the given context (or the files' current one) stands for."""
    files = [(path, _read(path)) for path in paths if os.path.exists(path)]
    if not files:
        raise ConfigurationError(f"no kubeconfig at {', '.join(map(str, paths))}: name one with --kubeconfig")
    where = ", ".join(str(path) for path, _ in files)
    chosen_name = context or next((file.current_context for _, file in files if file.current_context), "")
    if not chosen_name:
        raise ConfigurationError(f"{where} has no current-context: set one or name it with --context")
    contexts = {entry.name: entry.context for _, file in reversed(files) for entry in file.contexts or ()}
    if chosen_name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise ConfigurationError(f"{where} has no context {chosen_name!r}; it has: {known}")
    chosen = contexts[chosen_name]
    clusters = {entry.name: (path, entry.cluster) for path, file in reversed(files) for entry in file.clusters or ()}
    users = {entry.name: (path, entry.user) for path, file in reversed(files) for entry in file.users or ()}
    named = f"context {chosen_name!r} of {where}"
    if chosen.cluster not in clusters:
        raise ConfigurationError(f"{named} names the cluster {chosen.cluster!r}, which is not there")
    if chosen.user and chosen.user not in users:
        raise ConfigurationError(f"{named} names the user {chosen.user!r}, which is not there")
    cluster_path, cluster = clusters[chosen.cluster]
    user_path, user = users.get(chosen.user, (cluster_path, User()))
    with _blaming(cluster_path):
        connection = Connection(
            server=_server(cluster),
            credentials=Fixed({}),
            tls=_trusting(cluster, cluster_path.parent),
            namespace=chosen.namespace or "default",
            server_name=cluster.tls_server_name or None,
            proxy=cluster.proxy_url or None,
            described_as=named,
        )
    with _blaming(user_path):
        _identify(connection, user, user_path.parent, cluster, cluster_path.parent, clock)
    return connection


def connect_in_cluster(host: str, port: str, clock: Clock, account: Path = SERVICE_ACCOUNT) -> Connection:
    """The Connection a pod gets from its service account."""
    token, authority, namespace = account / "token", account / "ca.crt", account / "namespace"
    for needed in (token, authority):
        if not needed.exists():
            raise ConfigurationError(f"running in a pod, but {needed} is missing: is automountServiceAccountToken off?")
    bracketed = f"[{host}]" if ":" in host else host
    try:
        tls = ssl.create_default_context(cafile=str(authority))
    except ssl.SSLError as problem:
        raise ConfigurationError(f"{authority} is not PEM: {problem}") from None
    return Connection(
        server=f"https://{bracketed}:{port}",
        credentials=TokenFile(token, clock),
        tls=tls,
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        described_as="the pod's service account",
    )


def _read(path: Path) -> File:
    try:
        return msgspec.convert(yaml.safe_load(path.read_text()) or {}, File)
    except yaml.YAMLError as problem:
        raise ConfigurationError(f"{path} is not YAML: {problem}") from None
    except msgspec.ValidationError as problem:
        raise ConfigurationError(f"{path} is not a kubeconfig: {problem}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not a kubeconfig: it is not text") from None
    except OSError as problem:
        raise ConfigurationError(f"{path} cannot be read: {problem.strerror}") from None


@contextlib.contextmanager
def _blaming(path: Path) -> Iterator[None]:
    """Errors raised inside name this file."""
    try:
        yield
    except ConfigurationError as problem:
        raise ConfigurationError(f"{path}: {problem}") from None


def _server(cluster: Cluster) -> str:
    server = cluster.server.rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise ConfigurationError(f"the server is {cluster.server!r}; it must be https://host:port")
    return server


def _trusting(cluster: Cluster, cluster_dir: Path) -> ssl.SSLContext | None:
    """How the server proves itself; None for plain http."""
    if cluster.server.startswith("http://"):
        return None
    authority = _authority(cluster, cluster_dir)
    try:
        context = ssl.create_default_context(cadata=authority or None)
    except ssl.SSLError as problem:
        raise ConfigurationError(f"the cluster's certificate-authority is not PEM: {problem}") from None
    if cluster.insecure_skip_tls_verify:
        if authority:
            raise ConfigurationError(
                "insecure-skip-tls-verify and a certificate-authority exclude each other: remove one"
            )
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _authority(cluster: Cluster, cluster_dir: Path) -> str:
    data, file = cluster.certificate_authority_data, cluster.certificate_authority
    return _text(data, file, cluster_dir, "certificate-authority")


def _identify(
    connection: Connection, user: User, user_dir: Path, cluster: Cluster, cluster_dir: Path, clock: Clock
) -> None:
    """How we prove ourselves: a certificate, headers, or both."""
    certificate = _text(user.client_certificate_data, user.client_certificate, user_dir, "client-certificate")
    key = _text(user.client_key_data, user.client_key, user_dir, "client-key")
    if certificate and connection.tls is not None:
        use_certificate(connection.tls, certificate, key)

    def present(certificate: str, key: str) -> None:
        # In a context of its own: connections are kept per context, and those made so far show the old certificate.
        tls = _trusting(cluster, cluster_dir)
        if tls is None:
            raise ConfigurationError("the exec plugin gave a certificate, but the server is plain http")
        use_certificate(tls, certificate, key)
        connection.tls = tls

    connection.impersonate = _impersonation(user)
    connection.credentials = _credentials(user, user_dir, cluster, cluster_dir, present, clock)


def use_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Present this certificate on every connection made from now on."""
    # OpenSSL reads certificates from files only; this one lives for the length of the call, readable by us alone.
    handle, name = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "w") as pem:
            pem.write(f"{certificate}\n{key}\n")
        # A key under a passphrase is refused: without one to try, OpenSSL would ask the terminal for it.
        context.load_cert_chain(name, password="")
    except ssl.SSLError as problem:
        raise ConfigurationError(f"the client certificate and key do not make a pair: {problem}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _text(data: str, file: str, relative_to: Path, called: str) -> str:
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except ValueError:  # not base64, or not text inside
            raise ConfigurationError(f"{called}-data is not base64 of PEM text") from None
    if not file:
        return ""
    path = relative_to / file
    try:
        return path.read_text()
    except OSError as problem:
        raise ConfigurationError(f"{called}: {path} cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{called}: {path} is not PEM text") from None


def _credentials(
    user: User, user_dir: Path, cluster: Cluster, cluster_dir: Path, present: Callable[[str, str], None], clock: Clock
) -> Credentials:
    if user.auth_provider is not None:
        raise ConfigurationError("auth-provider was removed from Kubernetes in 1.26: use an exec plugin instead")
    if user.exec is not None:
        return _exec_plugin(user.exec, user_dir, cluster, cluster_dir, present, clock)
    if user.token_file:
        return TokenFile(user_dir / user.token_file, clock)
    if user.token:
        return bearer(user.token)
    if user.username:
        return basic(user.username, user.password)
    return Fixed({})


def _exec_plugin(
    plugin: Exec, user_dir: Path, cluster: Cluster, cluster_dir: Path, present: Callable[[str, str], None], clock: Clock
) -> ExecPlugin:
    if plugin.api_version not in EXEC_VERSIONS:
        known = " or ".join(EXEC_VERSIONS)
        raise ConfigurationError(
            f"the exec plugin {plugin.command!r} uses {plugin.api_version!r}; Fairlead knows {known}"
        )
    if plugin.interactive_mode == "Always":
        raise ConfigurationError(f"the exec plugin {plugin.command!r} needs a terminal, which a server does not have")
    # A bare name is looked up on the PATH, a path is meant relative to the kubeconfig.
    command = str(user_dir / plugin.command) if "/" in plugin.command else plugin.command
    cluster_info: dict[str, Any] | None = None
    if plugin.provide_cluster_info:
        cluster_info = {
            "server": cluster.server,
            "certificate-authority-data": base64.b64encode(_authority(cluster, cluster_dir).encode()).decode(),
            "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
            "tls-server-name": cluster.tls_server_name,
        }
    return ExecPlugin(
        [command, *(plugin.args or ())],
        environment={entry.name: entry.value for entry in plugin.env or ()},
        api_version=plugin.api_version,
        cluster=cluster_info,
        install_hint=plugin.install_hint,
        use_certificate=present,
        clock=clock,
    )


def _impersonation(user: User) -> Mapping[str, str]:
    if user.as_groups:
        raise ConfigurationError("as-groups is not supported: give the user the group instead")
    return {"Impersonate-User": user.as_} if user.as_ else {}
