"""The three patches that are not applies: JSON patch, merge patch, strategic merge patch.

Inputs are never changed and nothing of them is shared with the result. What is wrong with a patch is a PatchFailed
with the status and the words of the real server.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from fairlead.apiserver.json_values import copied, go_text, go_type, json_type, same, token
from fairlead.apiserver.schema import scalars
from fairlead.apiserver.schema.shape import Schema

Json = dict[str, Any]
Identity = Callable[[Any], Any]

MOST_OPERATIONS: Final = 10_000
MOST_COPIED_BYTES: Final = 3 << 20
# What the real server says instead of the reason when a JSON patch does not fit.
REJECTED: Final = "the server rejected our request due to an error in our request"

_REASONS = {400: "BadRequest", 413: "RequestEntityTooLarge", 422: "Invalid", 500: ""}
_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_LIST = "$deleteFromPrimitiveList/"


class PatchFailed(ValueError):
    """A patch that cannot be carried out. `str()` is the server's message; `why` says more for our own log."""

    def __init__(self, code: int, message: str, why: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = _REASONS[code]
        self.why = why or message


def _check_shape(value: Any, expected: type, go: str, prefix: str = "error decoding patch: ") -> None:
    """Refuses a body that is not even the shape of a patch."""
    if value is None:
        raise PatchFailed(400, f"{prefix}unexpected end of JSON input")
    if not isinstance(value, expected):
        raise PatchFailed(400, f"{prefix}json: cannot unmarshal {json_type(value)} into Go value of type {go}")


# --- JSON patch -------------------------------------------------------------------------------------------------


def json_patch(doc: Any, ops: list[Json]) -> Any:
    """RFC 6902, with the reasons of the library that Kubernetes patches with."""
    _check_shape(ops, list, "[]handlers.jsonPatchOp")
    if len(ops) > MOST_OPERATIONS:
        allowed = f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}"
        raise PatchFailed(413, f"Request entity too large: {allowed}, got {len(ops)}")
    for operation in ops:
        _check_shape(operation, dict, "handlers.jsonPatchOp")
    out = copied(doc)
    size = 0
    for operation in ops:
        verb, value = operation.get("op"), copied(operation.get("value"))
        if verb not in ("add", "replace", "remove", "move", "copy", "test"):
            raise _rejected(f"Unexpected kind: {verb}")
        if verb in ("move", "copy"):
            origin = _pointer(operation, "from")
            container, key = _find(out, origin, f"{verb} operation does not apply: doc is missing from path: {origin}")
            wrong = f"error in move for path: '{key}'" if verb == "move" else f"error in copy for from: '{origin}'"
            value = _item(container, key, wrong)
            if verb == "move":
                _remove(container, key, wrong)
            else:
                # A copy of a copy of a copy: a few hundred bytes would fill the memory.
                size += len(msgspec.json.encode(value))
                if size > MOST_COPIED_BYTES:
                    why = f"the accumulated size increase of copy is {size}, exceeding the limit {MOST_COPIED_BYTES}"
                    raise _rejected(f"Unable to copy, {why}")
                value = copied(value)
        out = _apply(out, verb, _pointer(operation, "path"), value)
    return out


def _apply(doc: Any, verb: str, path: str, value: Any) -> Any:
    if path == "" and verb == "replace":
        return value
    container: Any = {"": doc}
    key = ""
    if path or verb != "test":
        container, key = _find(doc, path, f"{verb} operation does not apply: {_lacking(verb, path)}")
    wrong = "error while adding value during copy" if verb == "copy" else f"error in {verb} for path: '{path}'"
    match verb:
        case "remove":
            _remove(container, key, wrong)
        case "test":
            if not same(_item(container, key, wrong), value):
                raise _rejected(f"testing value {path} failed: test failed")
        case _ if isinstance(container, dict):
            container[key] = value
        case "replace":
            lacks = f"replace operation does not apply: doc is missing key: {path}"
            container[_index(key, len(container), lacks, "missing value")] = value
        case _ if key == "-":
            container.append(value)
        case _:
            container.insert(_index(key, len(container) + 1, wrong), value)
    return doc


def _lacking(verb: str, path: str) -> str:
    match verb:
        case "add" | "remove":
            return f'doc is missing path: "{path}"'
        case "move" | "copy":
            return f"doc is missing destination path: {path}"
        case "test":
            return f"is missing path: {path}"
    return f"doc is missing path: {path}"


def _rejected(why: str) -> PatchFailed:
    return PatchFailed(422, REJECTED, why)


