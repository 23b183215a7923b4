"""The embedded cluster put together: store, rules, server, its certificates and the kubeconfig for its user."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog
import yaml
from aiohttp import web

from fairlead.apiserver.admission.builtin import SYSTEM_PRIORITIES, BuiltIn
from fairlead.apiserver.admission.chain import Chain
from fairlead.apiserver.admission.client import WebhookClient
from fairlead.apiserver.admission.webhooks import Webhooks
from fairlead.apiserver.auth.certificates import FRONT_PROXY, Certificates
from fairlead.apiserver.auth.default_roles import AUTOUPDATE, DEFAULTS
from fairlead.apiserver.auth.escalation import NoEscalation
from fairlead.apiserver.auth.rbac import Rbac
from fairlead.apiserver.auth.role_aggregation import RoleAggregation
from fairlead.apiserver.auth.tokens import Tokens, write_secret
from fairlead.apiserver.failures import Failure
from fairlead.apiserver.heavy import Heavy
from fairlead.apiserver.json_values import JsonObject, copied
from fairlead.apiserver.registry.api_services import ApiServices, Backends
from fairlead.apiserver.registry.attributes import Write
from fairlead.apiserver.registry.conversion import Conversion
from fairlead.apiserver.registry.definitions import Definitions
from fairlead.apiserver.registry.reader import Reader
from fairlead.apiserver.registry.resources import Resources
from fairlead.apiserver.registry.rest import Rest
from fairlead.apiserver.registry.service_addresses import Addresses
from fairlead.apiserver.registry.strategies import Strategies
from fairlead.apiserver.registry.versions import Versions
from fairlead.apiserver.request.bodies import Sent
from fairlead.apiserver.request.info import User
from fairlead.apiserver.request.options import Options
from fairlead.apiserver.server import Server
from fairlead.apiserver.storage.store import Store, Unusable, usable
from fairlead.cluster.clock import Clock

log = structlog.get_logger("fairlead.local")

HOST = "127.0.0.1"
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
# Service addresses are loopback ones, so that the proxy can really listen on them; pods take theirs elsewhere.
SERVICE_NETWORK = "127.96.0.0/16"
API_ADDRESS = "127.96.0.1"
API_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
NODE_PORTS = (30_000, 32_767)
OURSELVES = User("system:fairlead", groups=("system:masters",))


@dataclass(frozen=True, slots=True)
class Embedded:
    """A running embedded API server."""

    url: str
    kubeconfig: Path
    admin_token: str
    server: Server
    rest: Rest
    certificates: Certificates
    tokens: Tokens


@asynccontextmanager
async def embedded(folder: Path, clock: Clock, *, port: int = 0) -> AsyncIterator[Embedded]:
    """An API server on a data folder, for as long as the block runs."""
    strategies = Strategies(Addresses(SERVICE_NETWORK, *NODE_PORTS))
    with closing(Store(folder, strategies.selectable)) as store, closing(Heavy()) as heavy:
        server, webhook_client, certificates = _wired(folder, store, strategies, heavy, clock)
        rest, tokens = server.rest, server.tokens
        tls = certificates.server_context(clock.now(), API_NAMES, (HOST, API_ADDRESS))
        runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1.0, handle_signals=False)
        await runner.setup()
        try:
            async with webhook_client, server.api_services:
                try:
                    await web.TCPSite(runner, HOST, port, ssl_context=tls).start()
                except OSError as problem:
                    hint = "name another port (--port N), or none at all for any free one"
                    raise Unusable(f"cannot serve the API on {HOST}:{port}: {problem.strerror}; {hint}") from problem
                bound = runner.addresses[0]
                server.address = f"{bound[0]}:{bound[1]}"
                url = f"https://{server.address}"
                with usable(folder):
                    await bootstrap(rest, bound[0], bound[1], certificates)
                    kubeconfig = write_kubeconfig(folder / "kubeconfig", url, certificates.authority, tokens.admin)
                server.ready = True
                count = sum(len(store.of_kind(kind).entries) for kind in store.kinds())
                log.info("API server ready", url=url, objects=count)
                yield Embedded(url, kubeconfig, tokens.admin, server, rest, certificates, tokens)
        finally:
            server.ready = False
            await server.end_watches()
            await runner.cleanup()


def _wired(
    folder: Path, store: Store, strategies: Strategies, heavy: Heavy, clock: Clock
) -> tuple[Server, WebhookClient, Certificates]:
    """Every part is given what it needs when it is constructed: readers first, then what writes."""
    client = WebhookClient(store)
    reader = Reader(store, Resources(strategies), Versions(Conversion(client.post).convert))
    definitions = Definitions(reader, clock)
    with usable(folder):
        tokens = Tokens(folder, reader.find)
        certificates = Certificates(folder / "pki", clock.now())
    rbac = Rbac(store)
    admission = Chain(BuiltIn(reader, clock), NoEscalation(rbac), Webhooks(reader, client, heavy))
    backends = Backends(reader, lambda *given: certificates.front_proxy_context(clock.now(), *given))
    observers = (definitions.learn, RoleAggregation(reader, rbac, OURSELVES, clock).learn, backends.learn)
    rest = Rest(reader, clock, admission, observers, heavy)
    return Server(rest, tokens, rbac, ApiServices(rest, backends)), client, certificates


async def bootstrap(rest: Rest, host: str, port: int, certificates: Certificates) -> None:
    """What every cluster has from its first moment; what is there already stays as it is.

    `host` and `port` are where this server listens, which the Service `kubernetes` leads to.
    """
    options = Options(OURSELVES, manager="fairlead")
    namespaces = rest.resources.built_in("", "v1", "namespaces")
    for name in NAMESPACES:
        await _ensure(rest, Write(namespaces, "", name, options), {})
    for thing in DEFAULTS:
        await _reconcile(rest, thing, Options(OURSELVES, manager="kube-apiserver"))
    # Since when tokens kept in Secrets are watched for use; the controller that cleans them up asks for it.
    since = {"since": rest.clock.now().strftime("%Y-%m-%d")}
    config_maps = rest.resources.built_in("", "v1", "configmaps")
    for name, data in (
        ("kube-apiserver-legacy-service-account-token-tracking", since),
        ("extension-apiserver-authentication", _front_proxy_facts(certificates)),
    ):
        await _ensure(rest, Write(config_maps, "kube-system", name, options), {"data": data})
    classes = rest.resources.built_in("scheduling.k8s.io", "v1", "priorityclasses")
    for name, value in SYSTEM_PRIORITIES.items():
        await _ensure(rest, Write(classes, "", name, options), {"value": value})
    await _lead_here(rest, host, port, options)


def _front_proxy_facts(certificates: Certificates) -> dict[str, str]:
    """How the servers of APIServices authenticate this one, and the users it forwards."""
    return {
        "client-ca-file": certificates.authority,
        "requestheader-client-ca-file": certificates.front_proxy_authority,
        "requestheader-allowed-names": f'["{FRONT_PROXY}"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }


async def _reconcile(rest: Rest, desired: JsonObject, options: Options) -> None:
    """A default role or binding as this version has it; what users added to it stays."""
    resource = rest.resources.by_api_version(desired["apiVersion"], desired["kind"])
    assert resource is not None
    write = Write(resource, "", desired["metadata"]["name"], options)
    found = rest.find(resource.storage_key, write.key)
    if found is None:
        await _ensure(rest, write, desired)
    elif (found["metadata"].get("annotations") or {}).get(AUTOUPDATE) != "false":
        await rest.change(write, partial(_renewed, desired))


def _renewed(desired: JsonObject, found: JsonObject) -> JsonObject:
    metadata = {**found["metadata"]}
    for what in ("labels", "annotations"):
        metadata[what] = {**(metadata.get(what) or {}), **desired["metadata"][what]}
    renewed = {**found, "metadata": metadata}
    for what in ("rules", "subjects"):
        if what in desired and "aggregationRule" not in desired:
            there = found.get(what) or []
            renewed[what] = [*there, *(each for each in desired[what] if each not in there)]
    if "aggregationRule" in desired and not found.get("aggregationRule"):
        # From before it gathered: what it held then is not what it may hold now.
        renewed |= {"aggregationRule": desired["aggregationRule"], "rules": []}
    return renewed


async def _lead_here(rest: Rest, host: str, port: int, options: Options) -> None:
    """The Service `kubernetes`, pointed at this server; the port may be another one at every start."""
    named = {"name": "https", "protocol": "TCP"}
    service = {
        "metadata": {"labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": API_ADDRESS, "ports": [{**named, "port": 443, "targetPort": port}]},
    }
    part = {
        "metadata": {"labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": [{**named, "port": port}],
    }
    for group, plural, desired in (("", "services", service), ("discovery.k8s.io", "endpointslices", part)):
        write = Write(rest.resources.built_in(group, "v1", plural), "default", "kubernetes", options)
        if rest.find(write.resource.storage_key, write.key) is None:
            await _ensure(rest, write, desired)
        else:
            await rest.change(write, partial(_pointed, desired))


def _pointed(desired: JsonObject, found: JsonObject) -> JsonObject:
    """The object as it is, its ports and endpoints as they are wanted."""
    if "spec" in desired:
        return {**found, "spec": {**found["spec"], "ports": desired["spec"]["ports"]}}
    return {**found, "endpoints": desired["endpoints"], "ports": desired["ports"]}


async def _ensure(rest: Rest, write: Write, thing: JsonObject) -> None:
    """Create an object that does not exist; `thing` need not name it."""
    if rest.store.get(write.resource.storage_key, write.key) is not None:
        return
    metadata = {**thing.get("metadata", {}), "name": write.name}
    try:
        await rest.create(write, Sent(copied({**thing, "metadata": metadata})))
    except Failure as failure:
        raise RuntimeError(f"{write.resource.kind} {write.key}: {failure.message}") from failure


def write_kubeconfig(path: Path, url: str, authority: str, token: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "fairlead",
                "cluster": {"server": url, "certificate-authority-data": base64.b64encode(authority.encode()).decode()},
            }
        ],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "fairlead", "context": {"cluster": "fairlead", "user": "admin"}}],
        "current-context": "fairlead",
    }
    write_secret(path, yaml.safe_dump(config, sort_keys=False).encode())
    return path
