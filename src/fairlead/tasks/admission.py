"""Admission of tasks: defaults for omitted blocks, and every rule with its field and what to write instead.

Pure. The schema of the CRD comes first; these are the rules that depend on the configuration, on other objects or on
blocks that the user left out. The webhook (`webhook.py`) looks the facts up and calls them.
"""

import ipaddress
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlsplit

from fairlead.model.cron import BadSchedule
from fairlead.tasks import spec as nouns
from fairlead.tasks.report_address import is_reserved
from fairlead.tasks.schedule import Schedule, parse_schedule, parse_zone

Json = dict[str, Any]

TLS_KEYS: Final = ("ca.crt", "tls.crt", "tls.key")
MOST_WARNINGS: Final = 5
MOST_PORT: Final = 65535
MOST_CAUSES: Final = 50
MOST_HOST: Final = 2048
REPORTING_S: Final = 6
"""What a round needs besides its requests: its agents learn of it, and keep five seconds for their reports."""
_DOMAIN: Final = re.compile(r"[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*\.[a-zA-Z]{2,}")
_QUERY_NAME: Final = re.compile(r"(?=.{1,254}\Z)(\*|[a-zA-Z0-9_-]{1,63})(\.[a-zA-Z0-9_-]{1,63})*\.?")
_CONTROL: Final = re.compile(r"[\0-\x1f\x7f]")
_SERVER: Final = re.compile(r"[!-~]{1,253}")
_HEADER: Final = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+:[^\r\n\0]*")
# Zero, or an empty text, and absent are one thing for these: the default.
_ZERO_IS_ABSENT: Final = dict(
    zip(nouns.DnsRequest.__struct_encode_fields__, nouns.DnsRequest.__struct_defaults__, strict=True)
)


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """The installation's defaults and bounds."""

    grace_minutes: int = 60
    qps: int = 10
    duration_s: int = 2
    timeout_ms: int = 500
    most_qps: dict[str, int] = field(default_factory=lambda: {"NetReach": 20, "AppHttpHealthy": 100, "Netdns": 100})
    ipv4: bool = True
    ipv6: bool = True


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules need to know of other objects."""

    load_balancer: bool = False
    """Whether the shared agent's Service has a load balancer's address."""
    ingress: bool = False
    tls_secret: dict[str, str] | None = None
    """Keys and values of the Secret that the task names; None when there is none."""
    may_read_tls_secret: bool = True
    has_body: bool = True
    may_read_body: bool = True


@dataclass(frozen=True, slots=True)
class Cause:
    """One broken rule."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def mutate(kind: str, spec: Any, options: AdmissionOptions, facts: Facts) -> Any:
    """The spec with omitted blocks filled in; what is no object is left for the schema to refuse."""
    if spec is not None and not isinstance(spec, dict):
        return spec
    found: Json = {**(spec or {})}
    if kind == "NetReach" and found.get("target") is None:
        found["target"] = {
            "endpoint": True,
            "multusInterface": False,
            "clusterIP": True,
            "nodePort": True,
            "loadBalancer": facts.load_balancer,
            "ingress": facts.ingress,
            "ipv4": options.ipv4,
            "ipv6": options.ipv6,
        }
    if kind == "Netdns" and found.get("target") is None:
        found["target"] = {"targetDns": {"testIPv4": options.ipv4, "testIPv6": options.ipv6 and not options.ipv4}}
    found["schedule"] = _schedule_block(found.get("schedule"))
    found["request"] = _request_block(found.get("request"), options)
    if found.get("expect") is None:
        found["expect"] = {"successRate": 1}
    if kind == "AppHttpHealthy" and isinstance(found.get("target"), dict):
        host = found["target"].get("host")
        if isinstance(host, str) and "http" not in host:
            found["target"] = {**found["target"], "host": f"http://{host}"}
    agent = found.get("agentSpec")
    if isinstance(agent, dict):
        grace = agent.get("terminationGracePeriodMinutes")
        found["agentSpec"] = {
            **agent,
            "kind": "DaemonSet" if agent.get("kind") in (None, "") else agent["kind"],
            "terminationGracePeriodMinutes": options.grace_minutes if grace is None else grace,
        }
    return found


def _schedule_block(block: Any) -> Any:
    """A whole schedule, or one whose interval has room for the timeout."""
    if block is None:
        return {"schedule": "0 60", "roundTimeoutMinute": 60, "roundNumber": 1}
    if isinstance(block, dict) and block.get("schedule") is None:
        timeout = block.get("roundTimeoutMinute", 60)
        interval = max(1, timeout) if isinstance(timeout, int) and timeout <= nouns.MOST_MINUTES else 60
        return {**block, "schedule": f"0 {interval}"}
    return block


def _request_block(block: Any, options: AdmissionOptions) -> Any:
    if block is None:
        return {
            "durationInSecond": options.duration_s,
            "qps": options.qps,
            "perRequestTimeoutInMS": options.timeout_ms,
        }
    if not isinstance(block, dict):
        return block
    return {name: _ZERO_IS_ABSENT[name] if _is_zero(name, value) else value for name, value in block.items()}


def _is_zero(name: str, value: Any) -> bool:
    """Of the field's own type: the schema refuses others."""
    return name in _ZERO_IS_ABSENT and type(value) is type(_ZERO_IS_ABSENT[name]) and not value


def validate(
    kind: str, spec: Json, annotations: dict[str, str], options: AdmissionOptions, facts: Facts, now: datetime
) -> list[Cause]:
    """Every broken rule of an object whose schema is valid."""
    causes = _schedule_causes(spec, annotations, now)
    causes += _request_causes(kind, spec, options)
    target: Json = spec.get("target") or {}
    if kind == "NetReach":
        causes += _family_causes(target, options)
    elif kind == "AppHttpHealthy":
        causes += _http_causes(spec.get("target"), facts)
    else:
        causes += _dns_causes(spec, target)
    expect: Json = spec.get("expect") or {}
    if expect.get("successRate") is None and expect.get("meanAccessDelayInMs") is None:
        causes.append(Cause("spec.expect", "name a successRate from 0 to 1 or a meanAccessDelayInMs"))
    causes += _agent_causes(spec.get("agentSpec"))
    return (causes + annotation_causes(annotations))[:MOST_CAUSES]


def warnings(spec: Json, annotations: dict[str, str]) -> tuple[str, ...]:
    """What is allowed, as it is by kdoctor, and cannot succeed; and annotations that change nothing."""
    target: Json = spec.get("target") or {}
    return (*_round_warnings(spec), *_host_warnings(target.get("host") or ""), *annotation_warnings(annotations))


def annotation_warnings(annotations: dict[str, str]) -> tuple[str, ...]:
    unknown = sorted(each for each in annotations if each.startswith(nouns.PREFIX) and each not in nouns.ANNOTATIONS)
    known = ", ".join(nouns.ANNOTATIONS)
    return tuple(
        f"metadata.annotations[{name}]: changes nothing; there are {known}" for name in unknown[:MOST_WARNINGS]
    )


def _host_warnings(host: str) -> tuple[str, ...]:
    if not host:
        return ()
    parts = urlsplit(host if "://" in host else f"http://{host}")
    where = parts.netloc.rpartition("@")[2].rpartition("]")[2]
    port = where.rpartition(":")[2] if ":" in where else ""
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.startswith("//"):
        why = "nothing can be asked there: write an address that begins with http:// or https:// and a name"
    elif port and not 0 < int(port) <= MOST_PORT:
        why = f"{port[:50]} is no port: write one from 1 to {MOST_PORT}"
    else:
        return ()
    return (f"spec.target.host: {host[:200]!r}: {why}",)


def _round_warnings(spec: Json) -> tuple[str, ...]:
    """Requests for as long as the round may last."""
    duration = (spec.get("request") or {}).get("durationInSecond", 0)
    timeout = (spec.get("schedule") or {}).get("roundTimeoutMinute", 60)
    if duration + REPORTING_S <= timeout * 60:
        return ()
    most = timeout * 60 - REPORTING_S
    why = f"a round of {timeout * 60} s has no time to report {duration} s of requests and will fail"
    return (f"spec.request.durationInSecond: {why}: write at most {most}, or a longer roundTimeoutMinute",)


def _schedule_causes(spec: Json, annotations: dict[str, str], now: datetime) -> list[Cause]:
    block: Json = spec.get("schedule") or {}
    where, timeout, number = "spec.schedule", block.get("roundTimeoutMinute", 60), block.get("roundNumber", 1)
    causes = []
    if number == 0 or number < -1:
        causes.append(Cause(f"{where}.roundNumber", f"{number} rounds: write -1 (for ever) or at least 1"))
    if timeout < 1:
        causes.append(Cause(f"{where}.roundTimeoutMinute", f"{timeout} is too short: write at least 1"))
    text = block.get("schedule")
    if text is None:
        return [*causes, Cause(f"{where}.schedule", "is missing: write one such as '0 60'")]
    try:
        schedule = parse_schedule(text, parse_zone(annotations.get(nouns.TIME_ZONE, "")))
    except BadSchedule as problem:
        return [*causes, Cause(f"{where}.schedule", str(problem))]
    return causes + _timing_causes(schedule, text, timeout, now)


