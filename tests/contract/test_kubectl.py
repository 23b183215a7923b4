"""kubectl 1.36 feels at home: the same session on both servers prints the same."""

import difflib
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.contract.kubectl import Command, Session
from tests.contract.servers import Contestant

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1", ports: [{containerPort: 80}]}]}
"""
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n"
POD = (
    "apiVersion: v1\nkind: Pod\nmetadata: {name: one, labels: {app: one}}\nspec: {containers: [{name: c, image: i}]}\n"
)
NODE = """\
apiVersion: v1
kind: Node
metadata: {name: $ns, labels: {kubernetes.io/hostname: $ns}}
status:
  capacity: {cpu: "4", memory: 8Gi, pods: "110"}
  allocatable: {cpu: "4", memory: 8Gi, pods: "110"}
  conditions: [{type: Ready, status: "True", reason: KubeletReady, message: ready}]
  nodeInfo: {kubeletVersion: v1.36.4, architecture: amd64, bootID: b, containerRuntimeVersion: c, kernelVersion: k,
             kubeProxyVersion: "", machineID: m, operatingSystem: linux, osImage: o, systemUUID: s}
"""
CONTROLLER = """\
apiVersion: v1
kind: ReplicationController
metadata: {name: web}
spec:
  replicas: 2
  selector: {app: web}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1"}]}
"""
WIDGETS = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.$ns.example.com}
spec:
  group: $ns.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                size: {type: integer}
                parts: {type: array, items: {type: object, properties: {id: {type: string}, "n": {type: integer}}}}
"""
WIDGET = """\
apiVersion: $ns.example.com/v1
kind: Widget
metadata: {name: a}
spec: {size: 1, parts: [{id: p, "n": 1}, {id: q, "n": 2}]}
"""

