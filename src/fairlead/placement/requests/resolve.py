"""Which workload a service name means.

The Deployment, StatefulSet or ReplicaSet of that name; else the single workload behind the Service of that name; else
the pods of nobody behind it. Anything else is refused with a sentence that names what was found. `Sight` reads the
cluster, `resolve` decides.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.errors import NotFound
from fairlead.model.kinds import Kind
from fairlead.model.meta import Thing
from fairlead.model.selectors import equal_to
from fairlead.placement.requests.spec import (
    AUTOSCALERS,
    SERVICES,
    WORKLOADS,
    Autoscaler,
    Operation,
    Service,
    Workload,
    WorkloadRef,
)
from fairlead.placement.spec import PODS


class Candidate(msgspec.Struct, frozen=True):
    kind: str
    workload: Workload

    @property
    def ref(self) -> WorkloadRef:
        metadata = self.workload.metadata
        return msgspec.convert({"kind": self.kind, "name": metadata.name, "uid": metadata.uid}, WorkloadRef)


class Found(msgspec.Struct, frozen=True):
    """What the cluster holds under a name in a namespace."""

    named: tuple[Candidate, ...] = ()
    # Looked for only where nothing has the name itself.
    service: Service | None = None
    behind: tuple[Candidate, ...] = ()
    # Pods behind the service that none of those makes: of nobody, and of something else, by its name.
    loose: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    autoscalers: tuple[Autoscaler, ...] = ()

    @property
    def is_nothing(self) -> bool:
        return not self.named and self.service is None


class Unresolved(msgspec.Struct, frozen=True):
    """No single workload is meant; the sentence says what to do. `field` is the field to blame."""

    sentence: str
    field: str = "serviceName"


def resolve(found: Found, operation: Operation, name: str, namespace: str, *, force: bool) -> WorkloadRef | Unresolved:
    where = f"namespace {namespace}"
    if len(found.named) > 1:
        return Unresolved(f"{name} in {where} is several: {_listed(found.named)}; rename or use their Services")
    if found.named:
        return _free(found.named[0], found.autoscalers, force)
    if found.service is None:
        return Unresolved(
            f"there is no Deployment, StatefulSet, ReplicaSet or Service {name} in {where}: check the two names"
        )
    if not found.service.spec.selector:
        return Unresolved(f"Service {name} in {where} selects no pods by labels: name the workload instead")
    if len(found.behind) > 1 or (found.behind and (found.loose or found.others)):
        what = [*(candidate.ref.described() for candidate in found.behind), *found.others]
        what += [f"Pod {pod}" for pod in found.loose]
        return Unresolved(f"behind Service {name} in {where} are several: {_few(what)}; name the one that is meant")
    if found.behind:
        return _free(found.behind[0], found.autoscalers, force)
    if found.others:
        return Unresolved(
            f"behind Service {name} in {where} is {_few(found.others)}, which cannot be scaled: "
            "wanted a Deployment, StatefulSet or ReplicaSet"
        )
    if not found.loose:
        return Unresolved(f"behind Service {name} in {where} is nothing: no workload and no pod carries its labels")
    if operation == "Add":
        return Unresolved(
            f"behind Service {name} in {where} are only pods that nothing makes ({_few(found.loose)}): they can be "
            "removed, not added; put them into a Deployment"
        )
    metadata = found.service.metadata
    return WorkloadRef(kind="Service", name=metadata.name, uid=metadata.uid)


def _free(candidate: Candidate, autoscalers: Sequence[Autoscaler], force: bool) -> WorkloadRef | Unresolved:
    """The workload, unless somebody else decides how many pods it has."""
    ref, owner = candidate.ref, candidate.workload.metadata.controller
    if owner is not None and owner.kind in WORKLOADS:
        return Unresolved(f"{ref.described()} belongs to {owner.kind} {owner.name}, which sets its size: name that one")
    if force:
        return ref
    for autoscaler in autoscalers:
        target = autoscaler.spec.scale_target_ref
        if (target.kind, target.name) == (ref.kind, ref.name) and target.api_version.partition("/")[0] == "apps":
            return Unresolved(
                f"{ref.described()} is scaled by HorizontalPodAutoscaler {autoscaler.metadata.name}, which would undo "
                "this: change its bounds, or say force: true",
                "force",
            )
    if owner is not None:
        return Unresolved(
            f"{ref.described()} belongs to {owner.kind} {owner.name}, which may undo this: change it there, or say "
            "force: true",
            "force",
        )
    return ref


def _listed(candidates: Sequence[Candidate]) -> str:
    return _few([candidate.ref.described() for candidate in candidates])


def _few(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


class Sight:
    """What one call reads of the cluster, each namespace's lists once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._workloads: dict[str, list[Candidate]] = {}
        self._autoscalers: dict[str, tuple[Autoscaler, ...]] = {}

    async def find(self, namespace: str, name: str) -> Found:
        named = await asyncio.gather(*(self._named(kind, namespace, name) for kind in WORKLOADS.values()))
        candidates = tuple(
            Candidate(kind, found) for kind, found in zip(WORKLOADS, named, strict=True) if found is not None
        )
        if candidates:
            return Found(named=candidates, autoscalers=await self._scalers(namespace))
        service = await self._client.find(SERVICES, name, namespace)
        if service is None or not service.spec.selector:
            return Found(service=service)
        return await self._behind(service)

    async def _named(self, kind: Kind[Workload], namespace: str, name: str) -> Workload | None:
        return await self._client.find(kind, name, namespace)

    async def _behind(self, service: Service) -> Found:
        namespace, selector = service.metadata.namespace, service.spec.selector or {}
        wanted = equal_to(selector)
        behind = [
            candidate
            for candidate in await self._all(namespace)
            if wanted.matches(candidate.workload.spec.template.metadata.labels)
        ]
        # A Deployment's own ReplicaSets are no workloads of their own.
        tops = [each for each in behind if not (each.kind == "ReplicaSet" and each.workload.metadata.controller)]
        known = {candidate.workload.metadata.uid for candidate in behind}
        loose, others = [], {}
        for pod in await loose_or_owned(self._client, namespace, selector):
            owner = pod.metadata.controller
            if owner is None:
                loose.append(pod.metadata.name)
            elif owner.uid not in known:
                others[owner.uid] = f"{owner.kind} {owner.name}"
        return Found(
            service=service,
            behind=tuple(tops),
            loose=tuple(loose),
            others=tuple(others.values()),
            autoscalers=await self._scalers(namespace),
        )

    async def _all(self, namespace: str) -> list[Candidate]:
        if namespace not in self._workloads:
            lists = await asyncio.gather(*(self._client.list(kind, namespace) for kind in WORKLOADS.values()))
            self._workloads[namespace] = [
                Candidate(kind, workload)
                for kind, workloads in zip(WORKLOADS, lists, strict=True)
                for workload in workloads
            ]
        return self._workloads[namespace]

    async def _scalers(self, namespace: str) -> tuple[Autoscaler, ...]:
        if namespace not in self._autoscalers:
            try:
                self._autoscalers[namespace] = tuple(await self._client.list(AUTOSCALERS, namespace))
            except NotFound:
                # A server without autoscaling has nobody to undo anything.
                self._autoscalers[namespace] = ()
        return self._autoscalers[namespace]


async def loose_or_owned(client: Client, namespace: str, selector: dict[str, str]) -> list[Thing]:
    """Every pod that a service selects and that is not finished."""
    wanted = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    pods = await client.list(PODS, namespace, query={"labelSelector": wanted})
    return [Thing(metadata=pod.metadata) for pod in pods if not pod.is_finished and not pod.is_terminating]


__all__ = ["Candidate", "Found", "Sight", "Unresolved", "loose_or_owned", "resolve"]
