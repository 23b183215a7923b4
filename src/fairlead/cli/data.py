"""`fairlead data`: scale a dataset in without losing readers, report what a node caches, explain what the webhook adds.

Read and written through the kubeconfig, as kubectl does; no running Fairlead is asked.
"""

import asyncio
import http.client
import json
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from fairlead.cli.server import mistake, print_json
from fairlead.cli.target import Target, cluster_options
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import UNDECODABLE, ClusterError, NotFound
from fairlead.data import entries
from fairlead.data.cache_map import build, name_of
from fairlead.data.capability import ADDITIONS
from fairlead.data.drains import MOST_REPLICAS, SCALE_IN_TO, victims
from fairlead.data.explain import DataExplanation, dry_run, explain
from fairlead.data.facts import Ref, Sources
from fairlead.data.holdings import Holding, measure_folder, parse_metrics, report_body
from fairlead.data.mutate import MutateOptions
from fairlead.data.objects import (
    CLAIMS,
    DAEMON_SETS,
    DATASETS,
    RUNTIMES,
    VOLUMES,
    Dataset,
    replicas_patch,
    worker_replicas,
)
from fairlead.data.opt_in import NAMESPACE
from fairlead.data.plugin import LocalityOptions
from fairlead.data.profile import DEFAULT, BadProfile, PluginProfile, parse
from fairlead.data.running import installed
from fairlead.data.spec import CACHE_REPORTS, NODES, PODS, definitions
from fairlead.data.view import worker_label, worker_labels
from fairlead.engine.locality import CacheMap
from fairlead.model.kinds import NAMESPACES, POD_OBJECTS, Kind
from fairlead.model.times import rfc3339
from fairlead.settings import Settings
from fairlead.web.admission import Review, Verdict
from fairlead.webhooks import SERVICE, manifest

SSD = "SSD"
MEDIA = ("MEM", SSD, "HDD")
TIMEOUT_S = 10.0
MOST_BYTES = 8 << 20


@click.group()
def data() -> None:
    """Datasets: drain workers, report caches, explain and try what the webhook does."""


# -- scale -------------------------------------------------------------------------------------------------------------


@data.command()
@click.argument("dataset", metavar="NAMESPACE/DATASET")
@click.option("--replicas", type=click.IntRange(0, MOST_REPLICAS), help="How many workers it should have.")
@click.option("--cancel", is_flag=True, help="Withdraw a scale-in that is under way.")
@cluster_options
def scale(dataset: str, replicas: int | None, cancel: bool, target: Target) -> None:
    """Change the number of a dataset's workers; fewer of them after their nodes' readers have left.

    A running Fairlead with the data capability carries a scale-in out.
    """
    namespace, _, name = dataset.partition("/")
    if not name or (replicas is None) != cancel:
        mistake("name a dataset as NAMESPACE/DATASET, with either --replicas or --cancel")
    click.echo(target.run(lambda client: _scale(client, namespace, name, replicas)))


async def _scale(client: Client, namespace: str, name: str, replicas: int | None) -> str:
    found = await client.get(DATASETS, name, namespace)
    kind = RUNTIMES.get(next((each.type for each in found.status.runtimes or ()), ""))
    if kind is None:
        mistake(f"dataset {namespace}/{name} has no runtime yet")
    runtime = await client.get(kind, name, namespace)
    current = worker_replicas(kind, runtime)
    patch: dict[str, Any] = {"metadata": {"annotations": {SCALE_IN_TO: None}}}
    if replicas is not None and replicas < current:
        patch["metadata"]["annotations"][SCALE_IN_TO] = str(replicas)
    elif replicas is not None:
        patch["spec"] = replicas_patch(kind, replicas)
    await client.patch(kind, name, patch, namespace)
    if replicas is None:
        return f"{kind.kind} {namespace}/{name}: no scale-in any more"
    if replicas < current:
        when = await when_over(client, found, replicas)
        return f"{kind.kind} {namespace}/{name}: from {current} to {replicas} workers{when}"
    return f"{kind.kind} {namespace}/{name}: {replicas} workers"