SESSIONS: dict[str, tuple[Command, ...]] = {
    "objects are made and looked at": (
        Command("get all"),
        Command("create configmap settings --from-literal=a=b --from-literal=c=d"),
        Command("create configmap settings"),
        Command("get configmap settings -o yaml"),
        Command("get cm"),
        Command("get cm settings -o 'jsonpath={.data.a}'"),
        Command("get cm -o name"),
        Command("get cm settings -o 'custom-columns=NAME:.metadata.name,A:.data.a'"),
        Command("get cm --sort-by=.metadata.name"),
        Command("describe cm settings"),
        Command("create secret generic hidden --from-literal=p=w"),
        Command("get secrets"),
        Command("describe secret hidden"),
        Command("create namespace $ns-two"),
        Command("get ns $ns-two"),
        Command("describe ns $ns-two"),
        Command("create serviceaccount robot"),
        Command("get sa"),
        Command("create role reader --verb=get,list --resource=pods"),
        Command("create rolebinding reader --role=reader --serviceaccount=$ns:robot"),
        Command("get roles,rolebindings"),
        Command("describe role reader"),
        Command("describe rolebinding reader"),
        Command("create quota few --hard=pods=3"),
        Command("create poddisruptionbudget careful --selector=app=web --min-available=1"),
        Command("get pdb"),
        Command("describe pdb careful"),
        Command("create priorityclass $ns --value=7 --description=seven"),
        Command("get pc $ns"),
        Command("create job once --image=busybox -- true"),
        Command("get jobs"),
        Command("create cronjob often --image=busybox --schedule='*/5 * * * *' -- true"),
        Command("get cj"),
        Command("create token robot", quiet=True),
        Command("get nothing"),
        Command("get cm none"),
        Command("delete cm settings"),
        Command("delete cm settings"),
        Command("delete cm settings --ignore-not-found"),
    ),
    "a deployment is applied and changed": (
        Command("apply -f -", DEPLOYMENT + "---\n" + SERVICE),
        Command("apply -f -", DEPLOYMENT + "---\n" + SERVICE),
        Command("apply -f -", DEPLOYMENT.replace("web:1", "web:2")),
        Command("diff -f -", DEPLOYMENT.replace("web:1", "web:3")),
        Command("get deployments,services"),
        Command("get deploy web -o wide"),
        Command("describe deploy web"),
        Command("describe svc web"),
        Command("scale deploy web --replicas=4"),
        Command("scale deploy web --replicas=5 --current-replicas=1"),
        Command("get deploy web -o 'jsonpath={.spec.replicas}'"),
        Command("set image deploy/web web=web:9"),
        Command("set env deploy/web A=b"),
        Command("label deploy web tier=front"),
        Command("label deploy web tier=back"),
        Command("label deploy web tier=back --overwrite"),
        Command("label deploy web tier-"),
        Command("annotate deploy web note='hello there'"),
        Command('patch deploy web -p \'{"spec":{"minReadySeconds":5}}\''),
        Command('patch deploy web --type=json -p \'[{"op":"remove","path":"/spec/minReadySeconds"}]\''),
        Command('patch deploy web --type=merge -p \'{"spec":{"paused":true}}\''),
        Command('patch deploy web -p \'{"spec":{"replicas":"many"}}\''),
        Command("patch deploy web --type=merge -p nonsense"),
        Command("edit deploy web", edit="s/minReadySeconds: .*/minReadySeconds: 7/; s/replicas: 4/replicas: 6/"),
        Command("get deploy web -o 'jsonpath={.spec.replicas}'"),
        Command("rollout restart deploy/web"),
        Command("rollout status deploy/web --timeout=1s"),
        Command("rollout history deploy/web"),
        Command("rollout undo deploy/web"),
        Command("rollout pause deploy/web"),
        Command("rollout resume deploy/web"),
        Command("expose deploy web --name=web-two --port=80 --target-port=8080"),
        Command("get svc web-two -o 'jsonpath={.spec.ports}'"),
        Command("autoscale deploy web --min=1 --max=3"),
        Command("replace -f -", DEPLOYMENT),
        Command("apply --server-side -f -", DEPLOYMENT),
        Command("apply --server-side --force-conflicts -f -", DEPLOYMENT),
        Command("apply --server-side --force-conflicts --dry-run=server -f -", DEPLOYMENT.replace("web:1", "web:4")),
        Command("create -f -", DEPLOYMENT),
        Command("create -f - --dry-run=server", DEPLOYMENT.replace("name: web,", "name: other,")),
        Command("create -f -", DEPLOYMENT.replace("replicas:", "replcas:").replace("name: web,", "name: odd,")),
        Command("create -f -", "apiVersion: v1\nkind: Odd\nmetadata: {name: x}\n"),
        Command("create -f -", "apiVersion: v1\nkind: Pod\nmetadata: {name: Bad}\nspec: {}\n"),
        Command("delete deploy,svc -l app=web"),
        Command("get deploy"),
        Command("delete all --all"),
    ),
    "pods are followed": (
        Command("apply -f -", POD),
        Command("get pods"),
        Command("get pod one -o wide"),
        Command("get po -l app=one --show-labels"),
        Command("get po -L app"),
        Command("get po --field-selector=status.phase=Pending"),
        Command("get po --field-selector=status.phase=Running"),
        Command("get po -A --field-selector=metadata.namespace=$ns"),
        Command("describe pod one"),
        Command("get pods -w", seconds=1.5),
        Command("get pods -w --output-watch-events", seconds=1.5),
        Command("wait pod/one --for=jsonpath='{.status.phase}'=Pending --timeout=5s"),
        Command("wait pod/one --for=condition=Ready --timeout=1s"),
        Command("logs one"),
        Command("logs one -c none"),
        Command("logs none"),
        Command("run two --image=i --labels=app=two"),
        Command("run two --image=i"),
        Command("get events"),
        Command("events"),
        Command("delete pod one"),
        Command("wait pod/one --for=delete --timeout=5s"),
        Command("delete pod two --grace-period=0 --force"),
        Command("get pods"),
    ),
    "what can be scaled is autoscaled": (
        Command("create -f -", CONTROLLER),
        Command("autoscale rc web --min=1 --max=3"),
        Command("get hpa web -o yaml"),
        Command("autoscale rc web --max=3"),
        Command("delete hpa web"),
        Command("autoscale rc web --max=2 --cpu=80%"),
        Command("get hpa web -o 'jsonpath={.spec}'"),
        Command("autoscale rc web --min=3 --max=2 --name=odd"),
        Command("autoscale rc web --max=4 --cpu=500m --memory=1Gi --name=more"),
        Command("get hpa more -o 'jsonpath={.spec}'"),
        Command("autoscale rc none --max=2"),
        Command("create -f -", DEPLOYMENT),
        Command("autoscale deploy web --max=2 --name=deploy"),
        Command("autoscale -f - --max=2 --name=again", DEPLOYMENT),
        Command("autoscale service web --max=2"),
        Command("get hpa"),
        Command("describe hpa web"),
        Command("delete hpa --all"),
    ),
    "a custom object is applied and changed": (
        Command("apply -f -", WIDGETS),
        Command("get --raw /apis/$ns.example.com/v1/namespaces/$ns/widgets", until='"items"', quiet=True),
        # Whoever has asked what is served before a kind was defined looks again.
        Command("apply -f -", WIDGET, until="created"),
        Command("apply -f -", WIDGET.replace("size: 1", "size: 2")),
        Command("apply -f -", WIDGET.replace('[{id: p, "n": 1}, {id: q, "n": 2}]', "[{id: q}]")),
        Command("apply -f -", WIDGET.replace("size: 1, ", "")),
        Command("get widget a -o yaml"),
        Command("diff -f -", WIDGET),
        Command("edit widget a", edit="s/- id: q/- id: z/"),
        Command('patch widget a -p \'{"spec":{"size":7}}\''),
        Command('patch widget a --type=merge -p \'{"spec":{"size":7}}\''),
        Command("label widget a x=y"),
        Command("set image widget/a a=b"),
        Command("apply --server-side --force-conflicts -f -", WIDGET),
        Command("apply -f -", WIDGET.replace("size: 1", "size: big")),
        Command("explain widget.spec", keep=r"^(exit|KIND|VERSION|GROUP|FIELD)|^  \w+\s<"),
        Command("delete widget a"),
        Command("delete crd widgets.$ns.example.com"),
    ),
    "a node is looked after": (
        Command("create -f -", NODE),
        Command("get node $ns"),
        Command("get node $ns -o wide"),
        Command("taint node $ns node.kubernetes.io/not-ready:NoSchedule-"),
        Command("label node $ns zone=a"),
        Command("cordon $ns"),
        Command("cordon $ns"),
        Command("get node $ns"),
        Command("uncordon $ns"),
        Command("taint node $ns k=v:NoSchedule"),
        Command("taint node $ns k=w:NoSchedule"),
        Command("taint node $ns k=w:NoSchedule --overwrite"),
        Command("taint node $ns k-"),
        Command("taint node $ns k-"),
        Command("create -f -", POD.replace("spec: {", "spec: {nodeName: $ns, terminationGracePeriodSeconds: 0, ")),
        Command("drain $ns"),
        Command("drain $ns --force --grace-period=0"),
        Command("get pods"),
        Command("describe node $ns"),
        Command("delete node $ns"),
    ),
    "the server explains itself": (
        Command("explain pod", keep=r"^(exit|KIND|VERSION|GROUP)|^  \w+\s<"),
        Command("explain pod.spec.containers.ports", keep=r"^(exit|KIND|VERSION|FIELD)|^  \w+\s<"),
        Command("explain deployment.spec.strategy", keep=r"^(exit|KIND|VERSION|GROUP|FIELD)|^  \w+\s<"),
        Command("explain deployment --recursive", keep=r"^(exit|KIND|VERSION|GROUP)|^  +\w+\s<"),
        Command("explain pod.spec.nothing"),
        Command("explain nothing"),
        Command("auth can-i create pods"),
        Command("auth can-i get pods --as=nobody"),
        Command("auth can-i --list --as=nobody"),
        Command("auth whoami"),
        Command("auth whoami --as=jane --as-group=dev"),
        Command("get pods --as=jane"),
        Command("api-resources --api-group=apps"),
        Command("api-resources --api-group=batch -o wide"),
        Command("api-resources --api-group=policy --verbs=list,get -o name"),
        Command("get --raw /healthz"),
        Command("get --raw /api/v1/namespaces/$ns/pods"),
        Command("get --raw /nope"),
    ),
}


