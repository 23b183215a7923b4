"""Regular expressions as Kubernetes has them: Go's, which are RE2's. They take time in proportion to the text alone."""

from functools import lru_cache
from typing import Any, Final

import re2

_MEMORY_BYTES: Final = 8 << 20
_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = _MEMORY_BYTES


# Message of RE2 → message of Go's regexp.
_IN_GO: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "unexpected )",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "trailing \\": "trailing backslash at end of expression",
}


class BadPattern(ValueError):
    """Not a regular expression; the message is Go's."""


@lru_cache(maxsize=1024)
def compiled(text: str) -> Any:
    """With `search` and `finditer`, as `re` has them."""
    try:
        return re2.compile(text, _OPTIONS)
    except (re2.error, UnicodeEncodeError) as problem:
        message = problem.args[0]
        text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        what, _, where = text.partition(": ")
        raise BadPattern(f"{_IN_GO.get(what, what)}: `{where}`") from None
