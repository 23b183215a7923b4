"""Kubernetes quantities as exact integers.

Everything that reads a manifest calls `nanos` once per text and computes in billionths from then on, so that sums are
exact and rounding happens where Kubernetes rounds: once, upwards, when a whole or milli value is taken.
"""

import re
from functools import lru_cache
from typing import Any

# What a quantity may be in JSON or YAML: the API server always writes text, people also write numbers.
Quantity = str | int | float

NANO = 10**9
NANOS_PER_MILLI = 10**6
LARGEST = 2**63 - 1
# In billionths. Whatever is larger counts as this: exact far beyond 64 bits, and quick to compute with.
MOST = 10**60
_MOST_DIGITS = 60
_MOST_KEPT = 64

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([KMGTPE]i)|([eE][+-]?[0-9]+)|([numkMGTPE]?))")


class QuantityError(ValueError):
    """The text is not a quantity."""


def nanos(quantity: Quantity) -> int:
    """The quantity in billionths; anything finer is rounded away from zero, as the API server does."""
    # Long ones are rare, and caching them would fill the memory.
    return _kept(quantity) if not isinstance(quantity, str) or len(quantity) <= _MOST_KEPT else _read(quantity)


def is_quantity(value: Any) -> bool:
    try:
        nanos(value)
    except (QuantityError, TypeError):
        return False
    return True


def _read(quantity: Quantity) -> int:
    if isinstance(quantity, int):
        return max(-MOST, min(MOST, quantity * NANO))
    form = _FORM.fullmatch(str(quantity).strip())
    if form is None or not (form[2] or form[3]):
        raise QuantityError(f"{_shown(quantity)} is not a quantity such as 500m, 2, 1.5 or 4Gi")
    sign, whole, fraction, binary, exponent, suffix = form.groups()
    power = 9 + (_exponent(exponent) if exponent else _DECIMAL[suffix or ""])
    value = _scaled(whole or "", fraction or "", power, _BINARY[binary] if binary else 1)
    return -value if sign == "-" else value


_kept = lru_cache(maxsize=65536)(_read)


def _scaled(whole: str, fraction: str, power: int, factor: int) -> int:
    """`whole.fraction` times ten to the power, times the factor, rounded up; at most MOST.

    As 0.digits times ten to the `point`, so that numbers of any length are compared before they are worked out.
    """
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + power
    if not digits:
        return 0
    if point > _MOST_DIGITS + 1:
        return MOST
    if point < -_MOST_DIGITS:
        return 1
    kept = digits[: 2 * _MOST_DIGITS]
    numerator, finer = int(kept) * factor, bool(digits[len(kept) :].strip("0"))
    shift = point - len(kept)
    # pow() of a negative exponent would be a float, so the two cases are kept apart.
    power_of_ten: int = 10 ** abs(shift)
    if shift >= 0:
        return min(MOST, numerator * power_of_ten)
    value, over = divmod(numerator, power_of_ten)
    return min(MOST, value + bool(over or finer))


def _exponent(text: str) -> int:
    """Of `e9`, `E-3`; one of many digits is as good as any other that large."""
    digits = text[1:].lstrip("+-").lstrip("0")
    size = int(digits) if 0 < len(digits) <= 6 else 10**6 if digits else 0
    return -size if text[1] == "-" else size


def _shown(quantity: Quantity) -> str:
    text = repr(quantity)
    return text if len(text) <= 80 else f"{text[:77]}..."


def whole(billionths: int) -> int:
    """Rounded up to whole units, within 64 bits."""
    return min(-(-billionths // NANO), LARGEST)


def milli(billionths: int) -> int:
    """Rounded up to thousandths, within 64 bits."""
    return min(-(-billionths // NANOS_PER_MILLI), LARGEST)
