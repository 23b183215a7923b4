"""ConfigMaps that pods with sidecars mount, written for pods that exist: none comes from the admission path.

The kubelet waits for a ConfigMap that is not there yet, so a pod starts a moment later at worst.
"""

from collections.abc import Iterator
from typing import Any, Final

from fairlead.cluster.controller import Controller
from fairlead.data import scripts
from fairlead.data.controllers import carry_out, new_controller
from fairlead.data.opt_in import DONE
from fairlead.model.hashes import short_hash
from fairlead.model.intents import Apply
from fairlead.model.kinds import CONFIG_MAPS, Kind, split_key
from fairlead.model.meta import ApiStruct, ObjectMeta
from fairlead.runtime import Runtime

APP: Final = "check-fluid-mount-ready"
FUSE_SUFFIX: Final = "-default-check-mount"
HASH: Final = "data.fairlead.io/script"


class ConfigMapSource(ApiStruct, frozen=True):
    name: str = ""


class SidecarVolume(ApiStruct, frozen=True):
    config_map: ConfigMapSource | None = None


class SidecarPodSpec(ApiStruct, frozen=True):
    volumes: tuple[SidecarVolume, ...] | None = None


class SidecarPod(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: SidecarPodSpec = SidecarPodSpec()


PODS_WITH_SIDECARS = Kind("", "v1", "pods", "Pod", SidecarPod)
SELECTOR: Final = f"{DONE}=true"
BY_NAMESPACE: Final = "data: namespace"


def _by_namespace(pod: SidecarPod) -> Iterator[str]:
    yield pod.metadata.namespace


def needed(pod: SidecarPod) -> Iterator[tuple[str, str, str]]:
    """(ConfigMap, file, script) that the pod mounts."""
    for volume in pod.spec.volumes or ():
        name = volume.config_map.name if volume.config_map is not None else ""
        if name == APP:
            yield name, f"{APP}.sh", scripts.APP_SCRIPT
        elif name.endswith(FUSE_SUFFIX):
            yield name, "check-mount.sh", scripts.FUSE_SCRIPT


class SideObjects:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.pods = runtime.mirror(PODS_WITH_SIDECARS, labels=SELECTOR, indexes={BY_NAMESPACE: _by_namespace})
        self._written: set[tuple[str, str]] = set()

    def controller(self) -> Controller:
        # Another leader may have deleted or changed what this one wrote long ago.
        self._written.clear()
        controller = new_controller(self._runtime, "sidecars", self._reconcile)
        controller.watches(self.pods)
        return controller

    async def _reconcile(self, key: str) -> None:
        namespace, _ = split_key(key)
        if not self.pods.by(BY_NAMESPACE, namespace):
            # They may go with the namespace, and a new one of its name has none.
            self._written = {each for each in self._written if each[0] != namespace}
        pod: SidecarPod | None = self.pods.get(key)
        for name, file, script in needed(pod) if pod is not None else ():
            if (namespace, name) in self._written:
                continue
            metadata = {"name": name, "annotations": {HASH: short_hash(script)}}
            body: dict[str, Any] = {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {file: script},
            }  # fmt: skip
            await carry_out(self._runtime, [Apply(kind=CONFIG_MAPS, namespace=namespace, name=name, body=body)])
            self._written.add((namespace, name))
