"""Reviews drawn by lot: recordings of Fluid's webhook, recombined with parts of others and with odd values."""

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any

Tree = dict[str, Any]
OBJECTS = ("pvcs", "datasets", "runtimes", "daemonsets", "pvs")
KINDS = {
    "alluxio": "AlluxioRuntime", "jindo": "JindoRuntime", "juicefs": "JuiceFSRuntime", "thin": "ThinRuntime",
    "efc": "EFCRuntime", "vineyard": "VineyardRuntime", "cache": "CacheRuntime",
}  # fmt: skip
MODES = (
    "serverless.fluid.io/inject", "fuse.sidecar.fluid.io/inject", "fuse.serverful.fluid.io/inject",
    "unprivileged.sidecar.fluid.io/inject", "cachedir.sidecar.fluid.io/inject", "app.poststart.fluid.io/inject",
    "fuse.sidecar.poststart.fluid.io/inject",
)  # fmt: skip
PHASES = ("Bound", "Failed", "Updating", "DataMigrating", "Pending", "NotBound", "")
VOLUMES = ("check-fluid-mount-ready", "default-check-mount-0", "thin-fuse-mount-0", "jindofs-fuse-mount-0", "extra")
CONTAINERS = ("extra", "fluid-fuse", "init-fluid-fuse", "fluid-fuse-9", "fluid-file-prefetcher-x")
FILES = ("", "/", "/a/**", "/../x", "/a//b/./c", "/*.pkl", "/../../etc", "/a/..", "//")
SECURITY: Sequence[Tree] = (
    {}, {"privileged": True}, {"capabilities": {"add": ["SYS_ADMIN"]}},
    {"capabilities": {"add": ["SYS_ADMIN", "NET_ADMIN"], "drop": ["ALL"]}},
)  # fmt: skip


