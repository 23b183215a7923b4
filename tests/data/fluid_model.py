"""What Fluid's webhook answers, worked out a second time from its description; shares no code with `fairlead.data`.

Written for comparison alone: plain dictionaries, no bounds, no explanations. Where the original is known to be wrong
the answer is the one that `tests/parity/data/README.md` asks for.
"""

import copy
import itertools
import posixpath
import re
from typing import Any

import yaml

Tree = dict[str, Any]
Lists = dict[tuple[str, str], list[str]]
TYPES = {
    "alluxio": "AlluxioRuntime", "jindo": "JindoRuntime", "juicefs": "JuiceFSRuntime", "thin": "ThinRuntime",
    "efc": "EFCRuntime", "vineyard": "VineyardRuntime", "cache": "CacheRuntime",
}  # fmt: skip
PLUGINS = {
    "PreferNodesWithoutCache": "avoid_cache",
    "NodeAffinityWithCache": "cache_affinity",
    "RequireNodeWithFuse": "fuse_nodes",
    "MountPropagationInjector": "propagate",
    "DatasetUsageInjector": "name_datasets",
    "FilePrefetcher": "prefetch",
    "FuseSidecar": "sidecars",
}
TRUE, FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")
PREFETCH = "file-prefetcher.fluid.io/"


class Refused(Exception):
    """The pod is refused with this code; the names are those of what is wrong."""

    def __init__(self, code: int, *names: str) -> None:
        super().__init__(code, *names)
        self.code, self.names = code, names


class BadProfile(Exception):
    pass


# -- one review ------------------------------------------------------------------------------------------------------


def answer(given: Tree) -> Tree:
    """`pod`, `runs` and `configmaps`, or `code` and `names` of a refusal, or `profile_error`."""
    try:
        lists, tiers = read_profile(given["profile"])
    except BadProfile as problem:
        return {"profile_error": str(problem)}
    state = Review(given, tiers)
    try:
        state.run(lists)
    except Refused as refusal:
        return {"code": refusal.code, "names": refusal.names}
    return {"pod": state.pod, "runs": state.runs, "configmaps": sorted(state.configmaps)}


def read_profile(text: str) -> tuple[Lists, Tree]:
    document = yaml.safe_load(text) or {}
    arguments = {entry["name"]: entry.get("args") for entry in document.get("pluginConfig") or ()}
    lists: Lists = {}
    for mode, which in itertools.product(("serverful", "serverless"), ("withDataset", "withoutDataset")):
        names = ((document.get("plugins") or {}).get(mode) or {}).get(which) or []
        lists[mode, which] = names
        for name in names:
            if name not in PLUGINS:
                raise BadProfile(name)
    used = any("NodeAffinityWithCache" in names for names in lists.values())
    return lists, read_tiers(arguments.get("NodeAffinityWithCache") or "") if used else {}


def read_tiers(text: str) -> Tree:
    try:
        tiers = yaml.safe_load(text) or {}
        weights = {each["name"]: each["weight"] for each in tiers.get("preferred") or ()}
        required = list(tiers.get("required") or ())
    except (yaml.YAMLError, TypeError, AttributeError) as problem:
        raise BadProfile(str(problem)) from None
    if not all(1 <= each["weight"] <= 100 for each in tiers.get("preferred") or ()):
        raise BadProfile("a weight out of range")
    return {"weights": weights, "required": required}


