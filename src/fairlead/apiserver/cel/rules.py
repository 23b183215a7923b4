"""CEL: the rules a custom kind's schema carries in `x-kubernetes-validations`, evaluated with a library.

`common-expression-language` brings the language; here are the functions Kubernetes adds to it and the meaning of
`self` and `oldSelf`. What the library cannot parse is refused when the definition is created (`problem_with`), never
skipped when an object is judged.
"""

import ipaddress
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final
from urllib.parse import urlsplit

from fairlead.apiserver.cel import cost
from fairlead.apiserver.cel import types as cel_types
from fairlead.apiserver.cel.library import cel
from fairlead.apiserver.cel.mentions import narrowed
from fairlead.apiserver.schema.openapi import NEW, old_items
from fairlead.apiserver.schema.patterns import compiled
from fairlead.apiserver.schema.scalars import QUANTITY_PROBLEM
from fairlead.apiserver.validation.errors import Errors, FieldError, Json, below, shown
from fairlead.model.quantity import QuantityError, is_quantity, nanos

# The library logs each failure of a function of ours; the user gets it as a cause: do not log it too.
logging.getLogger("cel").setLevel(logging.CRITICAL)

_RESERVED = frozenset(
    {"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
     "let", "loop", "package", "namespace", "return", "var", "void", "while"}
)  # fmt: skip
_NAMESPACED = re.compile(r"\b(sets|math)\.(\w+)\(")
LONGEST_DURATION: Final = 200
LONGEST_TEXT: Final = 4 << 20
COST_EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"
LONGEST_REASON: Final = 1000
_UNDEFINED = re.compile(r"Undefined variable or function: '(\w+)'")
_ADVISED = re.compile(
    r"Function '\w+' error: (?:Python function call failed: \w+: )?(.*?)\.? Check function arguments and their types\."
)
_REASONS: Final = {
    "No such overload": "no such overload",
    "Unsupported operation": "no such overload",
    "division by zero": "division by zero",
}
_DURATION_PARTS = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def declared(schema: Json, root: bool) -> cel_types.Type:
    """What `self` is in the rules of a schema."""
    return cel_types.declared(schema, escaped, root) or cel_types.DYN


def problem_with(rule: Json, self: cel_types.Type | None) -> str:
    """Why a rule cannot be evaluated; empty if it can."""
    text = rule["rule"]
    old = cel_types.DYN if rule.get("optionalOldSelf") else self
    return cel_types.problem_with(text, self or cel_types.DYN, old) or _problem_with_program(text)


def problem_with_message(rule: Json, self: cel_types.Type | None) -> str:
    """Why the expression of a rule's message cannot be evaluated; empty if it can, or there is none."""
    text = rule.get("messageExpression", "")
    if not text.strip():
        return ""
    old = cel_types.DYN if rule.get("optionalOldSelf") else self
    problem = cel_types.problem_with(text, self or cel_types.DYN, old, expected="string")
    return f"messageExpression {problem}" if problem else ""


def problem_with_condition(text: str) -> str:
    """Why a condition over a request for admission cannot be evaluated; empty if it can."""
    return cel_types.problem_with_condition(text) or _problem_with_program(text)


def _problem_with_program(text: str) -> str:
    try:
        _program(text)
    except ValueError as unreadable:
        return f"compilation failed: {str(unreadable).splitlines()[0]}"
    return ""


def are_sound(schema: Json) -> bool:
    """Whether every rule here and below can be evaluated."""
    rules = schema.get("x-kubernetes-validations") or ()
    self = declared(schema, root=False) if rules else None
    if any(problem_with(rule, self) for rule in rules):
        return False
    inner = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return all(are_sound(each) for each in inner if isinstance(each, dict) and has_rules(each))


def uses_old(rule: str) -> bool:
    return re.search(r"\boldSelf\b", rule) is not None


def check(schema: Json, value: Any, old: Any = NEW, path: str = "") -> Errors:
    """What the rules of a schema and of everything below it say about a value, and about its change from another."""
    if value is None:
        return []
    found = _check_here(schema, value, old, path)
    for under, inner, before, here in _children(schema, value, old, path):
        found += check(under, inner, before, here)
    return found


def _children(schema: Json, value: Any, old: Any, path: str) -> Iterator[tuple[Json, Any, Any, str]]:
    if isinstance(value, dict):
        properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
        olds = old if isinstance(old, dict) else {}
        for name, inner in value.items():
            under = properties.get(name) or (rest if isinstance(rest, dict) else None)
            if under is not None and has_rules(under):
                here = below(path, f".{name}" if path else name)
                yield under, inner, olds.get(name, NEW), here if name in properties else below(path, f"[{name}]")
    elif isinstance(value, list):
        under = schema.get("items")
        if isinstance(under, dict) and has_rules(under):
            before = old_items(schema, old)
            for index, inner in enumerate(value):
                yield under, inner, before(inner), f"{path}[{index}]"


