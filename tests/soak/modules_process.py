"""One replica of `fairlead serve` for `tests.soak.modules`; with `--bug` one that is wrong on purpose.

The bugs prove the judge: `unfenced` sends whatever its lease says, and goes on in its old term after a freeze.
"""

import sys

from fairlead.cli.main import main
from fairlead.cluster.lease import NamedLease


def _never_over(self: NamedLease) -> bool:
    return True


if __name__ == "__main__":
    if "--bug=unfenced" in sys.argv:
        sys.argv.remove("--bug=unfenced")
        NamedLease.is_open = _never_over  # type: ignore[method-assign]
    main()
