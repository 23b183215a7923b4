"""Whether a CEL rule makes sense for the schema it stands in: unknown fields and names, operands that do not fit.

In the words of Kubernetes' own compiler. What a function gives back is known only of the common ones; the rest is
taken to be anything, so that nothing good is refused. What a rule may cost is
not estimated here: `cost.py` bounds it for each object.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fairlead.apiserver.cel.syntax import NOWHERE, Node, SyntaxMistake, parse, pointed
from fairlead.apiserver.schema.patterns import BadPattern, compiled

Json = dict[str, Any]

NUMBERS: Final = frozenset({"int", "uint", "double"})
_SCALARS: Final = {"integer": "int", "number": "double", "boolean": "bool"}
_FORMATS: Final = {"byte": "bytes", "date": "timestamp", "date-time": "timestamp", "duration": "duration"}
_TYPE_NAMES: Final = frozenset(
    {"int", "uint", "double", "string", "bool", "bytes", "list", "map", "type", "null_type", "timestamp", "duration"}
)
# What functions give, called as f(x) or as x.f(); "dyn" is anything.
_GIVEN: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("startsWith", "endsWith", "contains", "matches", "isSorted", "isURL", "isQuantity", "isIP", "isCIDR",
         "isSemver", "isInteger", "isGreaterThan", "isLessThan", "containsIP", "containsCIDR", "isGlobalUnicast",
         "isLinkLocalMulticast", "isLinkLocalUnicast", "isLoopback", "isUnspecified", "hasValue", "bool",
         "sets.contains", "sets.equivalent", "sets.intersects", "ip.isCanonical", "allowed", "errored"), "bool"),
    **dict.fromkeys(
        ("size", "indexOf", "lastIndexOf", "int", "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek",
         "getDayOfYear", "getHours", "getMinutes", "getSeconds", "getMilliseconds", "compareTo", "major", "minor",
         "patch", "family", "prefixLength", "asInteger", "sign"), "int"),
    **dict.fromkeys(
        ("string", "find", "charAt", "lowerAscii", "upperAscii", "replace", "substring", "trim", "join", "getScheme",
         "getHost", "getHostname", "getPort", "getEscapedPath", "format", "strings.quote", "reason", "error"),
        "string"),
    **dict.fromkeys(
        ("type", "dyn", "uint", "bytes", "sum", "min", "max", "findAll", "url", "getQuery", "quantity", "add", "sub",
         "ip", "cidr", "masked", "semver", "split", "distinct", "flatten", "lists.range", "reverse", "slice", "sort",
         "sortBy", "optional.of", "optional.none", "optional.ofNonZeroValue", "orValue", "or", "value", "optMap",
         "optFlatMap", "validate", "format.named", "format.dns1123Label", "format.dns1123Subdomain",
         "format.dns1035Label", "format.qualifiedName", "format.labelValue", "format.uri", "format.uuid",
         "format.byte", "format.date", "format.datetime", "jsonpatch.escapeKey", "unwrap", "unwrapOpt", "first",
         "last", "existsOne", "transformList", "transformMap", "transformMapEntry", "path", "group", "serviceAccount",
         "resource", "subresource", "namespace", "name", "check", "fieldSelector", "labelSelector"), "dyn"),
    "double": "double", "asApproximateFloat": "double", "timestamp": "timestamp", "duration": "duration",
}  # fmt: skip
_TEXT_FUNCTIONS: Final = frozenset({"startsWith", "endsWith", "contains", "matches"})
_LOOPS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
_TWO_VARIABLES: Final = frozenset({"all", "exists", "existsOne", "transformList", "transformMap", "transformMapEntry"})
_LITERALS: Final = {"text": "string", "bytes": "bytes", "int": "int", "uint": "uint", "double": "double",
                    "bool": "bool", "null": "null"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    of: tuple["Type", ...] = ()
    fields: Mapping[str, "Type"] | None = None

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.of))})" if self.of else self.name


DYN: Final = Type("dyn")
_BOOL: Final = Type("bool")
_INT: Final = Type("int")
_STRING: Final = Type("string")
_STRINGS: Final = Type("list", (_STRING,))


def _texts(name: str, *fields: str) -> Type:
    return Type(f"kubernetes.{name}", fields=dict.fromkeys(fields, _STRING))


_KIND: Final = _texts("GroupVersionKind", "group", "version", "kind")
_RESOURCE: Final = _texts("GroupVersionResource", "group", "version", "resource")
_USER: Final = {"username": _STRING, "uid": _STRING, "groups": _STRINGS, "extra": Type("map", (_STRING, _STRINGS))}
_REQUEST: Final = {
    "kind": _KIND,
    "requestKind": _KIND,
    "resource": _RESOURCE,
    "requestResource": _RESOURCE,
    **dict.fromkeys(("subResource", "requestSubResource", "name", "namespace", "operation"), _STRING),
    "userInfo": Type("kubernetes.UserInfo", fields=_USER),
    "dryRun": _BOOL,
    "options": DYN,
}
# What the conditions of a webhook may speak of.
_ADMISSION: Final[Mapping[str, Type]] = {
    **dict.fromkeys(("object", "oldObject", "namespaceObject", "authorizer"), DYN),
    "request": Type("kubernetes.AdmissionRequest", fields=_REQUEST),
}


def declared(schema: Json, escape: Any, root: bool = False, name: str = "selfType") -> Type | None:
    """The type of a value of this schema; None where rules cannot see it."""
    if schema.get("x-kubernetes-int-or-string"):
        return DYN
    match schema.get("type"):
        case "array":
            items = schema.get("items")
            below = declared(items, escape, name=f"{name}.@idx") if isinstance(items, dict) else None
            return None if below is None else Type("list", (below,))
        case "object":
            rest = schema.get("additionalProperties")
            if isinstance(rest, dict):
                below = declared(rest, escape, name=f"{name}.@elem")
                return None if below is None else Type("map", (Type("string"), below))
            return Type(name, fields=_fields(schema, escape, root, name))
        case "string":
            return Type(_FORMATS.get(schema.get("format", ""), "string"))
        case kind if kind in _SCALARS:
            return Type(_SCALARS[kind])
    return None


def _fields(schema: Json, escape: Any, root: bool, name: str) -> dict[str, Type]:
    found: dict[str, Type] = {}
    for key, inner in (schema.get("properties") or {}).items():
        below = declared(inner, escape, name=f"{name}.{key}")
        if below is not None:
            found[escape(key)] = below
    if root or schema.get("x-kubernetes-embedded-resource"):
        text = Type("string")
        found |= {"apiVersion": text, "kind": text}
        found["metadata"] = Type(f"{name}.metadata", fields={"name": text, "generateName": text})
    return found


def problem_with(rule: str, self: Type, old: Type | None = None, *, expected: str = "bool") -> str:
    """The compiler's error about a rule over `self`, or about its message; empty where there is none."""
    found = _typed(rule, {"self": self, "oldSelf": old or self})
    if isinstance(found, str):
        return found
    if found[0].name not in (expected, "dyn"):
        return "cel expression must evaluate to a bool" if expected == "bool" else f"must evaluate to a {expected}"
    return ""


