"""`fairlead replay`: decide again from a decision's document, and compare every value. Needs no cluster."""

from pathlib import Path

import click
import msgspec

from fairlead.cli.server import mistake
from fairlead.placement.replay import NotADecision, read
from fairlead.placement.replay import replay as decide_again

EXIT_DIFFERENT = 1


@click.command()
@click.argument("decision", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def replay(decision: Path, output: str) -> None:
    """Repeat a DECISION (the JSON of GET /decisions/ID) and report whether the result is the same.

    Exit code 0: node, score, and verdicts and scores of every node are the same. 1: they differ; the differences are
    printed.
    """
    try:
        document = read(decision.read_bytes())
        differences = decide_again(document)
    except OSError as problem:
        mistake(f"{decision}: cannot be read: {problem.strerror}")
    except NotADecision as problem:
        mistake(f"{decision}: {problem}")
    whom = document.pod.key if document.pod is not None else f"unit {document.unit.key if document.unit else ''}"
    places = ", ".join(f"{place.pod} on {place.node}" for place in document.result.places)
    result = places or (document.result.diagnosis.message() if document.result.diagnosis else "nothing")
    if output == "json":
        answer = {"id": document.id, "of": whom, "same": not differences, "differences": differences}
        click.echo(msgspec.json.encode(answer).decode())
    elif differences:
        click.echo(f"{document.id}: {whom}: decided differently this time ({document.version} decided: {result})")
        for each in differences:
            click.echo(f"  {each}")
    else:
        nodes = len(document.snapshot.nodes)
        click.echo(f"{document.id}: {whom}: the same result over {nodes} nodes: {result}")
    if differences:
        raise SystemExit(EXIT_DIFFERENT)
