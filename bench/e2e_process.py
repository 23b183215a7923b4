"""The bare limit of scripts/bench e2e: a client that decides nothing and writes what a scheduler writes per pod.

Reads lines `name uid node` on stdin; for each it posts the binding and the Scheduled event, as many at a time as asked.
"""

import argparse
import asyncio
import json
import ssl
import sys
from datetime import UTC, datetime

import aiohttp
import uvloop


async def write_all(url: str, ca_file: str, token: str, pods: list[tuple[str, str, str]], in_flight: int) -> None:
    left = iter(enumerate(pods))
    tls = ssl.create_default_context(cafile=ca_file)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json"}
    connector = aiohttp.TCPConnector(limit=in_flight, ssl=tls)
    async with aiohttp.ClientSession(url, connector=connector, headers=headers) as session:

        async def post(path: str, body: object) -> None:
            async with session.post(path, data=json.dumps(body)) as answer:
                whole = await answer.read()
                assert answer.status == 201, whole.decode()

        async def work() -> None:
            for number, (name, uid, node) in left:
                binding = {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": name, "namespace": "default", "uid": uid},
                    "target": {"kind": "Node", "name": node},
                }
                await post(f"/api/v1/namespaces/default/pods/{name}/binding", binding)
                regarding = {"apiVersion": "v1", "kind": "Pod", "name": name, "namespace": "default", "uid": uid}
                event = {
                    "apiVersion": "events.k8s.io/v1",
                    "kind": "Event",
                    "metadata": {"name": f"{name}.{number:x}", "namespace": "default"},
                    "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
                    "reportingController": "bare",
                    "reportingInstance": "bare",
                    "action": "Binding",
                    "reason": "Scheduled",
                    "regarding": regarding,
                    "note": f"Successfully assigned default/{name} to {node}",
                    "type": "Normal",
                }
                await post("/apis/events.k8s.io/v1/namespaces/default/events", event)

        await asyncio.gather(*(work() for _ in range(in_flight)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.e2e_process", description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--ca-file", required=True)
    parser.add_argument("--in-flight", type=int, default=64)
    given = parser.parse_args()
    token, *lines = sys.stdin.read().splitlines()
    pods = [(name, uid, node) for name, uid, node in (line.split() for line in lines)]
    uvloop.run(write_all(given.server, given.ca_file, token, pods, given.in_flight))


if __name__ == "__main__":
    main()