async def when_over(client: Client, dataset: Dataset, replicas: int) -> str:
    """When a scale-in comes to its end."""
    if not replicas:
        return "; their readers are not waited for, as no worker is left"
    own, namespace = worker_labels(name_of(dataset)), dataset.metadata.namespace
    pods = [each async for page in client.pages(PODS, namespace) for each in readable(PODS, page.items or ())]
    workers = [pod for pod in pods if worker_label(namespace, pod.metadata.labels) in own]
    if any(pod.spec.node_name for pod in victims(workers, replicas)):
        return " when their readers have left"
    return "; none of those that go runs on a node, so nobody is waited for"


# -- report ------------------------------------------------------------------------------------------------------------


@data.command()
@click.option("--node", required=True, help="The node this runs on; the report has its name.")
@click.option("--folder", "folders", multiple=True, metavar="NS/DATASET:MEDIUM:PATH", help="A cache folder to measure.")
@click.option(
    "--metrics",
    "urls",
    multiple=True,
    metavar="NS/DATASET[:MEDIUM]=URL",
    help="A worker's metrics: Alluxio's, which name their medium, or JuiceFS', which do not (SSD unless given).",
)
@click.option(
    "--every", "every_s", type=click.FloatRange(1, 86_400), default=20.0, show_default=True, metavar="SECONDS"
)
@click.option("--once", is_flag=True, help="Report once and exit.")
@cluster_options
def report(
    node: str, folders: tuple[str, ...], urls: tuple[str, ...], every_s: float, once: bool, target: Target
) -> None:
    """Report what this node holds of datasets, as the CacheReport of its name."""
    for each in folders:
        if len(each.split(":", 2)) != 3 or each.split(":")[1] not in MEDIA or "/" not in each.split(":")[0]:
            mistake(f"--folder: must be NAMESPACE/DATASET:{'|'.join(MEDIA)}:PATH, not {each!r}")
    for each in urls:
        key, _, url = each.partition("=")
        medium = key.partition(":")[2] or SSD
        if "/" not in key or medium not in MEDIA or not url.startswith(("http://", "https://")):
            mistake(f"--metrics: must be NAMESPACE/DATASET[:{'|'.join(MEDIA)}]=http://..., not {each!r}")
    target.run(lambda client: _report(client, node, folders, urls, every_s, once))


async def _report(
    client: Client, node: str, folders: tuple[str, ...], urls: tuple[str, ...], every_s: float, once: bool
) -> None:
    clock = RealClock()
    seen: dict[str, tuple[Holding, str]] = {}
    while True:
        held = await asyncio.to_thread(holdings, folders, urls)
        if once and not held:
            mistake("nothing could be measured; no report was written")
        # What does not answer keeps its last report, which grows old.
        seen |= {key: (each, rfc3339(clock.now())) for key, each in held.items()}
        try:
            await client.apply(CACHE_REPORTS, node, report_body(node, seen))
            click.echo(f"reported {len(held)} datasets of {node}")
        except ClusterError as problem:
            if once:
                raise
            click.echo(f"fairlead: {problem}", err=True)
        if once:
            return
        await clock.sleep(every_s)


def holdings(folders: tuple[str, ...], urls: tuple[str, ...]) -> dict[str, Holding]:
    """What is held now; a source that does not answer is left out."""
    found: dict[str, Holding] = {}
    for each in folders:
        key, medium, path = each.split(":", 2)
        if not Path(path).is_dir():
            click.echo(f"fairlead: {path}: there is no such folder", err=True)
            continue
        found[key] = found.get(key, Holding({})) + measure_folder(Path(path), medium)
    for each in urls:
        source, _, url = each.partition("=")
        key, _, medium = source.partition(":")
        try:
            held = parse_metrics(_page(url), medium or SSD)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            click.echo(f"fairlead: {url}: {problem}", err=True)
            continue
        found[key] = found.get(key, Holding({})) + held
    return found


