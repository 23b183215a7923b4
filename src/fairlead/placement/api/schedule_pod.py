"""POST /schedulePod and the read side: requests for more or fewer pods, accepted once they are durable.

Any replica may accept: all it takes is the API server, where the request is written down before the caller hears of
it. Carrying it out is the leader's (`placement/requests`).
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import Meta

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import AlreadyExists, Unavailable
from fairlead.cluster.mirror import Mirror
from fairlead.model.meta import Condition
from fairlead.model.numbers import whole_number
from fairlead.model.times import rfc3339_micro
from fairlead.placement.api.schedule_pod_body import CheckedItem, Parsed, ScheduleBody, invalid, parse_body
from fairlead.placement.explanation import PlaceReason
from fairlead.placement.requests.reasons import read_reason
from fairlead.placement.requests.resolve import ClusterLookup, Unresolved, other_service, resolve
from fairlead.placement.requests.spec import (
    GROUP,
    SCHEDULE_REQUESTS,
    VERSION,
    WORKLOADS,
    Item,
    ItemStatus,
    Phase,
    Replicas,
    RequestSpec,
    ScheduleRequest,
    VictimScores,
    WorkloadRef,
)
from fairlead.web.guard import Action, Guard, User
from fairlead.web.problems import RETRY_S, FieldProblem, Problem, from_cluster
from fairlead.web.routes import Answer, Call, Route

MOST_KEY: Final = 200
FULL_RETRY_S: Final = 10.0
MOST_LISTED: Final = 500
# How long a caller waits for us to have read what there is.
SYNC_S: Final = 3.0
# Items resolved at the same time.
LOOKING: Final = 8
PHASES: Final[tuple[str, ...]] = get_args(Phase)


class Accepted(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The request is in the queue, durably; follow it with GET /schedulePod/{requestId}."""

    is_succeed: bool
    request_id: str
    replayed: Annotated[bool, Meta(description="The same request was accepted before, under the same key.")] = False
    warnings: Annotated[
        tuple[str, ...] | msgspec.UnsetType, Meta(description="Accepted, and possibly not what the caller meant.")
    ] = msgspec.UNSET


class PlaceView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pod to come: the reserved node, and what became of it."""

    reserved_node: str = ""
    score: float = 0
    pod: str = ""
    node: str = ""
    note: str = ""
    reason: PlaceReason | None = None


class VictimView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A pod to go; `guaranteed` where Kubernetes lets a pod be named."""

    pod: str
    node: str = ""
    score: float = 0
    scores: VictimScores | None = None
    why: str = ""
    guaranteed: bool = False
    gone: bool = False
    note: str = ""


class ItemView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One item: what was requested, what was decided and why, and how far it is."""

    operation: Literal[1, 2]
    namespace: str
    service_name: str
    number: int
    workload: str
    phase: Phase
    message: str = ""
    force: bool = False
    replicas: Replicas | None = None
    added: int = 0
    removed: int = 0
    shortfall: int = 0
    places: tuple[PlaceView, ...] = ()
    victims: tuple[VictimView, ...] = ()
    gone_instead: tuple[str, ...] = ()
    scheduler: str = ""
    planned_at: str = ""
    acted_at: str = ""


class RequestView(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A request and how far it is: Accepted, Waiting, Planned, Scaled; Done, Partial or Failed when it is finished."""

    is_succeed: bool
    request_id: str
    phase: Phase
    message: str = ""
    user: str = ""
    accepted_at: str = ""
    finished_at: str = ""
    added: int = 0
    removed: int = 0
    items: tuple[ItemView, ...] = ()
    conditions: tuple[Condition, ...] = ()
    warnings: tuple[str, ...] = ()


class RequestSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A request in one line."""

    request_id: str
    phase: Phase
    summary: str
    message: str = ""
    user: str = ""
    accepted_at: str = ""
    finished_at: str = ""
    added: int = 0
    removed: int = 0


class RequestList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the caller may see, newest first; `total` counts those left off as well."""

    is_succeed: bool
    total: int
    requests: tuple[RequestSummary, ...]


