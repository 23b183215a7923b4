"""`fairlead explain pod/NAME` and `request/ID`: why a pod is on its node or pending, and why a request chose its nodes.

The answer comes from a running Fairlead. Where none answers, a pod is explained here, on the cluster as read once
through the kubeconfig; a request is not, for its reasons are stored with it.
"""

import urllib.parse
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from fairlead.cli.server import NoAnswer, mistake, print_json
from fairlead.cli.target import Target, server_options
from fairlead.cluster.client import Client
from fairlead.placement.explain import explain_again
from fairlead.placement.explanation import (
    Blockage,
    Choice,
    Explanation,
    NodeScores,
    PlaceReason,
    PodExplanation,
    Room,
)
from fairlead.placement.scale import format_points as points
from fairlead.settings import Settings

if TYPE_CHECKING:
    from fairlead.placement.api.schedule_pod import RequestView

T = TypeVar("T")

REQUESTS = ("request", "requests", "schedulerequest", "schedulerequests", "sreq")


@click.command()
@click.argument("what", metavar="pod/NAME|request/ID")
@click.option("-n", "--namespace", help="The pod's namespace.  [default: the context's]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--all", "whole", is_flag=True, help="Every node, not only the best ones.")
@click.option("--offline", is_flag=True, help="Do not ask a running Fairlead: read the cluster and decide here.")
@server_options
def explain(what: str, namespace: str | None, output: str, whole: bool, offline: bool, target: Target) -> None:
    """Explain why a pod is on its node, or what keeps it pending, and what would change that.

    For a request of POST /schedulePod: why each new pod was given its node, and why each victim is removed.
    """
    kind, _, name = what.rpartition("/")
    if kind not in ("", "pod", "pods", "po", *REQUESTS) or not name:
        mistake(f"name a pod as pod/NAME or a request as request/ID, not {what!r}")
    if kind in REQUESTS:
        _explain_request(name, output, target, offline=offline)
        return
    home, note = target.namespace(namespace), ""
    view: PodExplanation | None = None
    if not offline:
        try:
            view = ask(target, home, name, whole)
        except NoAnswer as problem:
            if target.server or target.data:
                mistake(str(problem))
            note = f"No Fairlead answered ({problem}); read from the cluster and decided here."
    if view is None:
        settings = target.settings()
        view = target.run(lambda client: _read_cluster(client, settings, home, name, whole))
        if note:
            view = msgspec.structs.replace(view, notes=(*view.notes, note))
    if output == "json":
        print_json(view)
    else:
        click.echo("\n".join(lines(view)))


# -- the request -------------------------------------------------------------------------------------------------------


def ask(target: Target, namespace: str, name: str, whole: bool) -> PodExplanation:
    path = f"/explain/pods/{urllib.parse.quote(namespace, safe='')}/{urllib.parse.quote(name, safe='')}"
    return target.ask(PodExplanation, path + ("?all=true" if whole else ""))


def _explain_request(name: str, output: str, target: Target, *, offline: bool) -> None:
    """Reasons are kept with the request: there is nothing to work out here."""
    from fairlead.placement.api.schedule_pod import RequestView

    if offline:
        mistake("--offline: requests need a running Fairlead; name one with --server or --data")
    try:
        view = target.ask(RequestView, f"/schedulePod/{urllib.parse.quote(name, safe='')}?explain=true")
    except NoAnswer as problem:
        mistake(str(problem))
    if output == "json":
        print_json(view)
    else:
        click.echo("\n".join(request_lines(view)))


# -- reading the cluster ------------------------------------------------------------------------------------------