def _page(url: str) -> str:
    """The metrics at an address; a ValueError if they are cut off or none of those that we know."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        text: str = answer.read(MOST_BYTES).decode(errors="replace")
        if getattr(answer, "length", None):
            raise ValueError("the answer is not whole, or larger than a worker's metrics can be")
    if parse_metrics(text) == Holding({}):
        raise ValueError("these are no metrics of an Alluxio worker or of a JuiceFS mount")
    return text


# -- explain and dry-run -----------------------------------------------------------------------------------------------


@data.command("explain")
@click.argument("what", metavar="pod/NAME")
@click.option("-n", "--namespace", help="The pod's namespace.  [default: the context's]")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--profile", type=click.Path(path_type=Path), help="The plugin profile that the webhook uses.")
@cluster_options
def explain_command(what: str, namespace: str | None, output: str, profile: Path | None, target: Target) -> None:
    """Show each term that the webhook adds to a pod, the plugin and fact behind it, and its effect on each node."""
    name = what.removeprefix("pods/").removeprefix("pod/").removeprefix("po/")
    if not name or "/" in name:
        mistake(f"name a pod as pod/NAME, not {what!r}")
    try:
        chosen = parse(profile.read_text() if profile is not None else DEFAULT, installed)
    except (OSError, BadProfile) as problem:
        mistake(f"--profile: {problem}")
    settings, home = target.settings(), target.namespace(namespace)
    found = target.run(lambda client: _explain(client, settings, home, name, chosen))
    if output == "json":
        print_json(found)
    else:
        click.echo("\n".join(lines(found)))


async def _explain(
    client: Client, settings: Settings, namespace: str, name: str, profile: PluginProfile
) -> DataExplanation:
    pod = json.loads(await client.request("GET", POD_OBJECTS.path(namespace, name)))
    sources, cache, nodes = await _read(client, settings)
    space = await client.get(NAMESPACES, namespace)
    options = MutateOptions(
        prefetcher_image=settings.data.prefetcher_image,
        locality=LocalityOptions(settings.data.affinity, settings.data.strength, cache),
        additions=ADDITIONS,
    )
    by_namespace = space.metadata.labels.get(NAMESPACE) == "enabled"
    return explain(pod, namespace, sources, profile, options, nodes, by_namespace=by_namespace)


async def _read(client: Client, settings: Settings) -> tuple[Sources, CacheMap, list[Any]]:
    """Everything that answers depend on, as it is now; kinds that the cluster lacks are empty."""
    kinds: tuple[Kind[Any], ...] = (CLAIMS, DATASETS, *RUNTIMES.values(), DAEMON_SETS, VOLUMES, CACHE_REPORTS, NODES)
    listed: dict[str, list[Any]] = {}
    for kind in kinds:
        try:
            listed[kind.name] = [each async for page in client.pages(kind) for each in readable(kind, page.items or ())]
        except NotFound:
            listed[kind.name] = []
    objects = {
        Ref(kind, each.metadata.namespace if kind.namespaced else "", each.metadata.name): each
        for kind in kinds
        for each in listed[kind.name]
    }
    cache = build(
        listed[DATASETS.name],
        listed[CLAIMS.name],
        listed[NODES.name],
        listed[CACHE_REPORTS.name],
        RealClock().now(),
        settings.data.report_ttl_s,
    )
    return Sources(objects.get), cache, listed[NODES.name]


def readable(kind: Kind[Any], items: Iterable[msgspec.Raw]) -> list[Any]:
    """The objects of a list; one that somebody wrote in another form is left out, as by the webhook."""
    found = []
    for item in items:
        try:
            found.append(msgspec.json.decode(item, type=kind.struct))
        except UNDECODABLE as problem:
            click.echo(f"fairlead: left out, not a {kind.kind}: {problem}", err=True)
    return found


def lines(found: DataExplanation) -> list[str]:
    """The explanation as text."""
    out = [f"Pod {found.pod}: reads {', '.join(found.datasets) or 'no dataset'}"]
    if found.problem:
        out.append(f"  {found.problem}")
    absent = "not in the pod"
    if found.scored_by == "DataLocality":
        absent += ": its scheduler scores what nodes hold, LOCAL below"
    for each in found.terms:
        mark = "" if each.is_in_pod else f"  ({absent})"
        term = f": {_shown(each.term)}" if each.term else ""
        out.append(f"  {each.plugin} {each.effect}{term}, because {each.because}{mark}")
    width = max([30, *(len(each.node) for each in found.nodes)])
    out.append(f"  {'NODE':<{width}} {'ALLOWED':<8} {'WEIGHT':>6} {'SCORE':>6} {'LOCAL':>6}")
    out += [
        f"  {each.node:<{width}} {'yes' if each.is_allowed else 'no':<8} {each.weight:>6} {each.score:>6} "
        f"{each.local_share:>6.0%}"
        for each in found.nodes
    ]
    return out


def _shown(term: Mapping[str, Any]) -> str:
    apart = (term.get("podAffinityTerm") or {}).get("labelSelector")
    inner = apart or term.get("preference") or term
    parts = [
        " ".join([each["key"], each["operator"], ",".join(each.get("values") or [])]).strip()
        for each in inner.get("matchExpressions") or ()
    ]
    weight = f"{term['weight']} {'against pods with' if apart else 'for'} " if "weight" in term else ""
    return weight + " and ".join(parts)


@data.command("dry-run")
@click.option(
    "--pods", required=True, type=click.Path(path_type=Path), help="Recorded pods, or `kubectl get pods -o json`."
)
@cluster_options
def dry_run_command(pods: Path, target: Target) -> None:
    """Show how many of the bytes that recorded pods read would be local: on the nodes they ran on, and at best."""
    try:
        recorded = recorded_pods(pods.read_text())
    except (OSError, ValueError, RecursionError) as problem:
        mistake(f"--pods: {problem}")
    settings = target.settings()
    _, cache, _ = target.run(lambda client: _read(client, settings))
    try:
        click.echo(msgspec.json.encode(dry_run(recorded, cache)).decode())
    except (AttributeError, TypeError):
        mistake(f"--pods: {pods}: must be pods, one JSON object a line, or a list of them")


def recorded_pods(text: str) -> list[Any]:
    """The pods of a list, of an object of their own, or of one line each."""
    try:
        document = json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    if isinstance(document, dict):
        return list(document["items"] or ()) if "items" in document else [document]
    return list(document) if isinstance(document, list) else [document]


# -- manifests ---------------------------------------------------------------------------------------------------------


@data.command()
@click.argument("what", type=click.Choice(["webhook", "cachereports", "datagroups"]))
@click.option("-n", "--namespace", default="fairlead-system", show_default=True, help="Where Fairlead runs.")
@click.option("--namespace-mode", is_flag=True, help="With the entry for labelled namespaces (data.namespaceMode).")
def manifests(what: str, namespace: str, namespace_mode: bool) -> None:
    """Print what an administrator applies: the webhook's configuration, or a CustomResourceDefinition."""
    click.echo(manifest_text(what, namespace, namespace_mode=namespace_mode), nl=False)


