"""The bytes of a request as a value: JSON as Go reads it, YAML as JSON has it, and neither too deep."""

import base64
import contextlib
import math
import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml

from fairlead.apiserver.failures import bad_request
from fairlead.apiserver.schema.shape import ParseError, parse

MAX_DEPTH: Final = 200


@dataclass(frozen=True, slots=True)
class Sent:
    """The body of a request: its value, and what decoding must know besides."""

    value: Any
    raw: bytes = b""
    """The bytes as they came, for a complaint that quotes them."""
    duplicates: tuple[str, ...] = ()
    """Fields that the body has more than once."""


def from_json(raw: bytes) -> Sent:
    check_depth(raw)
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        parsed = parse(raw)
        return Sent(parsed.value, raw, tuple(parsed.duplicates))
    return Sent(value, raw, tuple(parse(raw).duplicates) if _may_repeat_a_field(raw, value) else ())


def _may_repeat_a_field(raw: bytes, value: Any) -> bool:
    """Whether a field may be there twice: more colons follow quotes than there are fields."""
    return raw.count(b'":') + raw.count(b'" :') > _fields_in(value)


def _fields_in(value: Any) -> int:
    if type(value) is dict:
        return len(value) + sum(_fields_in(each) for each in value.values() if type(each) in (dict, list))
    if type(value) is list:
        return sum(_fields_in(each) for each in value if type(each) in (dict, list))
    return 0


def from_yaml(raw: bytes) -> Sent:
    check_depth(raw, is_json=False)
    return Sent(_yaml_value(raw), raw)


def _yaml_value(raw: bytes) -> Any:
    if raw.lstrip()[:1] in (b"{", b"["):
        # JSON is YAML, and mostly what is sent.
        with contextlib.suppress(ParseError):
            return parse(raw).value
    try:
        return _with_text_keys(yaml.load(raw, Loader=_Yaml))
    except yaml.MarkedYAMLError as problem:
        raise ParseError(f"yaml: {_go_yaml(problem)}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as problem:
        raise ParseError(f"yaml: {problem}") from None


# How PyYAML begins a complaint → how Go's parser words it.
_YAML_WORDS = (
    ("expected ',' or '}', but got", "did not find expected ',' or '}'"),
    ("expected ',' or ']', but got", "did not find expected ',' or ']'"),
    ("expected the node content, but found", "did not find expected node content"),
    ("mapping values are not allowed here", "mapping values are not allowed in this context"),
    ("sequence entries are not allowed here", "block sequence entries are not allowed in this context"),
    ("found character", "found character that cannot start any token"),
)


def _go_yaml(problem: yaml.MarkedYAMLError) -> str:
    message = problem.problem or ""
    if message.startswith("expected <block end>"):
        is_list = "sequence" in (problem.context or "") or "collection" in (problem.context or "")
        message = "did not find expected '-' indicator" if is_list else "did not find expected key"
    message = next((translated for start, translated in _YAML_WORDS if message.startswith(start)), message)
    line = 0
    for mark in (problem.context_mark, problem.problem_mark):
        if mark is not None and not line:
            # Go's parser is on a new line where the text ends.
            line = mark.line + (mark.buffer is not None and mark.pointer >= len(mark.buffer.rstrip("\0")))
    if line and isinstance(problem, yaml.scanner.ScannerError):
        line += 1
    return f"line {line}: {message}" if line else message


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key_text(key): _with_text_keys(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_text_keys(each) for each in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, set):
        return dict.fromkeys(map(_key_text, value))
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("numbers must be finite: NaN and Infinity are not valid JSON")
    return value


def _key_text(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)


class _Yaml(yaml.SafeLoader):
    """YAML as JSON has it: no dates, no aliases to unroll a small body into a huge one."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("YAML aliases are not supported: write the value out")
        return super().compose_node(parent, index)


_Yaml.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Yaml.bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}
_Yaml.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^[yYnN]$"), list("yYnN"))


def check_depth(raw: bytes, *, is_json: bool = True) -> None:
    """A few bytes of brackets must not cost a deep recursion."""
    if raw.count(b"{") + raw.count(b"[") <= MAX_DEPTH:
        return
    # Brackets inside of texts are no structure. In YAML a quote need not begin a text.
    deepest = _deepest(_TEXTS.sub(b"", raw) if is_json and b'"' in raw else raw)
    if deepest > MAX_DEPTH:
        raise bad_request(f"the body is nested too deeply: {deepest} levels, at most {MAX_DEPTH} are accepted")


# A string without an end goes on to the end of the body.
_TEXTS: Final = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)', re.DOTALL)


def _deepest(raw: bytes) -> int:
    depth = deepest = 0
    for byte in re.findall(rb"[\[{\]}]", raw):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest
