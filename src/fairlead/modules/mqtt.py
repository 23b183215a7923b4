"""Koupleless's MQTT topics and envelopes: what one message from a base reports.

Pure. Messages about the present (heartbeats, health, lists) are dropped when they are old; results of commands never
are. `skew_ms` is how far the base's clock is behind ours, so that a wrong clock does not make a base invisible.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog

from fairlead.modules import arklet
from fairlead.modules.arklet import (
    Answer,
    Fields,
    Health,
    fields_of,
    health_of,
    number_of,
    states_of,
    text_of,
    with_record,
)
from fairlead.modules.heartbeats import BaseMetadata, Heartbeat, Unreadable, heartbeat_of, metadata_of
from fairlead.modules.spec import ACTIVATED, BROKEN, STOPPED, ModuleState

log = structlog.get_logger("fairlead.modules")

MOST_AGE_MS: Final = 10_000
MOST_MESSAGE_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class MqttReport:
    """What a message says; None where it says nothing of that."""

    identity: str = ""
    heartbeat: Heartbeat | None = None
    query: BaseMetadata | None = None
    health: Health | None = None
    one: ModuleState | None = None
    """The result of one command."""
    several: tuple[ModuleState, ...] | None = None
    """Of a batch: these modules, and no word about others."""
    every: tuple[ModuleState, ...] | None = None
    """Everything on the base."""


def topic(env: str, identity: str, what: str) -> str:
    return f"koupleless_{env.lower()}/{identity}/{what}"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a base."""

    identity: str
    what: str
    """The last part of its topic."""
    at_ms: int
    """When it was sent, by the base's clock."""
    data: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a command, and which calls it answers: command and module."""

    key: tuple[str, str]
    answer: Answer


def is_from_base(name: str) -> bool:
    parts = name.split("/")
    return len(parts) == 4 and parts[2] == "base" and parts[3] != "baseline"


def parse_message(name: str, payload: bytes | str) -> Message | None:
    """None for a message that says nothing: not for us, or not readable."""
    if not is_from_base(name) or len(payload) > MOST_MESSAGE_BYTES:
        return None
    try:
        envelope = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    if not isinstance(envelope, dict):
        return None
    parts = name.split("/")
    return Message(parts[1], parts[3], number_of(envelope, "publishTimestamp"), envelope.get("data"))


def read_message(name: str, payload: bytes | str, *, now_ms: int, skew_ms: int = 0) -> MqttReport | None:
    """None for a message that says nothing: not for us, not readable, or too old."""
    message = parse_message(name, payload)
    try:
        return report_of(message, now_ms=now_ms, skew_ms=skew_ms) if message is not None else None
    except Unreadable:
        return None


def report_of(message: Message, *, now_ms: int, skew_ms: int = 0) -> MqttReport | None:
    """Unreadable for a heartbeat or a query that is none."""
    if message.what == "bizOperation":
        return _operation(message.identity, message.data, message.at_ms)
    if message.what == "batchInstallBizResponse":
        return _batch(message.identity, message.data, message.at_ms)
    if now_ms - skew_ms - message.at_ms >= MOST_AGE_MS:
        return None
    return _present(message.identity, message.what, message.data, message.at_ms)


def subject_of(body: Fields) -> str:
    """Which module a command or an answer is about; nothing where it is about the base."""
    name, version = text_of(body, "bizName"), text_of(body, "bizVersion")
    return f"{name}:{version}" if name else ""


def reply_of(message: Message) -> Reply | None:
    """The message as the answer to a command, in the form that arklet gives over HTTP; None where it is none."""
    fields: Fields = message.data if isinstance(message.data, dict) else {}
    match message.what:
        case "bizOperation":
            return Reply((text_of(fields, "command"), subject_of(fields)), _answer(fields.get("response")))
        case "health":
            answer = _answer(fields)
            info = fields_of(fields_of(answer.fields, "healthData"), "bizInfo")
            return Reply((arklet.HEALTH, subject_of(info)), answer)
        case "simpleBiz" if isinstance(message.data, list):
            # Bounded by the message; who asked cuts it, and counts what is left out.
            listed = [_as_listed(each) for each in message.data if isinstance(each, dict)]
            return Reply((arklet.QUERY_ALL, ""), Answer(arklet.SUCCESS, data=listed))
        case _:
            return None


def _as_listed(short: Fields) -> Fields:
    return {
        "bizName": text_of(short, "name"),
        "bizVersion": text_of(short, "version"),
        "bizState": text_of(short, "state"),
        "bizStateRecords": [short.get("latestStateRecord")],
    }


def _present(identity: str, what: str, data: Any, at_ms: int) -> MqttReport | None:
    match what:
        case "heart":
            return MqttReport(identity, heartbeat=heartbeat_of(data)) if isinstance(data, dict) else None
        case "queryBaseline":
            return MqttReport(identity, query=metadata_of(data)) if isinstance(data, dict) else None
        case "health":
            health = health_of(_answer(data))
            return MqttReport(identity, health=health) if health is not None else None
        case "simpleBiz":
            states = _short_states(data, at_ms)
        case "biz":
            states = states_of(_answer(data).data, at_ms)
        case _:
            return None
    return MqttReport(identity, every=tuple(states)) if states is not None else None


def _answer(data: Any) -> Answer:
    fields: Fields = data if isinstance(data, dict) else {}
    trace = text_of(fields, "errorStackTrace", most=arklet.MOST_TRACE)
    return Answer(text_of(fields, "code"), text_of(fields, "message"), fields.get("data"), trace)


def _short_states(data: Any, at_ms: int) -> list[ModuleState] | None:
    if not isinstance(data, list):
        return None
    return [
        with_record(
            ModuleState(text_of(each, "name"), text_of(each, "version"), text_of(each, "state")),
            [each.get("latestStateRecord")],
            at_ms,
        )
        for each in data[: arklet.MOST_MODULES]
        if isinstance(each, dict)
    ]


def _operation(identity: str, data: Any, at_ms: int) -> MqttReport | None:
    fields: Fields = data if isinstance(data, dict) else {}
    command = text_of(fields, "command")
    if command not in (arklet.INSTALL, arklet.UNINSTALL):
        return None
    answer = _answer(fields.get("response"))
    is_gone = command == arklet.UNINSTALL and answer.inner_code == arklet.MISSING_BIZ
    is_done = answer.code == arklet.SUCCESS or is_gone
    name, version = text_of(fields, "bizName"), text_of(fields, "bizVersion")
    state = ModuleState(
        name,
        version,
        (ACTIVATED if command == arklet.INSTALL else STOPPED) if is_done else BROKEN,
        f"{name}:{version} {command} {'succeed' if is_done else 'failed'}",
        answer.inner_message,
        at_ms,
    )
    return MqttReport(identity, one=state)


def _batch(identity: str, data: Any, at_ms: int) -> MqttReport | None:
    fields: Fields = data if isinstance(data, dict) else {}
    if text_of(fields, "command") != arklet.BATCH_INSTALL:
        return None
    answers = _answer(fields.get("response")).fields.get("bizUrlToResponse")
    states = []
    for url, one in (answers if isinstance(answers, dict) else {}).items():
        infos = one.get("bizInfos") if isinstance(one, dict) else None
        info = infos[0] if isinstance(infos, list) and infos else None
        if not isinstance(info, dict):
            log.warning("a batch answer names no module", base=identity, url=url[:200])
            continue
        name, version, state = (text_of(info, key) for key in ("bizName", "bizVersion", "bizState"))
        word = "succeed" if state.upper() == ACTIVATED else "failed"
        reason = f"{name}:{version} {state.upper()} {word}"
        states.append(ModuleState(name, version, state.upper(), reason, text_of(one, "message"), at_ms))
    return MqttReport(identity, several=tuple(states)) if states else None
