"""An observer of every revision: `kubectl get --watch` of TYJobs and pods, put in the server's order and judged."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.jobs.judge import judge

Json = dict[str, Any]
KINDS = ("tyjobs.fairlead.io", "pods")


class Observer:
    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files

    def events(self) -> list[Json]:
        """What both watches have shown so far, in the order of the server's revisions."""
        found = [each for file in self._files for each in _documents(file.read_text())]
        # A watch that breaks says so in an event of its own, and begins anew.
        found = [each for each in found if each["type"] != "ERROR"]
        return sorted(found, key=lambda each: int(each["object"]["metadata"]["resourceVersion"]))

    def stages(self, job: str) -> list[str]:
        """The stages of a job as they were seen, one after the other."""
        found: list[str] = []
        for event in self.events():
            thing = event["object"]
            if thing["kind"] == "TYJob" and thing["metadata"]["name"] == job:
                stage = (thing.get("status") or {}).get("stage")
                if stage and (not found or found[-1] != stage):
                    found.append(stage)
        return found

    def complaints(self) -> list[str]:
        """Everything wrong in any state that somebody could have read; each event is judged by the job it is about."""
        jobs: dict[str, Json] = {}
        pods: dict[str, dict[str, Json]] = {}
        found: list[str] = []
        for event in self.events():
            thing, is_gone = event["object"], event["type"] == "DELETED"
            metadata = thing["metadata"]
            if thing["kind"] == "TYJob":
                owner = key = metadata["uid"]
                held = jobs
            else:
                owner = next((each["uid"] for each in metadata.get("ownerReferences") or ()), "")
                # By name: whoever has it now, the pod before it is gone, also where a broken watch has missed that.
                held, key = pods.setdefault(owner, {}), metadata["name"]
            if not is_gone:
                held[key] = thing
            elif key in held and held[key]["metadata"]["uid"] == metadata["uid"]:
                del held[key]
            if owner in jobs:
                found += judge([jobs[owner]], pods.get(owner, {}).values())
        return found


def _documents(text: str) -> Iterator[Json]:
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            thing, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            return  # the last one is not whole yet
        yield thing


@contextlib.contextmanager
def observing(kubectl: Path, kubeconfig: Path, folder: Path) -> Iterator[Observer]:
    files = [folder / f"{kind}.json" for kind in KINDS]
    with contextlib.ExitStack() as stack:
        for kind, file in zip(KINDS, files, strict=True):
            command = [str(kubectl), f"--kubeconfig={kubeconfig}", f"--cache-dir={folder / 'cache'}"]
            command += ["get", kind, "-A", "--watch", "--output-watch-events", "-o", "json"]
            watching = ["/bin/sh", "-c", 'while :; do "$@"; sleep 0.2; done', "watching", *command]
            output = stack.enter_context(file.open("ab"))
            process = subprocess.Popen(watching, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True)
            stack.callback(process.wait, 60)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
        yield Observer(files)