def _pointer(operation: Json, field: str) -> str:
    pointer = operation.get(field)
    if not isinstance(pointer, str):
        raise _rejected(f"{operation['op']} operation failed to decode {field}: missing value")
    return pointer


def _find(doc: Any, path: str, lacks: str) -> tuple[Any, str]:
    """The object or list that holds what the path leads to, and its key there."""
    _, *parents = path.split("/")
    for part in parents[:-1]:
        try:
            doc = _item(doc, _decoded(part), lacks) if isinstance(doc, dict | list) else None
        except PatchFailed:
            doc = None
    if not parents or not isinstance(doc, dict | list):
        raise _rejected(f"{lacks}: missing value")
    return doc, _decoded(parents[-1])


def _decoded(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _index(key: str, end: int, wrong: str, why: str = "") -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,18}", key) is None:
        why = why or f'strconv.Atoi: parsing "{key}": invalid syntax'
        raise _rejected(f"{wrong}: {why}")
    index = int(key)
    if not -end <= index < end:
        why = why or f"Unable to access invalid index: {index}: invalid index referenced"
        raise _rejected(f"{wrong}: {why}")
    # As in the library, -1 is the last one.
    return index + end if index < 0 else index


def _item(container: Any, key: str, wrong: str) -> Any:
    return container[_index(key, len(container), wrong)] if isinstance(container, list) else container.get(key)


def _remove(container: Any, key: str, wrong: str) -> None:
    if isinstance(container, list):
        del container[_index(key, len(container), wrong)]
    elif key in container:
        del container[key]
    else:
        raise _rejected(f"{wrong}: Unable to remove nonexistent key: {key}: missing value")


# --- merge patch ------------------------------------------------------------------------------------------------


def merge_patch(doc: Any, patch: Any) -> Any:
    """RFC 7386. A patch that is no object is refused, as the server does."""
    _check_shape(patch, dict, "map[string]interface {}")
    return _merged(copied(doc), patch)


