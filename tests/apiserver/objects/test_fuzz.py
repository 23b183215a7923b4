"""Objects bent at random: every answer is a value or one of our own errors, never a surprise."""

import contextlib
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead.apiserver.failures import Failure
from fairlead.apiserver.fields import managed, patches
from fairlead.apiserver.fields.elements import ApplyError
from fairlead.apiserver.json_values import copied
from fairlead.apiserver.printers.kinds import PRINTERS
from fairlead.apiserver.registry.apply import check_as
from fairlead.apiserver.schema import defaults
from fairlead.apiserver.schema import shape as schema
from fairlead.apiserver.schema.custom import CustomKind
from fairlead.apiserver.schema.facts import load
from fairlead.apiserver.validation import registry as validate
from tests.apiserver.objects import customs, manifests, mistakes

Json = dict[str, Any]
ODD: tuple[Any, ...] = (
    None,
    "",
    {},
    [],
    0,
    -1,
    "x",
    "..",
    True,
    1.5,
    [None],
    {"a": None},
    [{}],
    [[]],
    "A_b/c/d",
    2**40,
    [""],
    {"": ""},
    "\0",
    "9" * 5000,
    10**30,
    -(2**63) - 1,
    "1e400",
    "٣",
    "0001-01-01T00:00:00Z",
    "x" * 300_000,
)
KNOWN = [*manifests.GOOD.values(), *mistakes.MISTAKES.values()]
REFUSED = (Failure, schema.DecodeError, patches.PatchFailed, managed.ApplyConflict, ApplyError)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def bent(obj: Json, luck: random.Random) -> Json:
    out: Json = copied(obj)
    for _ in range(luck.randint(1, 3)):
        found = [path for path in places(out) if path[0] not in ("apiVersion", "kind")]
        if not found:
            return out
        *parents, last = luck.choice(found)
        here: Any = out
        for step in parents:
            here = here[step]
        match luck.randint(0, 3):
            case 0:
                del here[last]
            case 1 if isinstance(here, list):
                here.append(copied(here[last]))
            case _:
                here[last] = copied(luck.choice(ODD))
    return out


@pytest.mark.parametrize("seed", range(8))
def test_built_in_kinds(seed: int) -> None:
    luck = random.Random(seed)
    for _ in range(300):
        manifest = bent(luck.choice(KNOWN), luck)
        group, _, version = manifest["apiVersion"].rpartition("/")
        kind = manifest["kind"]
        shape = schema.for_kind(group, version, kind)
        assert shape is not None
        mine: Json = {"manager": "me", "api_version": manifest["apiVersion"], "time": "2026-01-02T03:04:05Z"}
        with contextlib.suppress(*REFUSED):
            check_as(shape, manifest["apiVersion"], kind, manifest)
            managed.apply(shape, None, manifest, **mine)
        try:
            obj = schema.decode(shape, manifest, "").value
        except REFUSED:
            continue
        defaults.apply_defaults(group, version, kind, obj)
        validate.validate_create(group, version, kind, obj)
        again = schema.decode(shape, obj, "")
        assert again.unknown == []
        try:
            managed.record_update(shape, None, obj, **mine)
            new = schema.decode(shape, patches.strategic_merge(shape, obj, bent(obj, luck)), "").value
        except REFUSED:
            continue
        defaults.apply_defaults(group, version, kind, new)
        validate.validate_update(group, version, kind, new, obj)
        managed.record_update(shape, obj, new, **mine)


def test_custom_kinds() -> None:
    luck = random.Random(1)
    kind = CustomKind(customs.DEFINITION)
    shape = kind.schema("v1")
    specs = [customs.probe(**spec) for spec in customs.SPECS]
    read = 0
    for _ in range(600):
        manifest = bent(luck.choice(specs), luck)
        try:
            obj = schema.decode(shape, manifest, "").value
            check_as(shape, manifest.get("apiVersion", ""), manifest.get("kind", ""), manifest)
            managed.apply(shape, None, manifest, manager="me", api_version="example.com/v1", time="x")
        except REFUSED:
            continue
        obj.setdefault("metadata", {})
        kind.default("v1", obj)
        kind.validate("v1", obj)
        kind.validate("v1", obj, schema.decode(shape, luck.choice(specs), "").value)
        assert schema.decode(shape, obj, "").unknown == []
        read += 1
    assert 0 < read < 600, "some of what is drawn can be read, and some cannot"


def test_whatever_is_valid_is_printed() -> None:
    """A row that cannot be printed would hide all others of the kind from `kubectl get`."""
    claimed = manifests.volume(claimRef={"apiVersion": "v1", "kind": "X", "namespace": "n", "name": "c", "uid": "u"})
    printed = 0
    for manifest in (claimed, *manifests.GOOD.values()):
        group, _, version = manifest["apiVersion"].rpartition("/")
        kind = manifest["kind"]
        resource, shape = load().by_kind.get((group, version, kind)), schema.for_kind(group, version, kind)
        found = None if resource is None else PRINTERS.get(f"{group}/{resource.plural}")
        if found is None or shape is None:
            continue
        paths = [path for path in places(manifest) if path[0] not in ("apiVersion", "kind", "metadata")]
        for *parents, last in paths:
            bare: Json = copied(manifest)
            bare["metadata"] |= {"namespace": "default"} if resource is not None and resource.namespaced else {}
            here: Any = bare
            for step in parents:
                here = here[step]
            del here[last]
            try:
                obj = schema.decode(shape, bare, "").value
            except REFUSED:
                continue
            defaults.apply_defaults(group, version, kind, obj)
            if not validate.validate_create(group, version, kind, obj):
                row = found[1]({**obj, "metadata": {**obj["metadata"], "name": "a"}}, datetime(2026, 1, 2, tzinfo=UTC))
                assert len(row) == len(found[0]), (kind, parents, last)
                printed += 1
    assert printed > 100
