"""Fuzzed AdmissionReviews against the data webhook over HTTP: `scripts/soak reviews --count 10000`.

Every review that has a uid gets an answer with it; every patch is applied by another engine (the embedded API
server's), changes nothing when the webhook sees its own result, and makes no valid pod invalid; memory stays bounded.
The short form is tests/data/test_reviews.py.
"""

import asyncio
import base64
import copy
import json
import random
import resource
import sys
from typing import Any, Final

import aiohttp
import click
from prometheus_client import CollectorRegistry

from bench.admission import build, review
from fairlead.apiserver.fields.patches import json_patch
from fairlead.apiserver.schema.defaults import apply_defaults
from fairlead.apiserver.validation.registry import validate_create
from fairlead.cluster.clock import RealClock
from fairlead.web.admission import AdmissionMetrics, AdmissionServer, Webhook
from fairlead.web.probes import served

PATH: Final = "/data/serverful"
MOST_GROWTH_MB: Final = 200
JUNK: Final[tuple[Any, ...]] = (
    None,
    0,
    -1,
    1.5,
    True,
    "",
    "x" * 300,
    "\u0000",
    [],
    {},
    [None],
    {"a": None},
    [[]],
    1 << 70,
)


def fuzzed(rng: random.Random, number: int) -> tuple[bytes, str | None]:
    """A review, and the uid that its answer must have (None: none can be read)."""
    document = json.loads(review(rng, number))
    uid = document["request"]["uid"]
    kind = rng.random()
    if kind < 0.03:
        return rng.randbytes(rng.randrange(200)), None
    if kind < 0.06:
        text = json.dumps(document).encode()
        return text[: rng.randrange(len(text))], None
    if kind < 0.09:
        document["apiVersion"] = rng.choice(["admission.k8s.io/v2", "v1", "", 3])
        return json.dumps(document).encode(), None
    if kind < 0.5:
        for _ in range(rng.randint(1, 4)):
            _spoil(rng, document["request"]["object"])
    elif kind < 0.6:
        document["request"][rng.choice(["operation", "namespace", "object", "kind", "dryRun"])] = rng.choice(JUNK)
        return json.dumps(document).encode(), uid
    document["apiVersion"] = rng.choice(["admission.k8s.io/v1", "admission.k8s.io/v1beta1"])
    return json.dumps(document).encode(), uid


def _spoil(rng: random.Random, tree: Any) -> None:
    """Put junk somewhere into the tree, or take something away."""
    while True:
        keys: list[Any] = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(tree[key], dict | list) and tree[key] and rng.random() < 0.7:
            tree = tree[key]
            continue
        if rng.random() < 0.3:
            del tree[key]
        else:
            tree[key] = copy.deepcopy(rng.choice(JUNK))
        return


class Reviews:
    def __init__(self, count: int, seed: int) -> None:
        self._count = count
        self._seed = seed
        self.passed = 0
        self.problems: list[str] = []

    async def run(self) -> None:
        webhook, _ = build(self._seed)
        entry = Webhook("serverful", PATH, webhook.by_label, {}, "allow")
        server = AdmissionServer([entry], clock=RealClock(), metrics=AdmissionMetrics(CollectorRegistry()))
        rng = random.Random(self._seed)
        before_mb = 0.0
        async with (
            served(server.routes(), "127.0.0.1", 0) as (host, port),
            aiohttp.ClientSession() as http,
        ):
            url = f"http://{host}:{port}{PATH}?timeout=10s"
            for number in range(self._count):
                body, uid = fuzzed(rng, number)
                problem = await self._check(http, url, body, uid)
                if problem:
                    self.problems.append(f"review {number}: {problem}")
                else:
                    self.passed += 1
                if number == self._count // 10:
                    before_mb = _rss_mb()
        if (grown := _rss_mb() - before_mb) > MOST_GROWTH_MB:
            self.problems.append(f"memory grew by {grown:.0f} MB")

    async def _check(self, http: aiohttp.ClientSession, url: str, body: bytes, uid: str | None) -> str:
        status, answer = await _send(http, url, body)
        if uid is None:
            return "" if status == 400 else f"status {status} for nonsense"
        if status == 400:
            # Not readable as a review any more, such as a namespace that is a list.
            return "" if _is_spoilt(body) else "refused although it can be read"
        response = answer["response"]
        sent = json.loads(body)
        if (response["uid"], answer["apiVersion"]) != (uid, sent["apiVersion"]):
            return f"answered {response['uid']!r} in {answer['apiVersion']!r}"
        if "patch" not in response:
            return ""
        pod = sent["request"]["object"]
        patch = json.loads(base64.b64decode(response["patch"]))
        changed = json_patch(pod, patch)
        if not errors_of(pod) and (wrong := errors_of(changed)):
            return f"the patch made the pod invalid: {sorted(wrong)[:3]}"
        sent["request"]["object"] = changed
        _, again = await _send(http, url, json.dumps(sent).encode())
        return "" if "patch" not in again["response"] else f"a second call changes {again['response']['patch']}"


async def _send(http: aiohttp.ClientSession, url: str, body: bytes) -> tuple[int, Any]:
    async with http.post(url, data=body, headers={"Content-Type": "application/json"}) as reply:
        return reply.status, json.loads(await reply.read()) if reply.status == 200 else None


def _is_spoilt(body: bytes) -> bool:
    request = json.loads(body)["request"]
    kinds = {"operation": str, "namespace": str, "kind": dict, "dryRun": bool}
    wrong = any(name in request and not isinstance(request[name], kind) for name, kind in kinds.items())
    return wrong or not isinstance(request.get("object"), dict | None)


def errors_of(pod: Any) -> set[str]:
    """What the embedded API server says of the pod; of one that is spoilt beyond its shape, nothing."""
    stored = copy.deepcopy(pod)
    try:
        apply_defaults("", "v1", "Pod", stored)
        stored["metadata"]["namespace"] = "default"
        return {f"{each.field}: {each.message}" for each in validate_create("", "v1", "Pod", stored)}
    except (LookupError, TypeError, AttributeError, ValueError):
        return {"not a pod"}


def _rss_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@click.command()
@click.option("--count", default=10_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(count: int, seed: int) -> None:
    soak = Reviews(count, seed)
    asyncio.run(soak.run())
    for problem in soak.problems[:20]:
        click.echo(problem)
    click.echo(f"{soak.passed} passed, {len(soak.problems)} failed")
    sys.exit(1 if soak.problems else 0)


if __name__ == "__main__":
    main()
