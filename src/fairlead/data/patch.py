"""The JSON patch (RFC 6902) that turns one tree into another: `add` and `replace` alone, parents first.

`remove` and `test` would turn a race with another webhook into a failed request; what loses a key is replaced whole.
"""

from typing import Any

Patch = list[dict[str, Any]]


def diff(old: Any, new: Any) -> Patch:
    patch: Patch = []
    if not _same(old, new):
        _diff(old, new, "", patch)
    return patch


def _diff(old: Any, new: Any, path: str, patch: Patch) -> None:
    """Of two trees that are not the same."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() <= new.keys():
        for key in sorted(key for key, value in new.items() if key not in old or not _same(old[key], value)):
            where = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key in old:
                _diff(old[key], new[key], where, patch)
            else:
                patch.append({"op": "add", "path": where, "value": new[key]})
    elif isinstance(old, list) and isinstance(new, list) and (places := _aligned(old, new)) is not None:
        for index, value in enumerate(new):
            if index not in places:
                patch.append({"op": "add", "path": f"{path}/{index}", "value": value})
        for index, before in places.items():
            if not _same(old[before], new[index]):
                _diff(old[before], new[index], f"{path}/{index}", patch)
    else:
        patch.append({"op": "replace", "path": path, "value": new})


def _aligned(old: list[Any], new: list[Any]) -> dict[int, int] | None:
    """Which item of the new list is which of the old, in the same order; None if an old one is gone."""
    places: dict[int, int] = {}
    index = 0
    for before, value in enumerate(old):
        while index < len(new) and not _is_item(value, new[index]):
            index += 1
        if index == len(new):
            return None
        places[index] = before
        index += 1
    return places


def _is_item(old: Any, new: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict) and "name" in old:
        return old["name"] == new.get("name") and ("mountPath" not in old or old["mountPath"] == new.get("mountPath"))
    return _same(old, new)


def _same(old: Any, new: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return type(old) is type(new) and old == new
