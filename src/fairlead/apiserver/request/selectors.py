"""Label and field selectors of a query: parsed once, matched against many entries."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.apiserver.failures import bad_request
from fairlead.apiserver.validation import names

_SPECIAL = "=!(),<>"


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "missing":
                return value is None
            case "gt" | "lt":
                if value is None or not re.fullmatch(r"-?\d+", value):
                    return False
                bound = int(self.values[0])
                return int(value) > bound if self.operator == "gt" else int(value) < bound
        raise AssertionError(self.operator)


def label_selector(text: str) -> tuple[Requirement, ...]:
    """`a=b, c!=d, e in (f,g), h, !i` → requirements, all of which must hold."""
    try:
        return tuple(_Parser(text).requirements())
    except _Unparsable as problem:
        raise bad_request(str(problem)) from None


class _Unparsable(Exception):
    pass


class _Parser:
    """Parses label selectors as Kubernetes does, with its error messages."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_tokens(text), ("end", "")]
        self._at = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            kind, literal = self._peek()
            if kind == "end":
                return found
            if kind not in ("word", "!"):
                raise _Unparsable(f"found '{literal}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except _Unparsable as problem:
                raise _Unparsable(f"unable to parse requirement: {problem}") from None
            kind, literal = self._next()
            if kind == "end":
                return found
            if kind != ",":
                raise _Unparsable(f"found '{literal}', expected: ',' or 'end of string'")
            kind, literal = self._peek()
            if kind not in ("word", "!"):
                raise _Unparsable(f"found '{literal}', expected: identifier after ','")

    def _peek(self) -> tuple[str, str]:
        kind, literal = self._tokens[self._at]
        return ("word" if kind in ("in", "notin") else kind), literal

    def _next(self) -> tuple[str, str]:
        found = self._peek()
        self._at += 1
        return found

    def _requirement(self) -> Requirement:
        kind, key = self._next()
        negated = kind == "!"
        if negated:
            kind, key = self._next()
        if kind != "word":
            raise _Unparsable(f"found '{key}', expected: identifier")
        if problems := names.qualified(key):
            raise _Unparsable(f'<nil>: Invalid value: "{key}": {"; ".join(problems)}')
        if negated or self._peek()[0] in ("end", ","):
            return Requirement(key, "missing" if negated else "exists")
        operator, literal = self._tokens[self._at]
        self._at += 1
        if operator not in ("in", "notin", "=", "==", "!=", ">", "<"):
            raise _Unparsable(f"found '{literal}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if operator in ("in", "notin") else [self._value()]
        for number, value in enumerate(values):
            where = f"values[{number}]"
            if operator in (">", "<") and not re.fullmatch(r"[+-]?\d+", value):
                why = "for 'Gt', 'Lt' operators, the value must be an integer"
                raise _Unparsable(f'{where}: Invalid value: "{value}": {why}')
            if problems := names.label_value(value):
                raise _Unparsable(f'{where}[{key}]: Invalid value: "{value}": {"; ".join(problems)}')
        canonical = {"!=": "notin", "notin": "notin", ">": "gt", "<": "lt"}.get(operator, "in")
        return Requirement(key, canonical, tuple(values))

    def _value(self) -> str:
        if self._peek()[0] in ("end", ","):
            return ""
        kind, literal = self._next()
        if kind != "word":
            raise _Unparsable(f"found '{literal}', expected: identifier")
        return literal

    def _values(self) -> list[str]:
        kind, literal = self._next()
        if kind != "(":
            raise _Unparsable(f"found '{literal}' expected: '('")
        kind, opening = self._peek()
        if kind == ")":
            self._next()
            return [""]
        if kind not in ("word", ","):
            raise _Unparsable(f"found '{opening}', expected: ',', ')' or identifier")
        values: set[str] = set()
        while True:
            kind, literal = self._next()
            after, following = self._peek()
            if kind == "word":
                values.add(literal)
                if after == ")":
                    break
                if after != ",":
                    raise _Unparsable(f"found '{following}', expected: ',' or ')'")
            elif kind == ",":
                if not values or after in (")", ","):
                    values.add("")
                if after == ")":
                    break
            else:
                raise _Unparsable(f"found '{literal}', expected: ',', or identifier")
        self._next()
        return sorted(values)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        character = text[at]
        if character in " \t\r\n":
            at += 1
        elif character in _SPECIAL:
            length = 2 if text[at : at + 2] in ("==", "!=") else 1
            literal = text[at : at + length]
            at += length
            yield literal, literal
        else:
            begin = at
            while at < len(text) and text[at] not in _SPECIAL and text[at] not in " \t\r\n":
                at += 1
            word = text[begin:at]
            yield (word if word in ("in", "notin") else "word"), word


def parse_fields(text: str) -> tuple[Requirement, ...]:
    """`metadata.name=x,status.phase!=Running`"""
    requirements = []
    for part in sorted(filter(None, re.split(r"(?<!\\),", text))):
        found = re.fullmatch(r"(.*?)(!=|==|=)(.*)", part, re.DOTALL)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        key, sign, value = found[1], found[2], _unescaped(found[3])
        requirements.append(Requirement(key, "notin" if sign == "!=" else "in", (value,)))
    return tuple(requirements)


def check_fields(
    requirements: tuple[Requirement, ...], known: frozenset[str], message: str, *, custom: bool = False
) -> None:
    """A field that the kind does not offer is a 400. `message` has `{key}` in it."""
    for each in requirements:
        if each.key in known:
            continue
        if not custom and known <= {"metadata.name", "metadata.namespace"}:
            raise bad_request(f'"{each.key}" is not a known field selector: only "metadata.name", "metadata.namespace"')
        raise bad_request(message.replace("{key}", each.key))


def _unescaped(value: str) -> str:
    made, at = [], 0
    while at < len(value):
        character = value[at]
        if character == "\\":
            at += 1
            escaped = value[at : at + 1]
            if escaped not in ("\\", ",", "=") or not escaped:
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{escaped}")
            made.append(escaped)
        elif character in ",=":
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(character)}")
        else:
            made.append(character)
        at += 1
    return "".join(made)


def matcher(
    labels: tuple[Requirement, ...], fields: tuple[Requirement, ...]
) -> Callable[[Mapping[str, str], Mapping[str, str]], bool] | None:
    """One function for both selectors; None when everything matches."""
    if not labels and not fields:
        return None
    of_labels, of_fields = _Merged(labels), _Merged(fields)

    def matches(entry_labels: Mapping[str, str], entry_fields: Mapping[str, str]) -> bool:
        return of_labels.match(entry_labels) and of_fields.match(entry_fields)

    return matches


class _Merged:
    """Requirements put together by key: however many there are, a match takes as long as there are labels."""

    def __init__(self, requirements: tuple[Requirement, ...]) -> None:
        self._needed: dict[str, frozenset[str] | None] = {}
        self._refused: dict[str, set[str] | None] = {}  # None: whatever the value
        compared: dict[tuple[str, str], Requirement] = {}
        for each in requirements:
            match each.operator:
                case "in":
                    before = self._needed.get(each.key)
                    self._needed[each.key] = frozenset(each.values) if before is None else before & set(each.values)
                case "exists":
                    self._needed.setdefault(each.key, None)
                case "missing":
                    self._refused[each.key] = None
                case "notin":
                    known = self._refused.setdefault(each.key, set())
                    if known is not None:
                        known.update(each.values)
                case "gt" | "lt" as operator:
                    bounds = [int(one.values[0]) for one in (each, compared.get((each.key, operator), each))]
                    bound = max(bounds) if operator == "gt" else min(bounds)
                    compared[each.key, operator] = Requirement(each.key, operator, (str(bound),))
                    self._needed.setdefault(each.key, None)
        self._compared = tuple(compared.values())

    def match(self, labels: Mapping[str, str]) -> bool:
        if len(self._needed) > len(labels):
            return False
        for key, values in self._needed.items():
            value = labels.get(key)
            if value is None or (values is not None and value not in values):
                return False
        for key in labels if len(labels) < len(self._refused) else self._refused:
            if key in labels and key in self._refused:
                refused = self._refused[key]
                if refused is None or labels[key] in refused:
                    return False
        return all(each.matches(labels) for each in self._compared)


def expression_text(expression: Mapping[str, Any]) -> str:
    """A requirement of a LabelSelector object as `kubectl -l` takes it."""
    key, values = str(expression["key"]), ",".join(expression.get("values") or ())
    texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "DoesNotExist": f"!{key}"}
    return texts.get(expression["operator"], key)


def labels_match(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector object (matchLabels, matchExpressions): none matches nothing, an empty one everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "missing"}
    return all(
        Requirement(each["key"], operators[each["operator"]], tuple(each.get("values") or ())).matches(labels)
        for each in selector.get("matchExpressions") or ()
    )
