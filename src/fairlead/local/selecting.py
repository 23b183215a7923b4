"""Label and field selectors as they stand in a query: parsed once, asked of entries many times."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fairlead.local.failures import Failure, bad_request

Matches = Callable[[Mapping[str, str]], bool]

_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z0-9_./\-]+)|(?P<sign>==|!=|=|!|,|\(|\)|>|<))")


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
        return tuple(_requirements(text))
    except _Unparsable as problem:
        raise bad_request(f"unable to parse requirement: {problem}") from None


class _Unparsable(Exception):
    pass


def _requirements(text: str) -> list[Requirement]:
    tokens, position = [], 0
    while position < len(text.rstrip()):
        found = _TOKEN.match(text, position)
        if found is None:
            raise _Unparsable(f"found '{text[position:].strip()}', expected: identifier, '!', or ','")
        tokens.append((found["word"], found["sign"]))
        position = found.end()
    tokens.append((None, None))
    requirements, at = [], 0

    def word(what: str) -> str:
        nonlocal at
        found, sign = tokens[at]
        if found is None:
            raise _Unparsable(f"found '{sign or ''}', expected: {what}")
        at += 1
        return found

    while tokens[at] != (None, None):
        if tokens[at][1] == "!":
            at += 1
            requirements.append(Requirement(word("identifier"), "missing"))
        else:
            key = word("identifier")
            sign = tokens[at][1] or (tokens[at][0] if tokens[at][0] in ("in", "notin") else None)
            if sign in ("in", "notin"):
                at += 1
                requirements.append(Requirement(key, str(sign), _values(tokens, at)))
                while tokens[at][1] != ")":
                    at += 1
                at += 1
            elif sign in ("=", "==", "!=", ">", "<"):
                at += 1
                value = tokens[at][0] or ""
                if tokens[at][0] is not None:
                    at += 1
                if sign in (">", "<") and not re.fullmatch(r"-?\d+", value):
                    raise _Unparsable(f"for 'Gt', 'Lt' operators, the value must be an integer, found '{value}'")
                operator = {"!=": "notin", ">": "gt", "<": "lt"}.get(str(sign), "in")
                requirements.append(Requirement(key, operator, (value,)))
            else:
                requirements.append(Requirement(key, "exists"))
        if tokens[at][1] == ",":
            at += 1
            if tokens[at] == (None, None):
                raise _Unparsable("found '', expected: identifier after ','")
        elif tokens[at] != (None, None):
            raise _Unparsable(f"found '{tokens[at][0] or tokens[at][1]}', expected: ',' or 'end of string'")
    return requirements


def _values(tokens: list[tuple[str | None, str | None]], at: int) -> tuple[str, ...]:
    if tokens[at][1] != "(":
        raise _Unparsable(f"found '{tokens[at][0] or tokens[at][1] or ''}' expected: '('")
    values: list[str] = []
    at += 1
    while tokens[at][1] != ")":
        if tokens[at] == (None, None):
            raise _Unparsable("found '', expected: ',', or ')'")
        if tokens[at][0] is not None:
            values.append(str(tokens[at][0]))
        elif tokens[at][1] == "," and (at == 0 or tokens[at - 1][1] in (",", "(")):
            values.append("")
        at += 1
    return tuple(values)


def field_selector(text: str, known: frozenset[str], kind: str) -> tuple[Requirement, ...]:
    """`metadata.name=x,status.phase!=Running`; a field the kind does not offer is the asker's mistake."""
    requirements = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        found = re.fullmatch(r"([^=!]+?)(==|!=|=)(.*)", part)
        if found is None:
            raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        key, sign, value = found[1].strip(), found[2], found[3].replace("\\", "")
        if key not in known:
            raise unknown_field(key, kind)
        requirements.append(Requirement(key, "notin" if sign == "!=" else "in", (value,)))
    return tuple(requirements)


def unknown_field(key: str, kind: str) -> Failure:
    return (
        bad_request(f"field label not supported: {key}")
        if kind
        else bad_request(f'"{key}" is not a known field selector')
    )


def matcher(
    labels: tuple[Requirement, ...], fields: tuple[Requirement, ...]
) -> Callable[[Mapping[str, str], Mapping[str, str]], bool] | None:
    """One question for both selectors; None when everything matches."""
    if not labels and not fields:
        return None

    def matches(entry_labels: Mapping[str, str], entry_fields: Mapping[str, str]) -> bool:
        return all(one.matches(entry_labels) for one in labels) and all(one.matches(entry_fields) for one in fields)

    return matches


def labels_match(selector: Mapping[str, object] | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector object (matchLabels, matchExpressions): none matches nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    assert isinstance(wanted, dict)
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    expressions = selector.get("matchExpressions") or []
    assert isinstance(expressions, list)
    names = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "missing"}
    return all(
        Requirement(each["key"], names[each["operator"]], tuple(each.get("values") or ())).matches(labels)
        for each in expressions
    )
