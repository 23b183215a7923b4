"""One kubectl session on two whole clusters, compared: what a user sees must not tell which one it is."""

import re
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.kubectl import Command, Session
from tests.contract.test_kubectl import differences
from tests.journeys.clusters import our_cluster, real_cluster

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/hostname: sim-1}
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: "web:1", ports: [{containerPort: 80}], resources: {requests: {cpu: 10m}}}]
"""
COMMAND = """["sh", "-c", "a && b < c > d"]"""
REVISED_DAEMON_SET = f"""
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: logs}}
spec:
  selector: {{matchLabels: {{app: logs}}}}
  template:
    metadata: {{labels: {{app: logs, zone: z}}, annotations: {{b: "2", a: "1"}}}}
    spec:
      nodeSelector: {{kubernetes.io/hostname: sim-1}}
      terminationGracePeriodSeconds: 1
      containers: [{{name: main, image: "web:1", command: {COMMAND}, env: [{{name: Z, value: "1"}}]}}]
"""
REVISED_STATEFUL_SET = (
    REVISED_DAEMON_SET.replace("kind: DaemonSet", "kind: StatefulSet")
    .replace("logs", "db")
    .replace("spec:\n", "spec:\n  serviceName: db\n", 1)
)
POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: NAME}}
spec:
  nodeSelector: {kubernetes.io/hostname: NODE}
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "busybox", command: COMMAND}]
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: sum}
spec:
  completions: 2
  template:
    metadata: {annotations: {simulate.fairlead.io/exit-after: "0.2"}}
    spec: {restartPolicy: Never, nodeSelector: {kubernetes.io/hostname: sim-1}, containers: [{name: c, image: i}]}
"""
ENOUGH = """
apiVersion: batch/v1
kind: Job
metadata: {name: enough}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  successPolicy: {rules: [{succeededIndexes: "0"}]}
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: node-1}
      containers: [{name: c, image: busybox, command: [sh, -c, "test $JOB_COMPLETION_INDEX = 0 || sleep 1000"]}]
"""
STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {nodeSelector: {kubernetes.io/hostname: sim-1}, containers: [{name: c, image: i}]}
"""
DAEMON_SET = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, image: i}], nodeSelector: {kubernetes.io/hostname: sim-2}}
"""


