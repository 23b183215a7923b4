"""A corner of a live cluster for one scenario: its own namespace and nodes, and a kubelet that only acts.

Works through the API alone, so that the same scenario runs on the embedded and on a real API server. Nodes are plain
objects; `Kubelet` reports bound pods as running and removes those that are being deleted, for all scenarios at once.
"""

import asyncio
import contextlib
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from fairlead.cluster.client import JSON, MERGE_PATCH, Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import ClusterError, Conflict, NotFound
from fairlead.jobs.allocations import decode
from fairlead.jobs.spec import JobSpec, TYJob, parse_spec, parse_status
from tests.jobs.kit import spec_json

Json = dict[str, Any]

PATIENCE_S: Final = 90.0
LOOK_S: Final = 0.3
HEARTBEAT_S: Final = 15.0
SCENARIO: Final = "scenario"
RUNNING: Final[Json] = {
    "phase": "Running",
    "podIP": "10.1.2.3",
    "podIPs": [{"ip": "10.1.2.3"}],
    "conditions": [{"type": "Ready", "status": "True"}],
}


class Api:
    """JSON in, JSON out."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        content_type = MERGE_PATCH if method == "PATCH" else JSON
        answer = await self._client.request(method, path, query=query, body=body, content_type=content_type)
        return msgspec.json.decode(answer)


class Kubelet:
    """Every bound pod runs and is ready as soon as it is seen, unless its key is in `idle`."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.idle: set[str] = set()
        self.nodes: dict[str, Json] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._run_pods()), tasks.create_task(self._beat())]
            yield
            for task in running:
                task.cancel()

    async def _run_pods(self) -> None:
        while True:
            with contextlib.suppress(ClusterError):
                found = await self._api.call("GET", "/api/v1/pods", labelSelector="fairlead.io/job")
                await asyncio.gather(*map(self._run_pod, found["items"]))
            await asyncio.sleep(LOOK_S)

    async def _run_pod(self, pod: Json) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        with contextlib.suppress(ClusterError):
            if metadata.get("deletionTimestamp"):
                gone = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
                await self._api.call("DELETE", path, gone)
            elif (
                pod["spec"].get("nodeName") in self.nodes
                and pod["status"].get("phase") == "Pending"
                and f"{metadata['namespace']}/{metadata['name']}" not in self.idle
            ):
                await self._api.call("PATCH", f"{path}/status", {"status": RUNNING})

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await asyncio.gather(*(self._beat_once(*each) for each in self.nodes.items()))

    async def _beat_once(self, name: str, status: Json) -> None:
        with contextlib.suppress(ClusterError):
            await self._api.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": beating(status)})


def beating(status: Json) -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**status, "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": now}]}


