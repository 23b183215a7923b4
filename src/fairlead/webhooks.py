"""The webhooks of every capability, on one listener, with certificates that API servers trust.

A capability of its own, added by the composition root when another has webhooks: every replica serves, leader or not;
the leader issues certificates into a Secret, renews them and keeps the caBundle of our configurations current. Where
the certificate comes from files, it writes neither. Deployments with different capabilities in one namespace share the
Secret: each has a leader (`app.webhooks_lease`), who writes by resourceVersion and leaves the others' names in it.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from fairlead.cluster.waits import first_of
from fairlead.cluster.writer import Outcome
from fairlead.model.intents import Apply, Create, Intent, Patch, event, patch
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.runtime import Capability, Listener, Runtime
from fairlead.web.admission import AdmissionMetrics, AdmissionServer, Webhook, WebhookConfiguration
from fairlead.web.authority import Lives, Material, is_usable, renewed, split_bundle
from fairlead.web.probes import ready_text, served
from fairlead.web.tls import ServingCertificate, load_leaf, serving_context

log = structlog.get_logger("fairlead.webhooks")

SECRET: Final = "fairlead-webhooks"
SERVICE: Final = "fairlead-webhooks"
GROUP: Final = "admissionregistration.k8s.io"
# However quiet it is: a certificate falls due without any event.
LOOK_EVERY_S: Final = 10.0


class Secret(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None


class ClientConfig(ApiStruct, frozen=True):
    url: str | None = None
    ca_bundle: str = ""


class WebhookEntry(ApiStruct, frozen=True):
    name: str = ""
    client_config: ClientConfig = ClientConfig()


class Configuration(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[WebhookEntry, ...] | None = None


SECRETS = Kind("", "v1", "secrets", "Secret", Secret)
MUTATING = Kind(
    GROUP, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", Configuration, namespaced=False
)
VALIDATING = Kind(
    GROUP, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", Configuration, namespaced=False
)


@dataclass(frozen=True, slots=True)
class Address:
    """How API servers reach us: by a Service whose configuration an administrator applies, or by a URL of ours."""

    names: tuple[str, ...]
    registers: bool = False
    """Whether we apply the configurations ourselves, by URL."""


def by_service(namespace: str) -> Address:
    return Address((f"{SERVICE}.{namespace}.svc", f"{SERVICE}.{namespace}.svc.cluster.local"))


BY_LOOPBACK: Final = Address(("127.0.0.1", "localhost"), registers=True)


class Webhooks(Capability):
    name = "webhooks"

    def __init__(
        self,
        runtime: Runtime,
        configurations: Mapping[str, Sequence[WebhookConfiguration]],
        capabilities: Mapping[str, Capability],
        address: Address,
    ) -> None:
        """`configurations` by capability."""
        super().__init__(runtime)
        settings = runtime.settings.webhooks
        self._configurations = [each for group in configurations.values() for each in group]
        self._served = {name: capabilities[name] for name, group in configurations.items() if group}
        self._address = address
        self._lives = Lives(
            timedelta(seconds=settings.authority_life_s),
            timedelta(seconds=settings.certificate_life_s),
            timedelta(seconds=settings.overlap_s),
        )
        self._look_every_s = min(LOOK_EVERY_S, min(settings.authority_life_s, settings.certificate_life_s) / 30)
        self._url = ""
        webhooks: list[Webhook] = [each for group in self._configurations for each in group.webhooks]
        metrics = AdmissionMetrics(runtime.metrics.registry)
        self._server = AdmissionServer(webhooks, clock=runtime.clock, metrics=metrics)
        certificate, key = Path(settings.certificate), Path(settings.key)
        self._files = ServingCertificate(certificate, key) if settings.certificate else None
        self._context = self._files.context if self._files else serving_context()
        self._has_certificate = self._files is not None
        self._last_condition: str | None = None
        namespace = runtime.settings.namespace
        self._secret_key = f"{namespace}/{SECRET}"
        self._secrets = runtime.mirror(SECRETS, namespace, fields=f"metadata.name={SECRET}")
        self._mirrors = {kind.name: runtime.mirror(kind) for kind in map(kind_of, self._configurations)}

    # -- every replica ------------------------------------------------------------------------------------------

    def servers(self) -> Sequence[Listener]:
        drain_s = self.runtime.settings.webhooks.drain_s
        return (Listener("webhooks", self._serving(), self.problem, drain_s),)

    async def follow(self) -> None:
        if self._files is not None:
            await self._files.follow(self.runtime.clock)
            return
        changes = self._secrets.subscribe()
        try:
            while True:
                await changes.wait()
                changes.drain()
                self._take(self._material())
        finally:
            changes.close()

    def problem(self) -> str | None:
        if self.runtime.stop.is_set():
            return "stopping"
        return None if self._has_certificate else f"no certificate yet in the Secret {SECRET}"

    def condition(self) -> str | None:
        """Entries that an administrator applied and a setting of ours turns off: the server calls them in vain."""
        found = [
            f"entry {entry.name} of {configuration.name} is not answered and gets no caBundle: {setting} is off"
            for configuration in self._configurations
            for entry in self._current(configuration).webhooks or ()
            if (setting := configuration.turned_off.get(entry.name))
        ]
        return "; ".join(found) or None

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        host, _, port = self.runtime.settings.webhooks.listen.rpartition(":")
        probes = [web.get(f"/readyz/{name}", self._probe(each)) for name, each in self._served.items()]
        routes, is_stopping = [*self._server.routes(), *probes], self.runtime.stop.is_set
        where = host.strip("[]"), int(port)
        async with served(routes, *where, self._context, is_stopping, "webhooks.listen") as bound:
            self._url = f"https://{bound[0]}:{bound[1]}"
            yield

    def _probe(self, capability: Capability) -> Callable[[web.Request], Any]:
        async def answer(_: web.Request) -> web.Response:
            problem = self.problem() or capability.problem()
            text = f"{problem}\n" if problem else ready_text(lambda: capability.condition() or self.condition())
            return web.Response(text=text, status=503 if problem else 200)

        return answer

    def _take(self, material: Material | None) -> None:
        """Serve with this certificate from the next handshake on; an unusable one leaves the old in use."""
        if material is None or not is_usable(material, self.runtime.clock.now()):
            return
        load_leaf(self._context, material)
        if not self._has_certificate:
            log.info("certificate loaded", secret=SECRET)
        self._has_certificate = True

    # -- the leader ---------------------------------------------------------------------------------------------

    async def lead(self) -> None:
        stop = self.runtime.stop
        if self._files is not None:
            await stop.wait()
            return
        wakeup = asyncio.Event()
        mirrors = [self._secrets, *self._mirrors.values()]
        subscriptions = [mirror.subscribe(wakeup) for mirror in mirrors]
        try:
            for mirror in mirrors:
                await first_of(mirror.wait_synced(), stop.wait())
            while not stop.is_set():
                wakeup.clear()
                for subscription in subscriptions:
                    subscription.drain()
                await self._reconcile()
                await first_of(wakeup.wait(), self.runtime.clock.sleep(self._look_every_s), stop.wait())
        finally:
            for subscription in subscriptions:
                subscription.close()

    async def _reconcile(self) -> None:
        material = self._material()
        now = self.runtime.clock.now()
        current = renewed(material, self._address.names, self._lives, now)
        if current is not material:
            secret = self._secrets.get(self._secret_key)
            result = await self.runtime.writer.carry_out(self._store(current))
            if result.outcome is not Outcome.DONE:
                log.info("certificate not stored", outcome=result.outcome, problem=str(result.error))
                return  # another process wrote it: the mirror will show what
            log.info("certificate issued", secret=SECRET, authorities=len(current.authorities))
            if secret is not None and (material is None or not is_usable(material, now)):
                note = "what the Secret held could not be used; a new authority and certificate were issued"
                replaced = event(SECRETS, secret.metadata, "CertificateReplaced", note, warning=True, reporter=SERVICE)
                await self.runtime.writer.carry_out(replaced)
        if (condition := self.condition()) != self._last_condition:
            self._last_condition = condition
            if condition:
                log.warning("webhook entry not served", problem=condition)
        bundle = base64.b64encode(current.bundle).decode()
        for configuration in self._configurations:
            if (intent := self._repair(configuration, bundle)) is not None:
                await self.runtime.writer.carry_out(intent)

    def _store(self, material: Material) -> Intent:
        data = {
            "ca.crt": material.bundle,
            "ca.key": material.authority_key,
            "tls.crt": material.leaf,
            "tls.key": material.leaf_key,
        }
        encoded = {name: base64.b64encode(text).decode() for name, text in data.items()}
        current = self._secrets.get(self._secret_key)
        if current is None:
            body = {"metadata": {"name": SECRET}, "type": "kubernetes.io/tls", "data": encoded}
            return Create(kind=SECRETS, namespace=self.runtime.settings.namespace, body=body)
        return patch(SECRETS, current.metadata, {"data": encoded})

    def _material(self) -> Material | None:
        secret = self._secrets.get(self._secret_key)
        data = (secret.data if secret is not None else None) or {}
        try:
            read = {name: base64.b64decode(data[name]) for name in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
        except (KeyError, ValueError):
            return None
        return Material(split_bundle(read["ca.crt"]), read["ca.key"], read["tls.crt"], read["tls.key"])

    def _current(self, configuration: WebhookConfiguration) -> Configuration:
        """As the server has it; empty where it has none."""
        found: Configuration | None = self._mirrors[kind_of(configuration).name].get(configuration.name)
        return found or Configuration()

    def _repair(self, configuration: WebhookConfiguration, bundle: str) -> Intent | None:
        """The intent that repairs a configuration of ours, or None."""
        kind, current = kind_of(configuration), self._current(configuration)
        if self._address.registers:
            found = {each.name: each.client_config for each in current.webhooks or ()}
            hooks = configuration.webhooks
            desired = {each.name: ClientConfig(url=self._url + each.path, ca_bundle=bundle) for each in hooks}
            if found == desired:
                return None
            return Apply(kind=kind, name=configuration.name, body=manifest(configuration, self._url, bundle))
        ours = {each.name for each in configuration.webhooks}
        wrong = [
            each.name for each in current.webhooks or () if each.name in ours and each.client_config.ca_bundle != bundle
        ]
        if not wrong:
            return None
        repaired = [{"name": name, "clientConfig": {"caBundle": bundle}} for name in wrong]
        return Patch(kind=kind, name=configuration.name, patch={"webhooks": repaired}, strategic=True)


def kind_of(configuration: WebhookConfiguration) -> Kind[Configuration]:
    return MUTATING if configuration.mutating else VALIDATING


def manifest(configuration: WebhookConfiguration, url: str = "", bundle: str = "", namespace: str = "") -> Any:
    """The configuration as an object: by URL, or by the Service in a namespace."""

    def address(path: str) -> dict[str, Any]:
        service = {"name": SERVICE, "namespace": namespace, "path": path, "port": 443}
        where: dict[str, Any] = {"url": url + path} if url else {"service": service}
        return {**where, "caBundle": bundle} if bundle else where

    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind_of(configuration).kind,
        "metadata": {"name": configuration.name, "labels": dict(configuration.labels)},
        "webhooks": [
            {
                "name": each.name,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                **msgspec.to_builtins(each.entry),
                "clientConfig": address(each.path),
            }
            for each in configuration.webhooks
        ],
    }