STORAGE = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: small}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /no/small}, storageClassName: by-hand}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: large}
spec: {capacity: {storage: 9Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /no/large}, storageClassName: by-hand}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: later}
provisioner: example.com/none
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: others}
provisioner: example.com/none
"""


def claim(name: str, of: str, **spec: str) -> str:
    more = "".join(f", {key}: {value}" for key, value in spec.items())
    return f"""
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec: {{storageClassName: {of}, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}{more}}}
---"""


CLAIMS = "".join(
    [
        claim("fits", "by-hand"),
        claim("named", "by-hand", volumeName="large"),
        claim("waits", "later"),
        claim("asks", "others"),
        claim("lost", "nowhere"),
        claim("bare", '""'),
    ]
)


def pod(name: str, node: str, command: str = "[sleep, '1000']") -> str:
    return POD.replace("NAME", name).replace("NODE", node).replace("COMMAND", command)


ROLLED_OUT = r"^exit|successfully"
TOLD = "get events -o custom-columns=T:.type,R:.reason,K:.involvedObject.kind,M:.message --no-headers"

SESSIONS: dict[str, tuple[Command, ...]] = {
    "a deployment is rolled out, changed and taken back": (
        Command("apply -f -", DEPLOYMENT),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("get deploy web -o wide"),
        Command("get rs -o wide"),
        Command("get pods", ordered=False),
        Command("describe deploy web"),
        Command("get deploy web -w", seconds=4),
        Command("wait deploy/web --for=condition=Available --timeout=120s"),
        Command("wait pods -l app=web --for=condition=Ready --timeout=120s", ordered=False),
        Command("set image deploy/web web=web:2"),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("get rs", ordered=False),
        Command("rollout history deploy/web"),
        Command("rollout history deploy/web --revision=2"),
        Command("annotate deploy web kubernetes.io/change-cause='by hand'"),
        Command("rollout undo deploy/web"),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("rollout history deploy/web"),
        Command("get deploy web -o 'jsonpath={.spec.template.spec.containers[0].image}'"),
        Command("rollout restart deploy/web"),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("rollout history deploy/web"),
        Command("rollout undo deploy/web --to-revision=99"),
        Command("rollout pause deploy/web"),
        Command("rollout pause deploy/web"),
        Command("set env deploy/web A=b"),
        Command("rollout restart deploy/web"),
        Command("rollout resume deploy/web"),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("scale deploy/web --replicas=1"),
        Command("get pods --no-headers", until="", ordered=False, quiet=True),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("get deploy web"),
        Command("edit deploy web", edit="s/replicas: 1/replicas: 3/"),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("get deploy"),
    ),
    "workloads with revisions are taken back": (
        Command("apply -f -", REVISED_DAEMON_SET + "---" + REVISED_STATEFUL_SET),
        Command("rollout status ds/logs --timeout=120s", keep=ROLLED_OUT),
        Command("rollout status sts/db --timeout=120s", keep=ROLLED_OUT),
        *(
            command
            for name in ("ds/logs", "sts/db")
            for command in (
                Command(f"rollout undo {name}"),
                Command(f"rollout undo {name} --to-revision=1"),
                Command(f"set image {name} main=web:2"),
                Command(f"rollout history {name}", until="2"),
                Command(f"rollout status {name} --timeout=120s", keep=ROLLED_OUT),
                Command(f"rollout undo {name} --to-revision=2"),
                Command(f"rollout undo {name} --to-revision=1 --dry-run=server"),
                Command(f"rollout undo {name}"),
                Command(f"rollout history {name}", until="3"),
                Command(f"rollout status {name} --timeout=120s", keep=ROLLED_OUT),
                Command(f"get {name} -o 'jsonpath={{.spec.template.spec.containers[0].image}}'"),
                Command(f"rollout undo {name} --to-revision=3"),
                Command(f"rollout undo {name} --to-revision=9"),
            )
        ),
        Command("apply -f -", DEPLOYMENT),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("rollout undo deploy/web"),
        Command("rollout undo deploy/web --to-revision=1"),
    ),
    "a service leads to pods": (
        Command("apply -f -", DEPLOYMENT),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("expose deploy web --port=8080 --target-port=80"),
        Command("get svc web"),
        Command("get endpointslices -l kubernetes.io/service-name=web", until="10.64"),
        Command("describe svc web --show-events=false"),
        Command("describe endpointslices -l kubernetes.io/service-name=web", drop="^Annotations"),
        Command("scale deploy/web --replicas=0"),
        Command("get endpointslices -l kubernetes.io/service-name=web --no-headers", until="<unset>"),
        Command("delete svc web"),
        Command("get svc,endpointslices", until=""),
    ),
    "a pod lives and is deleted": (
        Command("apply -f -", pod("one", "sim-1")),
        Command("wait pod/one --for=condition=Ready --timeout=120s"),
        Command("get pod one"),
        Command("get pod one -o wide"),
        Command("describe pod one"),
        Command("label pod one tier=front"),
        Command("annotate pod one note=hello"),
        Command("get pod one -o 'jsonpath={.status.conditions[*].type}'"),
        Command("get pod one -o 'jsonpath={.status.containerStatuses[0].state}'", drop="x"),
        Command("delete pod one"),
        Command("get pods"),
        Command("events --for=pod/one", ordered=False),
        Command(TOLD, ordered=False),
    ),
    "cascades": (
        Command("apply -f -", DEPLOYMENT),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("delete deploy web --cascade=orphan"),
        Command("get deploy,rs", ordered=False),
        Command("apply -f -", DEPLOYMENT),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("get rs", ordered=False),
        Command("delete deploy web --cascade=foreground"),
        Command("get deploy,rs,pods", ordered=False),
        Command("apply -f -", DEPLOYMENT),
        Command("rollout status deploy/web --timeout=120s", keep=ROLLED_OUT),
        Command("delete deploy web --cascade=background"),
        Command("wait pods -l app=web --for=delete --timeout=120s", keep="^exit"),
        Command("get deploy,rs,pods"),
    ),
    "a node is looked after": (
        Command("get nodes sim-1 sim-2 node-1"),
        Command("apply -f -", DEPLOYMENT.replace("sim-1", "sim-2").replace("name: web, l", "name: away, l")),
        Command("rollout status deploy/away --timeout=120s", keep=ROLLED_OUT),
        Command("apply -f -", pod("bare", "sim-2")),
        Command("wait pod/bare --for=condition=Ready --timeout=120s"),
        Command("describe node sim-2", drop="^Annotations"),
        Command("cordon sim-2"),
        Command("get node sim-2"),
        Command("drain sim-2 --timeout=30s", ordered=False),
        Command("drain sim-2 --force --timeout=60s", ordered=False),
        Command("get pods", ordered=False),
        Command("uncordon sim-2"),
        Command("rollout status deploy/away --timeout=120s", keep=ROLLED_OUT),
        Command("taint node sim-2 key=value:NoExecute"),
        # Its pods are deleted, and those that replace them fit nowhere.
        Command("get pods -l app=web -o 'jsonpath=:{.items[*].status.phase}:'", until=":Pending Pending:"),
        Command("taint node sim-2 key=value:NoExecute-"),
        Command("rollout status deploy/away --timeout=120s", keep=ROLLED_OUT),
        Command("delete deploy away"),
    ),
    "logs are read": (
        Command("apply -f -", pod("talks", "node-1", '[sh, -c, "echo one; echo two; echo three; sleep 1000"]')),
        Command("wait pod/talks --for=condition=Ready --timeout=120s"),
        Command("logs talks", until="three"),
        Command("logs talks --tail=1"),
        Command("logs talks --tail=0"),
        Command("logs talks --since=1h"),
        Command("logs talks --since-time=2100-01-01T00:00:00Z"),
        Command("logs -l app=talks"),
        Command("logs talks --prefix"),
        Command("logs talks --limit-bytes=5"),
        Command("logs -f talks", seconds=5),
        Command("logs talks --previous"),
        Command("logs talks -c none"),
        Command("logs talks --tail=-5"),
        Command("apply -f -", pod("fails", "node-1", '[sh, -c, "echo oh no; exit 3"]')),
        Command(
            "get pod fails -o 'jsonpath={.status.containerStatuses[0].state.waiting.reason}'", until="CrashLoopBackOff"
        ),
        Command("logs fails"),
        Command("get pod fails -o 'jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}'"),
        Command("describe pod fails", drop=r"BackOff|Restart Count|Started:|Finished:|Ready:"),
        Command("delete pod talks fails"),
    ),
    "claims and volumes": (
        Command("apply -f -", STORAGE),
        Command("apply -f -", CLAIMS),
        Command("get pvc fits", until="Bound"),
        Command("get pvc named", until="Bound"),
        Command("get pvc", ordered=False),
        Command("get pv small large", ordered=False),
        Command("describe pvc fits named"),
        Command("describe pv small large"),
        Command("get pv small large -o yaml", drop="resourceVersion|Time|uid"),
        Command("get pvc fits named asks -o yaml", drop="resourceVersion|Time|uid"),
        Command("get events --no-headers -o custom-columns=N:.involvedObject.name,R:.reason,M:.message", ordered=False),
        Command("delete pvc fits"),
        Command("get pv small", until="Released"),
        Command("delete pv small"),
        Command("delete pvc named waits asks lost bare"),
        Command("delete pv large"),
        Command("delete sc later others"),
    ),
    "jobs, sets and daemons": (
        Command("apply -f -", JOB),
        Command("wait job/sum --for=condition=Complete --timeout=120s"),
        Command("get job sum"),
        Command("describe job sum"),
        Command("get pods", ordered=False),
        Command("delete job sum"),
        Command("apply -f -", ENOUGH),
        Command("wait job/enough --for=condition=Complete --timeout=120s"),
        Command("get job enough -o 'jsonpath={.status.succeeded} {.status.failed} {.status.completedIndexes}'"),
        Command("delete job enough"),
        Command("apply -f -", STATEFUL_SET),
        Command("rollout status sts/db --timeout=120s", keep=ROLLED_OUT + "|complete"),
        Command("get sts db -o wide"),
        Command("get pods", ordered=False),
        Command("describe sts db"),
        Command("rollout history sts/db"),
        Command("scale sts/db --replicas=1"),
        Command("wait pod/db-1 --for=delete --timeout=120s", keep="^exit"),
        Command("get pods"),
        Command("apply -f -", DAEMON_SET),
        Command("rollout status ds/agent --timeout=120s", keep=ROLLED_OUT),
        Command("get ds agent -o wide"),
        Command("describe ds agent"),
        Command("rollout history ds/agent"),
        Command("rollout restart ds/agent"),
        Command("rollout status ds/agent --timeout=120s", keep=ROLLED_OUT),
        Command("delete ds,sts --all"),
        Command("create job now --image=i"),
        Command("create cronjob often --image=i --schedule='0 0 1 1 *'"),
        Command("create job from --from=cronjob/often"),
        Command("get cj"),
        Command("describe cj often"),
    ),
}


@pytest.fixture(scope="module")
def clusters(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    with (
        real_cluster(kube_programs, tmp_path_factory.mktemp("real")) as real,
        our_cluster(tmp_path_factory.mktemp("ours")) as ours,
    ):
        yield {"real": real, "ours": ours}


class OnNodes(Session):
    """What differs by nature on two clusters that live: addresses, who it is that places, and the hash of a template,
    which is that of Go's own way of printing it there."""

    def _normal(self, text: str) -> str:
        text = super()._normal(text)
        text = re.sub(r"\b(10\.64|127\.\d+)\.\d+\.\d+\b", "<pod>", text)
        text = re.sub(r"process://\d+", "process://<id>", text)
        text = re.sub(r"\bweb-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "web-<suffix>", text)
        text = re.sub(
            r"\b(web|away|agent|db|pod-template-hash|controller-revision-hash)([-=])[a-z0-9]{7,10}\b",
            r"\1\2<hash>",
            text,
        )
        text = re.sub(
            r"\b(sum|agent|web-<hash>|away-<hash>|now|from)-[bcdfghjklmnpqrstvwxz2456789]{5}\b", r"\1-<suffix>", text
        )
        return re.sub(r"\b(default-scheduler|fairlead)\b", "<who places>", text)


@pytest.mark.parametrize("title", SESSIONS)
def test_a_session_prints_the_same_on_both(
    title: str, clusters: dict[str, Path], kube_programs: Path, tmp_path: Path
) -> None:
    namespace = f"session-{secrets.token_hex(4)}"

    def run(name: str) -> list[tuple[str, str]]:
        home = tmp_path / name
        home.mkdir()
        session = OnNodes(kube_programs, clusters[name], home, namespace)
        session.run(
            [Command(f"create ns {namespace}", quiet=True), Command("get sa default", until="default", quiet=True)]
        )
        try:
            return session.run(SESSIONS[title])
        finally:
            # The next session must not meet this one's pods on a node.
            kinds = "ds,sts,deploy,rs,rc,jobs,pods"
            session.run(
                [
                    Command(f"delete {kinds} --all --grace-period=1 --timeout=60s", quiet=True),
                    Command(f"delete ns {namespace} --wait=false", quiet=True),
                ]
            )

    with ThreadPoolExecutor(2) as pool:
        theirs, mine = pool.submit(run, "real"), pool.submit(run, "ours")
        found = differences(theirs.result(), mine.result())
    assert not found, found
