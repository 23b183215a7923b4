"""Writes of a leader: one that could not be sent because another process leads ends the round."""

from collections.abc import Sequence

from fairlead.cluster.errors import NotLeader
from fairlead.cluster.writer import Outcome, Result, Writer
from fairlead.model.intents import Intent


async def write(writer: Writer, intent: Intent) -> Result:
    result = await writer.carry_out(intent)
    if result.outcome is Outcome.NOT_LEADER:
        raise NotLeader(str(result.error))
    return result


async def write_all(writer: Writer, intents: Sequence[Intent]) -> None:
    results = await writer.carry_out_all(intents)
    if any(result.outcome is Outcome.NOT_LEADER for result in results):
        raise NotLeader("the lease has run out")
