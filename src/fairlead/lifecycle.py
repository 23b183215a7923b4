"""How capabilities start, lead, stand by and stop.

Called by the composition roots. On a stop, work in hand gets a grace period, then queued events are sent, then the
lease is released, and a replica's own lease removed; a standby has no work in hand and stops at once.
"""

import asyncio
import contextlib
import errno
import resource
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from fairlead.cluster.clock import Clock
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.waits import started
from fairlead.runtime import Capability, Opener, Runtime, member_lease

log = structlog.get_logger("fairlead")

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, None]]

# On a stop, work in hand gets this long to finish.
GRACE_S: Final = 10.0
# Then queued events are sent, for this long.
FLUSH_S: Final = 5.0
# More than one address of a client can open; children that close every number up to the limit are not slowed down.
MOST_FILES: Final = 65_536
FULL_EVERY_S: Final = 10.0


async def run_until_stopped(
    opener: Opener, capabilities: Mapping[str, Capability], leases: Sequence[Runtime], drain_s: float = 0.0
) -> None:
    """Every capability follows; under each lease those that lead by it do so while it is held.

    For `drain_s` after a stop, servers go on, with current mirrors.
    """
    members = [each for each in capabilities.values() if type(each).work is not Capability.work]
    async with asyncio.TaskGroup() as tasks:
        mirrors = tasks.create_task(opener.mirrors.run(), name="mirrors")
        following = [tasks.create_task(each.follow(), name=f"{name}: follow") for name, each in capabilities.items()]
        holding = [
            tasks.create_task(_hold(runtime, _leads_of(runtime, capabilities)), name=f"lease {runtime.lease.name}")
            for runtime in leases
        ]
        if members:
            name = member_lease(opener.settings.lease.name, opener.identity)
            member = await opener.under(name, removed_when_released=True)
            work = {each.name: partial(each.work, member) for each in members}
            holding.append(tasks.create_task(_hold(member, work), name="member lease"))
        stopping = tasks.create_task(_stopped_at_s(opener), name="stop")
        await asyncio.wait(holding)
        await opener.clock.sleep(max(0.0, await stopping + drain_s - opener.clock.elapsed_s()))
        for task in (mirrors, *following):
            task.cancel()


async def _stopped_at_s(opener: Opener) -> float:
    await opener.stop.wait()
    return opener.clock.elapsed_s()


def _leads_of(runtime: Runtime, capabilities: Mapping[str, Capability]) -> dict[str, Work]:
    return {name: each.lead for name, each in capabilities.items() if each.runtime.lease.name == runtime.lease.name}


async def _hold(runtime: Runtime, works: Mapping[str, Work]) -> None:
    """Hold one lease whenever it is free, and do what is done under it, until stopped."""

    async def lead() -> None:
        async with asyncio.TaskGroup() as tasks:
            recording = tasks.create_task(runtime.record_events(), name="recorder")
            working = [tasks.create_task(work(), name=name) for name, work in works.items()]
            await runtime.stop.wait()
            log.info("stopping", grace_s=GRACE_S, lease=runtime.lease.name)
            if working:
                _, unfinished = await asyncio.wait(working, timeout=GRACE_S)
                if names := sorted(task.get_name() for task in unfinished):
                    about = {"capabilities": names, "grace_s": GRACE_S, "lease": runtime.lease.name}
                    log.warning("not finished within the grace period, cancelled", **about)
            await flushed(runtime.recorder)
            await asyncio.wait([recording], timeout=1.0)
            for task in (recording, *working):
                task.cancel()

    def grace_s() -> float:
        # A standby has nothing in hand, and would wait for its turn for ever.
        return GRACE_S + FLUSH_S + 2.0 if runtime.lease.is_open() else 0.0

    await until_stopped(runtime.lease.run(lead), runtime.stop, grace_s)


async def flushed(recorder: Recorder) -> None:
    """Send the queued events, as far as the time allows, and no more after that."""
    lost = await recorder.flush(FLUSH_S)
    if lost:
        log.warning("events not sent", events=lost)
    recorder.stop()


async def until_stopped(
    work: Awaitable[T], stop: asyncio.Event, grace_s: Callable[[], float] = lambda: 0.0
) -> T | None:
    """What the work returns, or None if it was stopped first and did not end by itself within the grace."""
    running = asyncio.ensure_future(work)
    async with started(running, stop.wait()) as tasks:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and (seconds := grace_s()):
            await asyncio.wait([running], timeout=seconds)
        return running.result() if running.done() else None


def raise_file_limit() -> None:
    """As many open files as the system allows, as programs in Go take: at the usual 1,024 a stranger who opens as many
    connections and sends nothing would keep everybody out."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def report_full(clock: Clock) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """An exception handler of a loop that logs once a while that no connection can be accepted. asyncio by itself logs
    each try, a hundred thousand lines a second."""
    last_s = -FULL_EVERY_S

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last_s
        problem = context.get("exception")
        if not (isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE)):
            loop.default_exception_handler(context)
        elif clock.elapsed_s() - last_s >= FULL_EVERY_S:
            last_s = clock.elapsed_s()
            log.error("too many open files: new connections wait; raise the limit (ulimit -n)", problem=str(problem))

    return handle


@contextlib.contextmanager
def stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and Ctrl-C stop gracefully; a second one cancels."""
    loop, main = asyncio.get_running_loop(), asyncio.current_task()

    def on_signal() -> None:
        if stop.is_set() and main is not None:
            main.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
