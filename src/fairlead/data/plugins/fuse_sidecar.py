"""FuseSidecar: a pod that cannot use the node's mounts brings the fuse of each dataset in a container of its own.

The container is the first one of the fuse's DaemonSet. The scripts that it and the pod's containers mount are in
ConfigMaps; the draft names them, and a controller writes them (`data/side_objects.py`).
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead.data.draft import MOST_POD_BYTES, Draft, PluginError, TooLarge, clone, plain
from fairlead.data.facts import DatasetFacts, Ref, collect
from fairlead.data.names import LONGEST_NAME
from fairlead.data.objects import DAEMON_SETS, VOLUMES, DaemonSet, Volume
from fairlead.data.opt_in import DEPRECATED_SERVERLESS, is_serverless
from fairlead.data.plugin import PlainPlugin, PluginContext, Policy
from fairlead.data.spec import SIDECAR_DATASET

FUSE: Final = "fluid-fuse"
INIT_FUSE: Final = "init-fluid-fuse"
DRIVER: Final = "fuse.csi.fluid.io"
APP_SCRIPT: Final = "check-fluid-mount-ready"
FUSE_SCRIPT: Final = "check-mount"
SCRIPT_MODE: Final = 0o755
PLATFORM: Final = "serverless.fluid.io/platform"
PLATFORMS: Final = ("default", "unprivileged")
# The fuse's mount has its chart's name; every other mount type is a thin runtime's.
CHARTS: Final = {
    "fuse.alluxio-fuse": "alluxio", "fuse.jindofs-fuse": "jindofs", "JuiceFS": "juicefs", "efc": "efc",
    "alluxio": "alluxio", "jindo": "jindofs", "juicefs": "juicefs",
}  # fmt: skip
CACHE_FOLDERS: Final = ("datavolume-", "volume-localtime", "cache-dir", "mem", "ssd", "hdd")
HOST_MOUNTS: Final = (
    "alluxio-fuse-mount", "jindofs-fuse-mount", "juicefs-fuse-mount", "thin-fuse-mount", "efc-fuse-mount", "efc-sock",
)  # fmt: skip
FUSE_DEVICES: Final = ("alluxio-fuse-device", "jindofs-fuse-device", "thin-fuse-device")
SCRAPE: Final = "prometheus.fuse.fluid.io/scrape"
SCRIPTS: Final = "fuse.sidecar.poststart.fluid.io/inject"
"""Label of a pod: `false` leaves the script out that waits for the mount after a fuse has started."""
MOST_ROUNDS: Final = 8


@dataclass(slots=True)
class FuseTemplate:
    """A fuse container to inject, with the volumes it mounts and where the dataset is mounted on the node."""

    container: dict[str, Any]
    volumes: list[dict[str, Any]]
    host_path: str
    mount_path: str
    file_system: str
    sub_path: str

    @property
    def size(self) -> int:
        return len(plain([self.container, self.volumes]))


class FuseSidecar(PlainPlugin):
    name = "FuseSidecar"
    policy: Policy = "fail"

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        if not context.datasets or not is_serverless(draft.labels):
            return False
        names = {each.get("name") for kind in ("containers", "initContainers") for each in draft.items(kind)}
        if {FUSE, INIT_FUSE} & names:
            return False
        labels, annotations = draft.labels, draft.annotations
        unprivileged = labels.get("unprivileged.sidecar.fluid.io/inject") == "true"
        # The deprecated label knows no platforms, whatever stands beside it.
        named = "default" if labels.get(DEPRECATED_SERVERLESS) == "true" else annotations.get(PLATFORM, "default")
        platform = "unprivileged" if unprivileged else named
        if platform not in PLATFORMS:
            known = " or ".join(PLATFORMS)
            raise PluginError(f"annotation {PLATFORM}: must be {known}, not {platform!r}")
        with_cache = labels.get("cachedir.sidecar.fluid.io/inject") == "true"
        datasets: Sequence[DatasetFacts] = context.datasets
        number = size = 0
        # A fuse may mount a dataset itself: what it brings is looked at in the next round.
        for _ in range(MOST_ROUNDS):
            if not datasets:
                break
            _mount_app_script(draft, datasets)
            for each in datasets:
                template = _template(each, context)
                if not with_cache:
                    _trim(template, CACHE_FOLDERS)
                if platform == "unprivileged":
                    _drop_privileges(template)
                size += template.size
                if size > MOST_POD_BYTES:
                    raise TooLarge
                _inject(draft, each, template, f"-{number}", context.native_sidecars)
                if each.scrapes_sidecars and SCRAPE not in draft.annotations:
                    draft.annotate(SCRAPE, "true")
                number += 1
            datasets = collect(draft.spec, draft.annotations, context.namespace, context.sources)
        draft.label("done.sidecar.fluid.io/inject", "true")
        draft.label("fluid.io/managed-by", "fluid")
        return False


# -- what is injected --------------------------------------------------------------------------------------------------


def _template(dataset: DatasetFacts, context: PluginContext) -> FuseTemplate:
    namespace = dataset.dataset.namespace
    fuse: DaemonSet | None = context.sources.get(Ref(DAEMON_SETS, namespace, dataset.fuse_set))
    if fuse is None:
        raise PluginError(f"dataset {dataset.dataset.key}: there is no DaemonSet {namespace}/{dataset.fuse_set}")
    spec = clone(fuse.spec.template.spec)
    if not spec.get("containers"):
        raise PluginError(f"dataset {dataset.dataset.key}: DaemonSet {dataset.fuse_set} has no container")
    name = dataset.dataset.volume()
    volume: Volume | None = context.sources.get(Ref(VOLUMES, "", name))
    if volume is None:
        raise PluginError(f"dataset {dataset.dataset.key}: there is no PersistentVolume {name} yet")
    if volume.spec.csi is None or volume.spec.csi.driver != DRIVER:
        raise PluginError(f"dataset {dataset.dataset.key}: PersistentVolume {name} is not Fluid's")
    if volume.spec.claim_ref is not None and volume.spec.claim_ref.namespace not in ("", namespace):
        # Names of namespace and dataset may join to the same text.
        raise PluginError(f"dataset {dataset.dataset.key}: PersistentVolume {name} belongs to another namespace")
    attributes = volume.spec.csi.volume_attributes or {}
    container = spec["containers"][0]
    mounts = container.get("volumeMounts") or []
    kind = attributes.get("mount_type", "")
    mount_name = f"{CHARTS.get(kind, 'thin')}-fuse-mount"
    mount = next((each for each in mounts if each.get("name") == mount_name), None)
    if mount is None:
        raise PluginError(f"dataset {dataset.dataset.key}: DaemonSet {dataset.fuse_set} mounts no {mount_name}")
    if not dataset.scrapes_sidecars and container.get("ports"):
        container["ports"] = [each for each in container["ports"] if not _is_metrics(each)]
        if not container["ports"]:
            del container["ports"]
    used = {each.get("name") for each in mounts}
    return FuseTemplate(
        container=container,
        volumes=[each for each in spec.get("volumes") or () if each.get("name") in used],
        host_path=attributes.get("fluid_path", ""),
        mount_path=mount.get("mountPath", ""),
        file_system=kind,
        sub_path=attributes.get("fluid_sub_path", ""),
    )


def _is_metrics(port: Mapping[str, Any]) -> bool:
    return str(port.get("name", "")).endswith("-metrics")


def _trim(template: FuseTemplate, prefixes: tuple[str, ...]) -> None:
    mounts = template.container.get("volumeMounts") or ()
    template.container["volumeMounts"] = [each for each in mounts if not each["name"].startswith(prefixes)]
    template.volumes = [each for each in template.volumes if not each["name"].startswith(prefixes)]


def _drop_privileges(template: FuseTemplate) -> None:
    _trim(template, (*HOST_MOUNTS, *FUSE_DEVICES))
    context = template.container.get("securityContext")
    if context is None:
        return
    context["privileged"] = False
    capabilities = context.get("capabilities") or {}
    if capabilities.get("add"):
        capabilities["add"] = [each for each in capabilities["add"] if each != "SYS_ADMIN"]
        if not capabilities["add"]:
            del capabilities["add"]


# -- scripts -----------------------------------------------------------------------------------------------------------


def _mount_app_script(draft: Draft, datasets: Sequence[DatasetFacts]) -> None:
    """Containers that mount a dataset can wait for it by a script."""
    claims = {each.claim: each for each in datasets}
    mounted = {volume: claims[claim] for volume, claim in draft.claim_of_volume().items() if claim in claims}
    volume = _free_name(APP_SCRIPT, _volume_names(draft))
    source = {"name": APP_SCRIPT, "defaultMode": SCRIPT_MODE}
    draft.set_items("volumes", [*draft.items("volumes"), {"name": volume, "configMap": source}])
    draft.side_objects[datasets[0].dataset.namespace, APP_SCRIPT] = APP_SCRIPT
    for container in [*draft.items("containers"), *draft.items("initContainers")]:
        mounts = container.get("volumeMounts") or []
        paths = {each.get("mountPath", ""): mounted[each["name"]] for each in mounts if each.get("name") in mounted}
        if not paths:
            continue
        file = f"{APP_SCRIPT}.sh"
        script = {"name": volume, "mountPath": f"/{file}", "subPath": file, "readOnly": True}
        container["volumeMounts"] = [*mounts, script]
        lifecycle = container.get("lifecycle") or {}
        if draft.labels.get("app.poststart.fluid.io/inject") == "true" and not lifecycle.get("postStart"):
            kinds = ":".join(each.runtime for each in paths.values())
            command = ["bash", "-c", f"time /{file} {':'.join(paths)} {kinds}"]
            container["lifecycle"] = {**lifecycle, "postStart": {"exec": {"command": command}}}


def _mount_fuse_script(draft: Draft, dataset: DatasetFacts, template: FuseTemplate) -> None:
    volume, file = f"default-{FUSE_SCRIPT}", f"{FUSE_SCRIPT}.sh"
    config_map = f"{template.file_system.lower()}-{volume}"
    draft.side_objects[dataset.dataset.namespace, config_map] = FUSE_SCRIPT
    container = template.container
    script = {"name": volume, "mountPath": f"/{file}", "subPath": file, "readOnly": True}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), script]
    command = ["bash", "-c", f"time /{file} {template.mount_path} {template.file_system} {template.sub_path}"]
    container["lifecycle"] = {**(container.get("lifecycle") or {}), "postStart": {"exec": {"command": command}}}
    template.volumes.append({"name": volume, "configMap": {"name": config_map, "defaultMode": SCRIPT_MODE}})


# -- into the pod ------------------------------------------------------------------------------------------------------


def _inject(draft: Draft, dataset: DatasetFacts, template: FuseTemplate, suffix: str, native: bool) -> None:
    if draft.labels.get(SCRIPTS) != "false":
        _mount_fuse_script(draft, dataset, template)
    volumes = _replace_claim(draft, dataset, template)
    used = {kind: _propagate(draft.items(kind), volumes) for kind in ("containers", "initContainers")}
    renamed = _append_volumes(draft, template, suffix)
    for mount in template.container.get("volumeMounts") or ():
        mount["name"] = renamed.get(mount["name"], mount["name"])
    if native:
        if any(used.values()):
            _prepend(draft, dataset, "initContainers", {**template.container, "restartPolicy": "Always"}, FUSE + suffix)
        return
    if used["containers"]:
        _prepend(draft, dataset, "containers", template.container, FUSE + suffix)
    if used["initContainers"]:
        init = {name: value for name, value in template.container.items() if name != "lifecycle"}
        # It only has to be there before the pod's init containers: the node's mount serves them.
        init |= {"command": ["sleep"], "args": ["2s"]}
        _prepend(draft, dataset, "initContainers", init, INIT_FUSE + suffix)


def _replace_claim(draft: Draft, dataset: DatasetFacts, template: FuseTemplate) -> set[str]:
    """The dataset's volumes become the folder where the fuse mounts it; returns their names."""
    path = posixpath.normpath(f"{template.host_path}/{template.sub_path}") if template.sub_path else template.host_path
    names = {name for name, claim in draft.claim_of_volume().items() if claim == dataset.claim}
    draft.set_items(
        "volumes",
        [
            {"name": each["name"], "hostPath": {"path": path}} if each.get("name") in names else each
            for each in draft.items("volumes")
        ],
    )
    return names


