"""Prints the definition of ScheduleRequest, as deploy/crds/schedulerequests.yaml holds it."""

import sys

import yaml

from fairlead.placement.requests.spec import definition

HEAD = "# Made from src/fairlead/placement/requests/spec.py by `python -m fairlead.placement.requests`.\n"


def text() -> str:
    return HEAD + yaml.safe_dump(definition(), sort_keys=False, width=120)


if __name__ == "__main__":
    sys.stdout.write(text())
