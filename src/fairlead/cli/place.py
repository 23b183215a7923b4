"""`fairlead place`: the node each pod would get on a snapshot of a cluster in a file, and why. Needs no cluster."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table

from fairlead.cli.server import print_json
from fairlead.cli.snapshot import BadInput, pods_from, table_from
from fairlead.engine.cycle import Cycle
from fairlead.engine.dialect import parse_configuration
from fairlead.engine.profile import Conditions, Profile, ProfileError, kube_profile, seed_profile
from fairlead.engine.table import NodeTable
from fairlead.model.outcome import Placed, Refused
from fairlead.model.pod import SchedulerPod
from fairlead.placement.explain import explain
from fairlead.placement.explanation import Explanation
from fairlead.placement.scale import format_points as points


class Mistake(click.ClickException):
    """Something in the user's files; one sentence and the exit code of mistakes."""

    exit_code = 2


@click.command()
@click.option("-f", "--filename", "manifest", type=click.Path(path_type=Path), required=True, help="Pods or workloads.")
@click.option(
    "--snapshot",
    type=click.Path(path_type=Path),
    required=True,
    help="The cluster: kubectl get nodes,pods -A -o json (more kinds are welcome).",
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("--scores", type=click.Choice(["kube", "seed"]), default="kube", show_default=True, help="The score set.")
@click.option(
    "--node-conditions",
    type=click.Choice([each.value for each in Conditions]),
    default=Conditions.BOTH.value,
    show_default=True,
    help="How a node's health is read: by taints, conditions or both (the setting nodeConditions).",
)
@click.option("--scheduler-config", type=click.Path(path_type=Path), help="A KubeSchedulerConfiguration file.")
def place(
    manifest: Path, snapshot: Path, output: str, scores: str, node_conditions: str, scheduler_config: Path | None
) -> None:
    """Show which node each pod would get on a snapshot of a cluster, one after another, and why."""
    try:
        table = table_from(snapshot)
        pods = pods_from(manifest, [node for node in table.nodes if node is not None])
        profiles = _profiles(scheduler_config, scores, Conditions(node_conditions))
    except BadInput as problem:
        raise Mistake(str(problem)) from None
    decisions = list(decide(table, pods, profiles))
    if output == "json":
        print_json(decisions)
    else:
        _print(decisions)
    if any(each["node"] is None for each in decisions):
        raise SystemExit(1)


def decide(table: NodeTable, pods: Iterable[SchedulerPod], profiles: dict[str, Profile]) -> Iterable[dict[str, Any]]:
    cycles = {name: Cycle(table, profile) for name, profile in profiles.items()}
    default = next(iter(cycles.values()))
    for pod in pods:
        cycle = cycles.get(pod.spec.scheduler_name, default)
        explanation = explain(cycle, pod, whole=True, preempting=False)
        outcome = cycle.decide(pod)
        yield _decision(pod, outcome, explanation)


def _decision(pod: SchedulerPod, outcome: Placed | Refused, explanation: Explanation) -> dict[str, Any]:
    if isinstance(outcome, Refused):
        diagnosis = outcome.diagnosis
        return {
            "pod": pod.key,
            "node": None,
            "message": diagnosis.message(),
            "refusals": diagnosis.refusals,
            "nearestMisses": diagnosis.misses,
        }
    chosen = next(each for each in explanation.best if each.node == outcome.node)
    other = next((each for each in explanation.best if each.node != outcome.node), None)
    return {
        "pod": pod.key,
        "node": outcome.node,
        "score": chosen.total,
        "feasible": explanation.feasible,
        "runnerUp": {"node": other.node, "score": other.total} if other is not None else None,
        "scores": {
            each.rule: {"raw": each.raw, "normalised": each.normalised, "weighted": each.weighted}
            for each in chosen.scores
        },
    }


def _profiles(path: Path | None, scores: str, conditions: Conditions) -> dict[str, Profile]:
    if path is None:
        profile = kube_profile(conditions=conditions) if scores == "kube" else seed_profile(conditions=conditions)
        return {"default-scheduler": profile}
    try:
        return parse_configuration(yaml.safe_load(path.read_text()) or {}, conditions=conditions)
    except (ProfileError, OSError, UnicodeDecodeError, yaml.YAMLError) as problem:
        raise BadInput(f"{path}: {problem}") from None
    except RecursionError:
        raise BadInput(f"{path}: is nested too deeply") from None


def _print(decisions: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("POD", "NODE", "SCORE", "FEASIBLE", "WHY"):
        table.add_column(column, overflow="fold")
    for each in decisions:
        if each["node"] is None:
            table.add_row(each["pod"], "<none>", "", "0", each["message"])
            continue
        parts = sorted(each["scores"].items(), key=lambda item: -item[1]["weighted"])
        why = ", ".join(f"{rule} {points(score['weighted'])}" for rule, score in parts if score["weighted"])
        if each["runnerUp"]:
            why += f"; next {each['runnerUp']['node']} with {points(each['runnerUp']['score'])}"
        table.add_row(each["pod"], each["node"], points(each["score"]), str(each["feasible"]), why)
    Console(soft_wrap=True).print(table)