def has_rules(schema: Json) -> bool:
    """Whether there is a rule here or below; remembered in the schema's own dict, which nobody changes."""
    known = _KNOWN_RULES.get(id(schema))
    if known is not None and known[0] is schema:
        return known[1]
    inner = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    answer = bool(schema.get("x-kubernetes-validations")) or any(
        has_rules(each) for each in inner if isinstance(each, dict)
    )
    if len(_KNOWN_RULES) > 65536:
        _KNOWN_RULES.clear()
    _KNOWN_RULES[id(schema)] = (schema, answer)
    return answer


_KNOWN_RULES: dict[int, tuple[Json, bool]] = {}


def _check_here(schema: Json, value: Any, old: Any, path: str) -> Errors:
    rules = schema.get("x-kubernetes-validations")
    if not rules:
        return []
    found: Errors = []
    context: Json = {**_FUNCTIONS, "self": _as_cel(schema, value)}
    for rule in rules:
        text = rule["rule"]
        if uses_old(text) or rule.get("optionalOldSelf"):
            if rule.get("optionalOldSelf"):
                before = cel.OptionalValue.none() if old is NEW else cel.OptionalValue.of(_as_cel(schema, old))
            elif old is NEW or old is None:
                continue
            else:
                before = _as_cel(schema, old)
            context = {**context, "oldSelf": before}
        outcome, problem = _evaluated(text, context)
        if problem:
            kind = '"object": ' if isinstance(value, dict) else '"array": ' if isinstance(value, list) else ""
            detail = f"{problem} evaluating rule"
            if problem == COST_EXCEEDED:
                detail = f"'{problem}': no further validation rules will be run due to call cost exceeds limit for rule"
            found.append(_error(rule, value, path, f"{kind}{detail}: {rule.get('message') or text}"))
            if problem == COST_EXCEEDED:
                break
        elif outcome is not True:
            found.append(_error(rule, value, path, _message(rule, context)))
    return found


def _evaluated(text: str, context: Json) -> tuple[Any, str]:
    context = narrowed(text, context)
    if cost.is_too_dear(text, context):
        return None, COST_EXCEEDED
    try:
        return _program(text).execute(context), ""
    except KeyError as problem:
        return None, f"no such key: {problem.args[0]}"
    except (RuntimeError, TypeError, ValueError, OverflowError, ZeroDivisionError, IndexError) as problem:
        return None, _reason(str(problem).split("\n")[0])


def _reason(problem: str) -> str:
    """What the library says is wrong, without its advice and in kube-apiserver's words where they are short."""
    for beginning, known in _REASONS.items():
        if problem.startswith(beginning):
            return known
    if missing := _UNDEFINED.match(problem):
        return f"'{missing[1]}' is not supported by Fairlead's embedded API server"
    advised = _ADVISED.fullmatch(problem)
    return (advised[1] if advised else problem)[:LONGEST_REASON]


def evaluate(text: str, variables: Json) -> tuple[Any, str]:
    """The value of an expression over variables of the caller's, or what is wrong with it."""
    try:
        return _evaluated(text, {**_FUNCTIONS, **variables})
    except ValueError as problem:
        return None, str(problem).split("\n")[0]


def _message(rule: Json, context: Json) -> str:
    if rule.get("messageExpression"):
        text, problem = _evaluated(rule["messageExpression"], context)
        if not problem and isinstance(text, str) and text.strip() and "\n" not in text:
            return text
    return rule.get("message") or f"failed rule: {rule['rule'].strip()}"


def _error(rule: Json, value: Any, path: str, text: str) -> FieldError:
    where = path
    if rule.get("fieldPath"):
        where = (path + rule["fieldPath"]).lstrip(".")
    reason = rule.get("reason") or "FieldValueInvalid"
    match reason:
        case "FieldValueForbidden":
            return FieldError(reason, where, f"Forbidden: {text}")
        case "FieldValueRequired":
            return FieldError(reason, where, f"Required value: {text}")
        case "FieldValueDuplicate":
            return FieldError(reason, where, f"Duplicate value: {text}")
    # The value is shown where it is a plain one.
    seen = "" if isinstance(value, dict | list) else f"{shown(value)}: "
    return FieldError(reason, where, f"Invalid value: {seen}{text}")


@lru_cache(maxsize=4096)
def _program(text: str) -> Any:
    return cel.compile(_NAMESPACED.sub(r"\1_\2(", text))


# --- values -----------------------------------------------------------------------------------------------------


