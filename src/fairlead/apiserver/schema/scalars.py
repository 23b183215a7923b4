"""Texts with a meaning of their own: quantities, times, bytes. Read and written anew as Go's types do it."""

import base64
import binascii
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from fairlead.model.quantity import NANO, QuantityError, nanos

_QUANTITY = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE]?)")
_QUANTITY_PROBLEM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_DECIMAL_SUFFIX = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIX = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

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
    """The text is not what it should be; the message is the server's."""


@lru_cache(maxsize=65536)
def canonical_quantity(text: str) -> str:
    """`0.5` is `500m`, `1024Mi` is `1Gi`, `1000m` is `1`: the one way Kubernetes writes a quantity."""
    form = _QUANTITY.fullmatch(text)
    if form is None:
        raise ScalarError(_QUANTITY_PROBLEM)
    try:
        value = nanos(text)
    except QuantityError:
        raise ScalarError(_QUANTITY_PROBLEM) from None
    suffix = form[1]
    if suffix.endswith("i") and not -1024 * NANO < value < 1024 * NANO:
        return _binary(value)
    return _decimal(value, exponent_form=suffix[:1] in ("e", "E") and len(suffix) > 1)


def _binary(value: int) -> str:
    whole = -(-value // NANO) if value > 0 else value // NANO
    power = 0
    while whole and whole % 1024 == 0 and power < len(_BINARY_SUFFIX) - 1:
        whole //= 1024
        power += 1
    return f"{whole}{_BINARY_SUFFIX[power]}"


def _decimal(value: int, exponent_form: bool) -> str:
    if value == 0:
        return "0"
    power = -9
    while value % 1000 == 0 and power < 18:
        value //= 1000
        power += 3
    if exponent_form:
        return f"{value}e{power}" if power else str(value)
    return f"{value}{_DECIMAL_SUFFIX[power]}"


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
    def refuse(rest: str, wanted: str) -> ScalarError:
        return ScalarError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{wanted}"')

    numbers: list[int] = []
    at = 0
    for step, wanted in _TIME_STEPS:
        found = step.match(text, at)
        if found is None:
            raise refuse(text[at:], wanted)
        if wanted.isdigit():
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
    wrong = re.search(r"[^A-Za-z0-9+/]", text)
    at = wrong.start() if wrong else len(text)
    if wrong and wrong[0] != "=":
        return at
    return at // 4 * 4 if at == len(text) and at % 4 == 1 else min(at, len(text))
