"""Strings with a format: quantities, times, bytes. Parsed and formatted as Go's types do it."""

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

# More than any quantity needs, and few enough to compute with.
LONGEST_QUANTITY: Final = 1000
_QUANTITY = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
QUANTITY_PROBLEM: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_SUFFIX_PROBLEM = "unable to parse quantity's suffix"
_NUMBER_PROBLEM = "unable to parse numeric part of quantity"
_DECIMAL_SUFFIX = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIX = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL_POWER = {suffix: power for power, suffix in _DECIMAL_SUFFIX.items()}
_LARGEST_BINARY = 2**63 - 1
_MOST_DIGITS = 18  # that surely fit into 64 bits

_SECONDS_LAYOUT = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_PLAIN_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z")
_TIME_STEPS = (
    (re.compile(r"\d{4}"), "2006"),
    (re.compile("-"), "-"),
    (re.compile(r"\d\d"), "01"),
    (re.compile("-"), "-"),
    (re.compile(r"\d\d"), "02"),
    (re.compile("T"), "T"),
    (re.compile(r"\d\d?"), "15"),
    (re.compile(":"), ":"),
    (re.compile(r"\d\d"), "04"),
    (re.compile(":"), ":"),
    (re.compile(r"\d\d"), "05"),
)
_FRACTION = re.compile(r"[.,]\d+")
_ZONE = re.compile(r"Z|([+-])(\d\d):(\d\d)")


class ScalarError(ValueError):
    """The text does not have the format; the message is the server's."""