class Lot:
    """Draws from recordings (the `input` of vectors whose pod is whole)."""

    def __init__(self, recorded: Sequence[Tree], seed: int) -> None:
        self._recorded = recorded
        self._random = random.Random(seed)

    def draw(self) -> Tree:
        given = copy.deepcopy(self._random.choice(self._recorded))
        for _ in range(self._random.randint(1, 5)):
            self._random.choice(CHANGES)(self, given)
        return given

    def other(self) -> Tree:
        return copy.deepcopy(self._random.choice(self._recorded))

    # -- the pod

    def label(self, given: Tree) -> None:
        labels = _part(given["pod"], "metadata", "labels")
        if labels and self._random.random() < 0.3:
            del labels[self._random.choice(sorted(labels))]
        else:
            labels[self._random.choice(MODES)] = self._random.choice(("true", "true", "false"))

    def sched(self, given: Tree) -> None:
        names = [each["metadata"]["name"] for group in ("pvcs", "datasets") for each in given.get(group) or ()]
        if names:
            key = f"fluid.io/dataset.{self._random.choice(names)}.sched"
            _part(given["pod"], "metadata", "labels")[key] = self._random.choice(("required", "required", "preferred"))

    def annotations(self, given: Tree) -> None:
        _part(given["pod"], "metadata", "annotations").update(_part(self.other()["pod"], "metadata", "annotations"))

    def prefetch(self, given: Tree) -> None:
        choose = self._random.choice
        claims = [each["metadata"]["name"] for each in given.get("pvcs") or ()] or ["none"]
        listed = ";".join(f"pvc://{choose(claims)}{choose(FILES)}" for _ in range(3))
        drawn = {
            "inject": "true", "image": choose(("prefetch:1", "registry:5000/x/y:2")),
            "async-prefetch": choose(("true", "0", "t", "F", "TRUE", "")), "file-list": choose(("<ALL>", "", listed)),
            "prefetch-timeout-seconds": choose(("30", "-1", "+7", "007", "2147483648")),
            "extra-envs": choose(("A=1 B=2", "=x", "A=1 A=2", "A", "")),
        }  # fmt: skip
        kept = {f"file-prefetcher.fluid.io/{key}": value for key, value in drawn.items() if self._random.random() < 0.7}
        _part(given["pod"], "metadata", "annotations").update(kept)

    def rules(self, given: Tree) -> None:
        """The affinity or the nodeSelector of another pod."""
        name, other = self._random.choice(("affinity", "nodeSelector")), self.other()["pod"].get("spec") or {}
        if name in other:
            given["pod"]["spec"][name] = other[name]
        else:
            given["pod"]["spec"].pop(name, None)

    def volumes(self, given: Tree) -> None:
        """Another order, a claim that is mounted once more, a volume whose name is wanted by others."""
        spec = given["pod"]["spec"]
        volumes = spec.setdefault("volumes", None) or []
        self._random.shuffle(volumes)
        name, claims = self._random.choice(VOLUMES), [each["metadata"]["name"] for each in given.get("pvcs") or ()]
        if name not in {each["name"] for each in volumes}:
            claim = {"persistentVolumeClaim": {"claimName": self._random.choice(claims)}} if claims else {}
            volumes.append({"name": name, **(claim if name == "extra" and claim else {"emptyDir": {}})})
        spec["volumes"] = volumes

    def containers(self, given: Tree) -> None:
        spec = given["pod"]["spec"]
        names = {each["name"] for kind in ("containers", "initContainers") for each in spec.get(kind) or ()}
        name, volumes = self._random.choice(CONTAINERS), [each["name"] for each in spec.get("volumes") or ()]
        if name in names:
            return
        mounts = [{"name": self._random.choice(volumes), "mountPath": f"/m{i}"} for i in range(2)] if volumes else []
        hooks: Tree = self._random.choice(({}, {"preStop": {"exec": {"command": ["x"]}}}, {"postStart": {"exec": {}}}))
        kind = self._random.choice(("containers", "initContainers"))
        more = spec.get(kind) or []
        made = {"name": name, "image": "i", "volumeMounts": mounts, **({"lifecycle": hooks} if hooks else {})}
        more.insert(self._random.randint(0, len(more)), made)
        spec[kind] = more

    # -- the cluster

    def dataset(self, given: Tree) -> None:
        for each in given.get("datasets") or ():
            each.setdefault("status", {})["phase"] = self._random.choice(
                PHASES[:5] if self._random.random() < 0.8 else PHASES
            )
            if self._random.random() < 0.2:
                each["metadata"].pop("uid", None)

    def runtime_type(self, given: Tree) -> None:
        kind = self._random.choice((*KINDS, "goosefs"))
        for each in (given.get("datasets") or ())[:1]:
            each.setdefault("status", {})["runtimes"] = [{"type": kind}]
            for runtime in given.get("runtimes") or ():
                if runtime["metadata"]["name"] == each["metadata"]["name"] and kind in KINDS:
                    runtime["kind"] = KINDS[kind]

    def runtime(self, given: Tree) -> None:
        """The declaration, selector and metrics of another runtime."""
        others = self.other().get("runtimes") or ()
        for mine, other in zip(given.get("runtimes") or (), others, strict=False):
            mine["spec"], mine["status"] = other.get("spec") or {}, other.get("status") or {}
            if self._random.random() < 0.2:
                target = self._random.choice(("All", "None,Sidecar", "MountPod,Sidecar", "Sidecar,None"))
                mine["spec"].setdefault("fuse", {})["metrics"] = {"scrapeTarget": target}

    def missing(self, given: Tree) -> None:
        found = given.get(self._random.choice(OBJECTS))
        if found:
            del found[self._random.randrange(len(found))]

    def claim(self, given: Tree) -> None:
        datasets = [each["metadata"]["name"] for each in given.get("datasets") or ()]
        if datasets and given.get("pvcs"):
            labels = _part(self._random.choice(given["pvcs"]), "metadata", "labels")
            labels[f"fluid.io/{self._random.choice(('managed-by', 'wrapped-by', 's-any'))}"] = datasets[0]

    def fuse(self, given: Tree) -> None:
        for each in given.get("daemonsets") or ():
            for container in each["spec"]["template"]["spec"].get("containers") or ():
                container["securityContext"] = copy.deepcopy(self._random.choice(SECURITY))
                container["ports"] = [{"name": name, "containerPort": 80} for name in ("client-metrics", "http")]

    def volume(self, given: Tree) -> None:
        for each in given.get("pvs") or ():
            attributes = (each["spec"].get("csi") or {}).get("volumeAttributes")
            if attributes:
                attributes["fluid_sub_path"] = self._random.choice(("sub", "a/../b", "/x/", ""))

    def more_datasets(self, given: Tree) -> None:
        """Those of another recording, in this namespace, mounted by every container."""
        other, namespace = self.other(), given["request"].get("namespace")
        theirs = other["request"].get("namespace")
        if not namespace or not theirs:
            return
        for group in OBJECTS:
            own = given.get(group) or []
            taken = {(each["kind"], each["metadata"]["name"]) for each in own}
            for each in other.get(group) or ():
                metadata = each["metadata"]
                if metadata.get("namespace") == theirs:
                    metadata["namespace"] = namespace
                if group == "pvs":
                    metadata["name"] = namespace + metadata["name"].removeprefix(theirs)
                if (each["kind"], metadata["name"]) not in taken:
                    own.append(each)
            given[group] = own
        spec = given["pod"]["spec"]
        claims = [each for each in other["pod"]["spec"].get("volumes") or () if each.get("persistentVolumeClaim")]
        if any(each["name"].startswith("more-") for each in spec.get("volumes") or ()):
            return
        spec["volumes"] = [*(spec.get("volumes") or ()), *({**each, "name": f"more-{each['name']}"} for each in claims)]
        for container in spec.get("containers") or ():
            mounts = [{"name": f"more-{each['name']}", "mountPath": f"/{each['name']}"} for each in claims]
            container["volumeMounts"] = [*(container.get("volumeMounts") or ()), *mounts]

    def profile(self, given: Tree) -> None:
        given["profile"] = self.other()["profile"]

    def environment(self, given: Tree) -> None:
        mode = self._random.choice(("native-sidecar", "legacy", "default"))
        given["env"] = {"FUSE_SIDECAR_INJECTION_MODE": mode}


CHANGES: Sequence[Callable[[Lot, Tree], None]] = (
    Lot.label, Lot.label, Lot.sched, Lot.sched, Lot.annotations, Lot.prefetch, Lot.rules, Lot.rules, Lot.volumes,
    Lot.containers, Lot.dataset, Lot.runtime_type, Lot.runtime, Lot.missing, Lot.claim, Lot.fuse, Lot.volume,
    Lot.more_datasets, Lot.profile, Lot.environment,
)  # fmt: skip


def _part(tree: Tree, *names: str) -> Tree:
    """The object below these names; made where there is none."""
    for name in names:
        if tree.get(name) is None:
            tree[name] = {}
        tree = tree[name]
    return tree
