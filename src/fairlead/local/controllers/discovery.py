"""Which kinds the server serves: for those who must look after all of them, whatever is installed."""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from fairlead.cluster.client import Client
from fairlead.cluster.errors import ClusterError
from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiObject, ApiStruct


class Resource(ApiStruct):
    name: str = ""
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()


class Resources(ApiStruct):
    group_version: str = ""
    resources: tuple[Resource, ...] = ()


class Version(ApiStruct):
    group_version: str = ""


class Group(ApiStruct):
    preferred_version: Version = Version()


class Groups(ApiStruct):
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class Served:
    kind: Kind[ApiObject]
    verbs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Catalogue:
    served: tuple[Served, ...] = ()
    missing: tuple[str, ...] = ()  # groups that did not answer

    def kind(self, api_version: str, kind: str) -> Kind[Any] | None:
        group = api_version.rpartition("/")[0]
        return next((found.kind for found in self.served if (found.kind.group, found.kind.kind) == (group, kind)), None)


async def discover(client: Client) -> Catalogue:
    """Every kind in its group's preferred version."""
    groups = msgspec.json.decode(await client.request("GET", "/apis"), type=Groups).groups
    paths = {"v1": "/api/v1"} | {
        group.preferred_version.group_version: f"/apis/{group.preferred_version.group_version}" for group in groups
    }
    answers = await asyncio.gather(*(client.request("GET", path) for path in paths.values()), return_exceptions=True)
    served: list[Served] = []
    missing: list[str] = []
    for group_version, answer in zip(paths, answers, strict=True):
        if isinstance(answer, ClusterError):
            missing.append(group_version)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            served += _served(group_version, msgspec.json.decode(answer, type=Resources).resources)
    return Catalogue(tuple(served), tuple(missing))


def _served(group_version: str, resources: tuple[Resource, ...]) -> list[Served]:
    group, _, version = group_version.rpartition("/")
    return [
        Served(Kind(group, version, found.name, found.kind, ApiObject, found.namespaced), frozenset(found.verbs))
        for found in resources
        if "/" not in found.name
    ]
