"""The kube-scheduler extender: filter, prioritize and preempt over HTTP, on an address of its own.

kube-scheduler has no bearer token to show, only a client certificate, so this is not part of the API that tokens
guard: it listens on loopback, or wants a certificate of the configured authority in a configured name. Nothing can be
changed through it.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import structlog
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Histogram

from fairlead.cluster.clock import Clock
from fairlead.engine.cycle import Cycle
from fairlead.model.quantity import QuantityError
from fairlead.placement.api.reading import read_table
from fairlead.placement.extender import (
    BadQuestion,
    Question,
    cleared,
    filtered,
    is_as_sent,
    prioritised,
    read_clearance,
    read_question,
    with_sent,
)
from fairlead.placement.history import Former
from fairlead.placement.loop import Loop
from fairlead.placement.table_handle import TableHandle
from fairlead.settings import BadSettings, ExtenderSettings, TlsSettings
from fairlead.web.bodies import whole_body
from fairlead.web.probes import served
from fairlead.web.problems import Problem
from fairlead.web.tls import ServingCertificate

log = structlog.get_logger("fairlead.extender")

T = TypeVar("T")

# Five thousand whole nodes with fifty images each, when they are sent.
MOST_BYTES: Final = 128 << 20
BODY_S: Final = 5.0
_BUCKETS = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 3)


class Extender:
    def __init__(
        self, loop: Loop, *, clock: Clock, registry: CollectorRegistry, profile: str = "", names: Sequence[str] = ()
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._profile = profile
        # Common names of certificates that may ask; none where no certificate is wanted.
        self._names = frozenset(names)
        self._rebuilding = asyncio.Semaphore(1)
        self._calls = Counter(
            "fairlead_extender_requests_total",
            "Questions of kube-scheduler by verb and result: ok, refused, error.",
            ["verb", "result"],
            registry=registry,
        )
        self._seconds = Histogram(
            "fairlead_extender_duration_seconds",
            "Time to answer kube-scheduler.",
            ["verb"],
            buckets=_BUCKETS,
            registry=registry,
        )

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/extender/filter", self.filter),
            web.post("/extender/prioritize", self.prioritize),
            web.post("/extender/preempt", self.preempt),
        ]

    async def filter(self, request: web.Request) -> web.Response:
        """Always 200: what goes wrong is in `Error`, as kube-scheduler expects it."""

        async def answer() -> dict[str, Any]:
            question = read_question(await self._body(request))
            result = await self._on_nodes(
                request, question, lambda cycle: filtered(cycle, question.pod, question.names)
            )
            failed: dict[str, Any] = {
                "FailedNodes": result.failed,
                "FailedAndUnresolvableNodes": result.unresolvable,
                "Error": "",
            }
            if question.sent is None:
                return {"NodeNames": result.passed, **failed}
            return {"Nodes": {"metadata": {}, "items": [question.sent[name] for name in result.passed]}, **failed}

        return await self._answered("filter", answer, lambda problem: ({"Error": str(problem)}, 200))

    async def prioritize(self, request: web.Request) -> web.Response:
        async def answer() -> list[dict[str, Any]]:
            question = read_question(await self._body(request))
            scores = await self._on_nodes(
                request, question, lambda cycle: prioritised(cycle, question.pod, question.names)
            )
            return [{"Host": name, "Score": score} for name, score in scores.items()]

        return await self._answered("prioritize", answer, _refusal)

    async def preempt(self, request: web.Request) -> web.Response:
        async def answer() -> dict[str, Any]:
            clearance = read_clearance(await self._body(request))
            name = self._profile_name(request)
            kept = await read_table(self._loop, lambda handle: cleared(self._cycle(handle, name), clearance))
            return {
                "NodeNameToMetaVictims": {
                    node: {"Pods": [{"UID": uid} for uid in victims], "NumPDBViolations": clearance.violations[node]}
                    for node, victims in kept.items()
                }
            }

        return await self._answered("preempt", answer, _refusal)

    # -- the snapshot ----------------------------------------------------------------------------------------------

    async def _on_nodes(self, request: web.Request, question: Question, work: Callable[[Cycle], T]) -> T:
        """The answer by our own mirror; by the nodes that were sent where those are others."""
        name = self._profile_name(request)
        nodes = question.nodes

        def here(handle: TableHandle) -> tuple[T] | Former:
            cycle = self._cycle(handle, name)
            if is_as_sent(handle.table, nodes):
                return (work(cycle),)
            return handle.history.present([question.pod])

        found = await read_table(self._loop, here)
        if isinstance(found, tuple):
            return found[0]
        profile = (await read_table(self._loop, lambda handle: self._cycle(handle, name))).profile
        async with self._rebuilding:
            return await asyncio.to_thread(lambda: work(with_sent(found, nodes, profile)))

    def _profile_name(self, request: web.Request) -> str:
        return request.query.get("profile", self._profile)

    def _cycle(self, handle: TableHandle, name: str) -> Cycle:
        cycle = handle.cycle(name) if name else next(iter(handle.cycles.values()))
        if cycle is None:
            raise BadQuestion(f"profile: no profile is called {name!r}; there are {', '.join(handle.cycles)}")
        return cycle

    # -- requests -----------------------------------------------------------------------------------------------

    async def _answered(
        self, verb: str, answer: Callable[[], Any], refusal: Callable[[Exception], tuple[Any, int]]
    ) -> web.Response:
        started_s = self._clock.elapsed_s()
        result, status = "ok", 200
        try:
            body = await answer()
        except web.HTTPForbidden:
            self._calls.labels(verb, "refused").inc()
            raise
        except (BadQuestion, Problem) as problem:
            result = "error"
            body, status = refusal(problem)
            log.warning("no answer for kube-scheduler", verb=verb, problem=str(problem))
        except QuantityError as problem:
            # Read late, by the rules: our own objects come from a server that has checked them.
            result = "error"
            body, status = refusal(BadQuestion(f"the pod or a node that was sent: {problem}"))
        except Exception:
            # Our bug: the trace is for our log, the caller hears that there is one.
            log.exception("bug in an extender's answer", verb=verb)
            result = "error"
            body, status = refusal(Problem(500, "InternalError", "internal error; the reason is in Fairlead's log"))
        self._calls.labels(verb, result).inc()
        self._seconds.labels(verb).observe(self._clock.elapsed_s() - started_s)
        return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")

    async def _body(self, request: web.Request) -> bytes:
        if self._names:
            name = _common_name(request)
            if name not in self._names:
                message = f"the client certificate must have the name {', '.join(sorted(self._names))}, not {name!r}"
                raise web.HTTPForbidden(text=message)
        return await whole_body(request, MOST_BYTES, BODY_S)


def _refusal(problem: Exception) -> tuple[Any, int]:
    if isinstance(problem, Problem):
        return problem.failure, problem.status
    return Problem(400, "BadRequest", str(problem)).failure, 400


def _common_name(request: web.Request) -> str:
    certificate = request.get_extra_info("peercert") or {}
    pairs = [pair for part in certificate.get("subject", ()) for pair in part]
    return next((value for key, value in pairs if key == "commonName"), "")


@asynccontextmanager
async def extending(
    loop: Loop, settings: ExtenderSettings, tls: TlsSettings, *, clock: Clock, registry: CollectorRegistry
) -> AsyncIterator[str]:
    """The extender on its own address while the block runs; yields its URL, empty when none is configured."""
    if not settings.listen:
        yield ""
        return
    pair = None
    if settings.client_ca:
        pair = ServingCertificate(Path(tls.certificate), Path(tls.key))
        pair.context.verify_mode = ssl.CERT_REQUIRED
        try:
            pair.context.load_verify_locations(cafile=settings.client_ca)
        except (OSError, ssl.SSLError) as problem:
            raise BadSettings(f"extender.clientCa: {settings.client_ca} holds no certificates: {problem}") from None
    names = settings.client_names if settings.client_ca else ()
    extender = Extender(loop, clock=clock, registry=registry, profile=settings.profile, names=names)
    host, _, port = settings.listen.rpartition(":")
    context = pair.context if pair else None
    async with served(extender.routes(), host.strip("[]"), int(port), context, setting="extender.listen") as bound:
        renewing = asyncio.create_task(pair.follow(clock), name="extender's certificate") if pair else None
        try:
            yield f"{'https' if pair else 'http'}://{bound[0]}:{bound[1]}/extender"
        finally:
            if renewing is not None:
                renewing.cancel()
                await asyncio.gather(renewing, return_exceptions=True)
