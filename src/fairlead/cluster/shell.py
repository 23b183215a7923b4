"""The shell of a reconciling controller: see, plan, hand over.

Each kind brings two functions: `see` reads the mirrors, `plan` is pure. The shell waits until our own earlier
writes are seen, hands the intents to the writer, makes pods in growing batches so that a refusal is met by one
request and not by a thousand, and records an event only if the intent before it was carried out.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.controller import Controller, TemporaryError, owner_key
from fairlead.cluster.errors import ApiError, NotLeader
from fairlead.cluster.expectations import Expectations, MirrorLookup
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.mirror import Delta, Mirror
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.model.intents import Create, Intent, RecordEvent, WakeAfter, event
from fairlead.model.kinds import NAMESPACES, Kind
from fairlead.model.meta import ObjectMeta
from fairlead.model.owners import is_adoption
from fairlead.model.selectors import Selector

S = TypeVar("S")

# When to look whether our writes have arrived, should no delta tell us.
SETTLE_S = 1.0
# Kubernetes' own bound on how many pods one look may make or delete.
BURST = 500


@dataclass(frozen=True, slots=True)
class ShellContext:
    """What the controllers of a room are built from."""

    mirrors: MirrorLookup
    reader: Client
    writer: Writer
    clock: Clock
    metrics: Metrics
    problems: dict[str, str]  # controller and key → why the last create was refused

    def controller(
        self,
        kind: Kind[Any],
        see: Callable[[str], S | None],
        plan: Callable[[S, datetime], list[Intent]],
        *,
        name: str = "",
    ) -> Controller:
        async def planned(key: str) -> list[Intent]:
            seen = see(key)
            return [] if seen is None else plan(seen, self.clock.now())

        return self.live_controller(kind, planned, name=name)

    def live_controller(
        self, kind: Kind[Any], plan: Callable[[str], Awaitable[list[Intent]]], *, name: str = "", workers: int = 4
    ) -> Controller:
        """For the few that must read the living server and not only the mirrors."""
        shell = Shell(self, name or kind.plural, kind)

        async def reconcile(key: str) -> WakeAfter | None:
            if not await shell.expectations.is_settled(key):
                return WakeAfter(seconds=SETTLE_S)
            return await shell.hand_over(key, await plan(key))

        return Controller(shell.name, reconcile, clock=self.clock, metrics=self.metrics, workers=workers)

    def problem(self, kind: Kind[Any], key: str) -> str:
        return self.problems.get(f"{kind.plural} {key}", "")


class Shell:
    def __init__(self, context: ShellContext, name: str, kind: Kind[Any]) -> None:
        self.name = name
        self.expectations = Expectations(context.mirrors, context.reader, context.clock)
        self._context = context
        self._kind = kind

    async def hand_over(self, key: str, intents: Sequence[Intent]) -> WakeAfter | None:
        wakes = [intent for intent in intents if isinstance(intent, WakeAfter)]
        pairs = _with_their_events([intent for intent in intents if not isinstance(intent, WakeAfter)])
        pairs = [pair for pair in pairs if not self._is_too_late(pair[0])]
        pairs = await self._without_late_adoptions(key, pairs)
        results = await self._carry_out(key, [pair for pair in pairs if not isinstance(pair[0], Create)])
        results += await self._create(key, [pair for pair in pairs if isinstance(pair[0], Create)])
        await self._judge(key, results)
        return min(wakes, key=lambda wake: wake.seconds, default=None)

    def _is_too_late(self, intent: Intent) -> bool:
        """Nothing can be made in a namespace that is going; to ask would only be refused."""
        namespaces = self._context.mirrors.find(NAMESPACES)
        if not isinstance(intent, Create) or namespaces is None:
            return False
        home = namespaces.get(intent.namespace)
        return home is not None and home.metadata.deletion_timestamp is not None

    async def _carry_out(self, key: str, pairs: Sequence["Pair"]) -> list[Result]:
        results = await self._context.writer.carry_out_all([intent for intent, _ in pairs])
        for result, (_, events) in zip(results, pairs, strict=True):
            self.expectations.enter(key, result)
            if result.is_done:
                await self._context.writer.carry_out_all(events)
        return results

    async def _create(self, key: str, pairs: Sequence["Pair"]) -> list[Result]:
        results: list[Result] = []
        batch = 1
        while pairs and all(result.is_done for result in results):
            results += await self._carry_out(key, pairs[:batch])
            pairs, batch = pairs[batch:], 2 * batch
        return results

    async def _without_late_adoptions(self, key: str, pairs: list["Pair"]) -> list["Pair"]:
        """An owner that is being deleted elsewhere must not take in what is just being set free."""
        owner = self._owner(key)
        if owner is None or not any(is_adoption(intent, owner.metadata.uid) for intent, _ in pairs):
            return pairs
        metadata: ObjectMeta = owner.metadata
        living = await self._context.reader.find(self._kind, metadata.name, metadata.namespace)
        if living is not None and living.metadata.uid == metadata.uid and not living.metadata.deletion_timestamp:
            return pairs
        raise TemporaryError("the owner is going: nothing is adopted")

    def _owner(self, key: str) -> Any:
        mirror = self._context.mirrors.find(self._kind)
        return None if mirror is None else mirror.get(key)

    async def _judge(self, key: str, results: Iterable[Result]) -> None:
        problem: TemporaryError | None = None
        entry = f"{self.name} {key}"
        refused = ""
        for result in results:
            match result.outcome:
                case Outcome.NOT_LEADER:
                    raise NotLeader(str(result.error))
                case Outcome.CONFLICT | Outcome.FAILED | Outcome.EXISTS:
                    problem = TemporaryError(str(result.error))
                case Outcome.REFUSED:
                    if isinstance(result.intent, Create):
                        if _is_namespace_going(result.error):
                            continue
                        refused = await self._report_refusal(key, result)
                    problem = TemporaryError(str(result.error))
        if refused:
            self._context.problems[entry] = refused
        else:
            self._context.problems.pop(entry, None)
        if problem is not None:
            raise problem

    async def _report_refusal(self, key: str, result: Result) -> str:
        owner = self._owner(key)
        message = result.error.status.message if isinstance(result.error, ApiError) else str(result.error)
        if owner is not None:
            note = f"Error creating: {message}"
            failed_create = event(self._kind, owner.metadata, "FailedCreate", note, warning=True)
            await self._context.writer.carry_out(failed_create)
        return message


Pair = tuple[Intent, list[RecordEvent]]


def _with_their_events(intents: Iterable[Intent]) -> list[Pair]:
    pairs: list[Pair] = []
    for intent in intents:
        if isinstance(intent, RecordEvent) and pairs:
            pairs[-1][1].append(intent)
        else:
            pairs.append((intent, []))
    return pairs


def _is_namespace_going(error: Exception | None) -> bool:
    return isinstance(error, ApiError) and any(cause.reason == "NamespaceTerminating" for cause in error.causes)


def claimed_keys(
    owners: Mirror[Any], selector_of: Callable[[Any], Selector | None]
) -> Callable[[Delta[Any]], Iterable[str]]:
    """Whose business a thing is: its controller's, before and now; of one without, whoever would claim it."""
    kind = owners.kind

    def keys(delta: Delta[Any]) -> Iterable[str]:
        found: set[str] = set()
        for metadata in _before_and_now(delta):
            controller = metadata.controller
            if controller is None:
                found |= _selecting(owners, selector_of, metadata)
            elif (key := owner_key(kind, metadata, controller)) is not None:
                found.add(key)
        return sorted(found)

    return keys


def selecting_keys(
    owners: Mirror[Any], selector_of: Callable[[Any], Selector | None]
) -> Callable[[Delta[Any]], Iterable[str]]:
    """Whose selector matches a thing, before and now, whoever controls it."""
    return lambda delta: sorted(
        {key for metadata in _before_and_now(delta) for key in _selecting(owners, selector_of, metadata)}
    )


def _before_and_now(delta: Delta[Any]) -> list[ObjectMeta]:
    return [thing.metadata for thing in (delta.old, delta.new) if thing is not None]


def _selecting(owners: Mirror[Any], selector_of: Callable[[Any], Selector | None], metadata: ObjectMeta) -> set[str]:
    return {
        owner.metadata.key
        for owner in owners.by("namespace", metadata.namespace)
        if (selector := selector_of(owner)) is not None and selector.matches(metadata.labels)
    }
