"""A hunt for differences: requests drawn by lot, sent to the real server and to ours, answers compared.

`python -m tests.contract.hunt --seed 1 --requests 5000 [--kind Pod] [--report FILE]`. The same seed draws the same
requests. Differences are printed by likely cause, the most frequent first, each with the request that showed it; those
beyond the stop line (stop_line.py) are not.
"""

import argparse
import http.client
import json
import logging
import random
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from tests.contract.chapters import Chapter, CustomChapter, Sent, kinds
from tests.contract.servers import Contestant, ContractRig, Heard, ours, real
from tests.contract.stop_line import compared
from tests.contract.volatile import Words
from tests.rigs.kube.build import ensure_built

CHAPTER = 14
CUSTOM = 0.15
OPENED_S = 60.0
Json = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Difference:
    cause: str
    """What differs, without what is particular to the request."""
    seed: str
    kind: str
    request: str
    sent: str
    real: Any
    embedded: Any


class Teller:
    """One server's side of a chapter."""

    def __init__(self, server: Contestant, chapter: Chapter) -> None:
        self._server, self._chapter, self._words = server, chapter, Words()

    def furnish(self, namespace: str) -> None:
        for path, name in (
            ("/api/v1/namespaces", namespace),
            (f"/api/v1/namespaces/{namespace}/serviceaccounts", "default"),
        ):
            heard = self._ask(
                Sent(
                    "POST",
                    path,
                    json.dumps({"metadata": {"name": name}}).encode(),
                    {"Content-Type": "application/json"},
                )
            )
            assert heard.status in (201, 409), heard.body

    def open(self) -> tuple[Sent, Json] | None:
        """What the chapter needs; returns when it is there."""
        sent = self._chapter.opening()
        if sent is None:
            return None
        told = self._told(sent)
        deadline = time.monotonic() + OPENED_S
        while told[1]["status"] == 201 and self._ask(Sent("GET", self._chapter.collection)).status != 200:
            assert time.monotonic() < deadline, f"{self._chapter.collection} is not served"
            time.sleep(0.05)
        return told

    def tell(self) -> tuple[Sent, Json]:
        return self._told(self._chapter.next())

    def _told(self, sent: Sent) -> tuple[Sent, Json]:
        heard = self._ask(sent)
        try:
            answer = heard.json()
        except ValueError:
            answer = heard.body.decode(errors="replace")
        self._chapter.heard(sent, heard.status, answer)
        return sent, self._words.of({"status": heard.status, "headers": heard.headers, "body": answer})

    def tidy(self) -> None:
        """Nothing stays that could weigh on another chapter."""
        for path in self._chapter.left():
            self._ask(
                Sent(
                    "PATCH", path, b'{"metadata":{"finalizers":null}}', {"Content-Type": "application/merge-patch+json"}
                )
            )
            self._ask(Sent("DELETE", f"{path}?gracePeriodSeconds=0"))
        self._server.hang_up()

    def _ask(self, sent: Sent) -> Heard:
        headers = {"User-Agent": "hunt/1", "Authorization": f"Bearer {self._server.tokens['admin']}", **sent.headers}
        try:
            return self._server.ask(sent.method, sent.path, sent.body, headers)
        except http.client.RemoteDisconnected:
            return Heard(0, {}, b"the connection was closed without an answer")


def hunt(
    real_server: Contestant, embedded: Contestant, seed: int, requests: int, only: str = "", tag: str = ""
) -> Iterator[Difference]:
    """Chapters until so many requests were sent to each."""
    asked = number = 0
    servers = (real_server, embedded)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:

        def both(do: Callable[..., T], of: Sequence[Any], *more: Any) -> list[T]:
            """At once, and each always in its own thread: connections are kept by thread."""
            return [
                each.result()
                for each in [pool.submit(do, who, *more) for pool, who in zip((one, other), of, strict=True)]
            ]

        while asked < requests:
            number += 1
            name = f"{seed}-{number}"
            namespace = f"hunt{tag}-{name}"
            pair = [chapter(name, namespace, only) for _ in range(2)]
            tellers = [Teller(server, each) for server, each in zip(servers, pair, strict=True)]
            both(Teller.furnish, tellers, namespace)
            for step in range(CHAPTER + 1):
                told = both(Teller.tell if step else Teller.open, tellers)
                if told[0] is None or told[1] is None:
                    continue
                asked += 1
                (sent, theirs), (_, mine) = told[0], told[1]
                if theirs != mine and not _alike(pair[0].kind, theirs, mine):
                    yield Difference(
                        cause(sent, theirs, mine), name, pair[0].kind, f"{sent.method} {sent.path}",
                        (sent.body or b"").decode(), theirs, mine,
                    )  # fmt: skip
                    if theirs["status"] < 300 or mine["status"] < 300:
                        break  # from here on they hold different objects
                if not step and theirs["status"] != 201:
                    break  # a chapter about a kind that there is not
            both(Teller.tidy, tellers)
        both(Contestant.hang_up, servers)


