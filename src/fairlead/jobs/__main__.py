"""Prints the definitions of TYJob and JobQueue, as deploy/crds/jobs.yaml holds them."""

import sys

import yaml

from fairlead.jobs.definition import definitions

HEAD = "# Made from src/fairlead/jobs/definition.py by `python -m fairlead.jobs`.\n"


class _Plain(yaml.SafeDumper):
    """Parts that occur twice are written twice: kubectl takes anchors, people do not."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def text() -> str:
    return HEAD + yaml.dump_all(definitions(), Dumper=_Plain, sort_keys=False, width=120)


if __name__ == "__main__":
    sys.stdout.write(text())
