"""Which pods take part, and how: by their labels, by their namespace, or not at all."""

from collections.abc import Mapping
from typing import Final, Literal

SERVERLESS: Final = "serverless.fluid.io/inject"
DEPRECATED_SERVERLESS: Final = "fuse.sidecar.fluid.io/inject"
SERVERFUL: Final = "fuse.serverful.fluid.io/inject"
NAMESPACE: Final = "Fluid-Injection"
OPT_OUTS: Final = {"fluid.io/enable-injection": "false", NAMESPACE: "disabled"}
DONE: Final = "done.sidecar.fluid.io/inject"

Mode = Literal["serverless", "serverful", ""]


def is_serverless(labels: Mapping[str, str]) -> bool:
    return any(labels.get(key) == "true" for key in (SERVERLESS, DEPRECATED_SERVERLESS))


def mode(labels: Mapping[str, str], *, by_namespace: bool = False) -> Mode:
    """Serverless goes first; a pod that takes part by its namespace alone is serverful."""
    if is_serverless(labels):
        return "serverless"
    return "serverful" if labels.get(SERVERFUL) == "true" or by_namespace else ""


def why_not(labels: Mapping[str, str]) -> str:
    """Why the pod is left alone, or nothing."""
    for key, value in OPT_OUTS.items():
        if labels.get(key) == value:
            return f"label {key}: {value}"
    return "its sidecars are already injected" if labels.get(DONE) == "true" else ""
