"""The certificate of the webhooks and the caBundle of their configurations, whoever leads and whatever happens."""

import asyncio
import base64
import copy
import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from structlog.testing import capture_logs

from fairlead.app import webhooks_lease
from fairlead.cluster.clock import RealClock
from fairlead.cluster.connector import connector
from fairlead.cluster.errors import Conflict, Status
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.writer import Outcome, Result
from fairlead.model.intents import Intent, Patch
from fairlead.runtime import Capability
from fairlead.settings import load
from fairlead.testing.clock import ManualClock, settle
from fairlead.web.admission import Review, Verdict, Webhook, WebhookConfiguration
from fairlead.webhooks import MUTATING, SECRET, SECRETS, VALIDATING, Address, Webhooks, manifest
from tests.jobs.cluster import FakeCluster

NAMESPACE = "fairlead-system"
KEY = f"{NAMESPACE}/{SECRET}"
NAMES = ("hooks.example", "127.0.0.1")


async def nobody(review: Review) -> Verdict:
    return Verdict()


CONFIGURATION = WebhookConfiguration(
    "fairlead-toy", [Webhook("toy.example", "/toy", nobody, {})], turned_off={"off.example": "toy.mode"}
)
# Of the same name, as an administrator may well choose it: another kind, another object.
CHECKING = WebhookConfiguration("fairlead-toy", [Webhook("check.example", "/check", nobody, {})], mutating=False)


class Cluster(FakeCluster):
    """Patches the Secret and the configurations as an API server does."""

    def __init__(self) -> None:
        # A client checks a certificate against today.
        super().__init__(ManualClock(RealClock().now()))
        self.put(MUTATING.plural, manifest(CONFIGURATION, namespace=NAMESPACE))
        self.put(VALIDATING.plural, manifest(CHECKING, namespace=NAMESPACE))

    async def carry_out(self, intent: Intent, **more: Any) -> Result:
        if not isinstance(intent, Patch):
            return await super().carry_out(intent, **more)
        await asyncio.sleep(0)
        key = f"{intent.namespace}/{intent.name}" if intent.namespace else intent.name
        held = copy.deepcopy(self.objects[intent.kind.plural][key])
        if intent.resource_version and held["metadata"]["resourceVersion"] != intent.resource_version:
            return Result(intent, Outcome.CONFLICT, Conflict("PATCH", Status(code=409)))
        if intent.kind is SECRETS:
            held["data"] = {**(held.get("data") or {}), **intent.patch["data"]}
        else:
            bundles = {each["name"]: each["clientConfig"]["caBundle"] for each in intent.patch["webhooks"]}
            for each in held["webhooks"]:
                each["clientConfig"]["caBundle"] = bundles.get(each["name"], each["clientConfig"].get("caBundle"))
        self.put(intent.kind.plural, held)
        return Result(intent, Outcome.DONE)

    def put(self, plural: str, thing: dict[str, Any], *, is_late: bool = False) -> dict[str, Any]:
        if plural == SECRETS.plural:
            thing["metadata"].setdefault("namespace", NAMESPACE)
        return super().put(plural, thing, is_late=is_late)

    @property
    def data(self) -> dict[str, bytes]:
        held = self.objects[SECRETS.plural][KEY]["data"]
        return {name: base64.b64decode(text) for name, text in held.items()}

    @property
    def bundle(self) -> bytes:
        (entry,) = self.objects[MUTATING.plural]["fairlead-toy"]["webhooks"]
        return base64.b64decode(entry["clientConfig"].get("caBundle", ""))


def replica(cluster: Cluster, stop: asyncio.Event) -> Webhooks:
    def mirror(kind: Any, *_: Any, **__: Any) -> Any:
        return cluster.mirror(kind)

    settings = load(environment={}, flags={"webhooks.listen": "127.0.0.1:0"})
    runtime: Any = SimpleNamespace(
        settings=settings, clock=cluster.clock, metrics=Metrics(), mirror=mirror, writer=cluster, stop=stop
    )
    return Webhooks(runtime, {"toy": [CONFIGURATION, CHECKING]}, {"toy": Capability(runtime)}, Address(NAMES))


@asynccontextmanager
async def leading(cluster: Cluster, replicas: int = 1) -> AsyncIterator[list[Webhooks]]:
    """So many at once, although only one has the lease: nobody may rely on that here."""
    stop = asyncio.Event()
    made = [replica(cluster, stop) for _ in range(replicas)]
    tasks = [asyncio.create_task(work) for each in made for work in (each.follow(), each.lead())]
    await settle(200)
    try:
        yield made
    finally:
        stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_deployments_with_other_webhooks_do_not_wait_for_each_others_lease() -> None:
    def serving(*names: str) -> str:
        made: Any = {name: SimpleNamespace(webhooks=lambda: (CONFIGURATION,)) for name in names}
        made["jobs"] = SimpleNamespace(webhooks=tuple)
        return webhooks_lease(made, load(environment={}))

    assert (serving("data"), serving("tasks", "data")) == ("fairlead-webhooks-data", "fairlead-webhooks-data-tasks")


