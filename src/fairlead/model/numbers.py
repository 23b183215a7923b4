"""Whole numbers as objects hold them, bounded where they are read.

Users can write any digits into an annotation, a label or a field: what this module returns fits into the
arrays, and reading it takes no longer than reading the text.
"""

import re
from typing import Annotated, Final

from msgspec import Meta

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

# ASCII alone: Python also takes other scripts' digits, blanks and underscores for a number.
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")


def whole_number(text: str, least: int, most: int) -> int | None:
    """The number the text spells; None where it spells none, or one out of bounds."""
    if _WHOLE.fullmatch(text) is None:
        return None
    number = int(text)
    return number if least <= number <= most else None


def index_ranges(text: str, most: int = 2**31 - 1) -> list[tuple[int, int]]:
    """`0,2-4` → (0, 0), (2, 4), ascending and apart; parts that are no indexes are left out.

    As ranges, because a few characters may name thousands of millions of indexes.
    """
    found: list[tuple[int, int]] = []
    for part in text.split(",") if text else ():
        start, _, end = part.partition("-")
        first, last = whole_number(start, 0, most), whole_number(end or start, 0, 2**63)
        if first is not None and last is not None and first <= last:
            found.append((first, min(last, most)))
    apart: list[tuple[int, int]] = []
    for first, last in sorted(found):
        if apart and first <= apart[-1][1] + 1:
            apart[-1] = apart[-1][0], max(last, apart[-1][1])
        else:
            apart.append((first, last))
    return apart
