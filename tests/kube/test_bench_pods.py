"""The benchmarks' pods are pods: a real API server takes them, field by field."""

from bench.decode import realistic_pod
from tests.rigs.kube.servers import Rig


def test_the_server_accepts_a_benchmark_pod_without_an_unknown_field(rig: Rig, namespace: str) -> None:
    pod = realistic_pod(7)
    metadata, spec = pod["metadata"], pod["spec"]
    # What a server sets itself, and a priority class nobody has made here.
    metadata = {key: metadata[key] for key in ("name", "labels", "annotations", "ownerReferences")}
    spec = {key: spec[key] for key in spec if not key.startswith("priority")}
    path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
    answer = rig.request("POST", path, {"metadata": metadata, "spec": spec, "status": pod["status"]})
    assert answer.status == 201, answer.body
