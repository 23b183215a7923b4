"""What a base says when it announces itself: over HTTP, or inside an MQTT envelope.

Pure. A heartbeat is a hint, never a right: `modules.bases` decides whether it makes a node.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from fairlead.modules.arklet import DEFAULT_PORT, Fields, number_of, text_of
from fairlead.modules.spec import ACTIVATED, DEACTIVATED

MOST_HEARTBEAT_BYTES: Final = 65536
JAVA: Final = "java"


class Unreadable(ValueError):
    """The body is no heartbeat; the message says why."""


@dataclass(frozen=True, slots=True)
class BaseMetadata:
    identity: str = ""
    name: str = ""
    version: str = ""
    cluster_name: str = ""
    stack: str = JAVA


@dataclass(frozen=True, slots=True)
class Heartbeat:
    metadata: BaseMetadata = BaseMetadata()
    ip: str = ""
    host_name: str = ""
    port: int = 0
    """Arklet's; 0 where the base did not say."""
    is_active: bool = False
    boot_id: str = ""
    pod_namespace: str = ""
    pod_name: str = ""
    pod_uid: str = ""
    tunnel: str = ""
    """By which identity the base is reached through the broker; nothing where it was not heard there."""
    is_tls: bool = False
    """Its arklet speaks TLS."""
    skew_s: float = 0.0
    """How far its clock is behind ours, as far as its messages tell."""

    @property
    def arklet_port(self) -> int:
        return self.port or DEFAULT_PORT

    @property
    def state(self) -> str:
        return ACTIVATED if self.is_active else DEACTIVATED

    @property
    def pod(self) -> tuple[str, str]:
        """Its namespace and name; nothing of a base that is no pod."""
        return self.pod_namespace, self.pod_name

    @property
    def stand_in(self) -> str:
        """What tells a base without an identity apart from others."""
        return f"{self.ip}|{self.port}|{self.host_name}"


def merged(known: Heartbeat, beat: Heartbeat) -> Heartbeat:
    """The heartbeat with what an earlier one of the same base said and this one does not: each way tells its own.

    Over MQTT a base names no port; one that was found by its pod has named nothing at all.
    """
    is_there = beat.ip == known.ip
    metadata = beat.metadata
    if not metadata.identity and known.metadata.identity:
        metadata = known.metadata
    return replace(
        beat,
        metadata=metadata,
        port=beat.port or (known.port if is_there else 0),
        boot_id=beat.boot_id or (known.boot_id if is_there else ""),
        host_name=beat.host_name or known.host_name,
        pod_namespace=beat.pod_namespace or known.pod_namespace,
        pod_name=beat.pod_name or known.pod_name,
        pod_uid=beat.pod_uid or known.pod_uid,
        tunnel=beat.tunnel or (known.tunnel if known.tunnel == metadata.identity else ""),
        is_tls=beat.is_tls or (bool(beat.tunnel) and known.is_tls),
        skew_s=beat.skew_s if beat.tunnel else known.skew_s,
    )


def parse_heartbeat(body: bytes | str) -> Heartbeat:
    return heartbeat_of(_decode(body, "heartbeat"))


def parse_metadata(body: bytes | str) -> BaseMetadata:
    """Of a query for the baseline."""
    return metadata_of(_decode(body, "query"))


def _decode(body: bytes | str, what: str) -> Fields:
    if len(body) > MOST_HEARTBEAT_BYTES:
        raise Unreadable(f"the {what} is longer than {MOST_HEARTBEAT_BYTES} bytes")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        raise Unreadable(f"not JSON: {problem}") from None
    if not isinstance(value, dict):
        raise Unreadable("not a JSON object")
    return value


def _fields(value: Any, **types: type) -> Fields:
    """An object whose named fields are of their types, or null, which counts as absent; Unreadable otherwise."""
    if not isinstance(value, dict | None):
        raise Unreadable("a part that must be a JSON object is none")
    fields: Fields = value or {}
    for name, kind in types.items():
        if type(fields.get(name)) not in (kind, type(None)):
            raise Unreadable(f"{name} is no {'text' if kind is str else 'whole number'}")
    return fields


def heartbeat_of(value: Any) -> Heartbeat:
    """Unreadable where a field that the original reads is of another type."""
    fields = _fields(value, localIP=str, localHostName=str, state=str, port=int)
    port = number_of(fields, "port")
    return Heartbeat(
        metadata_of(fields.get("baseMetadata")),
        text_of(fields, "localIP"),
        text_of(fields, "localHostName"),
        port if 0 < port < 65536 else 0,
        text_of(fields, "state").upper() == ACTIVATED,
        text_of(fields, "bootId"),
        text_of(fields, "podNamespace"),
        text_of(fields, "podName"),
        text_of(fields, "podUid"),
        is_tls=fields.get("tls") is True,
    )


def metadata_of(value: Any) -> BaseMetadata:
    fields = _fields(value, identity=str, name=str, version=str, clusterName=str)
    return BaseMetadata(
        text_of(fields, "identity"),
        text_of(fields, "name"),
        text_of(fields, "version"),
        text_of(fields, "clusterName"),
        text_of(fields, "stack") or JAVA,
    )
