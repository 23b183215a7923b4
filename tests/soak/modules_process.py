"""One replica of `fairlead serve` for `tests.soak.modules` and `tests.soak.module_kills`; with `--bug` a wrong one.

The bugs prove the judges. `--brisk` looks more often at what is looked at now and then, and waits less for bases that
do not answer. `--forking` has everything imported and starts a replica for every line that it reads: each is a process
of its own, there after a moment.
"""

import sys
from dataclasses import replace
from typing import Any

from fairlead import app
from fairlead.cli.main import main
from fairlead.cluster.lease import NamedLease
from fairlead.modules import bases, client, heal_grants, healer, installer
from fairlead.modules.healer import Healer
from fairlead.modules.installer import Installer
from fairlead.modules.members import Members
from tests.soak.forking import run

BRISK = (
    (healer, "TURN_S", 0.3),
    (heal_grants, "TURN_S", 0.3),
    (bases, "CHECK_S", 0.5),
    (bases, "POD_GONE_REMOVE_S", 1.5),
    (client, "COMMAND_S", 2.0),
    (installer, "FIRST_BACKOFF_S", 0.3),
    (installer, "AWAY_S", 0.3),
    (installer, "BUSY_S", 0.2),
)


def _put(where: Any, name: str, value: Any) -> None:
    setattr(where, name, value)


def unfenced() -> None:
    """Sends whatever its lease says, and goes on in its old term after a freeze."""
    _put(NamedLease, "is_open", lambda self: True)


def blind() -> None:
    """What came instead of a module is not looked for."""

    async def nothing(self: Installer, *_: Any) -> list[str]:
        return []

    _put(Installer, "_remove_strangers", nothing)


def hasty() -> None:
    """A base's pod on its way out counts as there, and is deleted again."""
    real = Healer._input

    async def without_leaving(self: Healer, name: str, patient: healer.Patient) -> Any:
        return replace(await real(self, name, patient), is_pod_leaving=False)

    _put(Healer, "_input", without_leaving)


def greedy() -> None:
    """Takes nodes that another replica serves."""

    async def over(self: Members, identity: str) -> bool:
        return True

    _put(Members, "is_over", over)
    _put(Members, "is_alive", lambda self, identity: identity == self.me)


BUGS = {each.__name__: each for each in (unfenced, blind, hasty, greedy)}


if __name__ == "__main__":
    assert app.CAPABILITIES  # imported before anything is forked
    if "--brisk" in sys.argv:
        sys.argv.remove("--brisk")
        for room, name, seconds in BRISK:
            _put(room, name, seconds)
    for argument in [each for each in sys.argv if each.startswith("--bug=")]:
        sys.argv.remove(argument)
        BUGS[argument.removeprefix("--bug=")]()
    run(main)