class Review:
    def __init__(self, given: Tree, tiers: Tree) -> None:
        self.given, self.tiers = given, tiers
        self.pod: Tree = copy.deepcopy(given["pod"])
        self.runs: list[str] = []
        self.configmaps: set[str] = set()
        self.environment = {**(given.get("process_env") or {}), **(given.get("env") or {})}
        self.objects = {
            (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
            for group in ("pvcs", "datasets", "runtimes", "daemonsets", "pvs")
            for each in given.get(group) or ()
        }
        self.namespace = given["request"].get("namespace") or ""
        self.datasets: list[Tree] = []

    # -- the pod's parts

    @property
    def meta(self) -> Any:
        return self.pod.setdefault("metadata", {})

    @property
    def spec(self) -> Any:
        return self.pod.setdefault("spec", {})

    def label(self, key: str) -> str | None:
        return (self.meta.get("labels") or {}).get(key)

    def annotation(self, key: str) -> str | None:
        return (self.meta.get("annotations") or {}).get(key)

    def put(self, kind: str, key: str, value: str) -> None:
        if not self.meta.get(kind):
            self.meta[kind] = {}
        self.meta[kind][key] = value

    def claims(self) -> list[tuple[str, str]]:
        volumes = self.spec.get("volumes") or ()
        return [
            (each["name"], each["persistentVolumeClaim"]["claimName"])
            for each in volumes
            if each.get("persistentVolumeClaim")
        ]

    # -- the handler

    def run(self, lists: Lists) -> None:
        if self.environment.get("DISABLE_INJECTION") in TRUE:
            return
        own = self.meta.get("namespace") or ""
        if own and own != self.namespace:
            raise Refused(403)
        if not self.namespace:
            raise Refused(500)
        if self.label("fluid.io/enable-injection") == "false" or self.label("done.sidecar.fluid.io/inject") == "true":
            return
        self.datasets = self.lookup()
        which = "withDataset" if self.datasets else "withoutDataset"
        mode = "serverless" if self.is_serverless() else "serverful"
        if mode == "serverful" and self.label("fuse.serverful.fluid.io/inject") != "true":
            return
        for name in lists[mode, which]:
            self.runs.append(name)
            if getattr(self, PLUGINS[name])():
                break

    def is_serverless(self) -> bool:
        return "true" in (self.label("serverless.fluid.io/inject"), self.label("fuse.sidecar.fluid.io/inject"))

    # -- lookup

    def lookup(self) -> list[Tree]:
        missing, found = [], {}
        for _, claim in self.claims():
            pvc = self.objects.get(("PersistentVolumeClaim", self.namespace, claim))
            if pvc is None:
                missing.append(claim)
                continue
            labels = pvc["metadata"].get("labels") or {}
            managed = [labels[key] for key in ("fluid.io/managed-by", "fluid.io/wrapped-by") if key in labels]
            if managed or any(key.startswith("fluid.io/s-") for key in labels):
                found[claim] = self.dataset(claim, managed[0] if managed else claim, labels)
        if missing:
            raise Refused(500, *missing)
        return [found[claim] for claim in sorted(found)]

    def dataset(self, claim: str, name: str, labels: Tree) -> Tree:
        found = self.objects.get(("Dataset", self.namespace, name))
        if found is None:
            raise Refused(500, name)
        status = found.get("status") or {}
        skips = self.annotation("sidecar.fluid.io/skip-precheck") == "true"
        if not skips and (status.get("phase") or "") in ("", "NotBound"):
            raise Refused(500, name)
        runtimes = status.get("runtimes") or [{}]
        kind = runtimes[0].get("type", "")
        if kind not in TYPES:
            raise Refused(500)
        runtime = self.objects.get((TYPES[kind], self.namespace, name))
        if runtime is None:
            raise Refused(500, name)
        reference = (labels.get("fluid.io/dataset.referring-namespace"), labels.get("fluid.io/dataset.referring-name"))
        place: tuple[Any, ...] = (self.namespace, name, found["metadata"].get("uid", ""))
        points = [each.get("mountPoint", "") for each in (found.get("spec") or {}).get("mounts") or ()]
        pointed = [each.removeprefix("dataset://").split("/") for each in points if each.startswith("dataset://")]
        if not all(reference) and pointed:
            reference = (pointed[0][0], pointed[0][1])
        if all(reference):
            target = self.objects.get(("Dataset", *reference))
            place = (*reference, (target or {"metadata": {}})["metadata"].get("uid", ""))
        component = (runtime.get("spec") or {}).get("client" if kind == "cache" else "fuse") or {}
        is_stale = f"{TYPES[kind]}/{self.namespace}/{name}" in (self.given.get("cache_missing") or ())
        affinity = (runtime.get("status") or {}).get("cacheAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        return {
            "claim": claim, "name": name, "type": kind, "stale": is_stale, "place": place,
            "selector": {} if kind == "vineyard" else component.get("nodeSelector") or {},
            "declared": required.get("nodeSelectorTerms") or [],
            "metrics": kind == "jindo" and scraped((component.get("metrics") or {}).get("scrapeTarget", "")),
        }  # fmt: skip

    # -- affinity

    def node_affinity(self) -> Any:
        return (self.spec.get("affinity") or {}).get("nodeAffinity") or {}

    def own_node_affinity(self) -> Any:
        if not self.spec.get("affinity"):
            self.spec["affinity"] = {}
        if not self.spec["affinity"].get("nodeAffinity"):
            self.spec["affinity"]["nodeAffinity"] = {}
        return self.spec["affinity"]["nodeAffinity"]

    def prefer(self, weight: int, expression: Tree) -> None:
        affinity = self.own_node_affinity()
        term = {"weight": weight, "preference": {"matchExpressions": [expression]}}
        key = "preferredDuringSchedulingIgnoredDuringExecution"
        affinity[key] = [*(affinity.get(key) or ()), term]

    def require(self, branches: list[list[Tree]]) -> None:
        """One of the branches, beside everything that is required already."""
        if not branches or not all(branches):
            return
        key = "requiredDuringSchedulingIgnoredDuringExecution"
        terms = (self.node_affinity().get(key) or {}).get("nodeSelectorTerms") or []
        alive = [term for term in terms if term.get("matchExpressions") or term.get("matchFields")]
        if terms and not alive:
            return
        joined = []
        for term, branch in itertools.product(alive or [{}], branches):
            own = list(term.get("matchExpressions") or ())
            joined.append({**term, "matchExpressions": own + [each for each in branch if each not in own]})
        affinity = self.own_node_affinity()
        affinity[key] = {**(affinity.get(key) or {}), "nodeSelectorTerms": joined}

    def avoid_cache(self) -> bool:
        if not self.datasets:
            self.prefer(100, {"key": "fluid.io/dataset-num", "operator": "DoesNotExist"})
        return True

    def fuse_nodes(self) -> None:
        for each in self.datasets:
            pairs = sorted(each["selector"].items())
            self.require([[{"key": key, "operator": "In", "values": [value]} for key, value in pairs]])

    def cache_affinity(self) -> None:
        if not self.datasets:
            return
        weights, required = self.tiers.get("weights") or {}, self.tiers.get("required") or []
        places = {*weights, *required}
        affinity = self.node_affinity()
        terms = [each.get("preference") or {} for each in
                 affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()]  # fmt: skip
        terms += (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
        spoken = {each["key"] for term in terms for each in term.get("matchExpressions") or ()}
        if places & (spoken | set(self.spec.get("nodeSelector") or {})):
            return
        if any(each["stale"] for each in self.datasets):
            raise Refused(500)
        preferred = []
        for each in self.datasets:
            names = (each["claim"], each["name"])
            if any(self.label(f"fluid.io/dataset.{name}.sched") == "required" for name in names):
                keys = [key for name, key in self.keys(each) if name in required]
                if keys:
                    self.require([[{"key": key, "operator": "In", "values": ["true"]} for key in keys]])
                self.require([about(term, required) for term in each["declared"]])
            else:
                preferred.append(each)
        for each in preferred:
            for name, key in self.keys(each):
                if name in weights:
                    self.prefer(weights[name], {"key": key, "operator": "In", "values": ["true"]})
            for term in each["declared"]:
                for expression in about(term, weights):
                    self.prefer(weights[expression["key"]], expression)

    @staticmethod
    def keys(dataset: Tree) -> list[tuple[str, str]]:
        namespace, name, uid = dataset["place"]
        found = []
        for place, prefix in (("fluid.io/node", "fluid.io/s-"), ("fluid.io/fuse", "fluid.io/f-")):
            key = f"{prefix}{namespace}-{name}"
            found.append((place, key if len(key) < 63 or not uid else prefix + uid))
        return found

    # -- small ones

    def propagate(self) -> None:
        of = {each["claim"] for each in self.datasets}
        volumes = {volume for volume, claim in self.claims() if claim in of}
        for container in self.spec.get("containers") or ():
            for mount in container.get("volumeMounts") or ():
                if mount["name"] in volumes and not mount.get("mountPropagation"):
                    mount["mountPropagation"] = "HostToContainer"

    def name_datasets(self) -> None:
        if self.datasets:
            listed = {each.strip() for each in (self.annotation("fluid.io/datasets-in-use") or "").split(",")}
            names = (listed | {each["name"] for each in self.datasets}) - {""}
            self.put("annotations", "fluid.io/datasets-in-use", ",".join(sorted(names)))

    # -- FilePrefetcher

    def prefetch(self) -> None:
        say = {key.removeprefix(PREFETCH): value for key, value in (self.meta.get("annotations") or {}).items()}
        if say.get("inject") != "true" or say.get("inject-done") == "true":
            return
        default = self.environment.get("FILE_PREFETCHER_IMAGE", "")
        image = say.get("image", default if re.fullmatch(r"\S+:\S+", default) else "")
        if not image:
            raise Refused(403, f"{PREFETCH}image")
        more = {}
        for pair in say["extra-envs"].split(" ") if say.get("extra-envs") else ():
            parts = pair.split("=")
            if len(parts) != 2:
                raise Refused(403)
            more[parts[0]] = parts[1]
        listed = say.get("file-list", "<ALL>")
        if listed == "<ALL>":
            listed = ";".join(f"pvc://{each['claim']}" for each in self.datasets)
        mounts, paths = self.files(listed)
        waits = say.get("async-prefetch", "false")
        if waits not in TRUE + FALSE:
            raise Refused(403, f"{PREFETCH}async-prefetch")
        seconds = say.get("prefetch-timeout-seconds", "120")
        if not re.fullmatch(r"[+-]?[0-9]+", seconds) or not -(2**31) <= int(seconds) < 2**31:
            raise Refused(403, f"{PREFETCH}prefetch-timeout-seconds")
        if paths:
            self.add_prefetcher(image, waits in TRUE, int(seconds), more, mounts, paths)

    def files(self, listed: str) -> tuple[Tree, list[str]]:
        of = {each["claim"] for each in self.datasets}
        mounts, paths = {}, []
        for entry in listed.split(";"):
            claim, *rest = entry.removeprefix("pvc://").split("/")
            if not entry.startswith("pvc://") or claim not in of:
                continue
            inside = posixpath.normpath("/" + posixpath.join(*rest)) if rest and any(rest) else "/" if rest else "/**"
            for volume, behind in self.claims():
                if behind == claim:
                    mounts[volume] = f"/data/{volume}"
                    paths.append(posixpath.normpath(f"/data/{volume}/{inside}"))
        return mounts, paths

    def add_prefetcher(
        self, image: str, is_async: bool, seconds: int, more: Tree, mounts: Tree, paths: list[str]
    ) -> None:
        status = {"name": "fluid-file-prefetcher-status-vol", "mountPath": "/tmp/fluid-file-prefetcher/status"}
        pairs = [
            ("FILE_PREFETCHER_FILE_LIST", ";".join(paths)),
            ("FILE_PREFETCHER_ASYNC_PREFETCH", "true" if is_async else "false"),
            ("FILE_PREFETCHER_TIMEOUT_SECONDS", str(seconds)),
            *more.items(),
        ]
        container: Tree = {
            "name": "fluid-file-prefetcher", "image": image,
            "env": [{"name": name, "value": value} if value else {"name": name} for name, value in pairs],
            "volumeMounts": [*({"name": name, "mountPath": path} for name, path in mounts.items()), dict(status)],
        }  # fmt: skip
        if not is_async:
            loop = (
                "cnt=0; while [[ $cnt -lt $FILE_PREFETCHER_TIMEOUT_SECONDS ]]; do if [[ -e "
                '"/tmp/fluid-file-prefetcher/status/prefetcher.status" ]]; then exit 0; fi; cnt=$(expr $cnt + 1); '
                'sleep 1; done; echo "time out waiting for prefetching done"; exit 1'
            )
            container["lifecycle"] = {"postStart": {"exec": {"command": ["bash", "-c", loop]}}}
        before = self.spec.get("containers") or []
        place = max((i + 1 for i, each in enumerate(before) if each["name"].startswith("fluid-fuse")), default=0)
        after = before[place:]
        if is_async:
            for each in after:
                each["volumeMounts"] = [*(each.get("volumeMounts") or ()), dict(status)]
        self.spec["containers"] = [*before[:place], container, *after]
        self.spec["volumes"] = [*(self.spec.get("volumes") or ()), {"name": status["name"], "emptyDir": {}}]
        self.put("annotations", f"{PREFETCH}inject-done", "true")

    # -- FuseSidecar

    def sidecars(self) -> None:
        kinds = ("containers", "initContainers")
        names = {each["name"] for kind in kinds for each in self.spec.get(kind) or ()}
        if not self.datasets or not self.is_serverless() or names & {"fluid-fuse", "init-fluid-fuse"}:
            return
        is_unprivileged = self.label("unprivileged.sidecar.fluid.io/inject") == "true"
        is_old = self.label("fuse.sidecar.fluid.io/inject") == "true"
        platform = (
            "default" if is_old else (self.meta.get("annotations") or {}).get("serverless.fluid.io/platform", "default")
        )
        platform = "unprivileged" if is_unprivileged else platform
        if platform not in ("default", "unprivileged"):
            raise Refused(403, platform)
        self.mount_script()
        for number, each in enumerate(self.datasets):
            self.inject(each, number, platform)
        self.put("labels", "done.sidecar.fluid.io/inject", "true")
        self.put("labels", "fluid.io/managed-by", "fluid")

    def free(self, name: str) -> str:
        taken = {each["name"] for each in self.spec.get("volumes") or ()}
        return name if name not in taken else "fluid-" + name[len("fluid-") :]

    def mount_script(self) -> None:
        script = "check-fluid-mount-ready"
        types = {each["claim"]: each["type"] for each in self.datasets}
        of_volume = {volume: types[claim] for volume, claim in self.claims() if claim in types}
        name = self.free(script)
        volume = {"name": name, "configMap": {"name": script, "defaultMode": 0o755}}
        self.spec["volumes"] = [*(self.spec.get("volumes") or ()), volume]
        self.configmaps.add(f"{self.namespace}/{script}")
        for container in [*(self.spec.get("containers") or ()), *(self.spec.get("initContainers") or ())]:
            mounts = container.get("volumeMounts") or []
            paths = {each["mountPath"]: of_volume[each["name"]] for each in mounts if each["name"] in of_volume}
            if not paths:
                continue
            mount = {"name": name, "mountPath": f"/{script}.sh", "subPath": f"{script}.sh", "readOnly": True}
            container["volumeMounts"] = [*mounts, mount]
            hooks = container.get("lifecycle") or {}
            if self.label("app.poststart.fluid.io/inject") == "true" and "postStart" not in hooks:
                command = f"time /{script}.sh {':'.join(paths)} {':'.join(paths.values())}"
                container["lifecycle"] = {**hooks, "postStart": {"exec": {"command": ["bash", "-c", command]}}}

    def inject(self, dataset: Tree, number: int, platform: str) -> None:
        container, volumes, mount = self.template(dataset)
        if self.label("cachedir.sidecar.fluid.io/inject") != "true":
            drop(container, volumes, "datavolume-", "volume-localtime", "cache-dir", "mem", "ssd", "hdd")
        if platform == "unprivileged":
            drop(container, volumes, "alluxio-fuse-", "jindofs-fuse-", "juicefs-fuse-mount", "thin-fuse-",
                 "efc-fuse-mount", "efc-sock")  # fmt: skip
            if container.get("securityContext") is not None:
                container["securityContext"]["privileged"] = False
                added = (container["securityContext"].get("capabilities") or {}).get("add")
                if added:
                    container["securityContext"]["capabilities"]["add"] = [x for x in added if x != "SYS_ADMIN"]
        if self.label("fuse.sidecar.poststart.fluid.io/inject") != "false":
            self.mount_check(container, volumes, mount)
        if container.get("ports") and not dataset["metrics"]:
            container["ports"] = [each for each in container["ports"] if not each.get("name", "").endswith("-metrics")]
        used = self.replace_claim(dataset, mount)
        new = {}
        for volume in volumes:
            name = self.free(f"{volume['name']}-{number}")
            new[volume["name"]] = name
            self.spec["volumes"] = [*self.spec["volumes"], {**volume, "name": name}]
        for each in container.get("volumeMounts") or ():
            each["name"] = new.get(each["name"], each["name"])
        self.place(dataset, container, number, used)
        if dataset["metrics"] and self.annotation("prometheus.fuse.fluid.io/scrape") is None:
            self.put("annotations", "prometheus.fuse.fluid.io/scrape", "true")

    def template(self, dataset: Tree) -> tuple[Tree, list[Tree], Tree]:
        suffix = {"jindo": "-jindofs-fuse", "cache": "-client"}.get(dataset["type"], "-fuse")
        fuse = self.objects.get(("DaemonSet", self.namespace, dataset["name"] + suffix))
        if fuse is None:
            raise Refused(403, dataset["name"] + suffix)
        spec = copy.deepcopy(fuse["spec"]["template"]["spec"])
        if not spec.get("containers"):
            raise Refused(403, dataset["name"] + suffix)
        container = spec["containers"][0]
        name = f"{self.namespace}-{dataset['name']}"
        volume = self.objects.get(("PersistentVolume", "", name))
        attributes = (((volume or {}).get("spec") or {}).get("csi") or {}).get("volumeAttributes")
        if not attributes:
            raise Refused(403, name)
        kind = attributes.get("mount_type", "")
        known = {"fuse.alluxio-fuse": "alluxio", "fuse.jindofs-fuse": "jindofs", "JuiceFS": "juicefs"}
        wanted = f"{known.get(kind, 'thin')}-fuse-mount"
        mounts = {each["name"]: each for each in container.get("volumeMounts") or ()}
        if wanted not in mounts:
            raise Refused(403)
        volumes = [each for each in spec.get("volumes") or () if each["name"] in mounts]
        return container, volumes, {
            "kind": kind, "path": mounts[wanted]["mountPath"], "host": attributes.get("fluid_path", ""),
            "sub": attributes.get("fluid_sub_path", ""),
        }  # fmt: skip

    def mount_check(self, container: Tree, volumes: list[Tree], mount: Tree) -> None:
        config = f"{mount['kind'].lower()}-default-check-mount"
        self.configmaps.add(f"{self.namespace}/{config}")
        entry = {"name": "default-check-mount", "mountPath": "/check-mount.sh", "subPath": "check-mount.sh",
                 "readOnly": True}  # fmt: skip
        container["volumeMounts"] = [*(container.get("volumeMounts") or ()), entry]
        volumes.append({"name": "default-check-mount", "configMap": {"name": config, "defaultMode": 0o755}})
        command = f"time /check-mount.sh {mount['path']} {mount['kind']} {mount['sub']}"
        hook = {"exec": {"command": ["bash", "-c", command]}}
        container["lifecycle"] = {**(container.get("lifecycle") or {}), "postStart": hook}

    def replace_claim(self, dataset: Tree, mount: Tree) -> Tree:
        path = posixpath.normpath(f"{mount['host']}/{mount['sub']}") if mount["sub"] else mount["host"]
        names = {volume for volume, claim in self.claims() if claim == dataset["claim"]}
        self.spec["volumes"] = [
            {"name": each["name"], "hostPath": {"path": path}} if each["name"] in names else each
            for each in self.spec["volumes"]
        ]
        used = {}
        for kind in ("containers", "initContainers"):
            mounts = [each for container in self.spec.get(kind) or () for each in container.get("volumeMounts") or ()]
            for each in mounts:
                if each["name"] in names:
                    each["mountPropagation"] = "HostToContainer"
                    used[kind] = True
        return used

    def place(self, dataset: Tree, container: Tree, number: int, used: Tree) -> None:
        places = []
        if self.environment.get("FUSE_SIDECAR_INJECTION_MODE") == "native-sidecar":
            if used:
                places.append(("initContainers", f"fluid-fuse-{number}", {**container, "restartPolicy": "Always"}))
        else:
            if used.get("containers"):
                places.append(("containers", f"fluid-fuse-{number}", dict(container)))
            if used.get("initContainers"):
                init = {**container, "command": ["sleep"], "args": ["2s"]}
                init.pop("lifecycle", None)
                places.append(("initContainers", f"init-fluid-fuse-{number}", init))
        for kind, name, each in places:
            self.spec[kind] = [{**copy.deepcopy(each), "name": name}, *(self.spec.get(kind) or ())]
            self.put("labels", f"dataset-namespace.sidecar.fluid.io/{name}", self.namespace)
            self.put("labels", f"dataset-name.sidecar.fluid.io/{name}", dataset["name"])


def scraped(target: str) -> bool:
    for mode in target.split(","):
        if mode in ("All", "Sidecar", "None"):
            return mode != "None"
    return False


def about(term: Tree, places: Any) -> list[Tree]:
    return [
        {key: each[key] for key in ("key", "operator", "values") if key in each}
        for each in term.get("matchExpressions") or ()
        if each["key"] in places
    ]


def drop(container: Tree, volumes: list[Tree], *prefixes: str) -> None:
    mounts = container.get("volumeMounts") or ()
    container["volumeMounts"] = [each for each in mounts if not each["name"].startswith(prefixes)]
    volumes[:] = [each for each in volumes if not each["name"].startswith(prefixes)]
