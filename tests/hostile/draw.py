"""Values by lot for every field that a struct reads: extreme, huge, wrong, missing, and now and then right.

What is drawn is bent from an object that any server takes, a few fields at a time: a server refuses most of what is
wrong all over, and what it refuses nobody ever reads.
"""

import copy
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import inspect as shapes

from tests.hostile.bases import ROOM_LABELS

Json = dict[str, Any]

MOST_BYTES: Final = 1_200_000
DIGITS: Final = "9" * 5000
NUMBER_TEXTS: Final = (
    "0", "1", "2", "-1", "1000", "1001", "99999999999999999999", DIGITS, "-" + DIGITS, "1e30", "1e400", "1E-400",
    "nan", "NaN",
    "inf", "-inf", "0x10", "1_000", "１２", "٣", " 1 ", "1.5", "", "-", "+", ",", "0,0", "0,1,2,3,4,5,6,7",
    "1," * 5000, "-0",
    "9223372036854775807", "9223372036854775808", "18446744073709551616", "2147483648", "true", "null", "[]",
)  # fmt: skip
STRINGS: Final = (
    "", "a", "A", "web", "hostile", "hostile-1", "x" * 63, "x" * 253, "x" * 5000, "é", "🦖", "‮abc", "a\u0000b",
    "a/b", "../..",
    "%00", "{}", "[]", "null", "\n", "a b", "-", ".", "a.b.c", "ß" * 1000, "default", "kube-system",
    *NUMBER_TEXTS[:12],
)  # fmt: skip
WORDS: Final = (
    "Exists", "DoesNotExist", "In", "NotIn", "Gt", "Lt", "Equal", "NoSchedule", "NoExecute", "PreferNoSchedule",
    "Always",
    "DoNotSchedule", "ScheduleAnyway", "Honor", "Ignore", "Never", "True", "False", "Unknown", "Ready", "Bound",
    "Running", "Lost",
    "Succeeded", "Failed", "Pending", "TCP", "UDP", "Add", "Remove", "Planned", "Scaled", "Done", "Released",
    "Immediate",
    "WaitForFirstConsumer", "PreemptLowerPriority", "ReadWriteOnce", "ReadWriteOncePod", "MemoryPressure",
    "DisruptionTarget",
)  # fmt: skip
KEYS: Final = (
    "kubernetes.io/hostname", "topology.kubernetes.io/zone", "app", "a", "nowhere.example.com/x", "", "x" * 63,
    "x" * 300,
    "fairlead.io/gpu-model", "metadata.name", "node.kubernetes.io/unschedulable", "é", "/", "a/b/c",
    "UPPER.example.com/Y",
)  # fmt: skip
RESOURCES: Final = (
    "cpu", "memory", "pods", "ephemeral-storage", "storage", "nvidia.com/gpu", "fairlead.io/gpu-milli",
    "hugepages-2Mi", "hugepages-1",
    "attachable-volumes-csi-x", "example.com/foo", "requests.cpu", "", "é", "x" * 300,
)  # fmt: skip
TIMES: Final = (
    "2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1970-01-01T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "10000-01-01T00:00:00Z", "-0001-01-01T00:00:00Z", "2026-01-01T00:00:00.123456789Z", "2026-01-01T00:00:00+23:59",
    "", "now", None,
)  # fmt: skip
INTS: Final = (
    0,
    1,
    -1,
    2,
    7,
    100,
    2**31 - 1,
    -(2**31),
    2**31,
    2**32,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**63,
    10**30,
    10**400,
)
FLOATS: Final = (0.0, -0.0, 1.5, -1.5, 1e308, 5e-324, 1e30)
QUANTITIES: Final = (
    "1", "0", "100m", "1n", "0.0000000001", "1Gi", "8Ei", "9Ei", "1E", "1e18", "1e19", "1e30", "1e300", "-1", "-1Gi",
    "99999999999999999999",
    "9223372036854775807", "9223372036854775808", "1e-30", "1.5", ".5", "5.", "1Xi", "", "x", "NaN", "0x10", "1e",
    "1e999", "9" * 400, 1, 0, -1, 1.5, 10**18,
)  # fmt: skip
WRONG: Final[tuple[Any, ...]] = (None, True, 0, "x", [], {}, [[]], {"a": {"b": []}}, [None], -1.5)
SIZES: Final = (0, 1, 1, 2, 3, 20)
LARGE: Final = (300, 1500, 5000)
SERVERS_OWN: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"}
)