@dataclass(frozen=True, slots=True)
class Fairlead:
    """A running Fairlead, for what is asked of it over HTTP."""

    url: str
    token: str

    def ask(self, path: str, body: Any = None) -> Any:
        """Its answer; None while it has none yet."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        content = None if body is None else msgspec.json.encode(body)
        request = urllib.request.Request(self.url + path, content, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return msgspec.json.decode(answer.read())
        except urllib.error.HTTPError as refusal:
            if refusal.code in (429, 503):
                return None  # not yet: it does not lead, or was asked too often
            raise AssertionError(f"{path}: {refusal.code} {refusal.read().decode()}") from None


class Lab:
    def __init__(self, api: Api, kubelet: Kubelet, name: str, fairlead: Fairlead | None = None) -> None:
        self.api = api
        self._fairlead = fairlead
        self.kubelet = kubelet
        self.namespace = name
        self.jobs = f"/apis/fairlead.io/v1alpha1/namespaces/{name}/tyjobs"
        self.pods_path = f"/api/v1/namespaces/{name}/pods"

    async def open(self) -> None:
        await self.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

        async def has_account() -> bool:
            try:
                await self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default")
            except NotFound:
                return False
            return True

        await self.until(has_account, "the service account")

    async def close(self) -> None:
        """Nothing of the scenario is left to plan: what waits or runs on would be work beside all later ones."""
        for path in (self.jobs, self.pods_path):
            await self.api.call("DELETE", path, {"propagationPolicy": "Background", "gracePeriodSeconds": 0})
        for name in [each for each in self.kubelet.nodes if each.startswith(self.node_name(""))]:
            del self.kubelet.nodes[name]
            await self.api.call("DELETE", f"/api/v1/nodes/{name}")

    # -- nodes --------------------------------------------------------------------------------------------------

    def node_name(self, name: str) -> str:
        return f"{self.namespace}-{name}"

    async def node(
        self,
        name: str,
        cpu: str = "4",
        *,
        labels: Json | None = None,
        cordoned: bool = False,
        offers: Json | None = None,
    ) -> str:
        """Ready, and selected by the pods of this scenario alone.

        While a scenario has only cordoned ones its jobs wait; without any they could never fit.
        """
        full = self.node_name(name)
        amounts = {"cpu": cpu, "memory": "64Gi", "pods": "110", **(offers or {})}
        given = {SCENARIO: self.namespace, "kubernetes.io/hostname": full, **(labels or {})}
        await self.api.call("POST", "/api/v1/nodes", {"metadata": {"name": full, "labels": given}})
        status = {"capacity": amounts, "allocatable": amounts}
        self.kubelet.nodes[full] = status
        await self.api.call("PATCH", f"/api/v1/nodes/{full}/status", {"status": beating(status)})
        await self.api.call("PATCH", f"/api/v1/nodes/{full}", {"spec": {"taints": None, "unschedulable": cordoned}})
        return full

    async def cordon(self, name: str, cordoned: bool = True) -> None:
        await self.api.call("PATCH", f"/api/v1/nodes/{self.node_name(name)}", {"spec": {"unschedulable": cordoned}})

    async def lose_node(self, name: str) -> None:
        """The node and its pods are gone."""
        full = self.node_name(name)
        self.kubelet.nodes.pop(full, None)
        await self.api.call("DELETE", f"/api/v1/nodes/{full}")
        for pod in (await self.pods()).values():
            if pod["spec"].get("nodeName") == full:
                # That very pod: its name may be another's by now.
                await self.delete_pod(pod["metadata"]["name"], preconditions={"uid": pod["metadata"]["uid"]})

    def idle(self, *pods: str) -> None:
        """Pods that do not start although they are bound; all others of the scenario do."""
        self.kubelet.idle = {key for key in self.kubelet.idle if not key.startswith(f"{self.namespace}/")}
        self.kubelet.idle |= {f"{self.namespace}/{pod}" for pod in pods}

    # -- jobs ---------------------------------------------------------------------------------------------------

    def spec(self, workers: int = 2, cpu: str = "1", **fields: Any) -> Json:
        spec = spec_json(workers, **fields)
        for template in (spec["leader"]["template"], *(each["template"] for each in spec["workerSets"])):
            pod = template["spec"]
            pod |= {"nodeSelector": {SCENARIO: self.namespace}, "terminationGracePeriodSeconds": 0}
            pod["containers"] = [{**pod["containers"][0], "resources": {"requests": {"cpu": cpu}}}]
        return spec

    def manifest(self, name: str, spec: Json) -> Json:
        metadata = {"name": name, "namespace": self.namespace}
        return {"apiVersion": "fairlead.io/v1alpha1", "kind": "TYJob", "metadata": metadata, "spec": spec}

    async def submit(self, name: str, spec: Json) -> Json:
        made: Json = await self.api.call("POST", self.jobs, self.manifest(name, spec))
        return made

    async def ask(self, path: str, body: Any = None) -> Any:
        """The running Fairlead's answer."""
        fairlead = self._fairlead
        found: list[Any] = []
        assert fairlead is not None

        async def is_answered() -> bool:
            found[:] = [await asyncio.to_thread(fairlead.ask, path, body)]
            return found[0] is not None

        await self.until(is_answered, f"an answer to {path}")
        return found[0]

    def queue_name(self, name: str) -> str:
        return f"{name}-{self.namespace}"

    async def queue(self, name: str, **spec: Any) -> str:
        """A JobQueue of this scenario alone; its name."""
        body = {"apiVersion": "fairlead.io/v1alpha1", "kind": "JobQueue", "metadata": {"name": self.queue_name(name)}}
        await self.api.call("POST", "/apis/fairlead.io/v1alpha1/jobqueues", {**body, "spec": spec})
        return self.queue_name(name)

    async def edit(self, name: str, **spec: Any) -> None:
        await self.api.call("PATCH", f"{self.jobs}/{name}", {"spec": spec})

    async def counts(self, name: str, counts: int) -> None:
        held = await self.api.call("GET", f"{self.jobs}/{name}")
        sets = held["spec"]["workerSets"]
        await self.edit(name, workerSets=[{**sets[0], "counts": counts}, *sets[1:]])

    async def status(self, name: str) -> Json:
        found: Json = (await self.api.call("GET", f"{self.jobs}/{name}")).get("status") or {}
        return found

    async def places(self, name: str) -> dict[str, str]:
        """Nodes by worker, `learner` for the leader, without the scenario's name."""
        job = msgspec.convert(await self.api.call("GET", f"{self.jobs}/{name}"), TYJob)
        spec = parse_spec(job)
        assert isinstance(spec, JobSpec)
        found = decode(parse_status(job)[0].allocations, spec)
        return {
            f"{place[0]}-{place[1]}" if place[0] else "learner": node.removeprefix(f"{self.namespace}-")
            for place, node in found.items()
        }

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str, within_s: float = PATIENCE_S) -> None:
        clock = RealClock()
        give_up_s = clock.elapsed_s() + within_s
        while clock.elapsed_s() < give_up_s:
            if await holds():
                return
            await clock.sleep(LOOK_S)
        raise AssertionError(f"not within {within_s:g} s: {what}")

    async def until_status(self, name: str, within_s: float = PATIENCE_S, **wanted: Any) -> Json:
        """The status, once these fields of it are as wanted."""
        status: Json = {}

        async def holds() -> bool:
            status.clear()
            status.update(await self.status(name))
            return all(status.get(field) == value for field, value in wanted.items())

        try:
            await self.until(holds, f"{wanted}", within_s)
        except AssertionError as problem:
            raise AssertionError(f"{problem}; the status is {status}") from None
        return status

    async def age(self, name: str, field: str, seconds: float) -> None:
        """A time in the status becomes so much older, as if that had passed."""
        before = datetime.fromisoformat((await self.status(name))[field])
        at = (before - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        await self.api.call("PATCH", f"{self.jobs}/{name}/status", {"status": {field: at}})

    async def until_bound(self, name: str) -> None:
        async def is_bound() -> bool:
            return bool((await self.pods()).get(name, {}).get("spec", {}).get("nodeName"))

        await self.until(is_bound, f"{name} is bound")

    async def until_running(self, name: str, ready: str = "") -> Json:
        wanted: Json = {"ready": ready} if ready else {}
        return await self.until_status(name, stage="Running", **wanted)

    async def until_waiting(self, name: str) -> Json:
        """The status of a job that was decided about, did not fit, and says why and behind whom it waits."""

        async def waits() -> bool:
            status = await self.status(name)
            return bool(status.get("stage") == "Pending" and status.get("explain") and status.get("queuePosition"))

        await self.until(waits, f"{name} waits, with an explanation")
        return await self.status(name)

    async def until_condition(self, name: str, kind: str, message: str) -> Json:
        """The status with a condition of this kind whose message has these words."""

        async def holds() -> bool:
            conditions = (await self.status(name)).get("conditions", [])
            return any(each["type"] == kind and message in each["message"] for each in conditions)

        await self.until(holds, f"{name} has {kind}: {message}")
        return await self.status(name)

    async def until_no_pods(self) -> None:
        async def none() -> bool:
            return await self.pods() == {}

        await self.until(none, "no pods are left")

    # -- pods ---------------------------------------------------------------------------------------------------

    async def pods(self, job: str = "") -> dict[str, Json]:
        items = (await self.api.call("GET", self.pods_path))["items"]
        return {
            each["metadata"]["name"]: each
            for each in items
            if not job or each["metadata"].get("labels", {}).get("fairlead.io/job") == job
        }

    async def pod(self, name: str) -> Json:
        found: Json = await self.api.call("GET", f"{self.pods_path}/{name}")
        return found

    async def delete_pod(self, name: str, **more: Any) -> None:
        with contextlib.suppress(NotFound, Conflict):
            await self.api.call("DELETE", f"{self.pods_path}/{name}", {"gracePeriodSeconds": 0, **more})

    async def report(
        self, name: str, phase: str = "", *, restarts: int = 0, state: Json | None = None, **more: Any
    ) -> None:
        """What a kubelet reports of a pod and its container."""
        container = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": restarts}
        status: Json = {"containerStatuses": [{**container, "state": state or {}}], **more}
        status |= {"phase": phase, "conditions": []} if phase else {}
        await self.api.call("PATCH", f"{self.pods_path}/{name}/status", {"status": status})

    async def foreign_pod(self, name: str, node: str, cpu: str, memory: str = "0") -> None:
        """A pod that somebody else bound there."""
        container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
        spec = {"containers": [container], "nodeName": self.node_name(node), "terminationGracePeriodSeconds": 0}
        await self.api.call("POST", self.pods_path, {"metadata": {"name": name}, "spec": spec})

    async def until_event(self, *patterns: str) -> None:
        """About such a job, for such a reason, with such a note; events are written later than what they are about."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"

        async def is_there() -> bool:
            items = (await self.api.call("GET", path))["items"]
            found = [
                ((each.get("regarding") or {}).get("name"), each.get("reason"), each.get("note")) for each in items
            ]
            return any(all(map(re.fullmatch, patterns, map(str, each))) for each in found)

        await self.until(is_there, f"an event {patterns}")


async def stay(seconds: float) -> None:
    """Time in which nothing may happen."""
    await asyncio.sleep(seconds)