def _propagate(containers: Sequence[dict[str, Any]], volumes: set[str]) -> bool:
    """Whether one of the containers mounts one of the volumes; each such mount follows the node's."""
    mounts = [each for container in containers for each in container.get("volumeMounts") or ()]
    dataset_mounts = [each for each in mounts if each.get("name") in volumes]
    for mount in dataset_mounts:
        mount["mountPropagation"] = "HostToContainer"
    return bool(dataset_mounts)


def _append_volumes(draft: Draft, template: FuseTemplate, suffix: str) -> dict[str, str]:
    """The fuse's volumes under names of their own; returns the new name of each."""
    taken = _volume_names(draft)
    renamed, added = {}, []
    for volume in template.volumes:
        name = _free_name(volume["name"] + suffix, taken)
        renamed[volume["name"]] = name
        taken.add(name)
        added.append({**volume, "name": name})
    draft.set_items("volumes", [*draft.items("volumes"), *added])
    return renamed


def _volume_names(draft: Draft) -> set[Any]:
    return {each.get("name") for each in draft.items("volumes")}


def _free_name(name: str, taken: set[Any]) -> str:
    """The name, or one like it that no volume has."""
    if name not in taken:
        return name
    # As long as before, so that it stays a legal name.
    prefixes = ("fluid-" if number == 0 else f"fluid-{number}-" for number in range(len(taken) + 1))
    names = (prefix + (name[len(prefix) :] or name) for prefix in prefixes)
    return next(each for each in names if each not in taken)


def _prepend(draft: Draft, dataset: DatasetFacts, kind: str, container: Mapping[str, Any], name: str) -> None:
    if len(dataset.dataset.name) > LONGEST_NAME:
        raise PluginError(
            f"dataset {dataset.dataset.key}: its name is longer than the {LONGEST_NAME} characters of a label, "
            "by which sidecars name their dataset"
        )
    draft.set_items(kind, [{**clone(container), "name": name}, *draft.items(kind)])
    draft.label(f"dataset-namespace.sidecar.fluid.io/{name}", dataset.dataset.namespace)
    draft.label(f"{SIDECAR_DATASET}{name}", dataset.dataset.name)
    draft.note("container", f"{name} mounts {dataset.dataset.key} inside the pod")
