"""The ledger of a base: the modules that were installed through us, each with its pod's namespace, and begun installs.

It is on the lease of the node, so that a successor knows it.

Pure; `modules.installer` adds to it before each install, `modules.bases` writes and reads it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from fairlead.model.undecodable import decode_or_none
from fairlead.modules.spec import Module

MOST_BYTES: Final = 128 << 10
"""Of both annotations together; an object may have 256 KiB of annotations."""

Begun = Mapping[str, tuple[str, ...]]
"""Installs whose end is not known, by key: with the other versions of the module that the base had before."""


def write_installed(ledger: Mapping[str, str]) -> str:
    """The keys of each namespace."""
    keys: dict[str, list[str]] = {}
    for key, namespace in sorted(ledger.items()):
        keys.setdefault(namespace, []).append(key)
    return msgspec.json.encode(keys).decode()


def read_installed(text: str) -> dict[str, str]:
    """Namespaces by key; what cannot be read names none, and then nothing is removed."""
    keys = decode_or_none(text, dict[str, list[str]]) or {}
    return {key: namespace for namespace, listed in keys.items() for key in listed}


def write_begun(begun: Begun) -> str:
    return msgspec.json.encode(dict(sorted(begun.items()))).decode()


def read_begun(text: str) -> dict[str, tuple[str, ...]]:
    """What cannot be read names none."""
    return decode_or_none(text, dict[str, tuple[str, ...]]) or {}


def has_room(ledger: Mapping[str, str], begun: Begun, key: str, namespace: str, others: Iterable[str]) -> bool:
    """Whether one more install can be noted: what a lease cannot hold would keep everybody's installs waiting."""
    if key in ledger and key in begun:
        return True
    noted = write_installed({**ledger, key: namespace}), write_begun({**begun, key: tuple(others)})
    return sum(len(text.encode()) for text in noted) <= MOST_BYTES


def other_holder(held: Mapping[str, str], module: Module, namespace: str) -> str:
    """The other namespace that has a module of this name on the base, in whatever version; nothing where there is none.
    `held`: namespaces by key.

    Versions of one name take each other's place on a base, so a name belongs to the namespace that had it first.
    """
    if held.get(module.key) == namespace:
        return ""
    holders = (holder for key, holder in held.items() if key.partition(":")[0] == module.name)
    return next((holder for holder in holders if holder != namespace), "")
