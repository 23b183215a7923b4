"""What a server has forgotten, it says so of: 410, in the same words."""

import asyncio
import contextlib
import json
import re
from pathlib import Path
from typing import Any

from fairlead.apiserver.embedded import embedded
from fairlead.cluster.clock import RealClock
from tests.contract.servers import Contestant, ContractRig, Heard
from tests.contract.volatile import Words

MAPS = "/api/v1/namespaces/default/configmaps"


def headers(server: Contestant) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.tokens['admin']}", "Content-Type": "application/json"}


def make(server: Contestant, name: str) -> str:
    body = json.dumps({"metadata": {"name": name}}).encode()
    answer = server.ask("POST", MAPS, body, headers(server))
    assert answer.status == 201, answer.body
    return str(answer.json()["metadata"]["resourceVersion"])


def first_page(server: Contestant) -> tuple[str, str]:
    """A version and a continue token that will soon be too old."""
    version = make(server, "expired-a")
    for name in ("expired-b", "expired-c"):
        make(server, name)
    page = server.ask("GET", f"{MAPS}?limit=1", None, headers(server)).json()
    make(server, "expired-later")
    server.hang_up()
    return version, str(page["metadata"]["continue"])


def told(server: Contestant, version: str, token: str) -> list[Any]:
    """The next page, a list of that very version, and a watch from it."""
    asked = headers(server)
    answers: list[Heard] = [
        server.ask("GET", f"{MAPS}?limit=1&continue={token}", None, asked),
        server.ask("GET", f"{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact", None, asked),
    ]
    server.hang_up()
    heard, events = server.follow(f"{MAPS}?watch=true&resourceVersion={version}", asked, most=1)
    words = Words()
    found: list[Any] = [(each.status, words.of(each.json())) for each in answers]
    return [_without_numbers(each) for each in [*found, (heard.status, words.of(events[0]))]]


async def test_what_is_forgotten_is_gone_in_the_same_words(
    contract_rig: ContractRig, the_real: Contestant, tmp_path: Path
) -> None:
    version, token = first_page(the_real)
    contract_rig.compact()
    theirs = told(the_real, version, token)
    async with embedded(tmp_path, RealClock()) as cluster:
        ours = Contestant("embedded", cluster.url, cluster.certificates.authority_file, {"admin": cluster.admin_token})
        with contextlib.closing(ours):
            version, token = await asyncio.to_thread(first_page, ours)
            cluster.rest.store.compact("/configmaps")
            mine = await asyncio.to_thread(told, ours, version, token)
    assert mine == theirs


def _without_numbers(value: Any) -> Any:
    """Each server counts for itself."""
    return json.loads(re.sub(r"version: \d+ \(\d+\)", "version", json.dumps(value, sort_keys=True)))
