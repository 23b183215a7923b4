"""Names of a task's carrier and its Services: kdoctor's while they are valid, else cut and hashed.

A Service's name and a label's value have at most 63 characters, and a Service's has no dots.
"""

import re
from dataclasses import dataclass
from typing import Final

from fairlead.model.hashes import short_hash

MOST: Final = 63
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_HASH_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class CarrierNames:
    workload: str
    service_v4: str
    service_v6: str

    @property
    def ingress(self) -> str:
        return self.service_v4


def carrier_names(kind: str, task: str) -> CarrierNames:
    return names_of(valid_name(f"kdoctor-{kind.lower()}-{task}"))


def names_of(workload: str) -> CarrierNames:
    return CarrierNames(workload, valid_name(workload, "-ipv4"), valid_name(workload, "-ipv6"))


def valid_name(name: str, suffix: str = "") -> str:
    """The name with its suffix, or, where that is no valid name, a part of it with a hash of the whole."""
    if len(name) + len(suffix) <= MOST and _LABEL.fullmatch(name):
        return name + suffix
    room = MOST - len(suffix) - _HASH_LENGTH - 1
    part = re.sub(r"[^-a-z0-9]", "-", name.lower())[:room].strip("-")
    return f"{part}-{short_hash(name, length=_HASH_LENGTH)}{suffix}"