def escaped(name: str) -> str:
    """A field's name as a rule spells it."""
    if name in _RESERVED:
        return f"__{name}__"
    for character, word in (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        name = name.replace(character, word)
    return name


def _as_cel(schema: Json, value: Any) -> Any:
    """The value with the types the schema declares: a number is a double even if it is written 1."""
    if isinstance(value, dict):
        properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
        if isinstance(rest, dict):
            return {key: _as_cel(rest, inner) for key, inner in value.items()}
        return {escaped(key): _as_cel(properties.get(key) or {}, inner) for key, inner in value.items()}
    if isinstance(value, list):
        items = schema.get("items")
        return [_as_cel(items if isinstance(items, dict) else {}, inner) for inner in value]
    if isinstance(value, str):
        return _text_as_cel(schema.get("format"), value)
    if isinstance(value, int) and not isinstance(value, bool) and schema.get("type") == "number":
        return float(value)
    if isinstance(value, float) and schema.get("type") == "integer":
        return int(value)
    return value


def _text_as_cel(form: str | None, value: str) -> Any:
    try:
        match form:
            case "date-time":
                moment = datetime.fromisoformat(value)
                return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            case "date":
                return datetime.fromisoformat(value).replace(tzinfo=UTC)
            case "duration" if len(value) <= LONGEST_DURATION:
                return timedelta(seconds=sum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PARTS.findall(value)))
    except (ValueError, OverflowError):
        return value
    return value


# --- Kubernetes' functions --------------------------------------------------------------------------------------


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(left <= right for left, right in pairwise(items))


def _index_of(where: Any, what: Any, start: int = 0) -> int:
    if isinstance(where, str):
        return where.find(what, start)
    return next((index for index, each in enumerate(where) if each == what), -1)


def _last_index_of(where: Any, what: Any) -> int:
    if isinstance(where, str):
        return where.rfind(what)
    return next((index for index in range(len(where) - 1, -1, -1) if where[index] == what), -1)


def _find(text: str, pattern: str) -> str:
    found = compiled(pattern).search(text)
    return found[0] if found else ""


def _find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    found = [match[0] for match in compiled(pattern).finditer(text)]
    return found if most < 0 else found[:most]


def _split(text: str, by: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    return text.split(by, most - 1 if most > 0 else -1) if by else list(text)


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    times = text.count(old) if most < 0 else min(most, text.count(old))
    _check_length(len(text) + times * len(new))
    return text.replace(old, new, most)


def _join(items: Sequence[str], by: str = "") -> str:
    _check_length(sum(map(len, items)) + len(items) * len(by))
    return by.join(items)


def _check_length(length: int) -> None:
    """Functions that multiply a text must not fill the memory."""
    if length > LONGEST_TEXT:
        raise ValueError(COST_EXCEEDED)


def _substring(text: str, start: int, end: int | None = None) -> str:
    return text[start : len(text) if end is None else end]


def _total(items: Sequence[Any]) -> Any:
    return sum(items) if not items or not isinstance(items[0], timedelta) else sum(items, timedelta())


def _quantity(text: str) -> Json:
    try:
        return {"quantity": nanos(text)}
    except QuantityError:
        raise ValueError(QUANTITY_PROBLEM) from None


def _compared(test: Callable[[int, int], bool]) -> Callable[[Json, Json], bool]:
    return lambda left, right: test(left["quantity"], right["quantity"])


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_cidr(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and parts.netloc) or text.startswith("/")


def _url(text: str) -> Json:
    parts = urlsplit(text)
    return {"scheme": parts.scheme, "host": parts.netloc, "path": parts.path, "query": parts.query,
            "hostname": parts.hostname or "", "port": str(parts.port or "")}  # fmt: skip


def _part(name: str) -> Callable[[Json], str]:
    return lambda url: str(url[name])


_FUNCTIONS: Final[Json] = {
    "sum": _total,
    "min": min,
    "max": max,
    "isSorted": _is_sorted,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "find": _find,
    "findAll": _find_all,
    "charAt": lambda text, index: text[index : index + 1],
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "trim": lambda text: text.strip(),
    "split": _split,
    "join": _join,
    "replace": _replace,
    "substring": _substring,
    "reverse": lambda value: value[::-1],
    "isQuantity": is_quantity,
    "quantity": _quantity,
    "isGreaterThan": _compared(lambda left, right: left > right),
    "isLessThan": _compared(lambda left, right: left < right),
    "compareTo": lambda left, right: (left["quantity"] > right["quantity"]) - (left["quantity"] < right["quantity"]),
    "isIP": _is_ip,
    "isCIDR": _is_cidr,
    "isURL": _is_url,
    "url": _url,
    "getScheme": _part("scheme"),
    "getHost": _part("host"),
    "getHostname": _part("hostname"),
    "getPort": _part("port"),
    "getEscapedPath": _part("path"),
    "sets_contains": lambda left, right: all(each in left for each in right),
    "sets_intersects": lambda left, right: any(each in left for each in right),
    "sets_equivalent": lambda left, right: all(e in right for e in left) and all(e in left for e in right),
    "math_greatest": lambda *values: max(values[0] if len(values) == 1 else values),
    "math_least": lambda *values: min(values[0] if len(values) == 1 else values),
}