def _timing_causes(schedule: Schedule, text: str, timeout: int, now: datetime) -> list[Cause]:
    if schedule.expression is None:
        interval = int(schedule.interval.total_seconds()) // 60
        if timeout > interval:
            why = f"{timeout} is longer than the interval of {interval} minutes: write at most {interval}"
            return [Cause("spec.schedule.roundTimeoutMinute", why)]
    elif not schedule.fires(now):
        return [Cause("spec.schedule.schedule", f"{text!r} never comes: no such day is in its months")]
    return []


def _request_causes(kind: str, spec: Json, options: AdmissionOptions) -> list[Cause]:
    block: Json = spec.get("request") or {}
    timeout_minutes = (spec.get("schedule") or {}).get("roundTimeoutMinute", 60)
    causes = []
    if block.get("qps", 0) > options.most_qps[kind]:
        why = f"{block['qps']} is more than this installation's maximum: write at most {options.most_qps[kind]}"
        causes.append(Cause("spec.request.qps", why))
    if block.get("perRequestTimeoutInMS", 0) > timeout_minutes * 60_000:
        why = f"is longer than a round of {timeout_minutes} minutes: write at most {timeout_minutes * 60_000}"
        causes.append(Cause("spec.request.perRequestTimeoutInMS", why))
    if block.get("durationInSecond", 0) > timeout_minutes * 60:
        why = f"is longer than a round of {timeout_minutes} minutes: write at most {timeout_minutes * 60}"
        causes.append(Cause("spec.request.durationInSecond", why))
    return causes


def _family_causes(target: Json, options: AdmissionOptions) -> list[Cause]:
    return [
        Cause(f"spec.target.{name}", f"{family} is turned off in this installation: write false")
        for name, family, is_on in (("ipv4", "IPv4", options.ipv4), ("ipv6", "IPv6", options.ipv6))
        if target.get(name) and not is_on
    ]


def _http_causes(target: Json | None, facts: Facts) -> list[Cause]:
    if target is None:
        return [Cause("spec.target", "is missing: write a host and a method")]
    causes = []
    if why := host_problem(target.get("host") or ""):
        causes.append(Cause("spec.target.host", why))
    for number, header in enumerate(target.get("header") or ()):
        if not _HEADER.fullmatch(header):
            causes.append(Cause(f"spec.target.header[{number}]", f"{header[:100]!r}: write 'Name: value'"))
    if target.get("bodyConfigmapName"):
        causes += _reference_causes(target, "bodyConfigmap", "ConfigMap", facts.may_read_body, facts.has_body)
    if target.get("tlsSecretName"):
        broken = _reference_causes(
            target, "tlsSecret", "Secret", facts.may_read_tls_secret, facts.tls_secret is not None
        )
        causes += broken or _tls_causes(facts.tls_secret or {})
    return causes


def _reference_causes(target: Json, name: str, kind: str, may_read: bool, exists: bool) -> list[Cause]:
    namespace = target.get(f"{name}Namespace")
    if not namespace:
        return [Cause(f"spec.target.{name}Namespace", f"is missing: write the namespace of the {kind}")]
    what = f"{kind} {namespace}/{target[f'{name}Name']}"
    if not may_read:
        return [Cause(f"spec.target.{name}Name", f"you may not read {what}: name one that you may get")]
    return [] if exists else [Cause(f"spec.target.{name}Name", f"there is no {what}: create it first")]


def _tls_causes(data: dict[str, str]) -> list[Cause]:
    causes = []
    for key in sorted(data):
        if key not in TLS_KEYS:
            causes.append(Cause("spec.target.tlsSecretName", f"key {key!r} of the Secret: only {', '.join(TLS_KEYS)}"))
        elif not data[key]:
            causes.append(Cause("spec.target.tlsSecretName", f"key {key!r} of the Secret is empty"))
    return causes


def host_problem(host: str) -> str:
    """What is wrong with a host: a URL, or a name or an address with or without a port."""
    example = "write one such as http://10.0.0.1, http://[fd00::1]:80 or https://example.org/path"
    if len(host) > MOST_HOST:
        return f"has {len(host)} characters: write at most {MOST_HOST}"
    if _CONTROL.search(host):
        return f"{host[:200]!r} has control characters; {example}"
    try:
        parts = urlsplit(host)
        name = parts.hostname or ""
        where = parts.netloc.rpartition("@")[2]  # behind a user and a password, if there are any
        bracketed = "[" in where
        # Only digits may follow the last colon, as a port.
        port = where.rpartition("]")[2].rpartition(":")[2] if ":" in where.rpartition("]")[2] else ""
    except ValueError as problem:
        return f"{host[:200]!r}: {problem}; {example}"
    if port and not (port.isascii() and port.isdigit()):
        return f"{host[:200]!r}: {port[:50]!r} is no port; {example}"
    if bracketed or where.count(":") > 1:
        return "" if bracketed and _is_address(name.partition("%")[0], 6) else f"{host[:200]!r}: {example}"
    if any(letter in name for letter in " <>\"'`{}|\\^"):
        return f"{host[:200]!r}: {example}"
    if "." not in name or _DOMAIN.fullmatch(name) or _is_address(name, 4):
        return ""
    return f"{host[:200]!r} is neither a name nor an address; {example}"


