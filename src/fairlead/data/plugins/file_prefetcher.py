"""FilePrefetcher: a container beside the pod's own reads files of its datasets before they are needed.

By annotations under `file-prefetcher.fluid.io/`. Unless it runs asynchronously, the pod's other containers start when
it is done.
"""

import itertools
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from fairlead.data.draft import Draft, PluginError
from fairlead.data.plugin import PlainPlugin, PluginContext, Policy

PREFIX: Final = "file-prefetcher.fluid.io/"
SCHEME: Final = "pvc://"
ALL_FILES: Final = "<ALL>"
CONTAINER: Final = "fluid-file-prefetcher"
FUSE_CONTAINER: Final = "fluid-fuse"
STATUS_VOLUME: Final = "fluid-file-prefetcher-status-vol"
STATUS_FOLDER: Final = "/tmp/fluid-file-prefetcher/status"
TIMEOUT_S: Final = "120"
# Part of Fluid's contract with the prefetcher's image: it writes this file when it is done.
WAIT: Final = (
    "cnt=0; while [[ $cnt -lt $FILE_PREFETCHER_TIMEOUT_SECONDS ]]; do "
    f'if [[ -e "{STATUS_FOLDER}/prefetcher.status" ]]; then exit 0; fi; '
    'cnt=$(expr $cnt + 1); sleep 1; done; echo "time out waiting for prefetching done"; exit 1'
)
BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
MOST_FILES: Final = 4096
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Prefetch:
    image: str
    asynchronous: bool
    timeout_s: int
    environment: dict[str, str]
    paths: list[str]
    mounts: dict[str, str]


class FilePrefetcher(PlainPlugin):
    name = "FilePrefetcher"
    policy: Policy = "fail"

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        annotations = draft.annotations
        if annotations.get(f"{PREFIX}inject") != "true" or annotations.get(f"{PREFIX}inject-done") == "true":
            return False
        prefetch = _parse(draft, context)
        if not prefetch.paths:
            draft.warn(f"{PREFIX}file-list names no file of a dataset of this pod; nothing is prefetched")
            return False
        containers = draft.items("containers")
        fuses = [i for i, each in enumerate(containers) if str(each.get("name", "")).startswith(FUSE_CONTAINER)]
        place = max(fuses, default=-1) + 1
        if prefetch.asynchronous:
            # Those that start before the prefetcher cannot wait for it.
            for each in containers[place:]:
                status = {"name": STATUS_VOLUME, "mountPath": STATUS_FOLDER}
                each["volumeMounts"] = [*(each.get("volumeMounts") or ()), status]
        draft.set_items("containers", [*containers[:place], _container(prefetch), *containers[place:]])
        draft.set_items("volumes", [*draft.items("volumes"), {"name": STATUS_VOLUME, "emptyDir": {}}])
        draft.annotate(f"{PREFIX}inject-done", "true")
        draft.note("container", f"annotation {PREFIX}inject: {'; '.join(prefetch.paths)}")
        return False


def _parse(draft: Draft, context: PluginContext) -> Prefetch:
    annotations = draft.annotations
    image = annotations.get(f"{PREFIX}image", context.prefetcher_image)
    if not image:
        raise PluginError(
            f"no image for the file prefetcher: set the annotation {PREFIX}image, or data.prefetcherImage"
        )
    environment = dict(_environment(annotations.get(f"{PREFIX}extra-envs", "")))
    text = annotations.get(f"{PREFIX}async-prefetch", "false")
    if text not in BOOLEANS:
        raise PluginError(f"annotation {PREFIX}async-prefetch: must be true or false, not {text!r}")
    timeout = annotations.get(f"{PREFIX}prefetch-timeout-seconds", TIMEOUT_S)
    if not _INTEGER.fullmatch(timeout) or not -(1 << 31) <= int(timeout) < 1 << 31:
        raise PluginError(f"annotation {PREFIX}prefetch-timeout-seconds: must be a whole number, not {timeout!r}")
    listed = annotations.get(f"{PREFIX}file-list", ALL_FILES)
    entries = [f"{SCHEME}{each.claim}" for each in context.datasets] if listed == ALL_FILES else listed.split(";")
    pairs = list(itertools.islice(_paths(draft, context, entries), MOST_FILES + 1))
    if len(entries) > MOST_FILES or len(pairs) > MOST_FILES:
        raise PluginError(
            f"annotation {PREFIX}file-list: must name at most {MOST_FILES} files, in all volumes together"
        )
    return Prefetch(
        image, BOOLEANS[text], int(timeout), environment, [path for _, path in pairs],
        {volume: f"/data/{volume}" for volume, _ in pairs},
    )  # fmt: skip


def _environment(text: str) -> Iterator[tuple[str, str]]:
    for pair in text.split(" ") if text else ():
        if pair.count("=") != 1:
            raise PluginError(f"annotation {PREFIX}extra-envs: must be KEY=VALUE KEY=VALUE, not {pair!r} in {text!r}")
        key, _, value = pair.partition("=")
        yield key, value


def _paths(draft: Draft, context: PluginContext, entries: list[str]) -> Iterator[tuple[str, str]]:
    """(volume, path) of each entry; one of another scheme or of a claim that is no dataset is left out."""
    volumes: dict[str, list[str]] = {each.claim: [] for each in context.datasets}
    for volume, claim in draft.claim_of_volume().items():
        if claim in volumes:
            volumes[claim].append(volume)
    for entry in entries:
        claim, slash, pattern = entry.removeprefix(SCHEME).partition("/")
        if not entry.startswith(SCHEME) or claim not in volumes:
            if entry:
                draft.warn(f"annotation {PREFIX}file-list: {entry!r} is no file of a dataset of this pod; left out")
            continue
        # Nothing above the mount can be named.
        inside = posixpath.normpath(f"/{pattern if slash else '**'}").lstrip("/")
        for volume in volumes[claim]:
            yield volume, posixpath.join("/data", volume, inside).rstrip("/")


def _container(prefetch: Prefetch) -> dict[str, Any]:
    environment = {
        "FILE_PREFETCHER_FILE_LIST": ";".join(prefetch.paths),
        "FILE_PREFETCHER_ASYNC_PREFETCH": "true" if prefetch.asynchronous else "false",
        "FILE_PREFETCHER_TIMEOUT_SECONDS": str(prefetch.timeout_s),
    }
    pairs = [*environment.items(), *sorted(prefetch.environment.items())]
    mounts = [{"name": name, "mountPath": path} for name, path in sorted(prefetch.mounts.items())]
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": prefetch.image,
        # An empty value is no value in a pod.
        "env": [{"name": name, "value": value} if value else {"name": name} for name, value in pairs],
        "volumeMounts": [*mounts, {"name": STATUS_VOLUME, "mountPath": STATUS_FOLDER}],
    }
    if not prefetch.asynchronous:
        container["lifecycle"] = {"postStart": {"exec": {"command": ["bash", "-c", WAIT]}}}
    return container
