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

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:([KMGTPE]i)|([eE][+-]?\d+)|([numkMGTPE]?))")


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
    digits = int((whole or "0") + (fraction or ""))
    scale = -len(fraction or "")
    if binary:
        numerator, power = digits * _BINARY[binary], scale + 9
    else:
        power = scale + 9 + (int(exponent[1:]) if exponent else _DECIMAL[suffix or ""])
        numerator = digits
    # pow() of a negative exponent would be a float, so the two cases are kept apart.
    value: int = numerator * 10**power if power >= 0 else -(-numerator // 10**-power)
    return -value if sign == "-" else value


def whole(billionths: int) -> int:
    """Rounded up to whole units, within 64 bits."""
    return min(-(-billionths // NANO), LARGEST)


def milli(billionths: int) -> int:
    """Rounded up to thousandths, within 64 bits."""
    return min(-(-billionths // NANOS_PER_MILLI), LARGEST)
