"""A Service in front of real processes: found by name from inside a pod, by turns, gone when they are."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from fairlead.cluster.clock import RealClock
from fairlead.local.providers.process import ProcessProvider
from fairlead.nodes.provider import LogOptions, Run, RunPhase, Sandbox
from fairlead.nodes.spec import KubeletPod
from tests.local.proxy.test_server import Bench, is_answered, until

PORT = 18077
WEB = f"""
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(os.environ["POD_NAME"].encode() + b"\\n")
http.server.HTTPServer(("", {PORT}), Handler).serve_forever()
"""
ASK = """
import urllib.request
for _ in range(4):
    print(urllib.request.urlopen("http://web.ns.svc:18080/", timeout=5).read().decode(), end="")
"""


def python(name: str, code: str) -> KubeletPod:
    container = {"name": "main", "image": "python:3", "command": ["python3", "-c", code]}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": [container]}}, KubeletPod)


async def start(provider: ProcessProvider, pod: KubeletPod) -> str:
    await provider.create(Sandbox(pod))
    container = pod.spec.containers[0]
    await provider.update(pod.uid, (Run(container, 0, command=container.command),))
    report = provider.status(pod.uid)
    assert report is not None
    return report.ip


async def test_a_pod_asks_a_service_by_name_and_both_pods_behind_it_answer(tmp_path: Path) -> None:
    provider = ProcessProvider(tmp_path, clock=RealClock())
    bench = Bench(lambda names: provider.set_names(names.within))
    async with asyncio.TaskGroup() as tasks:
        working = [tasks.create_task(provider.run()), tasks.create_task(bench.proxy.run())]
        backends = [(await start(provider, python(name, WEB)), PORT) for name in ("a", "b")]
        bench.set(backends)
        await until(is_both_up(backends))
        asks = python("asks", ASK)
        await start(provider, asks)

        async def has_ended() -> bool:
            report = provider.status(asks.uid)
            return report is not None and report.runs["main"].phase is RunPhase.EXITED

        await until(has_ended)
        said = b"".join([part async for part in provider.logs(asks.uid, "main", LogOptions())])
        assert sorted(said.split()) == [b"a", b"a", b"b", b"b"]
        for task in working:
            task.cancel()
    assert not await is_answered()


def is_both_up(backends: list[tuple[str, int]]) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        try:
            for host, port in backends:
                _, writer = await asyncio.open_connection(host, port)
                writer.close()
        except OSError:
            return False
        return True

    return check
