"""The module room's nouns: modules as pods describe them, their states as bases report them.

Pure. A container of a module pod is one module: its name, its version (env BIZ_VERSION or MODULE_VERSION), its image
as the URL of the artefact.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from fairlead.modules.names import BIZ_NAME_PREFIX
from fairlead.nodes.spec import Container, KubeletPod

VERSION_NAMES: Final = ("BIZ_VERSION", "MODULE_VERSION")
_URL: Final = re.compile(r"https?://|file:/", re.IGNORECASE)
"""How a URL begins; a base says what is wrong with the rest."""
MOST_TEXT: Final = 4096
MOST_IDENTITY: Final = 253
"""Characters of a module's name, and of its version: they are noted on the lease of its base's node."""

RESOLVED: Final = "RESOLVED"
ACTIVATED: Final = "ACTIVATED"
DEACTIVATED: Final = "DEACTIVATED"
BROKEN: Final = "BROKEN"
STOPPED: Final = "STOPPED"


@dataclass(frozen=True, slots=True)
class Module:
    """What one container asks for."""

    name: str
    version: str
    url: str
    args: tuple[str, ...] = ()
    envs: tuple[tuple[str, str], ...] = ()
    strategy: str = ""
    """What becomes of other versions: arklet's word, nothing for its own choice."""

    @property
    def key(self) -> str:
        return f"{self.name}:{self.version}"


@dataclass(frozen=True, slots=True)
class ModuleState:
    """What a base says of one module. `state` is as received; bases spell it in either case."""

    name: str
    version: str
    state: str
    reason: str = ""
    message: str = ""
    changed_ms: int | None = None
    """When the module changed, by the base's clock; None: it did not say."""

    @property
    def key(self) -> str:
        return f"{self.name}:{self.version}"


def module_of(container: Container, annotations: Mapping[str, str] | None = None) -> Module:
    """The container's module. Of variables given twice the first counts, as with the original controller."""
    name = (annotations or {}).get(f"{BIZ_NAME_PREFIX}{container.name}") or container.name
    return Module(name, version_of(container), container.image)


def version_of(container: Container) -> str:
    for name in VERSION_NAMES:
        value = next((each.value for each in container.env or () if each.name == name), None)
        if value:
            return value
    return ""


def modules_of(pod: KubeletPod) -> dict[str, Module]:
    """By container."""
    return {each.name: module_of(each, pod.metadata.annotations) for each in pod.spec.containers}


def problem_with(container: Container, annotations: Mapping[str, str]) -> tuple[str, str] | None:
    """Why no base could install it: a reason and a sentence for the pod's author; None where nothing is wrong."""
    module = module_of(container, annotations)
    if len(module.name) > MOST_IDENTITY or ":" in module.name:
        return (
            "ModuleNameInvalid",
            f'annotation {BIZ_NAME_PREFIX}{container.name} "{module.name[:200]}" is no name of a module: '
            f"write at most {MOST_IDENTITY} characters without a colon",
        )
    if len(module.version) > MOST_IDENTITY:
        return (
            "ModuleVersionInvalid",
            f'the version "{module.version[:60]}…" of container "{container.name}" is longer than {MOST_IDENTITY} '
            "characters",
        )
    if not module.version:
        return (
            "ModuleVersionMissing",
            f'container "{container.name}" names no module version: set the variable BIZ_VERSION (or MODULE_VERSION)',
        )
    if len(container.image) > MOST_TEXT or not _URL.match(container.image):
        return (
            "ModuleUrlInvalid",
            f'image "{container.image[:200]}" of container "{container.name}" is no URL of a module: '
            "write it with its protocol, one of http://, https://, file://",
        )
    return None


def problems_with(containers: Iterable[Container], annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    return [problem for each in containers if (problem := problem_with(each, annotations)) is not None]
