"""The wire of arklet: what is sent for each command, and what its answers mean.

Pure; `modules.client` carries the bytes, the Python base answers in the same form. Bodies come from programs we do
not know: whatever cannot be read is an unknown outcome, never an exception.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import msgspec

from fairlead.modules.spec import ACTIVATED, BROKEN, MOST_TEXT, STOPPED, Module, ModuleState

DEFAULT_PORT: Final = 1238
MOST_SECONDS: Final = 1e12
INSTALL: Final = "installBiz"
UNINSTALL: Final = "uninstallBiz"
UNINSTALL_THEN_INSTALL: Final = "uninstallThenInstall"
STRATEGIES: Final = ("installOnly", UNINSTALL_THEN_INSTALL)
BATCH_INSTALL: Final = "batchInstallBiz"
SWITCH: Final = "switchBiz"
QUERY_ALL: Final = "queryAllBiz"
QUERY_OPS: Final = "queryBizOps"
HEALTH: Final = "health"
QUERY_LOG: Final = "queryBizLog"
STATS: Final = "bizStats"
"""The last two are the Python base's own."""

SUCCESS: Final = "SUCCESS"
FAILED: Final = "FAILED"
UNKNOWN_COMMAND: Final = "CMD_NOT_FOUND"
INTERNAL_ERROR: Final = "CMD_PROCESS_INTERNAL_ERROR"
REPEAT_BIZ: Final = "REPEAT_BIZ"
MISSING_BIZ: Final = "NOT_FOUND_BIZ"
OTHER_BIZ: Final = "BIZ_IDENTITY_MISMATCH"
"""Of a Python base, which reads an artefact before it installs it."""

REJECTIONS: Final = ("should not be blank", "should be both blank", "no protocol", "unknown protocol")
"""What arklet says of a request that is itself at fault."""

MOST_MODULES: Final = 10_000
MOST_CPUS: Final = 4096
MOST_TRACE: Final = 65536

Fields = Mapping[str, Any]


class Outcome(Enum):
    """What a command has come to. Only an unknown one is looked into (queryAllBiz) before anything is sent again."""

    DONE = "done"
    ALREADY = "already"
    """Installed before, or gone before: look whose it is."""
    RUNNING = "running"
    """Accepted, and under way (an asynchronous command)."""
    BUSY = "busy"
    """Another command works on the same module; later."""
    REJECTED = "rejected"
    """The request itself is at fault."""
    BROKEN = "broken"
    """The module did not start or stop."""
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply as far as it could be read. `code` is empty where it could not."""

    code: str = ""
    message: str = ""
    data: Any = None
    trace: str = ""
    identity: str = ""
    problem: str = ""
    """Why it cannot be read, or the transport's failure."""

    @property
    def fields(self) -> Fields:
        return self.data if isinstance(self.data, dict) else {}

    @property
    def inner_code(self) -> str:
        return text_of(self.fields, "code")

    @property
    def inner_message(self) -> str:
        return text_of(self.fields, "message", most=MOST_TRACE)


def install_body(module: Module, *, request_id: str = "") -> dict[str, Any]:
    """Empty fields are left out: arklet then reads the version from the artefact itself."""
    body: dict[str, Any] = {"bizName": module.name}
    if module.version:
        body["bizVersion"] = module.version
    if module.url:
        body["bizUrl"] = module.url
    if module.args:
        body["args"] = list(module.args)
    if module.envs:
        body["envs"] = dict(module.envs)
    if module.strategy:
        body["installStrategy"] = module.strategy
    if request_id:
        body |= {"async": True, "requestId": request_id}
    return body


def content_type(command: str) -> str:
    """As the original controller sends it; arklet reads JSON whatever this says."""
    return "application/json" if command in (INSTALL, UNINSTALL) else "text/plain; charset=utf-8"


def read_answer(status: int, body: bytes | str) -> Answer:
    """The first JSON value of the body, if it is an arklet's envelope."""
    if status != 200:
        return Answer(problem=f"HTTP status {status}")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
        return Answer(problem=f"the answer is not JSON: {problem}")
    if not isinstance(value, dict):
        return Answer(problem="the answer is not a JSON object")
    return Answer(
        code=text_of(value, "code"),
        message=text_of(value, "message"),
        data=value.get("data"),
        trace=text_of(value, "errorStackTrace", most=MOST_TRACE),
        identity=text_of(value, "baseIdentity"),
    )


def outcome_of(command: str, answer: Answer) -> Outcome:
    if answer.problem or not answer.code:
        return Outcome.UNKNOWN
    if answer.code == SUCCESS:
        status = text_of(answer.fields, "status")
        if status in ("INITIALIZED", "EXECUTING"):
            return Outcome.RUNNING
        return Outcome.BROKEN if status == FAILED else Outcome.DONE
    if answer.code == UNKNOWN_COMMAND:
        return Outcome.UNSUPPORTED
    if answer.code == FAILED:
        already = {INSTALL: REPEAT_BIZ, UNINSTALL: MISSING_BIZ}.get(command)
        if already is not None and answer.inner_code == already:
            return Outcome.ALREADY
        # The mutex answers without data; so does a request id that was used before.
        return Outcome.BROKEN if answer.fields else Outcome.BUSY
    is_rejection = any(phrase in answer.message for phrase in REJECTIONS)
    return Outcome.REJECTED if is_rejection else Outcome.BROKEN


