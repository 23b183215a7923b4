"""Labels, taints and names of bases and modules: Koupleless's own keys, and how foreign text becomes a valid name.

Pure; used by every file of this room. Nothing that a base or a pod says enters a name or a label unchecked.
"""

import hashlib
import re
from typing import Final

COMPONENT: Final = "virtual-kubelet.koupleless.io/component"
ENV: Final = "virtual-kubelet.koupleless.io/env"
STRATEGY: Final = "virtual-kubelet.koupleless.io/strategy"
REPLICAS_CONTROL: Final = "virtual-kubelet.koupleless.io/replicas-control"
MODULE: Final = "module"
MODULE_DEPLOYMENT: Final = "module-deployment"
VNODE: Final = "vnode"
VNODE_LEASE: Final = "vnode-lease"
PEER: Final = "peer"

BASE_NAME: Final = "base.koupleless.io/name"
BASE_VERSION: Final = "base.koupleless.io/version"
CLUSTER_NAME: Final = "base.koupleless.io/cluster-name"
HOST_NAME: Final = "base.koupleless.io/host-name"
CONTAINER_NAME: Final = "base.koupleless.io/container-name"
"""On a base pod of several containers: which one is the base."""
TUNNEL_PORT: Final = "base.koupleless.io/tunnel-port"
BASE_STACK: Final = "base.koupleless.io/stack"
# As Koupleless's pages have them, though its code writes them no more: manifests select by them.
PAGE_NAME: Final = "vnode.koupleless.io/name"
PAGE_VERSION: Final = "vnode.koupleless.io/version"
PAGE_TUNNEL: Final = "vnode.koupleless.io/tunnel"
# The second family, of the design that Koupleless grew from.
STACK: Final = "basement.koupleless.io/stack"
BASEMENT_VERSION: Final = "basement.koupleless.io/version"
# Raw values and what is found again after a restart; annotations take any text.
IDENTITY: Final = "base.koupleless.io/identity"
RAW_VERSION: Final = "base.koupleless.io/raw-version"
ADDRESS: Final = "base.koupleless.io/address"
LEDGER: Final = "fairlead.io/installed-modules"
"""On the lease of a node: the keys that Fairlead installed on its base, by namespace, as a JSON object."""
BEGUN: Final = "fairlead.io/begun-installs"
"""On the lease of a node: the installs that were begun, by key, as a JSON object."""
BOOT_ID: Final = "base.koupleless.io/boot-id"
TUNNEL: Final = "fairlead.io/mqtt-identity"
"""On a node: the identity by which its base is reached through the broker."""
TLS: Final = "fairlead.io/arklet-tls"
"""On a node: its base's arklet speaks TLS."""
SKEW: Final = "fairlead.io/clock-behind-seconds"
"""On a node: how far the clock of its base is behind ours."""
POD_NAMESPACE: Final = "base.koupleless.io/pod-namespace"
POD_NAME: Final = "base.koupleless.io/pod-name"
POD_UID: Final = "base.koupleless.io/pod-uid"
KNOWN_POD_UID: Final = "fairlead.io/known-pod-uid"
"""On a node: the uid of its base's pod, once the cluster of the base pods has shown it."""

VIRTUAL_NODE_TAINT: Final = "schedule.koupleless.io/virtual-node"
NODE_ENV_TAINT: Final = "schedule.koupleless.io/node-env"

MODULE_LABEL_PREFIX: Final = "module.koupleless.io/"
INSTALLED: Final = "module.koupleless.io/installed"
READY: Final = "module.koupleless.io/ready"
FAILURE_POLICY: Final = "module.koupleless.io/failure-policy"
INSTALL_STRATEGY: Final = "module.koupleless.io/install-strategy"
BIZ_NAME_PREFIX: Final = "module.koupleless.io/biz-name."

MODULE_MEMORY: Final = "fairlead.io/module-memory"

MOST_NAME: Final = 63
"""Node names are the value of the label kubernetes.io/hostname too, and a label's value is no longer than this."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


def safe_name(text: str) -> str:
    """A DNS-1123 subdomain of at most 63 characters; text that had to change for it ends in a hash of what it was."""
    if len(text) <= MOST_NAME and _NAME.fullmatch(text):
        return text
    plain = re.sub(r"[^a-z0-9.-]+", "-", text[:1024].lower())
    parts = [part.strip("-") for part in plain.split(".")]
    kept = ".".join(part for part in parts if part)[: MOST_NAME - 11].strip("-.")
    return f"{kept or 'x'}-{_digest(text)}"


def safe_label(text: str) -> str:
    """A label's value; text that had to change for it ends in a hash of what it was. Nothing stays nothing."""
    if not text or (len(text) <= MOST_NAME and _LABEL.fullmatch(text)):
        return text
    kept = re.sub(r"[^A-Za-z0-9._-]+", "-", text[:1024])[: MOST_NAME - 11].strip("-._")
    return f"{kept or 'x'}-{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:10]


def koupleless_node_name(identity: str, env: str, stand_in: str = "") -> str:
    """`vnode.{identity}.{env}`; a base without identity is named by its `stand_in`: whatever else tells it apart."""
    shown = identity or f"unnamed-{_digest(stand_in)}"
    return safe_name(f"vnode.{shown}.{env}")


def seed_node_name(stack: str, namespace: str, pod: str, between: str = "-") -> str:
    """`virtual-node-{stack}-{namespace}-{podname}`: of a base that is a pod."""
    return safe_name(f"virtual-node-{stack}-{namespace}{between}{pod}")


def podless_node_name(cluster_name: str, identity: str, stand_in: str = "", between: str = "-") -> str:
    """Of a base that is no pod: by the cluster it says it belongs to, and its identity."""
    shown = identity or f"unnamed-{_digest(stand_in)}"
    return safe_name(f"virtual-node-{cluster_name or 'default'}{between}{shown}")
