"""Where agents post their reports, and with them their tokens: nothing that the author of a task can write.

An address that all replicas share is in the agents' template. Where each replica has its own, the leader keeps it in a
ConfigMap of Fairlead's namespace, which agents may read by its name: a fail-over replaces no pod.
"""

import ipaddress
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from fairlead.model.kinds import Kind
from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.settings import Settings
from fairlead.tasks.spec import AgentSpec
from fairlead.tasks.templates import API_SERVICE

KEY: Final = "apiURL"
FAULT: Final = "AGENT_FAULT"
RESERVED: Final = ("AGENT_", "FAIRLEAD_", "KUBERNETES_", "PYTHON", "LD_", "SSL_", "OPENSSL_")
"""Variables by which an agent finds its token, the API servers and its code."""


class AddressMap(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


ADDRESS_MAPS = Kind("", "v1", "configmaps", "ConfigMap", AddressMap)


def shared_url(settings: Settings, own_url: str, is_loopback: bool) -> str:
    """The address of all replicas; empty where each has one of its own."""
    if settings.tasks.api_url:
        return settings.tasks.api_url
    host = settings.listen.rpartition(":")[0]
    if is_loopback or host not in ("", "0.0.0.0", "[::]"):
        return ""
    scheme, port = own_url.partition(":")[0], own_url.rpartition(":")[2]
    return f"{scheme}://{API_SERVICE}.{settings.namespace}.svc:{port}"


def is_private(url: str) -> bool:
    """Whether a token may be sent there: over TLS, or without leaving the machine."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return True
    try:
        return parts.scheme == "http" and ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


def is_reserved(name: Any) -> bool:
    return isinstance(name, str) and name.startswith(RESERVED) and name != FAULT


def without_reserved(spec: Any) -> Any:
    """The spec of a task without variables of its author that would lead its agents elsewhere."""
    agent: AgentSpec | None = spec.agent_spec
    if agent is None or not agent.env:
        return spec
    env = [each for each in agent.env if not is_reserved(each.get("name"))]
    return msgspec.structs.replace(spec, agent_spec=msgspec.structs.replace(agent, env=env))
