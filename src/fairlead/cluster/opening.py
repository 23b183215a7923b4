"""The first contact with an API server, which may itself be starting.

Called by the composition root before any other call. A server that starts refuses connections, then answers
5xx, 401 and 403 while its authoriser reads the roles: all that is retried for a bounded time; then the error is
one sentence.
"""

import re
from dataclasses import dataclass
from typing import Final

import structlog

from fairlead.cluster.backoff import Backoff, Rng
from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import ApiError, ClusterError, ConfigurationError, Refused, Temporary
from fairlead.model.kinds import ServerVersion

log = structlog.get_logger("fairlead")

OLDEST_KUBERNETES: Final = (1, 30)
# A server that comes up is noticed soon.
PAUSE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long each is waited for. A server reads its roles within seconds of listening; machines boot in minutes."""

    refused_s: float = 60.0
    silent_s: float = 600.0
    # A server may call itself not ready for reasons that do not concern us: then Fairlead starts anyway after this.
    unready_s: float = 60.0


async def first_contact(
    client: Client,
    *,
    clock: Clock,
    rng: Rng,
    patience: Patience = Patience(),  # noqa: B008 - frozen
) -> ServerVersion:
    """The server's version once it answers and is ready; a ClusterError once waiting any longer is pointless."""
    version = await _version(client, clock, rng, patience)
    found = re.match(r"v?(\d+)\.(\d+)", version.git_version)
    if found and (int(found[1]), int(found[2])) < OLDEST_KUBERNETES:
        oldest = ".".join(map(str, OLDEST_KUBERNETES))
        raise ConfigurationError(f"the server is Kubernetes {version.git_version}; Fairlead needs {oldest} or newer")
    await _ready(client, clock, rng, patience.unready_s)
    return version


async def _version(client: Client, clock: Clock, rng: Rng, patience: Patience) -> ServerVersion:
    backoff = Backoff(rng, cap_s=PAUSE_S)
    started_s = clock.elapsed_s()
    refused_since_s: float | None = None
    while True:
        try:
            return await client.version()
        except Temporary as problem:
            refused_since_s = None
            await _pause(client, problem, backoff, clock, since_s=started_s, most_s=patience.silent_s)
        except Refused as problem:
            refused_since_s = clock.elapsed_s() if refused_since_s is None else refused_since_s
            await _pause(client, problem, backoff, clock, since_s=refused_since_s, most_s=patience.refused_s)


async def _pause(
    client: Client, problem: ApiError, backoff: Backoff, clock: Clock, *, since_s: float, most_s: float
) -> None:
    waited_s = clock.elapsed_s() - since_s
    if waited_s >= most_s:
        did = "refused us" if isinstance(problem, Refused) else "gave no answer"
        raise ClusterError(f"{client.described_as} {did} for {waited_s:.0f} s: {problem}") from problem
    retry_after_s = problem.retry_after_s if isinstance(problem, Temporary) else None
    delay_s = min(backoff.next_s(retry_after_s), most_s - waited_s)
    log.warning("no cluster yet", problem=str(problem), again_in_s=round(delay_s, 1))
    await clock.sleep(delay_s)


async def _ready(client: Client, clock: Clock, rng: Rng, most_s: float) -> None:
    """Until the server has read what it decides by: before, its roles and kinds may be there only in part."""
    backoff = Backoff(rng, cap_s=PAUSE_S)
    give_up_s = clock.elapsed_s() + most_s
    while True:
        try:
            await client.request("GET", "/readyz")
            return
        except Refused as problem:
            log.info("readiness unknown", problem=str(problem))
            return
        except Temporary as problem:
            left_s = give_up_s - clock.elapsed_s()
            if left_s <= 0:
                log.warning("the cluster is not ready; starting anyway", problem=str(problem))
                return
            delay_s = min(backoff.next_s(problem.retry_after_s), left_s)
            log.warning("cluster not ready yet", problem=str(problem), again_in_s=round(delay_s, 1))
            await clock.sleep(delay_s)
