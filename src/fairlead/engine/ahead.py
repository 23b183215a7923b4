"""When and where a unit that does not fit now would fit, as far as it is known when others end.

Used for the unit at the head of the line: its nodes are kept for it, and what ends before may use them meanwhile.
"""

import msgspec

from fairlead.engine.gang import Gangs
from fairlead.engine.statement import Statement
from fairlead.engine.unit import Unit
from fairlead.model.outcome import Placed


class Expectation(msgspec.Struct, frozen=True):
    places: tuple[Placed, ...]
    # Unix time.
    at_s: float


def expect(gangs: Gangs, unit: Unit, now_s: float) -> Expectation | None:
    """The earliest end of others after which the unit has room for its minimum; None where none is known to help.

    `now_s` is Unix time. Units that have not started count from now on; those that are overdue, as ending now. The
    table is left as it was.
    """
    standing = gangs.standing
    ends = sorted(
        (max(end_s, now_s), key)
        for key, other in standing.units.items()
        if key != unit.key and (end_s := _end_s(other, now_s)) is not None
    )
    least = msgspec.structs.replace(unit, most=0)
    statement = Statement(gangs.table)

    def fits(ended: int) -> list[Placed]:
        statement.rollback()
        for _, key in ends[:ended]:
            for _, occupant in standing.occupants(standing.units[key]):
                statement.remove(occupant)
        return gangs.fit(least, statement)[0] if gangs.may_fit(least) else []

    try:
        if not ends or not fits(len(ends)):
            return None
        few, enough = 0, len(ends)
        while enough - few > 1:
            middle = (few + enough) // 2
            few, enough = (few, middle) if fits(middle) else (middle, enough)
        places = fits(enough)
        return Expectation(tuple(places), ends[enough - 1][0]) if places else None
    finally:
        statement.rollback()


def _end_s(unit: Unit, now_s: float) -> float | None:
    if unit.ends_at_s is not None:
        return unit.ends_at_s
    return None if unit.run_s is None else now_s + unit.run_s