class SchedulePod:
    def __init__(
        self,
        mirror: Mirror[ScheduleRequest],
        *,
        client: Client,
        namespace: str,
        clock: Clock,
        new_id: Callable[[], str],
        most_waiting: int = 1000,
        most_number: int = 1000,
    ) -> None:
        self._mirror = mirror
        self._client = client
        self._namespace = namespace
        self._clock = clock
        self._new_id = new_id
        self._most_waiting = most_waiting
        self._most_number = most_number

    def routes(self) -> list[Route]:
        example = {
            "podList": [
                {"operation": 1, "namespace": "shop", "serviceName": "web", "number": "3"},
                {"operation": 2, "namespace": "shop", "serviceName": "batch", "number": "2"},
            ]
        }
        return [
            Route(
                "POST",
                "/schedulePod",
                self.post,
                "Ask for more or fewer pods of services",
                "Everything is accepted or nothing is. The answer says that the request is in the queue, not that it "
                "is done: ask for it by its `requestId`.\n\nThe caller needs `patch` on every workload meant.",
                takes=ScheduleBody,
                gives={202: Accepted},
                headers={
                    "Idempotency-Key": "Of your choice: the same key with the same body is the same request, however "
                    "often it is sent."
                },
                example=example,
                changes=True,
            ),
            Route(
                "GET",
                "/schedulePod",
                self.get_all,
                "The requests you may see",
                "Your own; all of them if you may `list` `schedulerequests.fairlead.io`.",
                gives={200: RequestList},
                query={"phase": "only those in this phase", "limit": f"so many, up to {MOST_LISTED}"},
            ),
            Route(
                "GET",
                "/schedulePod/{requestId}",
                self.get,
                "One request: what was decided, where, why, and how far it is",
                gives={200: RequestView},
                parameters={"requestId": "As POST gave it."},
                query={
                    "explain": "`true` tells why each place is on its node, and how the node of each victim scored."
                },
            ),
        ]

    # -- asking -----------------------------------------------------------------------------------------------

    async def post(self, call: Call) -> Answer:
        key = call.headers.get("Idempotency-Key", "").strip()
        if len(key) > MOST_KEY:
            raise Problem(422, "Invalid", f"Idempotency-Key: must be up to {MOST_KEY} characters, not {len(key)}")
        parsed = parse_body(call.body, self._most_number)
        if not parsed.named:
            raise invalid(parsed.problems, parsed.count)
        digest = _digest(list(parsed.items.values()))
        if key and not parsed.problems and (known := await self._known(_keyed(call.user, key), digest)) is not None:
            return known
        await self._check_room()
        assert call.guard is not None, "the route is not public"
        items, warnings = await self._items(parsed, call.user, call.guard)
        name = _keyed(call.user, key) if key else f"sr-{self._new_id()}"
        return await self._create(name, call.user, items, warnings, digest, is_keyed=bool(key))

    async def _known(self, name: str, digest: str) -> Answer | None:
        """The answer to a key that was used before."""
        found = await self._client.find(SCHEDULE_REQUESTS, name, self._namespace)
        if found is None:
            return None
        if found.spec.digest != digest:
            message = "Idempotency-Key: this key was used for another request: take another one"
            raise Problem(422, "KeyReused", message, request_id=name)
        return _accepted(name, found.spec.warnings, replayed=True)

    async def _check_room(self) -> None:
        await self._check_known()
        count = sum(1 for request in self._mirror if not request.is_finished)
        if count >= self._most_waiting:
            message = f"the queue is full: {count} requests are not finished"
            raise Problem(503, "QueueFull", message, retry_after_s=FULL_RETRY_S)

    async def _check_known(self) -> None:
        if not self._mirror.is_synced and self._mirror.problem is None:
            # Just started: a caller who comes at once waits a moment rather than being sent away.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SYNC_S):
                    await self._mirror.wait_synced()
        if self._mirror.is_synced and not self._mirror.is_absent:
            return
        why = f": {self._mirror.problem}" if self._mirror.problem else ""
        message = (
            "the requests there are have not been read yet; if this lasts, apply deploy/crds and "
            f"deploy/rbac/requests.yaml{why}"
        )
        raise Problem(503, "Unavailable", message, retry_after_s=RETRY_S)

    async def _items(self, parsed: Parsed, user: User, guard: Guard) -> tuple[list[Item], list[str]]:
        """Each item with the workload it means, and what to warn of; the caller may change every one of them.

        All problems of all items are in one answer.
        """
        lookup, slots = ClusterLookup(self._client), asyncio.Semaphore(LOOKING)
        warnings: list[str] = []

        async def look(index: int, each: CheckedItem) -> tuple[int, WorkloadRef | Unresolved | None]:
            async with slots:
                return index, await self._resolve(each, lookup, user, guard, warnings)

        found = await asyncio.gather(*(look(index, each) for index, each in parsed.named.items()))
        problems, forbidden = list(parsed.problems), []
        items: list[Item] = []
        same: dict[str, dict[int, CheckedItem]] = {}
        for index, target in found:
            if index in parsed.items and isinstance(target, WorkloadRef):
                same.setdefault(target.uid, {})[index] = parsed.items[index]
        for index, target in found:
            each = parsed.named[index]
            if target is None:
                message = (
                    f"{user.username} may not change the pods of service {each.service_name} in namespace "
                    f"{each.namespace}: patch on its workload is needed"
                )
                forbidden.append(FieldProblem(index=index, field="serviceName", message=message))
                continue
            if isinstance(target, Unresolved):
                problems.append(FieldProblem(index=index, field=target.field, message=target.sentence))
                continue
            if index not in parsed.items:
                continue  # what is wrong with it is known already
            if next(iter(same[target.uid])) != index:
                message = _same_workload(same[target.uid], index, target)
                problems.append(FieldProblem(index=index, field="serviceName", message=message))
                continue
            items.append(
                Item(
                    operation=each.operation,
                    namespace=each.namespace,
                    service_name=each.service_name,
                    number=each.number,
                    force=each.force,
                    workload=target,
                )
            )
        if forbidden:
            raise Problem(403, "Forbidden", f"rejected: {forbidden[0].message}", errors=[*forbidden, *problems])
        if problems:
            raise invalid(problems, parsed.count)
        return items, sorted(set(warnings))

    async def _resolve(
        self, item: CheckedItem, lookup: ClusterLookup, user: User, guard: Guard, warnings: list[str]
    ) -> WorkloadRef | Unresolved | None:
        """None when the caller may not: also for a name that means nothing, unless they may look around there."""
        found = await lookup.find(item.namespace, item.service_name)
        target = resolve(found, item.operation, item.service_name, item.namespace, force=item.force)
        of_service = Action("get", "services", "", item.namespace, item.service_name)
        if isinstance(target, WorkloadRef):
            if not await guard.allows(user, _needed(target, item.namespace)):
                return None
            warning = other_service(found, target)
            if warning and await guard.allows(user, of_service):
                warnings.append(warning)
            return target
        look = of_service
        kind = WORKLOADS[found.named[0].kind] if found.named else found.unscalable
        if kind is not None:
            look = Action("get", kind.plural, kind.group, item.namespace, item.service_name)
        return target if await guard.allows(user, look) else None

    async def _create(
        self, name: str, user: User, items: Sequence[Item], warnings: Sequence[str], digest: str, *, is_keyed: bool
    ) -> Answer:
        spec = RequestSpec(
            warnings=tuple(warnings),
            user=user.username,
            accepted_at=rfc3339_micro(self._clock.now()),
            items=tuple(items),
            summary=_summary(items),
            digest=digest,
        )
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": SCHEDULE_REQUESTS.kind,
            "metadata": {"name": name, "namespace": self._namespace},
            "spec": spec,
        }
        try:
            await self._client.create(SCHEDULE_REQUESTS, body, self._namespace)
        except AlreadyExists:
            # Another request with the same key was first; or our own create succeeded after all.
            known = await self._known(name, digest)
            if known is None:
                message = "the request was deleted while it was being created; send it again"
                raise Problem(503, "Unavailable", message, retry_after_s=RETRY_S) from None
            return known if is_keyed else _accepted(name, spec.warnings)
        except Unavailable as trouble:
            if not trouble.may_have_happened:
                raise
            if await self._client.find(SCHEDULE_REQUESTS, name, self._namespace) is None:
                answer = from_cluster(trouble)
                message = f"it is not known yet whether this was accepted; ask for {name}. {answer.failure.message}"
                raise Problem(503, "Unavailable", message, retry_after_s=RETRY_S, request_id=name) from trouble
        return _accepted(name, spec.warnings)

    # -- reading ----------------------------------------------------------------------------------------------

    async def get(self, call: Call) -> Answer:
        name = call.parameters["requestId"]
        # Straight from the server: whoever just posted must find it.
        if not _is_name(name):
            raise Problem(404, "NotFound", "there is no such request: that is no name of one")
        found = await self._client.find(SCHEDULE_REQUESTS, name, self._namespace)
        if found is None or not await self._may_see(call, found):
            raise Problem(404, "NotFound", f"there is no request {name[:100]} for you to see")
        return Answer(view(found, explain=_explain(call.query.get("explain", ""))))

    async def get_all(self, call: Call) -> Answer:
        await self._check_known()
        limit = _limit(call.query.get("limit", str(MOST_LISTED)))
        assert call.guard is not None, "the route is not public"
        sees_all = await call.guard.allows(call.user, self._action("list"))
        phase = _phase(call.query.get("phase", ""))
        seen = [
            request
            for request in self._mirror
            if (sees_all or request.spec.user == call.user.username) and phase in ("", request.status.phase)
        ]
        seen.sort(key=lambda request: request.arrival, reverse=True)
        shown = tuple(_summed_up(request) for request in seen[:limit])
        return Answer(RequestList(is_succeed=True, total=len(seen), requests=shown))

    async def _may_see(self, call: Call, request: ScheduleRequest) -> bool:
        if request.spec.user == call.user.username:
            return True
        assert call.guard is not None, "the route is not public"
        return await call.guard.allows(call.user, self._action("get", request.name))

    def _action(self, verb: str, name: str = "") -> Action:
        return Action(verb, SCHEDULE_REQUESTS.plural, GROUP, self._namespace, name)