@lru_cache(maxsize=65536)
def canonical_quantity(text: str) -> str:
    """`0.5` is `500m`, `1024Mi` is `1Gi`, `1000m` is `1`: as Kubernetes writes a quantity.

    It keeps what is short and looks canonical as it is (`1e30`, `+1`, `1.500`) and writes the rest anew.
    """
    if text == "0":
        return text
    form = _QUANTITY.fullmatch(text) if len(text) <= LONGEST_QUANTITY else None
    if not text or form is None:
        raise ScalarError(QUANTITY_PROBLEM)
    sign, whole, fraction, suffix = form[1], form[2].lstrip("0") or "0", form[3] or "", form[4]
    digits = whole + fraction
    if suffix in _BINARY_SUFFIX[1:]:
        power = _BINARY_SUFFIX.index(suffix)
        value = int(digits) * 1024**power
        is_short = not fraction and 14 - len(whole) - 3 * power >= 0
        if is_short and int(digits) % 8:
            return text
        if not (is_short or form[2] or fraction):
            raise ScalarError(_NUMBER_PROBLEM)
        return _binary(sign, value, len(fraction), is_short)
    is_exponent = suffix not in _DECIMAL_POWER
    scale = (_exponent(suffix) if is_exponent else _DECIMAL_POWER[suffix]) - len(fraction)
    if len(digits) <= _MOST_DIGITS and scale >= -9:
        if scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0":
            return text
    elif not (form[2] or fraction):
        raise ScalarError(_NUMBER_PROBLEM)
    elif scale < -9:
        digits, scale = str(-(-int(digits) // 10 ** min(-9 - scale, len(digits)))), -9
    return _decimal(sign, digits, scale, is_exponent)


def _exponent(suffix: str) -> int:
    try:
        parsed = int(suffix[1:]) if suffix[:1] in ("e", "E") else None
    except ValueError:
        parsed = None
    if parsed is None or not -(2**63) <= parsed < 2**63:
        raise ScalarError(_SUFFIX_PROBLEM)
    return (parsed + 2**31) % 2**32 - 2**31  # Go keeps the lower 32 bits


def _binary(sign: str, value: int, places: int, is_short: bool) -> str:
    """`value` is that many decimal places too large."""
    unit = 10**places
    if not is_short:
        if value * 10**9 % unit:
            value, unit = -(-value * 10**9 // unit), 10**9
        value, unit = (_LARGEST_BINARY, 1) if value > _LARGEST_BINARY * unit else (value, unit)
    if value < 1024 * unit or value % unit:
        return _decimal(sign, str(value), -(len(str(unit)) - 1), False)
    amount, power = value // unit, 0
    while amount % 1024 == 0 and power < len(_BINARY_SUFFIX) - 1:
        amount //= 1024
        power += 1
    return f"{'-' if sign == '-' else ''}{amount}{_BINARY_SUFFIX[power]}"


def _decimal(sign: str, digits: str, scale: int, is_exponent: bool) -> str:
    kept = digits.lstrip("0").rstrip("0")
    if not kept:
        return "0"
    scale += len(digits) - len(digits.rstrip("0"))
    kept += "0" * (scale % 3)
    scale -= scale % 3
    # Too large for a suffix: a real server drops the suffix as well.
    suffix = (f"e{scale}" if scale else "") if is_exponent else _DECIMAL_SUFFIX.get(scale, "")
    return f"{'-' if sign == '-' else ''}{kept}{suffix}"


@lru_cache(maxsize=4096)
def canonical_time(text: str) -> str:
    """RFC 3339 in UTC, whole seconds."""
    plain = _PLAIN_TIME.fullmatch(text)
    if plain is None:
        return _read_time(text, _SECONDS_LAYOUT).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
    _read_time(text, _SECONDS_LAYOUT)
    return text


@lru_cache(maxsize=4096)
def canonical_micro_time(text: str) -> str:
    """RFC 3339 in UTC with exactly six digits after the second."""
    return _read_time(text, _MICRO_LAYOUT).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def _read_time(text: str, layout: str) -> datetime:
    def refuse(rest: str, expected: str) -> ScalarError:
        return ScalarError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{expected}"')

    numbers: list[int] = []
    at = 0
    for step, expected in _TIME_STEPS:
        found = step.match(text, at)
        if found is None:
            raise refuse(text[at:], expected)
        if expected.isdigit():
            numbers.append(int(found[0]))
        at = found.end()
    fraction = _FRACTION.match(text, at)
    micro = layout == _MICRO_LAYOUT
    if micro and (fraction is None or len(fraction[0]) != 7):
        raise refuse(text[at:], ".000000")
    digits = fraction[0][1:7].ljust(6, "0") if fraction else "0"
    at = fraction.end() if fraction else at
    zone = _ZONE.match(text, at)
    if zone is None:
        raise refuse(text[at:], "Z07:00")
    if zone.end() != len(text):
        raise ScalarError(f'parsing time "{text}": extra text: "{text[zone.end() :]}"')
    limits = {"month": 12, "day": 31, "hour": 23, "minute": 59, "second": 59}
    for value, (name, limit) in zip(numbers[1:], limits.items(), strict=True):
        if value > limit or (value == 0 and name in ("month", "day")):
            raise ScalarError(f'parsing time "{text}": {name} out of range')
    try:
        moment = datetime(*numbers, int(digits), tzinfo=UTC)  # type: ignore[misc,arg-type]
        if zone[1]:
            shift = timedelta(hours=int(zone[2]), minutes=int(zone[3]))
            moment += -shift if zone[1] == "+" else shift
    except (ValueError, OverflowError):
        raise ScalarError(f'parsing time "{text}": day out of range') from None
    return moment


def check_base64(text: str) -> str:
    """The text as Go writes the bytes it stands for; line breaks inside are dropped."""
    clean = text.replace("\r", "").replace("\n", "")
    try:
        base64.b64decode(clean, validate=True)
    except (binascii.Error, ValueError):
        raise ScalarError(f"illegal base64 data at input byte {_base64_fault(clean)}") from None
    return clean


def _base64_fault(text: str) -> int:
    """Where Go stops: at the wrong character, at the start of a group cut short, or behind padding that is complete."""
    wrong = re.search(r"[^A-Za-z0-9+/]", text)
    if wrong is None:
        return len(text) // 4 * 4
    at = wrong.start()
    if wrong[0] != "=" or at % 4 < 2:
        return at
    end = at + 4 - at % 4
    return at if text[at + 1 : end].strip("=") else min(end, len(text))