def chapter(seed: str, namespace: str, only: str = "") -> Chapter:
    luck = random.Random(seed)
    if only == "custom" or (not only and luck.random() < CUSTOM):
        return CustomChapter(seed, namespace)
    return Chapter(seed, kinds(luck, only), namespace)


MAPS = re.compile(r"\[[^\d\]]|(labels|annotations|nodeSelector|matchLabels|selector|data|Data|capacity|hard)$")


def _alike(kind: str, theirs: Json, mine: Json) -> bool:
    return _by_lot(theirs) == _by_lot(mine) or compared(kind, theirs) == compared(kind, mine)


def _by_lot(told: Json) -> Json:
    """Without the order of causes that concern parts of a map: Go walks maps by lot.

    Nor with that of unknown fields: in a patched document it is that of how the server writes its structs.
    """
    text = json.dumps(told, sort_keys=True)
    if "unknown field" in text:
        return {"letters": "".join(sorted(text))}
    body = told["body"]
    causes = ((body.get("details") or {}).get("causes") or []) if isinstance(body, dict) else []
    if told["status"] != 422 or not any(MAPS.search(each.get("field", "")) for each in causes):
        return told
    return {**told, "body": sorted(json.dumps(each, sort_keys=True) for each in causes)}


# -- causes ------------------------------------------------------------------------------------------------------


def cause(sent: Sent, theirs: Json, mine: Json) -> str:
    how = sent.method
    if theirs["status"] != mine["status"]:
        told = [_complaint(each) for each in (theirs, mine)]
        return f"{how} {theirs['status']} / {mine['status']}: {told[0]} / {told[1]}"
    if theirs["status"] >= 300:
        real_causes, our_causes = _causes(theirs["body"]), _causes(mine["body"])
        missing = [each for each in real_causes if each not in our_causes]
        more = [each for each in our_causes if each not in real_causes]
        if missing or more:
            return f"causes: missing {missing[:2]}, too many {more[:2]}"
    found = list(_unlike(theirs, mine, ""))[:3]
    return "; ".join(found)


def _complaint(told: Json) -> str:
    return "ok" if told["status"] < 300 else "; ".join(_causes(told["body"])[:2])


def _causes(body: Any) -> list[str]:
    if not isinstance(body, dict):
        return [str(body)[:100]]
    listed = (body.get("details") or {}).get("causes") or []
    if listed:
        return [f"{_plain(each.get('field', ''))}: {_plain(each.get('message', ''))}" for each in listed]
    return [_plain(str(body.get("message", "")))]


def _plain(text: str) -> str:
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '"…"', text)
    text = re.sub(r"\{.*\}", "{…}", text)
    return re.sub(r"\d+", "#", text)[:160]


def _unlike(theirs: Any, mine: Any, path: str) -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in sorted({*theirs, *mine}):
            if key not in theirs:
                yield f"{path}.{key} too many"
            elif key not in mine:
                yield f"{path}.{key} missing"
            else:
                yield from _unlike(theirs[key], mine[key], f"{path}.{key}")
    elif isinstance(theirs, list) and isinstance(mine, list) and len(theirs) == len(mine):
        for one, other in zip(theirs, mine, strict=True):
            yield from _unlike(one, other, f"{path}[]")
    elif theirs != mine:
        yield f"{path}: {_plain(json.dumps(theirs))[:60]} / {_plain(json.dumps(mine))[:60]}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.contract.hunt", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--kind", default="", help="only objects of this kind")
    parser.add_argument("--report", type=Path, help="write every difference to this file, a line of JSON each")
    parser.add_argument("--show", type=int, default=30, help="how many causes to print")
    asked = parser.parse_args(arguments)
    by_cause: dict[str, list[Difference]] = defaultdict(list)
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )
    with tempfile.TemporaryDirectory(prefix="hunt-") as folder, ContractRig(ensure_built()) as rig:
        rig.start()
        with ours(Path(folder)) as embedded:
            for each in hunt(real(rig), embedded, asked.seed, asked.requests, asked.kind):
                by_cause[f"{each.kind} {each.cause}"].append(each)
                if asked.report:
                    with asked.report.open("a") as report:
                        report.write(json.dumps({name: getattr(each, name) for name in each.__slots__}) + "\n")
    found = sum(map(len, by_cause.values()))
    for what, differences in sorted(by_cause.items(), key=lambda item: -len(item[1]))[: asked.show]:
        first = differences[0]
        print(f"{len(differences):4} {what}\n     {first.seed}: {first.request}\n     {first.sent[:600]}")
    print(f"{asked.requests} requests, {found} differences of {len(by_cause)} causes")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