def _typed(text: str, names: Mapping[str, Type]) -> tuple[Type, Node] | str:
    """The type of an expression, with its tree; or the compiler's error."""
    try:
        tree = parse(text)
    except SyntaxMistake as problem:
        return f"compilation failed: {pointed(text, problem.at, str(problem))}"
    checker = _Checker(names)
    try:
        found = checker.type_of(tree, names)
    except RecursionError:
        return f"compilation failed: {pointed(text, NOWHERE, 'max recursion depth exceeded')}"
    if checker.mistakes:
        mistakes = sorted(set(checker.mistakes))
        return "compilation failed: " + "\n".join(pointed(text, at, why) for at, why in mistakes)
    return found, tree


def problem_with_condition(text: str) -> str:
    """The compiler's error about a match condition; empty where there is none."""
    found = _typed(text, _ADMISSION)
    if isinstance(found, str):
        return found
    made, tree = found
    # Some function results are untyped: accept dyn from calls, reject it from fields.
    if made.name == "bool" or (made.name == "dyn" and tree.op not in ("name", "select", "index")):
        return ""
    return f"must evaluate to bool but got {made}"


@dataclass
class _Checker:
    known: Mapping[str, Type]
    mistakes: list[tuple[int, str]] = field(default_factory=list)

    def _wrong(self, at: int, text: str) -> Type:
        self.mistakes.append((at, text))
        return DYN

    def type_of(self, node: Node, names: Mapping[str, Type]) -> Type:
        if node.op in _LITERALS:
            return Type(_LITERALS[node.op])
        match node.op:
            case "name":
                if node.word in names:
                    return names[node.word]
                if node.word in _TYPE_NAMES:
                    return DYN
                return self._wrong(node.at, f"undeclared reference to '{node.word}' (in container '')")
            case "select":
                return self._select(node, names)
            case "call":
                return self._call(node, names)
            case "list":
                types = [self.type_of(part, names) for part in node.parts]
                return Type("list", (_shared(types),))
            case "map":
                types = [self.type_of(part, names) for part in node.parts]
                return Type("map", (_shared(types[::2]), _shared(types[1::2])))
        return self._operator(node, [self.type_of(part, names) for part in node.parts])

    def _select(self, node: Node, names: Mapping[str, Type], at: int | None = None) -> Type:
        target, place = self.type_of(node.parts[0], names), node.at if at is None else at
        if node.maybe:
            return DYN
        if target.name == "dyn":
            return DYN
        if target.name == "map":
            return target.of[1]
        if target.fields is None:
            return self._wrong(place, f"type '{target}' does not support field selection")
        if node.word not in target.fields:
            return self._wrong(place, f"undefined field '{node.word}'")
        return target.fields[node.word]

    def _operator(self, node: Node, types: list[Type]) -> Type:
        if node.op in ("_&&_", "_||_"):
            for part, found in zip(node.parts, types, strict=True):
                if found.name not in ("bool", "dyn"):
                    self._wrong(part.at, f"expected type 'bool' but found '{found}'")
            return _BOOL
        if node.op == "index" and node.maybe:
            return DYN
        made = _result(node.op, types)
        if made is None:
            op = "_[_]" if node.op == "index" else node.op
            given = ", ".join(map(str, types))
            self._wrong(node.at, f"found no matching overload for '{op}' applied to '({given})'")
            return _BOOL if node.op in ("_==_", "_!=_", "@in", "_<_", "_<=_", "_>_", "_>=_", "!_") else DYN
        return made

    def _call(self, node: Node, names: Mapping[str, Type]) -> Type:
        if not node.on and node.word == "has" and len(node.parts) == 1 and node.parts[0].op == "select":
            self._select(node.parts[0], names, node.at)
            return _BOOL
        if node.on:
            target, *arguments = node.parts
            spelled = f"{target.word}.{node.word}" if target.op == "name" else ""
            if spelled in _GIVEN and target.word not in names:
                for part in arguments:
                    self.type_of(part, names)
                return Type(_GIVEN[spelled])
            if node.word in _LOOPS | _TWO_VARIABLES and arguments and arguments[0].op == "name":
                return self._loop(node, target, arguments, names)
            if node.word in ("optMap", "optFlatMap", "sortBy") and arguments and arguments[0].op == "name":
                self.type_of(target, names)
                self.type_of(arguments[1], {**names, arguments[0].word: DYN})
                return DYN
        types = [self.type_of(part, names) for part in node.parts]
        if node.word not in _GIVEN:
            return self._wrong(node.at, f"undeclared reference to '{node.word}' (in container '')")
        on_text = node.on and node.word in _TEXT_FUNCTIONS and types[0].name == "string"
        if on_text and len(types) == 2 and types[1].name not in ("string", "dyn"):
            text = f"found no matching overload for '{node.word}' applied to '{types[0]}.({types[1]})'"
            return self._wrong(node.at, text)
        if node.word == "matches" and node.parts[-1].op == "text" and not _is_pattern(node.parts[-1].word):
            return self._wrong(node.parts[-1].at, "invalid matches argument")
        return Type(_GIVEN[node.word])

    def _loop(self, node: Node, target: Node, arguments: list[Node], names: Mapping[str, Type]) -> Type:
        over = self.type_of(target, names)
        each = over.of[0] if over.name in ("list", "map") and over.of else DYN
        if over.name not in ("list", "map", "dyn"):
            text = f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)"
            return self._wrong(target.at, text)
        inside = {**names, arguments[0].word: each}
        rest = arguments[1:]
        if node.word in _TWO_VARIABLES and len(rest) >= 2 and rest[0].op == "name":
            inside |= {arguments[0].word: _INT if over.name == "list" else each}
            inside[rest[0].word] = over.of[-1] if over.of else DYN
            rest = rest[1:]
        types = [self.type_of(part, inside) for part in rest]
        if node.word == "filter" and types:
            same = over if over.name == "list" else Type("list", (each,))
            if types[0].name not in ("bool", "dyn"):
                text = f"found no matching overload for '_?_:_' applied to '({types[0]}, {same}, {same})'"
                return self._wrong(node.at, text)
            return same
        if node.word == "map" and types:
            return Type("list", (types[-1],))
        if node.word in ("all", "exists"):
            if types and types[0].name not in ("bool", "dyn"):
                self._wrong(rest[0].at, f"expected type 'bool' but found '{types[0]}'")
            return _BOOL
        return _BOOL if node.word in ("exists_one", "existsOne") else DYN


