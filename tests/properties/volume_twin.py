"""Twins of the volume rules, node by node over plain documents."""

import copy
from random import Random
from typing import Any

from tests.properties import worlds
from tests.properties.twin import number, requirement_holds

Doc = dict[str, Any]
ZONE = worlds.ZONE

CLASSES: list[Doc] = [
    {
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
    {"metadata": {"name": "made"}, "provisioner": "csi.x", "volumeBindingMode": "WaitForFirstConsumer"},
]


def a_storage(rng: Random, world: Doc) -> Doc:
    made: Doc = copy.deepcopy(CLASSES[1])
    if worlds.some(rng, 0.5):
        made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": rng.sample(["z1", "z2"], 1)}]}]
    volumes = []
    for i in range(rng.randint(0, 6)):
        spec: Doc = {
            "capacity": {"storage": f"{rng.randint(1, 4)}Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": rng.choice(("local", "made")),
            "csi": {"driver": "csi.x", "volumeHandle": f"h{i}"},
        }
        if worlds.some(rng, 0.5):
            term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [rng.choice(("z1", "z2", "z3"))]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        labels = {ZONE: rng.choice(("z1", "z1__z2"))} if worlds.some(rng, 0.3) else {}
        phase = rng.choice(("Available", "Available", "Released"))
        volumes.append({"metadata": {"name": f"v{i}", "labels": labels}, "spec": spec, "status": {"phase": phase}})
    claims = []
    for namespace in worlds.NAMESPACES:
        for i in range(3):
            mode = rng.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))
            spec = {
                "accessModes": ["ReadWriteOnce"] if mode == "ReadWriteOnce" else [mode],
                "storageClassName": rng.choice(("local", "made")),
                "resources": {"requests": {"storage": f"{rng.randint(1, 3)}Gi"}},
            }
            annotations = {}
            if volumes and worlds.some(rng, 0.5):
                spec["volumeName"] = rng.choice(volumes)["metadata"]["name"]
                annotations["pv.kubernetes.io/bind-completed"] = "yes"
            metadata = {"name": f"c{i}", "namespace": namespace, "annotations": annotations}
            claims.append({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
    csi_nodes = [
        {
            "metadata": {"name": node["metadata"]["name"]},
            "spec": {"drivers": [{"name": "csi.x", "nodeID": "n", "allocatable": {"count": rng.randint(0, 2)}}]},
        }
        for node in world["nodes"]
        if worlds.some(rng, 0.6)
    ]
    return {"classes": [CLASSES[0], made], "volumes": volumes, "claims": claims, "csi_nodes": csi_nodes}


def mount(rng: Random, pod: Doc, chance: float) -> None:
    volumes: list[Doc] = [
        {"name": f"m{i}", "persistentVolumeClaim": {"claimName": f"c{rng.randint(0, 2)}"}}
        for i in range(2)
        if worlds.some(rng, chance)
    ]
    if worlds.some(rng, chance / 2):
        disk = {"pdName": rng.choice(("d1", "d2")), "readOnly": worlds.some(rng, 0.5)}
        volumes.append({"name": "disk", "gcePersistentDisk": disk})
    if volumes:
        pod["spec"]["volumes"] = volumes


class VolumeTwin:
    def __init__(self, world: Doc, storage: Doc, pod: Doc) -> None:
        self.pod = pod
        self.storage = storage
        self.claims = {(c["metadata"]["namespace"], c["metadata"]["name"]): c for c in storage["claims"]}
        self.volumes = {v["metadata"]["name"]: v for v in storage["volumes"]}
        self.on: dict[str, list[Doc]] = {node["metadata"]["name"]: [] for node in world["nodes"]}
        for placed in world["pods"]:
            if placed["spec"]["nodeName"] in self.on and placed["status"].get("phase") not in ("Succeeded", "Failed"):
                self.on[placed["spec"]["nodeName"]].append(placed)

    def claims_of(self, pod: Doc) -> list[Doc]:
        named = (v.get("persistentVolumeClaim") for v in pod["spec"].get("volumes", ()))
        return [self.claims[pod["metadata"]["namespace"], each["claimName"]] for each in named if each]

    @staticmethod
    def reaches(volume: Doc, node: Doc) -> bool:
        affinity = volume["spec"].get("nodeAffinity")
        if affinity is None:
            return True
        terms = affinity["required"]["nodeSelectorTerms"]
        return any(all(requirement_holds(node["metadata"]["labels"], e) for e in t["matchExpressions"]) for t in terms)

    def restricted(self, node: Doc) -> bool:
        mine = [v["gcePersistentDisk"] for v in self.pod["spec"].get("volumes", ()) if "gcePersistentDisk" in v]
        for placed in self.on[node["metadata"]["name"]]:
            for volume in placed["spec"].get("volumes", ()):
                other = volume.get("gcePersistentDisk")
                if other and any(
                    d["pdName"] == other["pdName"] and not (d["readOnly"] and other["readOnly"]) for d in mine
                ):
                    return True
        alone = [c for c in self.claims_of(self.pod) if "ReadWriteOncePod" in c["spec"]["accessModes"]]
        everybody = [pod for pods in self.on.values() for pod in pods]
        return any(claim is other for claim in alone for pod in everybody for other in self.claims_of(pod))

    def out_of_zone(self, node: Doc) -> bool:
        prefixes = ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io")
        places = [f"{prefix}/{part}" for prefix in prefixes for part in ("zone", "region")]
        if not any(key in node["metadata"]["labels"] for key in places):
            return False
        for claim in self.claims_of(self.pod):
            volume = self.volumes.get(claim["spec"].get("volumeName", ""))
            zones = volume["metadata"]["labels"].get(ZONE) if volume else None
            if zones and node["metadata"]["labels"].get(ZONE) not in zones.split("__"):
                return True
        return False

    def unbindable(self, node: Doc) -> bool:
        waiting = []
        for claim in self.claims_of(self.pod):
            if "volumeName" in claim["spec"]:
                if not self.reaches(self.volumes[claim["spec"]["volumeName"]], node):
                    return True
            else:
                waiting.append(claim)
        taken: set[str] = set()
        for claim in sorted(waiting, key=lambda c: number(c["spec"]["resources"]["requests"]["storage"])):
            wanted = number(claim["spec"]["resources"]["requests"]["storage"])
            free = [
                volume
                for volume in self.storage["volumes"]
                if volume["metadata"]["name"] not in taken
                and volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"]
                and volume["status"]["phase"] == "Available"
                and number(volume["spec"]["capacity"]["storage"]) >= wanted
                and set(claim["spec"]["accessModes"]) <= set(volume["spec"]["accessModes"])
                and self.reaches(volume, node)
            ]
            if free:
                size = min(number(volume["spec"]["capacity"]["storage"]) for volume in free)
                names = [v["metadata"]["name"] for v in free if number(v["spec"]["capacity"]["storage"]) == size]
                taken.add(min(names))
            elif not self.can_be_made(claim, node):
                return True
        return False

    def can_be_made(self, claim: Doc, node: Doc) -> bool:
        of_class = next(
            c for c in self.storage["classes"] if c["metadata"]["name"] == claim["spec"]["storageClassName"]
        )
        if of_class["provisioner"] == "kubernetes.io/no-provisioner":
            return False
        terms = of_class.get("allowedTopologies", [])
        labels = node["metadata"]["labels"]
        return not terms or any(
            all(labels.get(e["key"]) in e["values"] for e in term["matchLabelExpressions"]) for term in terms
        )

    def attached(self, pod: Doc) -> set[str]:
        found = set()
        for claim in self.claims_of(pod):
            if "volumeName" in claim["spec"]:
                found.add(self.volumes[claim["spec"]["volumeName"]]["spec"]["csi"]["volumeHandle"])
            elif claim["spec"]["storageClassName"] == "made":
                found.add("/".join(("unbound", claim["metadata"]["namespace"], claim["metadata"]["name"])))
        return found

    def too_many(self, node: Doc) -> bool:
        name = node["metadata"]["name"]
        csi = next((c for c in self.storage["csi_nodes"] if c["metadata"]["name"] == name), None)
        if csi is None:
            return False
        held = set().union(*(self.attached(pod) for pod in self.on[name]))
        new = self.attached(self.pod) - held
        limit: int = csi["spec"]["drivers"][0]["allocatable"]["count"]
        return bool(new) and len(held) + len(new) > limit
