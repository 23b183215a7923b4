"""Asks the real server every story and keeps its answers: `python -m tests.contract.record [TOPIC ...]`."""

import argparse
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from tests.contract import answers
from tests.contract.hooks import hook_server
from tests.contract.servers import Contestant, ContractRig, real
from tests.contract.stories import run, told
from tests.rigs.kube.build import ensure_built


def record(server: Contestant, hook: Mapping[str, str], topics: Collection[str], folder: Path) -> int:
    """Writes the files of these topics; returns how many answers they hold."""
    count = 0
    for topic, stories in groupby(told(), key=lambda story: story.topic):
        if topic in topics:
            records = [
                answers.record_of(story, run(story, server, story.namespace, {"hook": hook})) for story in stories
            ]
            answers.write(topic, records, folder)
            count += sum(len(each.answers) for each in records)
    return count


def main(arguments: Sequence[str]) -> None:
    known = {story.topic for story in told()}
    parser = argparse.ArgumentParser(
        prog=answers.COMMAND, description="Keeps the real server's answers to the stories."
    )
    parser.add_argument("topic", nargs="*", help=f"one of {', '.join(sorted(known))}; without any, all are recorded")
    topics = set(parser.parse_args(arguments).topic) or known
    if unknown := topics - known:
        parser.error(f"there are no stories of {', '.join(sorted(unknown))}")
    answers.FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, hook_server(Path(folder)) as hook, ContractRig(ensure_built()) as rig:
        server = real(rig.start())
        try:
            count = record(server, hook, topics, answers.FOLDER)
        finally:
            server.close()
    for gone in answers.topics() - known:
        (answers.FOLDER / f"{gone}{answers.SUFFIX}").unlink()
    print(f"recorded {count} answers in {answers.FOLDER}")


if __name__ == "__main__":
    main(sys.argv[1:])