async def _read_cluster(client: Client, settings: Settings, namespace: str, name: str, whole: bool) -> PodExplanation:
    from fairlead.cluster.clock import RealClock
    from fairlead.engine.cycle import Cycle
    from fairlead.engine.table import NodeTable
    from fairlead.model.times import rfc3339
    from fairlead.placement.capability import profiles as profiles_of
    from fairlead.placement.spec import NODES, PODS, RELATED_KINDS

    profiles, _ = profiles_of(settings)
    table = NodeTable()
    for kind in RELATED_KINDS:
        table.catalog.set_all(await client.list(kind))
    for node in await client.list(NODES):
        table.add_node(node)
    pods = await client.list(PODS)
    for each in pods:
        table.add_pod(each)
    pod = next((each for each in pods if each.key == f"{namespace}/{name}"), None)
    if pod is None:
        mistake(f"there is no pod {namespace}/{name}")
    scheduler, notes = pod.spec.scheduler_name, []
    profile = profiles.get(scheduler)
    if profile is None:
        served, profile = next(iter(profiles.items()))
        notes.append(f"{scheduler} places this pod; this is what the profile of {served} would say")
    if pod.spec.scheduling_gates:
        notes.append(f"it waits for its scheduling gates: {', '.join(gate.name for gate in pod.spec.scheduling_gates)}")
    waiting = [each for each in pods if each.status.nominated_node_name and not each.spec.node_name]
    return PodExplanation(
        pod=pod.key,
        scheduler=scheduler,
        state="Placed" if pod.spec.node_name else "Gated" if pod.spec.scheduling_gates else "Pending",
        of="now",
        explanation=explain_again(Cycle(table, profile), pod, nominated=waiting, whole=whole),
        node=pod.spec.node_name,
        at=rfc3339(RealClock().now()),
        notes=tuple(notes),
    )


# -- the text --------------------------------------------------------------------------------------------------------


def lines(view: PodExplanation) -> list[str]:
    """The explanation for a person."""
    where = f"on {view.node}" if view.node else "no node yet"
    basis = f"as decided at {view.at} ({view.decision})" if view.of == "decision" else f"as of {view.at}"
    found = [f"{view.pod}: {view.state}, {where}; scheduler {view.scheduler}, {basis}"]
    waiting = view.waiting
    if waiting is not None:
        line = f"  in the {waiting.queue} queue for {waiting.waited_s:.0f} s, {waiting.attempts} attempts"
        if waiting.next_try_in_s is not None:
            line += f", next try in {waiting.next_try_in_s:.0f} s at the latest"
        found.append(line)
    if view.explanation is not None:
        found += _explained(view.explanation)
    if view.reservation is not None:
        reserved = f"reserved on {view.reservation.node} by request {view.reservation.request}"
        found.append(f"{reserved}, for these reasons when it was planned:")
        found += [f"  {line}" for line in _reason(view.reservation.reason)]
    return [*found, *(f"note: {note}" for note in view.notes)]


def request_lines(view: "RequestView") -> list[str]:
    """A request for a person: each place and each victim with its reasons."""
    found = [f"{view.request_id}: {view.phase}; {view.message}"]
    found += [f"warning: {each}" for each in view.warnings]
    for each in view.conditions:
        found.append(f"{each.type}={each.status} {each.reason}" + (f": {each.message}" if each.message else ""))
    for item in view.items:
        verb = "add" if item.operation == 1 else "remove"
        found.append(f"{verb} {item.number} of {item.namespace}/{item.workload}: {item.phase}; {item.message}")
        for number, place in enumerate(item.places, 1):
            where = f"{place.reserved_node} with {points(place.score)}" if place.reserved_node else "no node"
            came = f"; {place.pod} went to {place.node or 'no node yet'}" if place.pod else ""
            found.append(f"  place {number}: {where}{came}" + (f"; {place.note}" if place.note else ""))
            if place.reason is not None:
                found += [f"    {line}" for line in _reason(place.reason)]
            elif place.reserved_node:
                found.append("    its reasons are not stored: the request or the cluster is too large")
        for victim in item.victims:
            found.append(f"  {victim.pod} of {victim.node or 'no node'} with {points(victim.score)}: {victim.why}")
            if victim.scores is not None:
                values = msgspec.to_builtins(victim.scores)
                parts = [f"{name} {points(value)}" for name, value in values.items() if value is not None]
                found.append(f"    {', '.join(parts)}")
    return found


