"""Fairlead's own process and its events on the real server, under the role it ships with."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fairlead.cluster.clock import RealClock
from fairlead.cluster.metrics import Metrics
from fairlead.cluster.recorder import Recorder
from fairlead.model.intents import RecordEvent, Regarding
from tests.kube.clients import client
from tests.rigs.kube.servers import Rig, until

LEASE = "/apis/coordination.k8s.io/v1/namespaces/fairlead-system/leases/fairlead"


@contextlib.contextmanager
def serving(
    kubeconfig: Path, *flags: str, variables: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "fairlead", "serve", f"--kubeconfig={kubeconfig}", "--listen=127.0.0.1:0", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(variables or {})})
    try:
        yield process
    finally:
        # Gracefully: the next test need not wait until the lease runs out.
        process.terminate()
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate(timeout=60)


def said(process: subprocess.Popen[str], event: str) -> dict[str, Any]:
    """The first log line about an event; everything before it is read past."""
    assert process.stderr is not None
    for line in process.stderr:
        told = json.loads(line)
        assert isinstance(told, dict)
        if told["event"] == event:
            return told
    raise AssertionError(f"the process ended without saying {event!r}")


def test_fairlead_leads_reports_and_leaves_on_sigterm(rig: Rig) -> None:
    kubeconfig = rig.kubeconfig(rig.service_account_token())
    with serving(kubeconfig) as process:
        address = said(process, "listening")["address"]
        assert said(process, "connected")["kubernetes"] == "v1.36.4"
        identity = said(process, "leading")["identity"]
        assert rig.request("GET", LEASE).json()["spec"]["holderIdentity"] == identity
        with urllib.request.urlopen(f"http://{address}/readyz?verbose", timeout=30) as answer:
            assert answer.read().decode() == "[+]ping ok\n[+]kubernetes ok\ncheck passed\n"
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            assert 'leader_election_master_status{name="fairlead"} 1.0' in answer.read().decode()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert rig.request("GET", LEASE).json()["spec"]["holderIdentity"] == ""


def test_a_standby_leads_at_once_when_the_leader_leaves(rig: Rig) -> None:
    kubeconfig = rig.kubeconfig(rig.service_account_token())
    with serving(kubeconfig) as first:
        said(first, "leading")
        with serving(kubeconfig) as second:
            said(second, "connected")
            first.send_signal(signal.SIGTERM)
            first.communicate(timeout=60)
            identity = said(second, "leading")["identity"]
            assert rig.request("GET", LEASE).json()["spec"]["holderIdentity"] == identity


def test_fairlead_waits_for_a_server_that_is_not_there_yet(rig: Rig, tmp_path: Path) -> None:
    config = rig.kubeconfig().read_text().replace(rig.url, "https://127.0.0.1:1")
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(config)
    with serving(kubeconfig) as process:
        assert "no connection" in said(process, "no cluster yet")["problem"]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_fairlead_started_before_its_server_is_let_in_once_that_is_up(new_rig: Callable[[], Rig]) -> None:
    own = new_rig().start()
    kubeconfig = own.kubeconfig(own.service_account_token())
    own.stop_apiserver(signal.SIGKILL)
    with serving(kubeconfig) as process:
        said(process, "no cluster yet")
        own.start_apiserver()
        identity = said(process, "leading")["identity"]
        assert own.request("GET", LEASE).json()["spec"]["holderIdentity"] == identity


def test_a_token_that_nobody_knows_is_refused_for_a_while_and_then_for_good(rig: Rig) -> None:
    with serving(rig.kubeconfig("nobody-knows-this"), variables={"FAIRLEAD_OPENING_REFUSED_S": "1"}) as process:
        assert "401 Unauthorized" in said(process, "no cluster yet")["problem"]
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 2
    assert rest.splitlines()[-1].startswith(f"fairlead: {rig.url} (")
    assert "refused us for 1 s: GET /version: 401 Unauthorized" in rest.splitlines()[-1]


async def test_events_are_told_once_and_then_counted(rig: Rig, namespace: str) -> None:
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    regarding = Regarding(kind="Pod", name="p", namespace=namespace, uid="u-1")
    event = RecordEvent(
        regarding=regarding, reason="FailedScheduling", action="Scheduling", note="x" * 2000, warning=True
    )
    async with client(rig, rig.kubeconfig(rig.service_account_token())) as api:
        recorder = Recorder(api, controller="fairlead.io/test", instance="t", clock=RealClock(), metrics=Metrics())
        running = asyncio.create_task(recorder.run())
        recorder.record(event)
        assert await asyncio.to_thread(until, lambda: len(rig.request("GET", path).json()["items"]) == 1, 10)
        recorder.record(event)
        recorder.record(event)

        def is_counted() -> bool:
            return bool(rig.request("GET", path).json()["items"][0].get("series", {}).get("count") == 3)

        assert await asyncio.to_thread(until, is_counted, 10)
        recorder.stop()
        await asyncio.wait_for(running, 60)
    (told,) = rig.request("GET", path).json()["items"]
    assert (told["reason"], told["type"], len(told["note"])) == ("FailedScheduling", "Warning", 1024)
    assert told["regarding"]["name"] == "p"