def sentence_of(answer: Answer) -> str:
    """What went wrong, for people: the innermost cause of a stack trace, else arklet's own message."""
    # Over MQTT the trace comes as the inner message.
    lines = (answer.trace or answer.inner_message).splitlines()
    causes = [line.strip() for line in lines if line.strip().startswith("Caused by:")]
    shown = causes[-1].removeprefix("Caused by:").strip() if causes else _innermost(answer.fields.get("throwable"))
    shown = shown or answer.inner_message or answer.message
    return (shown or answer.problem or "arklet did not say why")[:MOST_TEXT]


MOST_CAUSES: Final = 50


def _innermost(throwable: Any) -> str:
    """The cause behind all others of a Java exception, as the record of an asynchronous command holds it."""
    shown = ""
    for _ in range(MOST_CAUSES):
        if not isinstance(throwable, dict):
            break
        parts = (text_of(throwable, "@type"), text_of(throwable, "message"))
        shown = ": ".join(part for part in parts if part) or shown
        throwable = throwable.get("cause")
    return shown


def state_after(command: str, module: Module, answer: Answer) -> ModuleState | None:
    """What an answer to an install or uninstall says of the module; None where nothing is known."""
    if answer.problem:
        return None
    state = ModuleState(module.name, module.version, BROKEN, answer.code, answer.message)
    is_done = answer.code == SUCCESS or (outcome_of(command, answer) is Outcome.ALREADY and command == UNINSTALL)
    if not is_done:
        return state
    return ModuleState(
        module.name,
        module.version,
        ACTIVATED if command == INSTALL else STOPPED,
        f"{module.key} {command} succeed",
        answer.inner_message,
    )


def identity_installed(answer: Answer) -> str | None:
    """`name:version` of what an install really installed: the artefact decides, not the request."""
    infos = answer.fields.get("bizInfos")
    first = infos[0] if isinstance(infos, list) and infos else None
    if not isinstance(first, dict) or not text_of(first, "bizName"):
        return None
    return f"{text_of(first, 'bizName')}:{text_of(first, 'bizVersion')}"


def states_of(modules: Any, at_ms: int | None = None) -> list[ModuleState] | None:
    """Every module of a list; None where it is no list. `at_ms`: when it was said, for modules that do not say."""
    if not isinstance(modules, list):
        return None
    return [_full_state(each, at_ms) for each in modules[:MOST_MODULES] if isinstance(each, dict)]


def _full_state(info: Fields, at_ms: int | None) -> ModuleState:
    records = info.get("bizStateRecords")
    state = ModuleState(text_of(info, "bizName"), text_of(info, "bizVersion"), text_of(info, "bizState"))
    return with_record(state, records if isinstance(records, list) else [], at_ms)


def with_record(state: ModuleState, records: list[Any], at_ms: int | None) -> ModuleState:
    """The state with when and why it came about, by its latest record; SOFAArk before 3.1.11 sends them empty."""
    dated = [each for each in records if isinstance(each, dict) and number_of(each, "changeTime") > 0]
    if not dated:
        return ModuleState(state.name, state.version, state.state, changed_ms=at_ms)
    latest = max(dated, key=lambda each: number_of(each, "changeTime"))
    return ModuleState(
        state.name,
        state.version,
        state.state,
        text_of(latest, "reason"),
        text_of(latest, "message"),
        number_of(latest, "changeTime"),
    )


@dataclass(frozen=True, slots=True)
class Health:
    """What a base says of itself. Bytes; None where it does not know or has no limit."""

    state: str
    max_bytes: int | None
    committed_bytes: int | None
    used_bytes: int | None
    stack: str = ""
    """`python` where it says so; Java bases do not."""
    cpus: int = 0
    """0 where it does not say."""

    @property
    def capacity_bytes(self) -> int:
        return self.max_bytes or 0

    @property
    def free_bytes(self) -> int:
        if self.max_bytes is None or self.committed_bytes is None:
            return 0
        return max(0, self.max_bytes - self.committed_bytes)


def health_of(answer: Answer) -> Health | None:
    if answer.problem or answer.code != SUCCESS:
        return None
    health = fields_of(answer.fields, "healthData")
    jvm, master = fields_of(health, "jvm"), fields_of(health, "masterBizInfo")
    return Health(
        text_of(master, "bizState").upper(),
        _bytes(jvm, "java max metaspace"),
        _bytes(jvm, "java committed metaspace"),
        _bytes(jvm, "java used metaspace"),
        "python" if isinstance(health.get("python"), dict) else "",
        count if 0 < (count := number_of(fields_of(health, "cpu"), "count")) <= MOST_CPUS else 0,
    )


def _bytes(fields: Fields, name: str) -> int | None:
    value = number_of(fields, name)
    return value if value >= 0 else None


def fields_of(fields: Fields, name: str) -> Fields:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def text_of(fields: Fields, name: str, *, most: int = MOST_TEXT) -> str:
    value = fields.get(name)
    return value[:most] if isinstance(value, str) else ""


def number_of(fields: Fields, name: str) -> int:
    """A whole number of at most 63 bits; anything else counts as 0."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        return 0
    return value


def seconds_of(fields: Fields, name: str) -> float:
    """A time such as that on a processor; what is no number, negative or beyond all measure counts as none."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST_SECONDS:
        return 0.0
    return float(value)