def manifest_text(what: str, namespace: str = "fairlead-system", *, namespace_mode: bool = False) -> str:
    flag = " --namespace-mode" if namespace_mode else ""
    head = f"# Printed by `fairlead data manifests {what}{flag}`.\n"
    if what != "webhook":
        (found,) = (each for each in definitions() if each["metadata"]["name"].startswith(what))
        return head + yaml.safe_dump(found, sort_keys=False, width=120)
    return head + yaml.safe_dump_all(_webhook(namespace, namespace_mode), sort_keys=False, width=120)


def _webhook(namespace: str, namespace_mode: bool) -> list[dict[str, Any]]:
    def metadata(name: str) -> dict[str, Any]:
        return {"name": name, "namespace": namespace, "labels": labels()}

    def labels() -> dict[str, str]:
        return {"app.kubernetes.io/name": "fairlead"}

    async def never(review: Review) -> Verdict:
        return Verdict()

    configuration = entries.configuration(
        by_label=never,
        by_namespace=never,
        worker=never,
        scale=never,
        namespace=namespace,
        namespace_mode=namespace_mode,
    )
    ports = [{"port": 443, "targetPort": 9443}]
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata(SERVICE),
            "spec": {"selector": labels(), "ports": ports},
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": metadata(entries.NAME),
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels()}},
        },
        msgspec.json.decode(msgspec.json.encode(manifest(configuration, namespace=namespace))),
    ]
