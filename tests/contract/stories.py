"""Stories: requests told as data in stories/*.yaml, run against a server, and what it answered.

A step is `do: METHOD PATH` with

    body      an object, sent as JSON                   raw       the body as text (hex: as bytes)
    proto     a message by field numbers, see `envelope`  type    its content type (JSON; merge patch for PATCH)
    accept    what is accepted (JSON)                   headers   more headers
    user      admin, stranger, nobody, or a token       as        a name for the answer
    events    a watch: how many events to wait for      until     a status to wait for, asked again and again
    quiet     not compared: set-up that other stories cover

`$ns` is the story's own namespace, the same on both servers; `$core`, `$apps` and so on are its paths there;
`$(name.metadata.uid)` is taken from the answer of that name.
"""

import difflib
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.contract.servers import Contestant, Heard
from tests.contract.volatile import Words

FOLDER: Final = Path(__file__).parent / "stories"
PATHS: Final = {
    "core": "/api/v1",
    "apps": "/apis/apps/v1",
    "batch": "/apis/batch/v1",
    "policy": "/apis/policy/v1",
    "rbac": "/apis/rbac.authorization.k8s.io/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "events": "/apis/events.k8s.io/v1",
    "discovery": "/apis/discovery.k8s.io/v1",
    "resource": "/apis/resource.k8s.io/v1",
    "storage": "/apis/storage.k8s.io/v1",
}
PATCHES: Final = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "yaml": "application/yaml",
    "protobuf": "application/vnd.kubernetes.protobuf",
}
ACCEPTED: Final = {
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "partial": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json",
    "partials": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json",
    "aggregated": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
}
UNTIL_S: Final = 15.0
COMPARED: Final = ("status", "headers", "body")


@dataclass(frozen=True, slots=True)
class Story:
    topic: str
    title: str
    steps: tuple[Mapping[str, Any], ...]

    @property
    def namespace(self) -> str:
        """The same in every run, so that answers can be recorded, and no other story's."""
        return f"story-{hashlib.sha256(f'{self.topic}: {self.title}'.encode()).hexdigest()[:8]}"

    @property
    def compared(self) -> int:
        return sum(not step.get("quiet") for step in self.steps)


def told() -> Iterator[Story]:
    for file in sorted(FOLDER.glob("*.yaml")):
        for title, steps in (yaml.safe_load(file.read_text()) or {}).items():
            yield Story(file.stem, title, tuple(steps))


