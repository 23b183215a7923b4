"""A corner of a live cluster for one scenario of tasks: its own nodes, and a kubelet and agents that only act.

Works through the API alone, so that the same scenario runs on the embedded and on a real API server. Time is moved by
writing earlier times into a task's status.
"""

import asyncio
import contextlib
import re
import traceback
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import ClusterError, NotFound, Refused
from fairlead.cluster.kubeconfig import connect_by_kubeconfig
from fairlead.model.times import parse_time, rfc3339
from tests.jobs.lab import LOOK_S, SCENARIO, Api, Json, Kubelet, Lab
from tests.soak.tasks import post

HOME: Final = "fairlead-system"
APPS: Final = f"/apis/apps/v1/namespaces/{HOME}"
CORE: Final = f"/api/v1/namespaces/{HOME}"
REPORTS: Final = f"/apis/fairlead.io/v1alpha1/namespaces/{HOME}/taskreports"
SUMMARIES: Final = "/apis/system.kdoctor.io/v1beta1/namespaces/default/kdoctorreports"
PLURALS: Final = {"NetReach": "netreaches", "AppHttpHealthy": "apphttphealthies", "Netdns": "netdnses"}
SLOT: Final = "example.com/slot"
MOST: Final = 8
SETTINGS: Final = {
    "FAIRLEAD_TASKS_POLL_S": "0.5",
    "FAIRLEAD_TASKS_SETTLE_S": "0",
    "FAIRLEAD_TASKS_CREATION_DEADLINE_S": "3",
    "FAIRLEAD_TASKS_IPV6": "on",
}


class AgentKubelet(Kubelet):
    """Binds pods of carriers where nobody else does, and has them ready, but for those on nodes in `idle`."""

    async def _run_pods(self) -> None:
        while True:
            with contextlib.suppress(ClusterError):
                found = await self._api.call(
                    "GET", f"{CORE}/pods", labelSelector="app.kubernetes.io/component=fairlead-agent"
                )
                for pod in found["items"]:
                    if node := self._node_for(pod, found["items"]):
                        await self._bind(pod, node)
                await asyncio.gather(*map(self._run_pod, found["items"]))
            await asyncio.sleep(LOOK_S)

    def _node_for(self, pod: Json, pods: list[Json]) -> str:
        if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return ""
        text = str(pod["spec"]["affinity"])
        named = re.search(r"'key': 'metadata.name', 'operator': 'In', 'values': \['([^']+)'\]", text)
        if named is not None:
            return named[1] if named[1] in self.nodes else ""
        scenario = re.search(rf"'key': '{SCENARIO}', 'operator': 'In', 'values': \['([^']+)'\]", text)
        fitting = [name for name in self.nodes if scenario is not None and name.startswith(f"{scenario[1]}-")]
        if SLOT in str(pod["spec"]["containers"][0].get("resources")):
            taken = {each["spec"].get("nodeName") for each in pods if SLOT in str(each["spec"]["containers"])}
            fitting = [name for name in fitting if name not in taken]
        return next(iter(fitting), "")

    async def _bind(self, pod: Json, node: str) -> None:
        name = pod["metadata"]["name"]
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        with contextlib.suppress(ClusterError):
            await self._api.call(
                "POST", f"{CORE}/pods/{name}/binding", {**body, "target": {"kind": "Node", "name": node}}
            )
            pod["spec"]["nodeName"] = node

    async def _run_pod(self, pod: Json) -> None:
        if pod["spec"].get("nodeName") not in self.idle:
            await super()._run_pod(pod)


