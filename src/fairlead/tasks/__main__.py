"""Prints what an administrator applies: `python -m fairlead.tasks crds|agent > deploy/...`."""

import sys

import msgspec
import yaml

from fairlead.settings import TaskSettings
from fairlead.tasks import carrier
from fairlead.tasks.spec import definitions
from fairlead.tasks.templates import API_SERVICE, TOKEN_FOLDER, agent_access, built_in, token_mount, token_volume

NAMESPACE = "fairlead-system"
API_URL = f"https://{API_SERVICE}.{NAMESPACE}.svc:8470"


def crds() -> str:
    return yaml.safe_dump_all(definitions(), sort_keys=False, width=120)


def agent() -> str:
    """The shared agent with its account: for clusters where it should be there before the first task."""
    options = carrier.CarrierOptions(NAMESPACE, built_in(TaskSettings()))
    env = {"AGENT_API_URL": API_URL, "AGENT_TOKEN_FILE": f"{TOKEN_FOLDER}/token"}
    shared = carrier.adapted(
        carrier.build_shared(options, "fairlead-agent"),
        (),
        carrier.Adaptation(env=env, volumes=[token_volume()], mounts=[token_mount()]),
    )
    services = [{**each, "spec": {**each["spec"], "type": "NodePort"}} for each in shared.services]
    parts = [*(body for _, body in agent_access(NAMESPACE)), shared.workload, *services]
    # Without shared parts, which YAML would print as anchors.
    return yaml.safe_dump_all(msgspec.json.decode(msgspec.json.encode(parts)), sort_keys=False, width=120)


if __name__ == "__main__":
    print({"crds": crds, "agent": agent}[sys.argv[1]](), end="")
