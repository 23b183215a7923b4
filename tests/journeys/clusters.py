"""Two whole clusters for one user at one terminal: a real control plane with our nodes joined to it, and `fairlead up`.

The real one has kube-controller-manager and kube-scheduler; the nodes are the same code on both sides, so that what
differs is the server, the controllers or who places.
"""

import asyncio
import contextlib
import random
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

from fairlead.cluster.clock import RealClock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.cluster.writer import Writer
from fairlead.local.providers.fleet import Fleet, FleetPlan
from fairlead.nodes.server import Access
from tests.kube.clients import client
from tests.rigs.kube.certificates import Authority
from tests.rigs.kube.servers import Rig, until

NODES = FleetPlan(processes=1, simulated=2, proxy=False)


@contextlib.contextmanager
def real_cluster(programs: Path, folder: Path) -> Iterator[Path]:
    """A kubeconfig of the real control plane, once its nodes are ready."""
    with Rig(programs) as rig:
        pair = rig.client_certificate("kube-apiserver-kubelet-client", ["system:masters"])
        flags = [f"--kubelet-client-certificate={pair.cert}", f"--kubelet-client-key={pair.key}"]
        rig.start(controller_manager=True, scheduler=True, apiserver_flags=flags)
        with _fleet(rig, folder):
            yield rig.kubeconfig()


@contextlib.contextmanager
def _fleet(rig: Rig, folder: Path) -> Iterator[None]:
    started: Future[None] = Future()
    stop = asyncio.Event()
    loop = asyncio.new_event_loop()
    serving = Authority(folder / "pki").server()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(serving.cert, serving.key)
    tls.load_verify_locations(rig.ca_file)
    tls.verify_mode = ssl.CERT_OPTIONAL

    async def serve() -> None:
        clock, metrics = RealClock(), Metrics()
        try:
            async with client(rig) as api, client(rig) as liveness:
                recorder = Recorder(api, controller="fairlead", instance="t", clock=clock, metrics=metrics)
                writer = Writer(api, recorder, clock=clock, rng=random.random, metrics=metrics)
                fleet = Fleet(
                    api, liveness, writer, recorder, folder / "pods", NODES,
                    clock=clock, rng=random.random, metrics=metrics, access=Access(tls),
                )  # fmt: skip
                async with asyncio.TaskGroup() as tasks:
                    recording = tasks.create_task(recorder.run())
                    async with fleet.serving():
                        started.set_result(None)
                        await stop.wait()
                    recording.cancel()
        except BaseException as problem:
            if started.done():
                raise
            started.set_exception(problem)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="fleet", daemon=True)
    thread.start()
    started.result(timeout=60)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(timeout=60)


@contextlib.contextmanager
def our_cluster(folder: Path) -> Iterator[Path]:
    data, log = folder / "data", folder / "up.log"
    flags = [f"--nodes={NODES.processes}", f"--simulate={NODES.simulated}", "--listen=127.0.0.1:0"]
    with log.open("wb") as sink:
        command = [sys.executable, "-m", "fairlead", "up", f"--data={data}", *flags]
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
    try:
        assert until(lambda: "brings everything back" in log.read_text(), 60), log.read_text()
        yield data / "kubeconfig"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(60)
