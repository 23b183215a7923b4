"""Kubernetes quantities as exact integers.

Everything that reads a manifest calls `nanos` once per text and reckons in billionths from then on, so that sums are
exact and rounding happens where Kubernetes rounds: once, upwards, when a whole or milli value is taken.
"""

import re
from functools import lru_cache

# What a quantity may be in JSON or YAML: the API server always writes text, people also write numbers.
Quantity = str | int | float

NANO = 10**9
NANOS_PER_MILLI = 10**6
LARGEST = 2**63 - 1
# Beyond this many billionths every quantity is alike: a few letters such as 1e999999999 must not cost hours, and what
# is reckoned from it still fits into a float.
MOST_NANOS = 10**280

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([KMGTPE]i)|([eE][+-]?[0-9]+)|([numkMGTPE]?))")


class QuantityError(ValueError):
    """The text is not a quantity."""


@lru_cache(maxsize=65536)
def nanos(quantity: Quantity) -> int:
    """The quantity in billionths; anything finer is rounded away from zero, as the API server does."""
    text = str(quantity).strip()
    form = _FORM.fullmatch(text)
    if form is None or not (form[2] or form[3]):
        raise QuantityError(f"{quantity!r} is not a quantity such as 500m, 2, 1.5 or 4Gi")
    sign, whole, fraction, binary, exponent, suffix = form.groups()
    digits = ((whole or "") + (fraction or "")).lstrip("0")
    power = 9 - len(fraction or "")
    if not binary:
        power += _exponent(exponent[1:]) if exponent else _DECIMAL[suffix or ""]
    value = _scaled(digits, power, _BINARY.get(binary, 1))
    return -value if sign == "-" else value


def _exponent(text: str) -> int:
    """Twelve digits are more than enough to be beyond all bounds."""
    size = int(text.lstrip("+-").lstrip("0")[:12] or "0")
    return -size if text.startswith("-") else size


def _scaled(digits: str, power: int, unit: int) -> int:
    """digits × unit × 10^power, rounded up; nothing is reckoned that is too large or too small to matter."""
    if not digits:
        return 0
    if len(digits) + power > 280:
        return MOST_NANOS
    if len(digits) + power < -20:
        return 1
    digits, cut = digits[:1000], digits[1000:]  # what is cut off lies behind the point
    numerator, power = int(digits) * unit, power + len(cut)
    # pow() of a negative exponent would be a float, so the two cases are kept apart.
    value: int = numerator * 10**power if power >= 0 else -(-numerator // 10**-power)
    return min(value, MOST_NANOS)


def whole(billionths: int) -> int:
    """Rounded up to whole units, within 64 bits."""
    return min(-(-billionths // NANO), LARGEST)


def milli(billionths: int) -> int:
    """Rounded up to thousandths, within 64 bits."""
    return min(-(-billionths // NANOS_PER_MILLI), LARGEST)