async def test_s71_three_replicas_that_start_at_once_serve_one_authority() -> None:
    cluster = Cluster()
    async with leading(cluster, replicas=3) as replicas:
        assert [each.problem() for each in replicas] == [None] * 3
        (authority,) = x509.load_pem_x509_certificates(cluster.data["ca.crt"])
        leaf = x509.load_pem_x509_certificate(cluster.data["tls.crt"])
        leaf.verify_directly_issued_by(authority)
        assert cluster.bundle == cluster.data["ca.crt"]


@pytest.mark.parametrize("damage", [{"tls.key": b"nonsense"}, {"ca.crt": b""}, {"tls.crt": b"", "ca.key": b"x"}])
async def test_s73_a_secret_that_was_damaged_is_made_anew_and_said(damage: dict[str, bytes]) -> None:
    cluster = Cluster()
    async with leading(cluster):
        before = cluster.data
        held = copy.deepcopy(cluster.objects[SECRETS.plural][KEY])
        held["data"] |= {name: base64.b64encode(text).decode() for name, text in damage.items()}
        cluster.put(SECRETS.plural, held)
        await settle(200)
        assert cluster.data["ca.crt"] not in (b"", before["ca.crt"])
        assert cluster.bundle == cluster.data["ca.crt"]
        assert [(each.reason, each.warning, each.regarding.name) for each in cluster.events] == [
            ("CertificateReplaced", True, SECRET)
        ]


async def test_s74_a_reset_bundle_is_repaired_and_no_certificate_issued_for_it() -> None:
    cluster = Cluster()
    async with leading(cluster):
        before = cluster.data
        cluster.put(MUTATING.plural, manifest(CONFIGURATION, bundle="Cg==", namespace=NAMESPACE))
        assert cluster.bundle == b"\n"
        await settle(200)
        assert cluster.bundle == before["ca.crt"]
        assert (cluster.data, cluster.events) == (before, [])


async def test_configurations_of_both_kinds_may_have_one_name() -> None:
    cluster = Cluster()
    async with leading(cluster):
        (entry,) = cluster.objects[VALIDATING.plural]["fairlead-toy"]["webhooks"]
        assert base64.b64decode(entry["clientConfig"]["caBundle"]) == cluster.bundle == cluster.data["ca.crt"]


async def test_an_applied_entry_that_a_setting_turns_off_is_said() -> None:
    cluster = Cluster()
    async with leading(cluster) as (webhooks,):
        assert webhooks.condition() is None
        both = [*CONFIGURATION.webhooks, Webhook("off.example", "/off", nobody, {})]
        cluster.put(MUTATING.plural, manifest(WebhookConfiguration("fairlead-toy", both), namespace=NAMESPACE))
        with capture_logs() as logs:
            await settle(200)
        said = "entry off.example of fairlead-toy is not answered and gets no caBundle: toy.mode is off"
        assert webhooks.condition() == said
        assert [each["problem"] for each in logs if each["log_level"] == "warning"] == [said]
        (listener,) = webhooks.servers()
        async with listener.serve, aiohttp.ClientSession(connector=connector()) as http:
            trusting = ssl.create_default_context(cadata=cluster.data["ca.crt"].decode())
            async with http.get(f"{webhooks._url}/readyz/toy", ssl=trusting) as answer:
                assert (answer.status, await answer.text()) == (200, f"ok: {said}")


async def test_s75_a_wrong_name_is_refused_in_the_handshake_and_old_protocols_are_not_spoken() -> None:
    cluster = Cluster()
    async with leading(cluster) as (webhooks,):
        (listener,) = webhooks.servers()
        async with listener.serve, aiohttp.ClientSession() as http:
            url = f"{webhooks._url}/readyz/toy"
            trusting = ssl.create_default_context(cadata=cluster.bundle.decode())
            async with http.get(url, ssl=trusting) as answer:
                assert answer.status == 200
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await http.get(url, ssl=trusting, server_hostname="other.example")
            host, _, port = webhooks._url.removeprefix("https://").rpartition(":")
            with pytest.raises((ssl.SSLError, ConnectionResetError)):
                await asyncio.open_connection(host, int(port), ssl=_only_tls_1_1())


async def test_the_client_of_old_protocols_would_be_served_by_a_server_that_speaks_them() -> None:
    """Else its refusal by the webhooks would show nothing."""
    cluster = Cluster()
    async with leading(cluster) as (webhooks,):
        client, old = _only_tls_1_1(), webhooks._context
        _speak_old(old)
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        sides = (client.wrap_bio(back, there), old.wrap_bio(there, back, server_side=True))
        for side in sides * 4:
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        assert sides[0].version() == "TLSv1.1"


def _only_tls_1_1() -> ssl.SSLContext:
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    _speak_old(client)
    return client


def _speak_old(context: ssl.SSLContext) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1_1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    # Below the level that OpenSSL has today, at which it would not even try.
    context.set_ciphers("ALL:@SECLEVEL=0")