def _merged(doc: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(doc, dict):
        return _without_nulls(patch)
    for key, value in patch.items():
        if value is None:
            doc.pop(key, None)
        else:
            doc[key] = _merged(doc.get(key), value)
    return doc


# --- strategic merge patch --------------------------------------------------------------------------------------


def strategic_merge(schema: Schema, doc: Json, patch: Any) -> Json:
    """Kubernetes' own: lists of objects are merged by key, with $patch, $retainKeys and their kin as directives."""
    _check_shape(patch, dict, "map[string]interface {}", prefix="")
    return _merge_map(schema, copied(doc), copied(patch))


def spent_patch(schema: Schema, doc: Json, patch: Json) -> Json:
    """The patch without the directives that merging it used up: what an error about the result quotes."""
    left: Json = copied(patch)
    _merge_map(schema, copied(doc), left)
    return left


def _merge_map(schema: Schema | None, original: Json, patch: Json) -> Json:
    match patch.pop(_DIRECTIVE, None):
        case None:
            pass
        case "replace":
            return patch
        case "delete":
            return {}
        case unknown:
            raise PatchFailed(500, f"unknown patch type: {unknown} in map: {go_text({_DIRECTIVE: unknown, **patch})}")
    _retain_keys(original, patch)
    orders = {key.removeprefix(_ORDER): patch.pop(key) for key in list(patch) if key.startswith(_ORDER)}
    deletions = {key.removeprefix(_DELETE_LIST): patch.pop(key) for key in list(patch) if key.startswith(_DELETE_LIST)}
    for key, gone in deletions.items():
        if isinstance(original.get(key), list) and isinstance(gone, list):
            dropped = {token(item) for item in gone}
            original[key] = [item for item in original[key] if token(item) not in dropped]
    for key, order in orders.items():
        if schema is not None and schema.form == "object" and schema.struct is not None and _child(schema, key) is None:
            name = schema.struct.name
            raise PatchFailed(500, f'unable to find api field in struct {name} for the json field "{key}"')
        _merge_ordered(_child(schema, key), key, original, patch, order)
    for key, value in patch.items():
        if value is None:
            original.pop(key, None)
        else:
            original[key] = _merge_value(_child(schema, key), original.get(key), value)
    return original


def _child(schema: Schema | None, key: str) -> Schema | None:
    return None if schema is None else schema.child(key)


def _merge_value(schema: Schema | None, original: Any, value: Any) -> Any:
    strategies = schema.strategies if schema is not None else ()
    if original is None or type(original) is not type(value):
        return _without_directives(value)
    if isinstance(value, dict):
        return _without_directives(value) if "replace" in strategies else _merge_map(schema, original, value)
    if isinstance(value, list) and "merge" in strategies and schema is not None:
        return _merge_list(schema, original, value)
    return _without_nulls(value)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _retain_keys(original: Json, patch: Json) -> None:
    retained = patch.pop(_RETAIN, None)
    if retained is None:
        return
    if not isinstance(retained, list):
        raise PatchFailed(400, "invalid patch format of retainKeys")
    kept = {token(key) for key in retained}
    for key in patch:
        if token(key) not in kept and not key.startswith("$") and patch[key] is not None:
            raise PatchFailed(400, "invalid patch format of retainKeys")
    for key in [key for key in original if token(key) not in kept]:
        del original[key]


def _merge_list(schema: Schema, original: list[Any], patch: list[Any]) -> list[Any]:
    """Merge in the patch's order; live-only items keep their place where possible."""
    if not original and not patch:
        return original
    before = list(original)
    if not _are_maps(original, patch):
        if any(isinstance(item, dict) for item in [*original, *patch]):
            raise PatchFailed(500, f"list element types are not identical: {go_text([original, patch])}")
        known = {token(item) for item in original}
        new = {token(item): item for item in patch if token(item) not in known}
        merged = [*original, *new.values()]
        return _in_order(merged, patch, before, _itself)
    if schema.merge_key is None:
        raise PatchFailed(500, f"cannot merge lists without merge key for {go_text(patch)}")
    identity = _identity(schema.merge_key)
    changes, original, replace = _sorted_out(schema.merge_key, original, patch)
    if replace:
        return [_without_directives(item) for item in changes]
    places = _places(original, identity)
    for item in changes:
        if schema.merge_key not in item:
            raise _without_key(item, schema.merge_key)
        at = places.setdefault(token(identity(item)), len(original))
        if at == len(original):
            original.append(_without_directives(item))
        else:
            original[at] = _merge_map(schema.items, original[at], item)
    return _in_order(original, changes, before, identity)


def _sorted_out(merge_key: str, original: list[Json], patch: list[Json]) -> tuple[list[Json], list[Json], bool]:
    """The patch's items that carry no directive, the list without what was deleted, and whether it is replaced."""
    changes: list[Json] = []
    gone: set[Any] = set()
    replace = False
    for item in patch:
        match item.get(_DIRECTIVE):
            case None:
                changes.append(item)
            case "delete":
                if merge_key not in item:
                    raise _without_key(item, merge_key)
                gone.add(token(item[merge_key]))
            case "replace":
                replace = True
            case "merge":
                raise PatchFailed(500, "merging lists cannot yet be specified in the patch")
            case unknown:
                raise PatchFailed(500, f"unknown patch type: {unknown} in map: {go_text(item)}")
    kept = [other for other in original if token(other.get(merge_key)) not in gone]
    return changes, kept, replace


def _without_key(item: Json, key: str) -> PatchFailed:
    return PatchFailed(500, f"map: {go_text(item)} does not contain declared merge key: {key}")


def _are_maps(*lists: list[Any]) -> bool:
    return all(isinstance(item, dict) for items in lists for item in items)


def _merge_ordered(schema: Schema | None, key: str, original: Json, patch: Json, order: Any) -> None:
    """Merges a list and puts it into the order a $setElementOrder gives."""
    _check_list(order)
    ours, theirs = original.get(key), patch.pop(key, None)
    if ours is None and theirs is None:
        return
    for found in (ours, theirs):
        if found is not None:
            _check_list(found)
    by_key = schema is not None and schema.merge_key is not None and _are_maps(ours or [], theirs or [], order)
    identity = _identity(schema.merge_key) if by_key and schema is not None and schema.merge_key else _itself
    _check_order(theirs or [], order, identity)
    before = list(ours or [])
    merged = _merge_value(schema, ours, theirs) if ours is not None and theirs is not None else theirs or ours
    original[key] = _in_order(_without_directives(merged), order, before, identity)


def _check_list(value: Any) -> None:
    if not isinstance(value, list):
        raise PatchFailed(500, f"expected a []interface {{}}, but received a {go_type(value)}")


def _check_order(patch: list[Any], order: list[Any], identity: Identity) -> None:
    wished = _places(order, identity)
    at = -1
    for item in patch:
        if isinstance(item, dict) and _DIRECTIVE in item:
            continue
        known = token(identity(item))
        if wished.get(known, -1) <= at:
            lists = f"{go_text(patch)}\n doesn't match $setElementOrder list:\n{go_text(order)}\n"
            raise PatchFailed(500, f"The order in patch list:\n{lists}")
        at = wished[known]


def _in_order(merged: list[Any], wished: list[Any], before: list[Any], identity: Identity) -> list[Any]:
    """Sort listed items by `wished`; put an unlisted item before a listed one only if the live list did."""
    order, earlier = _places(wished, identity), _places(before, identity)
    tokens = [token(identity(item)) for item in merged]
    placed = sorted((order[known], number) for number, known in enumerate(tokens) if known in order)
    right = deque(number for _, number in placed)
    left = deque(number for number, known in enumerate(tokens) if known not in order)
    out: list[Any] = []
    while left and right:
        mine, yours = tokens[left[0]], tokens[right[0]]
        first = mine in earlier and yours in earlier and earlier[mine] <= earlier[yours]
        out.append(merged[left.popleft() if first else right.popleft()])
    return [*out, *(merged[number] for number in (*left, *right))]


def _places(items: Iterable[Any], identity: Identity) -> dict[Any, int]:
    """The first index of each item."""
    places: dict[Any, int] = {}
    for number, item in enumerate(items):
        places.setdefault(token(identity(item)), number)
    return places


def _identity(merge_key: str) -> Identity:
    return lambda item: item.get(merge_key)


def _itself(item: Any) -> Any:
    return item


def _without_directives(value: Any) -> Any:
    """A new value taken over from a patch: nulls and directives have nothing to act on and go."""
    if isinstance(value, dict):
        return {
            key: _without_directives(inner)
            for key, inner in value.items()
            if inner is not None and not _is_directive(key)
        }
    if isinstance(value, list):
        return [
            _without_directives(item)
            for item in value
            if not (isinstance(item, dict) and item.get(_DIRECTIVE) in ("delete", "replace"))
        ]
    return value


def _is_directive(key: str) -> bool:
    return key in (_DIRECTIVE, _RETAIN) or key.startswith((_ORDER, _DELETE_LIST))


def strategic_problem(schema: Schema, merged: Any) -> str:
    """Why a strategically merged document does not have the kind's shape, in the words the server has for this case
    alone; empty where it has. The server quotes the patch as `json_values.go_text(patch)`, field `patch`, 422."""
    if merged is None:
        return ""
    form, kind = schema.form, _kind_word(merged)
    match form:
        case "object":
            if not isinstance(merged, dict):
                return f"cannot restore struct from: {kind}"
            inner = ((schema.fields.get(key), value) for key, value in merged.items())
            return _first(strategic_problem(field, value) for field, value in inner if field is not None)
        case "list" | "map":
            if not isinstance(merged, list if form == "list" else dict):
                return f"cannot restore {'slice' if form == 'list' else 'map'} from {kind}"
            items = schema.items
            values = merged if isinstance(merged, list) else merged.values()
            return "" if items is None else _first(strategic_problem(items, value) for value in values)
        case "bool":
            return "" if isinstance(merged, bool) else "unrecognized type: bool"
        case "int32" | "int64":
            if isinstance(merged, float) and not merged.is_integer():
                return f"cannot convert float64 to {form}"
            return "" if kind in ("int64", "float64") else f"unrecognized type: {form}"
        case "string":
            if kind == "int64":
                return f"cannot convert {kind} to {schema.go}"
            return "" if isinstance(merged, str) else "unrecognized type: string"
    return _scalar_problem(form, merged)


def _scalar_problem(form: str, value: Any) -> str:
    try:
        match form:
            case "quantity":
                scalars.canonical_quantity(value if isinstance(value, str) else json.dumps(value))
            case "time" if isinstance(value, str):
                scalars.canonical_time(value)
            case "microtime" if isinstance(value, str):
                scalars.canonical_micro_time(value)
            case "time" | "microtime":
                return f"json: cannot unmarshal {json_type(value)} into Go value of type string"
            case "bytes" if isinstance(value, str):
                scalars.check_base64(value)
            case "bytes" if not isinstance(value, list):
                return f"cannot restore slice from {_kind_word(value)}"
            case "intstr" if isinstance(value, float):
                return f"json: cannot unmarshal number {value} into Go value of type int32"
            case "intstr" if isinstance(value, bool) or not isinstance(value, int | str):
                return f"json: cannot unmarshal {json_type(value)} into Go value of type int32"
    except scalars.ScalarError as problem:
        return f"error decoding from json: {problem}" if form == "bytes" else str(problem)
    return ""


def _first(problems: Iterable[str]) -> str:
    return next((problem for problem in problems if problem), "")


def _kind_word(value: Any) -> str:
    words = {str: "string", bool: "bool", int: "int64", float: "float64", dict: "map", list: "slice"}
    return words.get(type(value), "nil")