def view(request: ScheduleRequest, *, explain: bool = False) -> RequestView:
    """A request as callers see it; with the reasons of its places and the scores of its victims if asked for."""
    both = zip(request.spec.items, request.item_statuses, strict=True)
    items = tuple(_item_view(item, status, explain) for item, status in both)
    fields = _fields_of(RequestView, request.spec, request.status)
    return RequestView(**(fields | {"is_succeed": True, "request_id": request.name, "items": items}))


def _item_view(item: Item, status: ItemStatus, explain: bool) -> ItemView:
    places = tuple(
        PlaceView(
            reserved_node=place.node,
            score=place.score,
            pod=place.pod,
            node=place.bound_to,
            note=place.note,
            reason=read_reason(place, status) if explain else None,
        )
        for place in status.places
    )
    victims = (VictimView(**_fields_of(VictimView, each)) for each in status.victims)
    others = {
        "operation": 2 if item.is_removal else 1,
        "workload": f"{item.workload.kind}/{item.workload.name}",
        "places": places,
        "victims": tuple(each if explain else msgspec.structs.replace(each, scores=None) for each in victims),
    }
    return ItemView(**(_fields_of(ItemView, item, status) | others))


def _summed_up(request: ScheduleRequest) -> RequestSummary:
    fields = _fields_of(RequestSummary, request.spec, request.status)
    return RequestSummary(**(fields | {"request_id": request.name}))


