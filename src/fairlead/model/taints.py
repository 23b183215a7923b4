"""Taints and tolerations, and whether a toleration matches a taint."""

from collections.abc import Iterable
from typing import Final

from fairlead.model.meta import ApiStruct

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
UNSCHEDULABLE_KEY: Final = "node.kubernetes.io/unschedulable"
UNREADY_KEYS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


class Taint(ApiStruct):
    key: str = ""
    value: str = ""
    effect: str = ""


class Toleration(ApiStruct):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Lt and Gt never match: their feature gate is off in 1.36."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


CORDON: Final = Taint(key=UNSCHEDULABLE_KEY, effect=NO_SCHEDULE)


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(toleration.tolerates(taint) for toleration in tolerations)
