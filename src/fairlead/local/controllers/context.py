"""What every workload controller is built from: the shell's context, with mirrors of all kinds."""

from dataclasses import dataclass

from fairlead.cluster.shell import ShellContext
from fairlead.local.controllers.mirrors import Mirrors


@dataclass(frozen=True, slots=True)
class ControllerContext(ShellContext):
    mirrors: Mirrors