def _reason(reason: PlaceReason) -> list[str]:
    found = [f"{reason.feasible} of {reason.nodes} nodes are feasible (profile {reason.profile}; {reason.scale})"]
    found += [_scores(reason.chosen), *_against_others(reason)]
    found += [f"refused: {each.nodes} {each.reason} ({each.rule})" for each in reason.refusals]
    return found


def _explained(explanation: Explanation) -> list[str]:
    found = [f"{explanation.feasible} of {explanation.nodes} nodes are feasible (profile {explanation.profile})"]
    if explanation.choice is not None:
        found += _choice(explanation.choice)
    if explanation.blockage is not None:
        found += _blockage(explanation.blockage)
    if explanation.best:
        found.append(f"best nodes ({explanation.scale}):" if explanation.scale else "best nodes:")
        found += [f"  {_scores(each)}" for each in explanation.best]
    if explanation.refused:
        found.append("refused nodes:")
        found += [
            f"  {each.node}: {', '.join(each.reasons)} ({each.rule}, {each.code})" for each in explanation.refused
        ]
    elif explanation.refusals:
        found.append("refused nodes:")
        for count in explanation.refusals:
            more = ", …" if count.nodes > len(count.examples) else ""
            found.append(f"  {count.nodes} {count.reason} ({count.rule}): {', '.join(count.examples)}{more}")
    return found


def _choice(choice: Choice) -> list[str]:
    if choice.by == "reservation":
        return [f"chosen: {choice.node}, which was nominated for the pod or reserved for it before it was created"]
    return [f"chosen: {choice.node} with {points(choice.score)}", *_against_others(choice)]


def _against_others(chosen: Choice | PlaceReason) -> list[str]:
    """The runner-up, what decided between the two, and what would change it."""
    found = []
    if chosen.runner_up is not None:
        level = "the first by name is taken" if chosen.pick == "first" else f"in turn, and this is turn {chosen.turn}"
        behind = f"{points(chosen.margin)} behind" if chosen.margin else f"level; {level}"
        found.append(f"runner-up: {chosen.runner_up.node} with {points(chosen.runner_up.total)}, {behind}")
    if chosen.decided_by:
        parts = [f"{each.rule} {'+' if each.points > 0 else ''}{points(each.points)}" for each in chosen.decided_by]
        found.append(f"between the two: {', '.join(parts)}")
    found += [
        f"would change it: {change.rule} with weight {change.instead} (is {change.weight}) → {change.node}"
        for change in chosen.weight_changes[:3]
    ]
    return found + [
        f"would change it: a request of over {_amount(room, room.free)} {room.resource} does not fit there"
        for room in chosen.room
    ]


def _blockage(blockage: Blockage) -> list[str]:
    found = [f"blocked: {blockage.message}"]
    for near in blockage.nearest:
        short = ", ".join(
            f"{room.resource}: requests {_amount(room, room.requested)}, free {_amount(room, room.free)}"
            for room in near.short
        )
        less = "; it fits if the pod requests no more than is free" if near.by_asking_less else ""
        found.append(f"nearest: {near.node} is short of {short}{less}")
    clearing = blockage.clearing
    if clearing is not None:
        if clearing.helps:
            victims = ", ".join(f"{each.pod} (priority {each.priority})" for each in clearing.victims)
            broken = f", breaking {clearing.budgets_broken} disruption budgets" if clearing.budgets_broken else ""
            found.append(f"preemption would help on {clearing.node}, at the cost of {victims}{broken}")
        else:
            found.append(f"preemption would not help: {clearing.message}")
    if blockage.wakeup_events:
        found.append(f"tried again when {', or '.join(event.sentence for event in blockage.wakeup_events)}")
    return found


def _scores(node: NodeScores) -> str:
    parts = ", ".join(f"{each.rule} {points(each.normalised)}×{each.weight}" for each in node.scores)
    total = points(node.total)
    return f"{node.node} {total}: {parts}" if parts else f"{node.node} {total}"


def _amount(room: Room, value: int) -> str:
    if room.resource == "cpu":
        return f"{value}m"
    if room.resource in ("memory", "ephemeral-storage") or room.resource.startswith("hugepages-"):
        return f"{value / 2**20:.0f}Mi"
    return str(value)