def _shared(types: list[Type]) -> Type:
    if not types or any(not _fits(types[0], each) for each in types[1:]):
        return DYN
    return types[0]


def _fits(left: Type, right: Type) -> bool:
    if "dyn" in (left.name, right.name):
        return True
    if "null" in (left.name, right.name):
        other = right if left.name == "null" else left
        return other.name in ("null", "timestamp", "duration") or other.fields is not None
    if left.name != right.name or len(left.of) != len(right.of):
        return False
    return all(map(_fits, left.of, right.of))


def _is_pattern(text: str) -> bool:
    try:
        compiled(text)
    except BadPattern:
        return False
    return True


def _result(op: str, types: list[Type]) -> Type | None:
    """What an operator gives for operands of these types; None where it does not take them."""
    first, second = types[0], types[1] if len(types) > 1 else DYN
    pair = (first.name, second.name)
    match op:
        case "_==_" | "_!=_":
            return _BOOL if _fits(first, second) or set(pair) <= NUMBERS else None
        case "_<_" | "_<=_" | "_>_" | "_>=_":
            ordered = {"bool", "string", "bytes", "timestamp", "duration", "dyn"} | NUMBERS
            good = _fits(first, second) and {*pair} <= ordered
            return _BOOL if good or set(pair) <= NUMBERS else None
        case "@in":
            if second.name in ("list", "map"):
                return _BOOL if _fits(first, second.of[0]) else None
            return _BOOL if second.name == "dyn" else None
        case "index":
            if first.name == "list":
                return first.of[0] if second.name in ("int", "dyn", "double", "uint") else None
            if first.name == "map":
                return first.of[1] if _fits(first.of[0], second) else None
            return DYN if first.name == "dyn" else None
        case "!_":
            return _BOOL if first.name in ("bool", "dyn") else None
        case "-_":
            return first if first.name in ("int", "double", "dyn") else None
        case "_?_:_":
            return second if first.name in ("bool", "dyn") and _fits(second, types[2]) else None
    return _arithmetic(op, first, second)


def _arithmetic(op: str, first: Type, second: Type) -> Type | None:
    pair = (first.name, second.name)
    if "dyn" in pair:
        return DYN
    if first.name == second.name and first.name in NUMBERS:
        return first if op != "_%_" or first.name != "double" else None
    if op == "_+_":
        if first.name == second.name and first.name in ("string", "bytes", "duration"):
            return first
        if first.name == "list" and _fits(first, second):
            return first
        return Type("timestamp") if set(pair) == {"timestamp", "duration"} else None
    if op == "_-_":
        moments = {("timestamp", "timestamp"): "duration", ("timestamp", "duration"): "timestamp"}
        moments["duration", "duration"] = "duration"
        return Type(moments[pair]) if pair in moments else None
    return None