class Draw:
    def __init__(self, rng: random.Random, own_names: Sequence[str], uids: Callable[[], Sequence[str]] = tuple) -> None:
        self.rng = rng
        self._own_names = own_names
        self._uids = uids

    def bent(self, base: Mapping[str, Any], struct: type[Any]) -> Json:
        """The object with some of the fields that the struct reads changed, and some of our own names on it."""
        body = copy.deepcopy(dict(base))
        rng = self.rng
        shape = shapes.type_info(struct)
        assert isinstance(shape, shapes.StructType)
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 6))):
            self._bend(body, shape)
        if rng.random() < 0.5:
            self._name(body)
        if len(json.dumps(body)) > MOST_BYTES:
            return self.bent(base, struct)
        return body

    def of(self, struct: type[Any]) -> Any:
        """A value of the struct, from nothing."""
        return self._value(shapes.type_info(struct), "", 0)

    def odd(self, thing: Any) -> Any:
        """The same JSON with something wrong somewhere."""
        thing = copy.deepcopy(thing)
        here = thing
        while True:
            keys = list(here) if isinstance(here, dict) else list(range(len(here)))
            if not keys:
                return thing
            key = self.rng.choice(keys)
            if isinstance(here[key], dict | list) and here[key] and self.rng.random() < 0.8:
                here = here[key]
                continue
            drawn = (*WRONG, *INTS, *STRINGS, *NUMBER_TEXTS, [here[key]] * 3000)
            here[key] = self.rng.choice(drawn)
            return thing

    def _name(self, body: Json) -> None:
        """Numbers and lists that our own annotations and labels could hold."""
        rng = self.rng
        metadata = body.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            return
        where = rng.choice(("annotations", "annotations", "annotations", "labels"))
        held = metadata.get(where)
        held = dict(held) if isinstance(held, dict) else {}
        if rng.random() < 0.3:
            labels = metadata.get("labels")
            metadata["labels"] = {**(labels if isinstance(labels, dict) else {}), **rng.choice(ROOM_LABELS)}
        for name in rng.sample(self._own_names, rng.randrange(1, 4)):
            held[name] = rng.choice((*NUMBER_TEXTS, *STRINGS))[: 63 if where == "labels" else None]
        metadata[where] = held

    def _bend(self, body: Any, shape: shapes.StructType) -> None:
        rng = self.rng
        fields = [field for field in shape.fields if field.encode_name not in ("apiVersion", "kind")]
        if not fields:
            return None  # a struct that only says that something is there
        field = rng.choice(fields)
        name = field.encode_name
        if shape.cls.__name__ == "ObjectMeta" and name in SERVERS_OWN:
            return None
        inner = self._struct_within(field.type)
        held = body.get(name)
        if inner is not None and rng.random() < 0.8:
            if isinstance(held, dict):
                return self._bend(held, inner)
            if isinstance(held, list) and held and isinstance(held[0], dict):
                return self._bend(rng.choice(held), inner)
            if held is None and rng.random() < 0.7:
                many = self._is_list(field.type)
                body[name] = [{}] if many else {}
                return self._bend(body[name][0] if many else body[name], inner)
        if isinstance(field.type, shapes.AnyType) and isinstance(held, dict | list) and rng.random() < 0.9:
            # Read by hand, deep inside.
            body[name] = self.odd(held)
            return None
        match rng.randrange(12):
            case 0:
                body.pop(name, None)
            case 1:
                body[name] = copy.deepcopy(rng.choice(WRONG))
            case _:
                body[name] = self._value(field.type, name, 1)
        return None

    @staticmethod
    def _is_list(shape: shapes.Type) -> bool:
        kinds = shape.types if isinstance(shape, shapes.UnionType) else (shape,)
        return any(isinstance(each, shapes.VarTupleType | shapes.ListType) for each in kinds)

    def _struct_within(self, shape: shapes.Type) -> shapes.StructType | None:
        match shape:
            case shapes.StructType():
                return shape
            case shapes.UnionType():
                return next((found for each in shape.types if (found := self._struct_within(each))), None)
            case shapes.VarTupleType() | shapes.ListType():
                return self._struct_within(shape.item_type)
        return None

    def _value(self, shape: shapes.Type, name: str, depth: int) -> Any:
        rng = self.rng
        match shape:
            case shapes.UnionType():
                kinds = [each for each in shape.types if not isinstance(each, shapes.NoneType)]
                if {type(each) for each in kinds} >= {shapes.StrType, shapes.IntType, shapes.FloatType}:
                    return rng.choice(QUANTITIES)
                return self._value(rng.choice(kinds), name, depth)
            case shapes.LiteralType():
                return rng.choice((*shape.values, *WORDS[:3], 1))
            case shapes.StrType():
                return self._text(name)
            case shapes.IntType():
                return rng.choice(INTS)
            case shapes.FloatType():
                return rng.choice(FLOATS)
            case shapes.BoolType():
                return rng.choice((True, False, False, "true"))
            case shapes.DictType():
                return self._mapping(shape, depth)
            case shapes.VarTupleType() | shapes.ListType():
                return self._list(shape.item_type, name, depth)
            case shapes.StructType():
                own = SERVERS_OWN if shape.cls.__name__ == "ObjectMeta" else ()
                fields = [f for f in shape.fields if f.encode_name not in own]
                wanted = [f for f in fields if f.required or rng.random() < 0.5 / (depth + 0.5)]
                return {f.encode_name: self._value(f.type, f.encode_name, depth + 1) for f in wanted}
            case _:
                return copy.deepcopy(rng.choice(WRONG))

    def _text(self, name: str) -> Any:
        rng = self.rng
        if name == "uid":
            return rng.choice((*self._uids(), "", "u"))
        if name.endswith(("Timestamp", "Time", "At")):
            return rng.choice(TIMES)
        if name.lower().endswith("key") or name == "matchLabelKeys":
            return rng.choice(KEYS)
        if rng.random() < 0.5 and name not in ("name", "namespace"):
            return rng.choice(WORDS)
        return rng.choice(STRINGS)

    def _size(self, depth: int) -> int:
        return self.rng.choice(LARGE if depth < 3 and self.rng.random() < 0.15 else SIZES)

    def _mapping(self, shape: shapes.DictType, depth: int) -> Json:
        rng = self.rng
        is_amounts = isinstance(shape.value_type, shapes.UnionType)
        names: Sequence[str] = RESOURCES if is_amounts else (*KEYS, *self._own_names)
        drawn = {
            rng.choice(names): self._value(shape.value_type, "", depth + 1) for _ in range(rng.choice((0, 1, 2, 5)))
        }
        size = 20_000 if is_amounts and depth < 3 and rng.random() < 0.1 else self._size(depth)
        value = rng.choice(("1", "1", "", "100m")) if is_amounts or isinstance(shape.value_type, shapes.StrType) else 1
        return drawn | {f"r{rng.randrange(10**9)}.example.com/x": value for _ in range(size if size > 20 else 0)}

    def _list(self, item: shapes.Type, name: str, depth: int) -> list[Any]:
        size = self._size(depth)
        few = [self._value(item, name, depth + 1) for _ in range(min(size, 5))]
        if size <= 5:
            return few
        return [self._another(self.rng.choice(few), number) for number in range(size)]

    @staticmethod
    def _another(thing: Any, number: int) -> Any:
        """The same under another name, so that lists by name are not refused for that alone."""
        if isinstance(thing, dict):
            changed = {
                key: f"{value}-{number}" for key, value in thing.items() if key in ("name", "key", "topologyKey")
            }
            return {**thing, **changed}
        return f"{thing}-{number}" if isinstance(thing, str) else thing
