"""Which workload a service name means.

The Deployment, StatefulSet or ReplicaSet of that name; else the single workload behind the Service of that name; else
the bare pods behind it. Anything else is refused with a sentence that names what was found. `ClusterLookup` reads the
cluster, `resolve` decides.
"""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.errors import NotFound, Refused
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject
from fairlead.model.selectors import equal_to
from fairlead.model.workloads import Service
from fairlead.placement.requests.spec import (
    AUTOSCALERS,
    UNSCALABLE,
    WORKLOADS,
    Autoscaler,
    Operation,
    Workload,
    WorkloadRef,
)
from fairlead.placement.spec import PODS, SERVICES


class Candidate(msgspec.Struct, frozen=True):
    kind: str
    workload: Workload

    @property
    def ref(self) -> WorkloadRef:
        metadata = self.workload.metadata
        return msgspec.convert({"kind": self.kind, "name": metadata.name, "uid": metadata.uid}, WorkloadRef)


class LookupResult(msgspec.Struct, frozen=True):
    """What the cluster holds under a name in a namespace."""

    named: tuple[Candidate, ...] = ()
    service: Service | None = None
    # Looked for only where nothing has the name itself, or the Service selects something else.
    behind: tuple[Candidate, ...] = ()
    # Pods behind the service that none of those makes: of nobody, and of something else, by its name.
    loose: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    autoscalers: tuple[Autoscaler, ...] = ()
    # Of another kind, looked for where there is no Service either.
    unscalable: Kind[ApiObject] | None = None


class Unresolved(msgspec.Struct, frozen=True):
    """No single workload is meant; the sentence says what to do. `field` is the field to blame."""

    sentence: str
    field: str = "serviceName"


def resolve(
    found: LookupResult, operation: Operation, name: str, namespace: str, *, force: bool
) -> WorkloadRef | Unresolved:
    where = f"namespace {namespace}"
    if len(found.named) > 1:
        return Unresolved(f"{name} in {where} is several: {_listed(found.named)}; rename or use their Services")
    if found.named:
        return _free(found.named[0], found.autoscalers, force)
    if found.service is None and found.unscalable is not None:
        kind = found.unscalable.kind
        return Unresolved(f"{kind} {name} in {where} cannot be scaled: {UNSCALABLE[kind][1]}")
    if found.service is None:
        return Unresolved(
            f"there is no Deployment, StatefulSet, ReplicaSet or Service {name} in {where}: check the two names"
        )
    if not found.service.spec.selector:
        return Unresolved(f"Service {name} in {where} selects no pods by labels: name the workload instead")
    if len(found.behind) > 1 or (found.behind and (found.loose or found.others)):
        what = [*(candidate.ref.described() for candidate in found.behind), *found.others]
        what += [f"Pod {pod}" for pod in found.loose]
        return Unresolved(f"behind Service {name} in {where} are several: {_few(what)}; name one of them")
    if found.behind:
        return _free(found.behind[0], found.autoscalers, force)
    if found.others:
        return Unresolved(
            f"behind Service {name} in {where} is {_few(found.others)}, which cannot be scaled: "
            "only a Deployment, StatefulSet or ReplicaSet can"
        )
    if not found.loose:
        return Unresolved(f"behind Service {name} in {where} is nothing: no workload and no pod carries its labels")
    if operation == "Add":
        return Unresolved(
            f"behind Service {name} in {where} are only bare pods, without a controller ({_few(found.loose)}): they "
            "can be removed, not added; put them into a Deployment"
        )
    metadata = found.service.metadata
    return WorkloadRef(kind="Service", name=metadata.name, uid=metadata.uid)


def other_service(found: LookupResult, workload: WorkloadRef) -> str:
    """What to warn of where the Service of the same name leads to other pods than the workload that is changed."""
    service = found.service
    if not found.named or service is None or not service.spec.selector or _selects(service, found.named[0]):
        return ""
    behind = _listed(found.behind) or "no workload"
    return (
        f"{workload.described()} is changed, but Service {service.metadata.name} of the same name selects other pods: "
        f"behind it is {behind}"
    )


def _selects(service: Service, candidate: Candidate) -> bool:
    return equal_to(service.spec.selector or {}).matches(candidate.workload.spec.template.metadata.labels)


def _free(candidate: Candidate, autoscalers: Sequence[Autoscaler], force: bool) -> WorkloadRef | Unresolved:
    """The workload, unless another controller sets its replicas."""
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
                "this: change its bounds, or send force: true",
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


class ClusterLookup:
    """What one call reads of the cluster, each namespace's lists once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._workloads: dict[str, list[Candidate]] = {}
        self._autoscalers: dict[str, tuple[Autoscaler, ...]] = {}

    async def find(self, namespace: str, name: str) -> LookupResult:
        named = await asyncio.gather(*(self._named(kind, namespace, name) for kind in WORKLOADS.values()))
        candidates = tuple(
            Candidate(kind, found) for kind, found in zip(WORKLOADS, named, strict=True) if found is not None
        )
        service = await self._client.find(SERVICES, name, namespace)
        if candidates:
            found = LookupResult(named=candidates, service=service, autoscalers=await self._scalers(namespace))
            if service is not None and service.spec.selector and not _selects(service, candidates[0]):
                behind = await self._candidates_behind(service)
                found = msgspec.structs.replace(found, behind=_tops(behind))
            return found
        if service is None:
            return LookupResult(unscalable=await self._unscalable(namespace, name))
        if not service.spec.selector:
            return LookupResult(service=service)
        return await self._behind(service)

    async def _unscalable(self, namespace: str, name: str) -> Kind[ApiObject] | None:
        for kind, _ in UNSCALABLE.values():
            try:
                if await self._client.find(kind, name, namespace) is not None:
                    return kind
            except Refused:
                continue  # not allowed to read it, or the server does not have the kind
        return None

    async def _candidates_behind(self, service: Service) -> list[Candidate]:
        return [each for each in await self._all(service.metadata.namespace) if _selects(service, each)]

    async def _named(self, kind: Kind[Workload], namespace: str, name: str) -> Workload | None:
        return await self._client.find(kind, name, namespace)

    async def _behind(self, service: Service) -> LookupResult:
        namespace, query = service.metadata.namespace, selecting(service.spec.selector or {})
        behind = await self._candidates_behind(service)
        known = {candidate.workload.metadata.uid for candidate in behind}
        loose, others = [], {}
        for pod in await self._client.list(PODS, namespace, query=query):
            owner = pod.metadata.controller
            if pod.is_finished or pod.is_terminating:
                continue
            if owner is None:
                loose.append(pod.metadata.name)
            elif owner.uid not in known:
                others[owner.uid] = f"{owner.kind} {owner.name}"
        return LookupResult(
            service=service,
            behind=_tops(behind),
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


def _tops(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Without a Deployment's own ReplicaSets, which are no workloads of their own."""
    return tuple(each for each in candidates if not (each.kind == "ReplicaSet" and each.workload.metadata.controller))


def selecting(labels: Mapping[str, str]) -> dict[str, str]:
    """The query of a list of what has these labels."""
    return {"labelSelector": ",".join(f"{key}={value}" for key, value in sorted(labels.items()))}
