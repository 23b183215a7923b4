"""MountPropagationInjector: a container keeps its mount of a dataset when the fuse restarts."""

from typing import Any, Final

from fairlead.data.draft import Draft
from fairlead.data.plugin import BadArguments, PluginContext, Policy

HOST_TO_CONTAINER: Final = "HostToContainer"


class MountPropagation:
    name = "MountPropagationInjector"
    policy: Policy = "ignore"

    def __init__(self, arguments: Any = None) -> None:
        init = (arguments or {}).get("initContainers", False) if isinstance(arguments, dict | None) else None
        if not isinstance(init, bool):
            raise BadArguments(f"initContainers: must be true or false, not {init!r}")
        self._kinds = ("containers", "initContainers") if init else ("containers",)

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        claims = {each.claim: each for each in context.datasets}
        volumes = {name: claims[claim] for name, claim in draft.claim_of_volume().items() if claim in claims}
        for kind in self._kinds:
            for container in draft.items(kind):
                for mount in container.get("volumeMounts") or ():
                    if mount.get("name") in volumes and not mount.get("mountPropagation"):
                        mount["mountPropagation"] = HOST_TO_CONTAINER
                        dataset = volumes[mount["name"]].dataset.key
                        draft.note("mountPropagation", f"container {container.get('name')} mounts {dataset}")
        return False
