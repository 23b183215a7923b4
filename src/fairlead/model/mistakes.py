"""What is wrong with a document, in the words of its manifest: the field, what is there, and what may be."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

_MESSAGE: Final = re.compile(r"(?s)(.*?)(?: - at `(?:key in )?\$(.*)`)?")
_MISSING: Final = re.compile(r"Object missing required field `(.+)`")
_TYPE: Final = re.compile(r"Expected `([^`]+)`(?:, got `([^`]+)`)?(.*)")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
}
_BOUNDS: Final = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
LONGEST_SHOWN: Final = 60
LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def sentence(
    problem: msgspec.ValidationError, document: Any, root: str, choices: Mapping[str, Sequence[str]] = {}
) -> str:
    """`choices`: by the field's path, without indexes, the values that are allowed."""
    match = _MESSAGE.fullmatch(str(problem))
    text, path = (match[1], match[2] or "") if match is not None else (str(problem), "")
    field = f"{root}{path}"
    if missing := _MISSING.fullmatch(text):
        return f"{field}.{missing[1]}: is required"
    value = _value(document, path)
    if allowed := choices.get(re.sub(r"\[.*?\]", "", field)):
        return not_one_of(field, value, allowed)
    expected = _TYPE.fullmatch(text)
    if expected is None:
        return f"{field}: {text}"
    kinds = " or ".join(_WORDS.get(each, each) for each in expected[1].split(" | ") if each != "null")
    return f"{field}: must be {kinds}{_bound(expected[3])}, got {shown(value)}"


def not_one_of(field: str, value: Any, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(value).lower(), [each.lower() for each in allowed], 1, 0.5)
    hint = next((f"; did you mean {each}?" for each in allowed if near and each.lower() == near[0]), "")
    return f"{field}: {shown(value)} is not one of {', '.join(allowed)}{hint}"


def _bound(text: str) -> str:
    if text == f" matching regex {LABEL!r}":
        return " of lower-case letters, digits and '-', as in DNS names"
    found = re.fullmatch(r"( of length)? (>=|<=|>|<) (\S+)", text)
    if found is None:
        return text
    return f" with {_BOUNDS[found[2]]} {found[3]} items" if found[1] else f", {_BOUNDS[found[2]]} {found[3]}"


def _value(document: Any, path: str) -> Any:
    """What is at that path, as far as it can be followed."""
    for name, index in _STEP.findall(path):
        try:
            document = document[name] if name else document[int(index)]
        except (KeyError, IndexError, TypeError):
            return document
    return document


def shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"
