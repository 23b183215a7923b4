"""A kubectl session told as data, run against a server, and what it printed."""

import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.contract.volatile import Words


@dataclass(frozen=True, slots=True)
class Command:
    """One call of kubectl: its words, and what is special about it."""

    line: str
    stdin: str = ""
    edit: str = ""
    """For `edit`: a sed script that is the editor."""
    seconds: float = 0.0
    """Ended after so long; for what never ends by itself."""
    until: str = ""
    """Called again and again until its output holds this."""
    quiet: bool = False
    keep: str = ""
    """Only lines like this are compared: the embedded cluster carries no prose."""
    drop: str = ""
    """Lines like this are not compared: how often something is said depends on when it is looked at."""
    ordered: bool = True
    """Whether the order of the lines is compared: pods of one owner have names drawn by lot."""


@dataclass
class Session:
    """One user at one terminal."""

    programs: Path
    kubeconfig: Path
    home: Path
    namespace: str
    words: Words = field(default_factory=Words)

    def run(self, commands: Sequence[Command]) -> list[tuple[str, str]]:
        return [(each.line, told) for each in commands if (told := self._told(each)) is not None]

    def _told(self, command: Command) -> str | None:
        deadline = time.monotonic() + 20
        while True:
            code, out, err = self._call(command)
            if not command.until or command.until in out or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        if command.quiet:
            assert code == 0, f"kubectl {command.line}: {err}"
            return None
        told = f"exit {code}\n{out}{err}"
        if command.keep:
            told = "\n".join(line for line in told.splitlines() if re.search(command.keep, line))
        if command.drop:
            told = "\n".join(line for line in told.splitlines() if not re.search(command.drop, line))
        told = self._normal(told)
        return told if command.ordered else "\n".join(sorted(set(told.splitlines())))

    def _call(self, command: Command) -> tuple[int, str, str]:
        line = command.line.replace("$ns", self.namespace)
        words = [
            str(self.programs / "kubectl"),
            f"--cache-dir={self.home / 'cache'}",
            f"--kubeconfig={self.kubeconfig}",
        ]
        words += ["-n", self.namespace, *_split(line)]
        environment = {**os.environ, "HOME": str(self.home)}
        if command.edit:
            editor = self.home / "editor.sh"
            editor.write_text(f"#!/bin/sh\nsed -i -e '{command.edit}' \"$1\"\n")
            editor.chmod(0o755)
            environment["KUBE_EDITOR"] = str(editor)
        stdin = command.stdin.replace("$ns", self.namespace)
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        try:
            out, err = process.communicate(stdin, timeout=command.seconds or 180)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            if not command.seconds:
                raise
            return 0, out, err
        return process.returncode, out, err

    def _normal(self, text: str) -> str:
        text = self.words.text(text)
        text = re.sub(r"(?<![-\w])\d+(?:m\d+)?s\b", "<age>", text)
        # Columns are as wide as their widest value, which may be a volatile one.
        text = re.sub(r" {2,}", "  ", text)
        # The real server looks after its addresses in the background, and on a busy machine it says so.
        text = re.sub(r"(?m)^.*ipallocator-repair-controller.*\n?", "", text)
        text = re.sub(r"Events:\n  Type  Reason  Age  From  Message\n  ----  .*\n?\Z", "Events:  <none>\n", text)
        text = re.sub(r"(resourceVersion\"?:) ?\"\d+\"", r"\1 <version>", text)
        text = re.sub(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000", "<time>", text)
        text = re.sub(r"/tmp/(LIVE|MERGED)-\d+", r"/tmp/\1", text)
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000", "<time>", text)
        text = re.sub(r"kubectl-edit-\S+", "<file>", text)
        text = re.sub(r"-\w{8,10}-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "-<hash>-<suffix>", text)
        return "\n".join(line.rstrip() for line in text.splitlines())


def _split(line: str) -> list[str]:
    """Words by blanks, except inside single quotes."""
    return [part.replace("'", "") for part in re.findall(r"(?:[^\s']|'[^']*')+", line)]
