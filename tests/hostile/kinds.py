"""Every kind that Fairlead's code knows, found in the code: a kind that is added later is drawn from then on."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

import fairlead
from fairlead.model.kinds import Kind

LEFT_OUT: Final = {
    "tokenreviews.authentication.k8s.io": "an answer, not an object",
    "subjectaccessreviews.authorization.k8s.io": "an answer, not an object",
    "nodes.metrics.k8s.io": "served by metrics-server, written by nobody",
    "pods.metrics.k8s.io": "served by metrics-server, written by nobody",
    "events.events.k8s.io": "written by us, read by nobody",
    "customresourcedefinitions.apiextensions.k8s.io": "an administrator's",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": "an administrator's",
    "validatingwebhookconfigurations.admissionregistration.k8s.io": "an administrator's",
    "kdoctorreports.system.kdoctor.io": "served by us, written by nobody",
    "apiservices.apiregistration.k8s.io": "an administrator's",
}
OWN_NAME: Final = re.compile(r"[\w.-]*(fairlead|kdoctor|fluid|koupleless)\.io/[\w.-]+")


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(fairlead.__path__, "fairlead."):
        if not found.name.startswith(("fairlead.testing", "fairlead.__main__")):
            yield importlib.import_module(found.name)


def values(thing: Any, depth: int = 2) -> Iterator[Any]:
    """What a module's name holds, and what the tuples and dicts among them hold."""
    yield thing
    if depth and isinstance(thing, tuple | frozenset):
        for each in thing:
            yield from values(each, depth - 1)
    elif depth and isinstance(thing, dict):
        for each in thing.values():
            yield from values(each, depth - 1)


def known_kinds(*, of_placement: bool = False) -> dict[str, list[Kind[Any]]]:
    """By name, with each struct that somebody decodes it into; `of_placement` leaves the embedded cluster's own out."""
    found: dict[str, list[Kind[Any]]] = {}
    for module in modules():
        if of_placement and module.__name__.startswith(("fairlead.local", "fairlead.nodes", "fairlead.up")):
            continue
        for kind in (each for name in vars(module).values() for each in values(name) if isinstance(each, Kind)):
            if kind.name not in LEFT_OUT and kind not in found.setdefault(kind.name, []):
                found[kind.name].append(kind)
    return dict(sorted(found.items()))


def own_names() -> list[str]:
    """Annotations and labels that the code gives a meaning to."""
    strings = {
        each
        for module in modules()
        for name in vars(module).values()
        for each in values(name)
        if isinstance(each, str) and OWN_NAME.fullmatch(each)
    }
    foreign = {"controller.kubernetes.io/pod-deletion-cost", "nvidia.com/gpu.memory", "nvidia.com/gpu.product"}
    return sorted(each for each in strings | foreign if not re.search(r"/v\d", each))