def run(
    story: Story, server: Contestant, namespace: str, given: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Each compared step and its answer, with words for what is volatile; `given` is referred to like an answer."""
    runner = _Runner(server, namespace, given or {})
    try:
        runner.furnish()
        return [told for step in story.steps if (told := runner.step(step)) is not None]
    finally:
        server.hang_up()


class _Runner:
    def __init__(self, server: Contestant, namespace: str, given: Mapping[str, Any]) -> None:
        self._server = server
        self._namespace = namespace
        self._answers: dict[str, Any] = dict(given)
        self._words = Words()

    def furnish(self) -> None:
        """A namespace that pods can be created in."""
        for path, name in (
            ("/api/v1/namespaces", self._namespace),
            (f"/api/v1/namespaces/{self._namespace}/serviceaccounts", "default"),
        ):
            body = json.dumps({"metadata": {"name": name}}).encode()
            answer = self._server.ask("POST", path, body, self._headers({"do": "POST"}))
            assert answer.status in (201, 409), answer.body

    def step(self, step: Mapping[str, Any]) -> dict[str, Any] | None:
        method, path = self._filled(step["do"]).split(" ", 1)
        body, headers = self._body(step), self._headers(step)
        if "events" in step:
            heard, events = self._server.follow(path, headers, most=step["events"])
            answer: Any = events if heard.status == 200 else _parsed(heard)
        else:
            heard = self._asked(method, path, body, headers, step.get("until"))
            answer = _parsed(heard)
        if "as" in step:
            self._answers[step["as"]] = answer
        told = {"status": heard.status, "headers": heard.headers, "body": answer}
        told = self._words.of(told)
        if step.get("quiet"):
            return None
        return {"request": f"{method} {path}", "sent": (body or b"").decode(errors="replace")[:2000], **told}

    def _asked(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], until: int | None
    ) -> Heard:
        deadline = time.monotonic() + UNTIL_S
        while True:
            heard = self._server.ask(method, path, body, headers)
            if until is None or heard.status == until or time.monotonic() > deadline:
                return heard
            time.sleep(0.05)

    def _body(self, step: Mapping[str, Any]) -> bytes | None:
        if "proto" in step:
            filled = yaml.safe_load(self._filled(json.dumps(step["proto"])))
            return envelope(filled["version"], filled["kind"], filled["message"])
        if "hex" in step:
            return bytes.fromhex(step["hex"])
        if "raw" in step:
            return self._filled(step["raw"]).encode()
        if "body" in step:
            return self._filled(json.dumps(step["body"])).encode()
        return None

    def _headers(self, step: Mapping[str, Any]) -> dict[str, str]:
        headers = {"User-Agent": "contract/1"}
        usual = PATCHES["merge"] if step["do"].startswith("PATCH") else "application/json"
        kind = step.get("type", "protobuf" if "proto" in step else usual)
        if kind:
            headers["Content-Type"] = PATCHES.get(kind, kind)
        accept = step.get("accept", "application/json")
        if accept:
            headers["Accept"] = ACCEPTED.get(accept, accept)
        user = self._filled(step.get("user", "admin"))
        if user != "nobody":
            headers["Authorization"] = f"Bearer {self._server.tokens.get(user, user)}"
        return headers | {name: self._filled(value) for name, value in step.get("headers", {}).items()}

    def _filled(self, text: str) -> str:
        def found(reference: re.Match[str]) -> str:
            if reference[1]:
                name, *path = reference[1].split(".")
                value = self._answers[name]
                for part in path:
                    value = value[int(part)] if isinstance(value, list) else value[part]
                return str(value)
            if reference[2] == "ns":
                return self._namespace
            if reference[2] in PATHS:
                return f"{PATHS[reference[2]]}/namespaces/{self._namespace}"
            return reference[0]

        return re.sub(r"\$(?:\(([\w.]+)\)|([a-z]+)\b)", found, text)


def envelope(version: str, kind: str, message: Mapping[str, Any]) -> bytes:
    """A protobuf body as Go clients send it: `{"1": {"1": "name"}}` is field 1, a message whose field 1 is a string."""
    about = wire({"1": version, "2": kind})
    return b"k8s\0" + wire({"1": about, "2": wire(message)})


def wire(message: Mapping[str, Any]) -> bytes:
    made = b""
    for number, value in message.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, bool | int):
                made += _varint(int(number) << 3) + _varint(int(each))
            else:
                raw = each if isinstance(each, bytes) else each.encode() if isinstance(each, str) else wire(each)
                made += _varint(int(number) << 3 | 2) + _varint(len(raw)) + raw
    return made


def _varint(value: int) -> bytes:
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def _parsed(heard: Heard) -> Any:
    try:
        return heard.json()
    except ValueError:
        return heard.body.decode(errors="replace")


def differences(recorded: list[dict[str, Any]], answers: list[dict[str, Any]], server: str) -> str:
    """Readable: for each request that was answered differently, the request and what differs; "" where nothing is."""
    parts = []
    for number, (theirs, mine) in enumerate(zip(recorded, answers, strict=True), 1):
        if _shown(theirs) == _shown(mine):
            continue
        lines = difflib.unified_diff(_lines(theirs), _lines(mine), "recorded", server, n=2, lineterm="")
        parts.append(f"{number}. {mine['request']}\n   {mine['sent']}\n" + "\n".join(lines))
    return "\n\n".join(parts)


def _shown(told: Mapping[str, Any]) -> dict[str, Any]:
    return {key: told[key] for key in COMPARED}


def _lines(told: Mapping[str, Any]) -> list[str]:
    return json.dumps(_shown(told), indent=1, sort_keys=True, ensure_ascii=False).splitlines()