def _fields_of(view: type[msgspec.Struct], *sources: msgspec.Struct) -> dict[str, Any]:
    """The fields of a view that a source has under the same name."""
    names = view.__struct_fields__
    return {name: getattr(source, name) for source in sources for name in names if hasattr(source, name)}


def _accepted(name: str, warnings: Sequence[str] = (), *, replayed: bool = False) -> Answer:
    shown: tuple[str, ...] | msgspec.UnsetType = tuple(warnings) or msgspec.UNSET
    accepted = Accepted(is_succeed=True, request_id=name, replayed=replayed, warnings=shown)
    return Answer(accepted, 202, headers={"Location": f"/schedulePod/{name}"})


def _same_workload(same: Mapping[int, CheckedItem], index: int, workload: WorkloadRef) -> str:
    """Several items about one workload: one request changes it once, so what to ask for instead of all of them."""
    item, others = same[index], [f"podList[{at}] {_verb(each)}" for at, each in same.items() if at != index]
    sums = sum(each.number if each.operation == "Add" else -each.number for each in same.values())
    instead = f"one item that {'adds' if sums > 0 else 'removes'} {abs(sums)}"
    if not sums:
        instead = f"{'neither' if len(same) == 2 else 'none of them'}: they undo each other"
    listed = " and ".join((", ".join(others[:-1]), others[-1])) if len(others) > 1 else others[0]
    return (
        f"{listed} pods of {workload.described()} and this {_verb(item)}; a workload is changed once by a request: "
        f"ask for {instead}"
    )


def _verb(item: CheckedItem) -> str:
    return f"{'adds' if item.operation == 'Add' else 'removes'} {item.number}"


def _needed(workload: WorkloadRef, namespace: str) -> Action:
    """What the caller must be allowed to do to ask for this."""
    if workload.kind == "Service":
        return Action("create", "pods", "", namespace, subresource="eviction")
    return Action("patch", WORKLOADS[workload.kind].plural, "apps", namespace, workload.name)


def _keyed(user: User, key: str) -> str:
    """The name a key stands for: the same key of the same user is the same object on every replica."""
    return f"sr-{_hashed(user.username, key)[:32]}"


def _digest(items: Sequence[CheckedItem]) -> str:
    return _hashed(msgspec.json.encode(list(items)).decode())


def _hashed(*parts: str) -> str:
    # Lengths keep ("ab", "c") apart from ("a", "bc").
    return hashlib.sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def _summary(items: Sequence[Item]) -> str:
    shown = [f"{'-' if item.is_removal else '+'}{item.number} {item.namespace}/{item.service_name}" for item in items]
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")


def _is_name(name: str) -> bool:
    return len(name) <= 253 and all(part.isalnum() for part in name.replace(".", "-").split("-")) and name.isascii()


def _phase(given: str) -> str:
    if given in ("", *PHASES):
        return given
    raise Problem(422, "Invalid", f"phase: must be one of {', '.join(PHASES)}, not {given[:20]!r}")


def _explain(given: str) -> bool:
    if given in ("", "true", "1", "false", "0"):
        return given in ("true", "1")
    raise Problem(422, "Invalid", f"explain: must be true or false, not {given[:20]!r}")


def _limit(given: str) -> int:
    if (limit := whole_number(given, 1, MOST_LISTED)) is not None:
        return limit
    raise Problem(422, "Invalid", f"limit: must be a whole number from 1 to {MOST_LISTED}, not {given[:20]!r}")
