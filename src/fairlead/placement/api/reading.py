"""Reading the table for an answer over HTTP: 503 while it cannot be, with a time to ask again."""

from collections.abc import Callable
from typing import TypeVar

from fairlead.placement.loop import Loop
from fairlead.placement.table_handle import TableHandle
from fairlead.placement.table_work import TableBusy
from fairlead.web.problems import Problem

T = TypeVar("T")


async def read_table(loop: Loop, work: Callable[[TableHandle], T]) -> T:
    """Have work done that leaves the table as it was; a standby answers, too."""
    problem = loop.problem()
    if problem is not None:
        raise Problem(503, "Unavailable", f"not yet: {problem}", retry_after_s=2.0)
    try:
        return await loop.run_on_table(work, reading=True)
    except TableBusy as full:
        raise Problem(503, "Unavailable", str(full), retry_after_s=1.0) from None