@pytest.mark.parametrize("title", SESSIONS)
def test_a_session_prints_the_same_on_both(
    title: str, the_real: Contestant, the_embedded: Contestant, kube_programs: Path, tmp_path: Path
) -> None:
    namespace = f"session-{secrets.token_hex(4)}"
    with ThreadPoolExecutor(2) as pool:
        theirs, mine = (
            pool.submit(run, title, server, kube_programs, tmp_path, namespace) for server in (the_real, the_embedded)
        )
        found = differences(theirs.result(), mine.result())
    assert not found, found


def run(title: str, server: Contestant, programs: Path, folder: Path, namespace: str) -> list[tuple[str, str]]:
    home = folder / server.name
    home.mkdir()
    session = Session(programs, kubeconfig(server, home), home, namespace)
    session.run([Command(f"create ns {namespace}", quiet=True), Command("create sa default", quiet=True)])
    return session.run(SESSIONS[title])


def kubeconfig(server: Contestant, home: Path) -> Path:
    made = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": str(server.authority)}}],
        "users": [{"name": "u", "user": {"token": server.tokens["admin"]}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    path = home / "kubeconfig"
    path.write_text(yaml.safe_dump(made))
    return path


def differences(real: list[tuple[str, str]], ours: list[tuple[str, str]]) -> str:
    parts = []
    for (line, theirs), (_, mine) in zip(real, ours, strict=True):
        if theirs != mine:
            diff = difflib.unified_diff(theirs.splitlines(), mine.splitlines(), "real", "embedded", n=2, lineterm="")
            parts.append(f"kubectl {line}\n" + "\n".join(diff))
    return "\n\n".join(parts)