class TaskLab(Lab):
    families: tuple[str, ...] = ("IPv4",)
    kubeconfig = Path()
    """The administrator's."""

    async def open(self) -> None:
        """Tasks have no namespace: their names begin with the scenario's."""

    def path(self, name: str, kind: str = "NetReach") -> str:
        return f"/apis/kdoctor.io/v1beta1/{PLURALS[kind]}/{self.full(name)}"

    def full(self, name: str) -> str:
        return f"{self.namespace}-{name}"

    def carrier(self, name: str, kind: str = "NetReach") -> str:
        return f"kdoctor-{kind.lower()}-{self.full(name)}"

    @property
    def affinity(self) -> Json:
        expressions = [{"key": SCENARIO, "operator": "In", "values": [self.namespace]}]
        terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}

    async def task(
        self, name: str = "t", kind: str = "NetReach", agent: Any = None, annotations: Any = None, **spec: Any
    ) -> Json:
        """With an agentSpec for the scenario's nodes, unless that is False."""
        target = {
            "NetReach": {"clusterIP": False, "nodePort": False},
            "AppHttpHealthy": {"host": "http://10.0.0.1", "method": "GET"},
            "Netdns": {"targetUser": {"server": "10.0.0.1"}},
        }[kind]
        own = {} if agent is False else {"agentSpec": {"affinity": self.affinity, **(agent or {})}}
        schedule = {"schedule": "0 60", "roundTimeoutMinute": 5}
        body = {"apiVersion": "kdoctor.io/v1beta1", "kind": kind}
        metadata = {"name": self.full(name), "annotations": annotations or {}}
        whole = {"target": target, "schedule": schedule, **own, **spec}
        path = self.path(name, kind).rpartition("/")[0]
        made: Json = await self.api.call("POST", path, {**body, "metadata": metadata, "spec": whole})
        return made

    async def delete(self, name: str, kind: str = "NetReach") -> None:
        await self.api.call("DELETE", self.path(name, kind))

    async def get(self, path: str) -> Json | None:
        try:
            found: Json = await self.api.call("GET", path)
        except NotFound:
            return None
        return found

    async def until_there(self, path: str) -> Json:
        async def is_there() -> bool:
            return await self.get(path) is not None

        await self.until(is_there, f"{path} is there")
        found = await self.get(path)
        assert found is not None
        return found

    async def until_gone(self, *paths: str) -> None:
        async def are_gone() -> bool:
            return not [path for path in paths if await self.get(path) is not None]

        await self.until(are_gone, f"{paths} are gone")

    async def workload(self, name: str = "t", kind: str = "NetReach", of: str = "daemonsets") -> Json:
        return await self.until_there(f"{APPS}/{of}/{self.carrier(name, kind)}")

    async def status_of(self, name: str = "t", kind: str = "NetReach") -> Json:
        return (await self.get(self.path(name, kind)) or {}).get("status") or {}

    async def until_status_of(
        self, holds: Callable[[Json], Any], what: str, name: str = "t", kind: str = "NetReach"
    ) -> Json:
        last: Json = {}

        async def does_hold() -> bool:
            last.clear()
            last.update(await self.status_of(name, kind))
            return bool(holds(last))

        try:
            await self.until(does_hold, what)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; the status is {last}") from None
        return dict(last)

    async def until_carrier(self, runtime_status: str, name: str = "t", kind: str = "NetReach") -> Json:
        return await self.until_status_of(
            lambda status: (status.get("resource") or {}).get("runtimeStatus") == runtime_status,
            runtime_status, name, kind,
        )  # fmt: skip

    async def until_round(self, number: int, state: str, name: str = "t", kind: str = "NetReach") -> Json:
        """The record of a round, once it is in this state."""

        def records(status: Json) -> list[Json]:
            history = status.get("history") or []
            return [each for each in history if (each["roundNumber"], each["status"]) == (number, state)]

        status = await self.until_status_of(records, f"round {number} is {state}", name, kind)
        return records(status)[0]

    async def run_now(self, nonce: str, name: str = "t") -> None:
        await self.annotate({"tasks.fairlead.io/run-now": nonce}, name)

    async def annotate(self, annotations: Json, name: str = "t") -> None:
        await self.api.call("PATCH", self.path(name), {"metadata": {"annotations": annotations}})

    async def move_round(self, earlier: timedelta, name: str = "t") -> None:
        """As if the latest round had been planned this much earlier."""
        history = (await self.status_of(name))["history"]
        for key in ("startTimeStamp", "deadLineTimeStamp"):
            history[0][key] = rfc3339(parse_time(history[0][key]) - earlier)
        await self.api.call("PATCH", f"{self.path(name)}/status", {"status": {"history": history}})

    async def report_round(
        self, failed: tuple[str, ...] = (), silent: tuple[str, ...] = (), name: str = "t", kind: str = "NetReach"
    ) -> int:
        """What the agents of the running round post; by node or pod. How many did."""
        task = await self.get(self.path(name, kind))
        assert task is not None
        number = task["status"]["history"][0]["roundNumber"]
        actors = [each for each in task["status"]["actors"] if each["node"] not in silent]
        results = {each["uid"]: {each["node"], each["pod"]} & set(failed) for each in actors}

        async def send(actor: Json) -> None:
            body = {
                "taskKind": kind, "taskName": self.full(name), "taskUID": task["metadata"]["uid"],
                "roundNumber": number, "report": {"roundResult": "fail" if results[actor["uid"]] else "succeed"},
            }  # fmt: skip

            async def is_stored() -> bool:
                url = (await self.until_there(f"{CORE}/configmaps/fairlead-agent"))["data"]["apiURL"]
                return await asyncio.to_thread(post, url, token, body) in (200, 201)

            token = await self.agent_token(actor)
            await self.until(is_stored, f"the report of {actor['pod']} is stored")

        await asyncio.gather(*map(send, actors))
        return len(actors)

    async def agent_token(self, actor: Json, audiences: tuple[str, ...] = ("tasks.fairlead.io",)) -> str:
        bound = {"kind": "Pod", "apiVersion": "v1", "name": actor["pod"], "uid": actor["uid"]}
        spec = {"audiences": list(audiences), "boundObjectRef": bound, "expirationSeconds": 600}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        made = await self.api.call("POST", f"{CORE}/serviceaccounts/fairlead-agent/token", body)
        token: str = made["status"]["token"]
        return token

    async def refusal(self, kind: str, spec: Any, **metadata: Any) -> str:
        """Why a task is refused, in a trial; empty when it is not."""
        body = {"apiVersion": "kdoctor.io/v1beta1", "kind": kind, "metadata": {"name": "trial", **metadata}}
        try:
            await self.api.call(
                "POST", f"/apis/kdoctor.io/v1beta1/{PLURALS[kind]}", {**body, "spec": spec}, dryRun="All"
            )
        except Refused as problem:
            return str(problem)
        return ""

    async def delete_pods(self, node: str) -> None:
        """Those of a node that is gone."""
        for pod in (await self.api.call("GET", f"{CORE}/pods"))["items"]:
            if pod["spec"].get("nodeName") == node:
                with contextlib.suppress(NotFound):
                    await self.api.call("DELETE", f"{CORE}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})

    async def close(self) -> None:
        for name in [name for name in self.kubelet.nodes if name.startswith(f"{self.namespace}-")]:
            del self.kubelet.nodes[name]
            await self.api.call("DELETE", f"/api/v1/nodes/{name}")


Scenario = Callable[[TaskLab], Awaitable[None]]


def ago(seconds: float) -> str:
    return rfc3339(datetime.now(UTC) - timedelta(seconds=seconds))


async def run_all(kubeconfig: Path, scenarios: Mapping[str, Scenario], families: tuple[str, ...]) -> dict[str, str]:
    """Side by side on one cluster. What went wrong, by scenario."""
    clock, few = RealClock(), asyncio.Semaphore(MOST)
    async with Client(connect_by_kubeconfig([kubeconfig], clock), clock=clock) as client:
        api = Api(client)
        kubelet = AgentKubelet(api)

        async def run(name: str) -> str:
            async with few:
                lab = TaskLab(api, kubelet, name.partition("_")[0])
                lab.families, lab.kubeconfig = families, kubeconfig
                try:
                    await scenarios[name](lab)
                except Exception:
                    return traceback.format_exc(limit=-3)
                return ""

        async with kubelet.running():
            found = await asyncio.gather(*map(run, scenarios))
            for name in scenarios:
                await TaskLab(api, kubelet, name.partition("_")[0]).close()
        return {name: problem for name, problem in zip(scenarios, found, strict=True) if problem}