def _is_address(text: str, version: int) -> bool:
    try:
        return ipaddress.ip_address(text).version == version
    except ValueError:
        return False


def _dns_causes(spec: Json, target: Json) -> list[Cause]:
    causes = []
    user, dns = target.get("targetUser"), target.get("targetDns")
    if user is not None and dns is not None:
        causes.append(Cause("spec.target", "targetUser and targetDns are both given: keep one"))
    if user is None and dns is None:
        causes.append(Cause("spec.target.targetUser", "is missing: write targetUser with a server, or targetDns"))
    if user is not None and not user.get("server"):
        causes.append(Cause("spec.target.targetUser.server", "is missing: write the server's address"))
    elif user is not None and not _SERVER.fullmatch(user["server"]):
        causes.append(
            Cause("spec.target.targetUser.server", f"{user['server'][:100]!r} is neither an address nor a name")
        )
    if dns is not None and dns.get("serviceName") and not dns.get("serviceNamespace"):
        causes.append(Cause("spec.target.targetDns.serviceNamespace", "is missing: write the Service's namespace"))
    domain = (spec.get("request") or {}).get("domain")
    if domain is not None and not _QUERY_NAME.fullmatch(domain):
        causes.append(Cause("spec.request.domain", f"{domain[:100]!r} is no name that DNS can be asked for"))
    return causes


def _agent_causes(agent: Json | None) -> list[Cause]:
    if agent is None:
        return []
    causes = [
        Cause(f"spec.agentSpec.{name}", f"{agent[name]} is negative: write 0 or more")
        for name in ("deploymentReplicas", "terminationGracePeriodMinutes")
        if (agent.get(name) or 0) < 0
    ]
    causes += [
        Cause(f"spec.agentSpec.env[{number}].name", f"{each['name'][:100]!r} is Fairlead's own: choose another name")
        for number, each in enumerate(agent.get("env") or ())
        if is_reserved(each.get("name"))
    ]
    if agent.get("kind", "DaemonSet") not in ("DaemonSet", "Deployment"):
        causes.append(Cause("spec.agentSpec.kind", f"{agent['kind']!r}: write DaemonSet or Deployment"))
    return causes


def annotation_causes(annotations: dict[str, str]) -> list[Cause]:
    """Mistakes in what users may change later."""
    causes = []
    choices = {
        nouns.SUSPEND: ("true", "false"),
        nouns.OVERLAP: ("Forbid", "Replace"),
        nouns.MISSED: ("skip", "run"),
        nouns.SHARE_CARRIER: ("true", "false"),
    }
    for name, allowed in choices.items():
        if annotations.get(name, allowed[0]) not in allowed:
            causes.append(Cause(f"metadata.annotations[{name}]", f"write {' or '.join(allowed)}"))
    if nouns.START_WITH in annotations and start_with(annotations) is None:
        causes.append(Cause(f"metadata.annotations[{nouns.START_WITH}]", "write a share such as 0.9 or 90%"))
    try:
        parse_zone(annotations.get(nouns.TIME_ZONE, ""))
    except BadSchedule as problem:
        causes.append(Cause(f"metadata.annotations[{nouns.TIME_ZONE}]", str(problem)))
    return causes


def start_with(annotations: dict[str, str]) -> float | None:
    """The share of carrier pods that must be ready: all, unless the annotation says otherwise; None if it is wrong."""
    text = annotations.get(nouns.START_WITH, "1")
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)(%?)", text)
    if found is None:
        return None
    share = float(found[1]) / (100 if found[2] else 1)
    return share if 0 < share <= 1 else None


def validate_update(
    old_spec: Any, new_spec: Any, annotations: dict[str, str], before: dict[str, str] | None = None
) -> list[Cause]:
    """`before` are the annotations that the task had."""
    if old_spec != new_spec:
        why = "is immutable: delete the task and create it again, or use the annotations tasks.fairlead.io/..."
        return [Cause("spec", why)]
    share = nouns.SHARE_CARRIER
    if before is not None and (before.get(share) == "true") != (annotations.get(share) == "true"):
        why = "is read when the carrier is made: delete the task and create it again"
        return [Cause(f"metadata.annotations[{share}]", why)]
    return annotation_causes(annotations)
