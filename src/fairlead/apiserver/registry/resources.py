"""The resources served: built-in ones from the facts, custom ones from their definitions.

Looked up by group, version and plural for every request. Two versions of one resource, and the two groups
that events live in, share one place in the store.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from fairlead.apiserver.registry.strategies import CUSTOM, Strategies, Strategy
from fairlead.apiserver.schema import facts
from fairlead.apiserver.schema.custom import VERBS, CustomKind
from fairlead.apiserver.schema.shape import Schema, for_kind


@dataclass(frozen=True, slots=True)
class Resource(facts.Resource):
    """A served resource, with how its objects are read, written and stored."""

    schema: Schema
    strategy: Strategy
    storage_key: str
    custom: CustomKind | None = None

    @property
    def list_kind(self) -> str:
        return self.custom.list_kind if self.custom is not None else f"{self.kind}List"

    @property
    def has_status(self) -> bool:
        return self.subresource("status") is not None

    @property
    def is_stored(self) -> bool:
        return "list" in self.verbs

    def key(self, namespace: str, name: str) -> str:
        return f"{namespace}/{name}" if self.namespaced else name

    def key_prefix(self, namespace: str) -> str:
        """What the keys of the objects of a namespace begin with; "" for those of all namespaces."""
        return f"{namespace}/" if self.namespaced and namespace else ""


# The same objects under two names, kept under one.
_STORED_AS = {"/events": "events.k8s.io/events"}


class Resources:
    def __init__(self, strategies: Strategies) -> None:
        self._found: dict[tuple[str, str, str], Resource] = {}
        self._custom: dict[str, CustomKind] = {}
        for resource in facts.load().resources:
            self._add(_built_in(resource, strategies))
        self._built_in = frozenset(self._found)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._found.get((group, version, plural))

    def built_in(self, group: str, version: str, plural: str) -> Resource:
        """One that is always there."""
        return self._found[group, version, plural]

    def by_api_version(self, api_version: str, kind: str) -> Resource | None:
        group, _, version = api_version.rpartition("/")
        found = (each for each in self._found.values() if each.kind == kind and each.is_stored)
        return next((each for each in found if (each.group, each.version) == (group, version)), None)

    def stored(self) -> Iterator[Resource]:
        """Each place in the store once, by its first name."""
        seen: set[str] = set()
        for resource in self._found.values():
            if resource.is_stored and resource.storage_key not in seen:
                seen.add(resource.storage_key)
                yield resource

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._found.values())

    def custom_kind(self, storage_key: str) -> CustomKind | None:
        """The custom kind that is kept there, also where none of its versions is served."""
        return self._custom.get(storage_key)

    def has_version(self, group: str, version: str) -> bool:
        return any(each.group == group and each.version == version for each in self._found.values())

    def is_built_in(self, group: str, plural: str) -> bool:
        """Whether the server has objects of that name itself, in any version: no definition may take them over."""
        return any(key[0] == group and key[2] == plural for key in self._built_in)

    def define(self, definition: CustomKind | None, group: str, plural: str) -> None:
        """Serve a custom resource by its current definition; None ends it."""
        for key in [key for key in self._found if key[0] == group and key[2] == plural and key not in self._built_in]:
            del self._found[key]
        self._custom.pop(f"{group}/{plural}", None)
        if definition is not None:
            self._custom[f"{group}/{plural}"] = definition
            for version in definition.served_versions():
                self._add(custom(definition, version))

    def _add(self, resource: Resource) -> None:
        self._found[resource.group, resource.version, resource.plural] = resource


def _built_in(resource: facts.Resource, strategies: Strategies) -> Resource:
    schema = for_kind(resource.group, resource.version, resource.kind)
    assert schema is not None, f"the facts know no type for {resource.kind}"
    place = f"{resource.group}/{resource.plural}"
    storage_key = _STORED_AS.get(place, place)
    known = {each.name: getattr(resource, each.name) for each in fields(resource)}
    return Resource(**known, schema=schema, strategy=strategies.of(storage_key), storage_key=storage_key)


def custom(definition: CustomKind, version: str) -> Resource:
    verbs = ("get", "patch", "update")
    subresources: list[facts.Subresource] = []
    if definition.has_status(version):
        subresources.append(facts.Subresource("status", definition.group, version, definition.kind, verbs))
    if definition.scale(version) is not None:
        subresources.append(facts.Subresource("scale", "autoscaling", "v1", "Scale", verbs))
    return Resource(
        definition.group,
        version,
        definition.plural,
        definition.kind,
        definition.singular,
        definition.namespaced,
        VERBS,
        definition.short_names,
        definition.categories,
        tuple(subresources),
        definition.schema(version),
        CUSTOM,
        f"{definition.group}/{definition.plural}",
        definition,
    )
