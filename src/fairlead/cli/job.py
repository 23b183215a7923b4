"""`fairlead job …`: submit TYJobs, follow them, ask about them, end them.

Jobs are objects of the cluster, read and written through the kubeconfig; what-if, compare and the reasons of a pending
job come from a running Fairlead.
"""

import asyncio
import difflib
import json
from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec
import yaml

from fairlead.cli.server import NoAnswer, mistake, print_json, table_lines
from fairlead.cli.target import Target, cluster_options, server_options
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.errors import BadRequest, NotFound
from fairlead.jobs.allocations import LEADER_PLACE
from fairlead.jobs.api import CompareAnswer, JobExplanation
from fairlead.jobs.explain import counted
from fairlead.jobs.pods import pod_name
from fairlead.jobs.spec import BASIC_POLICIES, FINISHED, JOB_PODS, TYJOBS, JobSpec, TYJob, parse_spec, parse_status
from fairlead.jobs.what_if import WhatIf
from fairlead.model import mistakes
from fairlead.model.numbers import whole_number
from fairlead.model.times import parse_time_or_none

T = TypeVar("T")

EXIT_FAILED = 3
"""The job failed."""
LOOK_S = 0.5
# Of a log that is followed.
LONGEST_SILENCE_S = 7 * 86_400.0
COLUMNS = ("NAMESPACE", "NAME", "STAGE", "SCHEDULE", "READY", "RESTARTS", "PRIORITY", "QUEUE", "AGE")


@click.group()
def job() -> None:
    """Submit TYJobs, follow them, and ask why they wait."""


def _shared(command: Callable[..., None]) -> Callable[..., None]:
    """Options of every command."""
    for option in (
        click.option("-n", "--namespace", help="The job's namespace.  [default: that of FILE, else the context's]"),
        click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True),
    ):
        command = option(command)
    return command


# -- writing -----------------------------------------------------------------------------------------------------------


@job.command()
@click.argument("file", type=click.File("rb"))
@click.option("--wait", is_flag=True, help="Show its progress until it has ended; exit code 3 if it failed.")
@click.option("--dry-run", is_flag=True, help="Let the server check it, and store nothing.")
@_shared
@cluster_options
def submit(file: Any, wait: bool, dry_run: bool, namespace: str | None, output: str, target: Target) -> None:
    """Create the TYJob of a manifest (- reads standard input)."""
    manifest = _manifest(file.read(), namespace, target)
    home, name = manifest["metadata"]["namespace"], manifest["metadata"].get("name", "")

    async def work(client: Client) -> TYJob:
        made = await client.create(TYJOBS, manifest, home, dry_run=dry_run)
        if wait and not dry_run:
            return await _followed(client, home, made.metadata.name, quiet=output == "json")
        return made

    found = target.run(work)
    if output == "json":
        print_json(_object(found))
    elif not wait:
        click.echo(f"tyjob {home}/{found.metadata.name or name} {'is valid' if dry_run else 'created'}")
    if wait:
        _exit_if_failed(found)


@job.command()
@click.argument("name")
@click.option("--timeout", type=float, default=0, help="Give up after so many seconds; 0: never.")
@_shared
@cluster_options
def wait(name: str, timeout: float, namespace: str | None, output: str, target: Target) -> None:
    """Show the progress of a job until it has ended; exit code 3 if it failed."""
    home = target.namespace(namespace)

    async def work(client: Client) -> TYJob:
        async with asyncio.timeout(timeout or None):
            return await _followed(client, home, name, quiet=output == "json")

    try:
        found = target.run(work)
    except TimeoutError:
        mistake(f"job {name} has not ended after {timeout:g} s")
    if output == "json":
        print_json(_object(found))
    _exit_if_failed(found)


def _exit_if_failed(found: TYJob) -> None:
    if parse_status(found)[0].stage == "Failed":
        raise SystemExit(EXIT_FAILED)


def _switched(found: TYJob, done: str) -> str:
    stage = parse_status(found)[0].stage
    effect = f"is finished ({stage}); this changes nothing" if stage in FINISHED else done
    return f"tyjob {found.metadata.key} {effect}"


def _switch(field: str, value: bool, done: str, help_text: str, name: str) -> None:
    @job.command(name, help=help_text)
    @click.argument("name")
    @_shared
    @cluster_options
    def command(name: str, namespace: str | None, output: str, target: Target) -> None:
        home = target.namespace(namespace)
        found = target.run(lambda client: client.patch(TYJOBS, name, {"spec": {field: value}}, home))
        if output == "json":
            print_json(_object(found))
        else:
            click.echo(_switched(found, done))


_switch(
    "terminating", True, "is ending", "End a job now; it becomes Succeeded, with condition Terminated.", "terminate"
)
_switch("suspend", True, "suspended", "Delete a job's pods and release their places until it is resumed.", "suspend")
_switch("suspend", False, "resumed", "Let a suspended job be planned again.", "resume")


# -- reading -----------------------------------------------------------------------------------------------------------


@job.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of every namespace.")
@_shared
@cluster_options
def list_jobs(all_namespaces: bool, namespace: str | None, output: str, target: Target) -> None:
    """List jobs."""
    home = "" if all_namespaces else target.namespace(namespace)
    found = sorted(target.run(lambda client: client.list(TYJOBS, home)), key=lambda each: each.metadata.key)
    if output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": [_object(each) for each in found]})
        return
    rows = [_row(each) for each in found]
    skipped = 0 if all_namespaces else 1
    click.echo("\n".join(table_lines([COLUMNS[skipped:], *(row[skipped:] for row in rows)])))


@job.command()
@click.argument("name")
@_shared
@server_options
def describe(name: str, namespace: str | None, output: str, target: Target) -> None:
    """Show a job, its places, its conditions, and why it is pending."""
    home = target.namespace(namespace)
    found = target.run(lambda client: client.get(TYJOBS, name, home))
    explanation: JobExplanation | None = None
    note = ""
    try:
        explanation = target.ask(JobExplanation, f"/jobs/{home}/{name}/explain")
    except NoAnswer as problem:
        note = f"no Fairlead answered, so only what is stored is shown ({problem})"
    if output == "json":
        print_json({"job": _object(found), "explanation": explanation})
        return
    for line in _described(found, explanation):
        click.echo(line)
    if note:
        click.echo(f"note: {note}")


@job.command()
@click.argument("name")
@click.option("--worker", metavar="SET/INDEX", help="A worker's log.  [default: the leader's]")
@click.option("--previous", is_flag=True, help="Of the container before its last restart.")
@click.option("--tail", type=int, help="The last so many lines.")
@click.option("-f", "--follow", is_flag=True, help="Wait for the pod, and print its log until it ends.")
@_shared
@cluster_options
def logs(
    name: str,
    worker: str | None,
    previous: bool,
    tail: int | None,
    follow: bool,
    namespace: str | None,
    output: str,
    target: Target,
) -> None:
    """Print the log of the leader or of a worker."""
    home = target.namespace(namespace)
    if follow and output == "json":
        mistake("--follow: prints lines as they come, so -o json cannot be used with it")
    place = LEADER_PLACE
    if worker is not None:
        set_name, _, text = worker.rpartition("/")
        index = whole_number(text, 0, 2**31 - 1)
        if not set_name or index is None:
            mistake(f"--worker: must be SET/INDEX such as actors/0, not {worker!r}")
        place = (set_name, index)
    query = {"previous": "true"} if previous else {}
    query |= {"tailLines": str(tail)} if tail is not None else {}

    async def work(client: Client) -> str:
        found = await client.get(TYJOBS, name, home)
        spec = parse_spec(found)
        if isinstance(spec, str):
            mistake(f"job {home}/{name} is invalid: {spec}")
        pod = pod_name(name, spec, place)
        if follow:
            await _follow_log(client, pod, {**query, "follow": "true"}, home, name)
            return ""
        try:
            return (await client.request("GET", JOB_PODS.path(home, pod, "log"), query=query)).decode(errors="replace")
        except NotFound:
            mistake(_no_pod(f"{home}/{name}", pod, parse_status(found)[0].stage, spec))

    text = target.run(work)
    click.echo(json.dumps({"log": text}) if output == "json" else text, nl=output == "json")


def _no_pod(job: str, pod: str, stage: str, spec: JobSpec) -> str:
    """Why a job has no such pod."""
    if stage in FINISHED:
        return f"job {job} is {stage}, and its pod {pod} is deleted (spec.cleanPodPolicy {spec.clean_pod_policy})"
    return f"job {job} is {stage or 'Pending'} and has no pod {pod} now; -f waits for it"


async def _follow_log(client: Client, pod: str, query: dict[str, str], namespace: str, name: str) -> None:
    """Bytes as they come; a pod that does not exist or run yet is waited for while its job has not ended."""
    path = JOB_PODS.path(namespace, pod, "log")
    while True:
        problem = None
        try:
            # The log of a pod that is not bound is an empty answer (204), which looks like the end of one.
            if (await client.get(JOB_PODS, pod, namespace)).spec.node_name:
                async with client.stream(path, query, silence_s=LONGEST_SILENCE_S) as chunks:
                    async for chunk in chunks:
                        click.echo(chunk, nl=False)
                return
        except (NotFound, BadRequest) as refusal:
            problem = refusal
        if parse_status(await client.get(TYJOBS, name, namespace))[0].stage in FINISHED:
            if problem is not None:
                raise problem
            return
        await asyncio.sleep(LOOK_S)


# -- asking ------------------------------------------------------------------------------------------------------------


@job.command("what-if")
@click.argument("file", type=click.File("rb"))
@_shared
@server_options
def what_if(file: Any, namespace: str | None, output: str, target: Target) -> None:
    """Show whether a job would fit now, with fewer workers, after another job, or never."""
    manifest = _manifest(file.read(), namespace, target)
    answer = _post(WhatIf, "/jobs/what-if", manifest, target)
    if output == "json":
        print_json(answer)
        return
    click.echo(f"{answer.fits}: {answer.message}")
    for node, count in answer.places.items():
        click.echo(f"  {node}: {counted(count, 'pod')}")


@job.command()
@click.argument("file", type=click.File("rb"))
@click.option("--policies", default=",".join(BASIC_POLICIES), show_default=True, help="Comma-separated.")
@_shared
@server_options
def compare(file: Any, policies: str, namespace: str | None, output: str, target: Target) -> None:
    """Show where each placement policy would put a job now."""
    body = {
        "job": _manifest(file.read(), namespace, target),
        "policies": [each.strip() for each in policies.split(",")],
    }
    answer = _post(CompareAnswer, "/jobs/compare", body, target)
    if output == "json":
        print_json(answer)
        return
    rows = [("POLICY", "FITS", "PODS", "NODES", "WHERE")]
    for each in answer.comparisons:
        where = each.message or ", ".join(f"{node}×{count}" for node, count in list(each.places.items())[:6])
        rows.append((each.policy, "yes" if each.fits else "no", str(each.pods), str(each.nodes), where))
    click.echo("\n".join(table_lines(rows)))


# -- the parts ---------------------------------------------------------------------------------------------------------


def _manifest(text: bytes, namespace: str | None, target: Target) -> dict[str, Any]:
    """The one TYJob of a file; other documents in it are for kubectl."""
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except (yaml.YAMLError, ValueError) as problem:  # a ValueError: such as a date in month 13
        mistake(f"the manifest is not YAML: {problem}")
    except RecursionError:
        mistake("the manifest is nested too deeply")
    jobs = [each for each in documents if isinstance(each, dict) and each.get("kind") == TYJOBS.kind]
    if len(jobs) != 1:
        kinds = [str(each.get("kind")) for each in documents if isinstance(each, dict)]
        near = difflib.get_close_matches(TYJOBS.kind, kinds, 1)
        hint = f"; kind {near[0]}: did you mean {TYJOBS.kind}?" if near and not jobs else ""
        mistake(f"the manifest must hold one TYJob, not {len(jobs)}{hint}")
    found: dict[str, Any] = jobs[0]
    metadata = found["metadata"] = found.get("metadata") or {}
    if not isinstance(metadata, dict):
        mistake(f"metadata: must be an object with a name, got {mistakes.shown(metadata)}")
    metadata["namespace"] = target.namespace(namespace or metadata.get("namespace"))
    return found


async def _followed(client: Client, namespace: str, name: str, *, quiet: bool) -> TYJob:
    """Until it has ended, with a line for each change of its stage or counts."""
    before = ""
    while True:
        found = await client.get(TYJOBS, name, namespace)
        status, _ = parse_status(found)
        why = status.explain.message if status.explain is not None and status.stage == "Pending" else status.message
        line = f"{status.stage:<12} {status.ready or '-':>9} ready  {why}".rstrip()
        if line != before and not quiet:
            click.echo(line)
        before = line
        if status.stage in FINISHED:
            return found
        await asyncio.sleep(LOOK_S)


def _row(found: TYJob) -> tuple[str, ...]:
    status, spec = parse_status(found)[0], parse_spec(found)
    created = parse_time_or_none(found.metadata.creation_timestamp)
    age = _age((RealClock().now() - created).total_seconds()) if created is not None else "-"
    return (
        found.metadata.namespace,
        found.metadata.name,
        status.stage,
        status.schedule_state,
        status.ready or "-",
        str(status.restarts),
        str(spec.priority) if isinstance(spec, JobSpec) else "-",
        spec.queue if isinstance(spec, JobSpec) else "-",
        age,
    )


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{max(0, int(seconds))}s"


def _described(found: TYJob, explanation: JobExplanation | None) -> list[str]:
    status, spec = parse_status(found)[0], parse_spec(found)
    lines = [
        f"{found.metadata.key}: {status.stage}, {status.schedule_state}, {status.ready or '-'} workers ready, "
        f"{status.restarts} restarts"
    ]
    if explanation is not None:
        lines.append(f"  {explanation.message}")
        lines += [f"  ahead of it: {each}" for each in explanation.ahead]
        resource = f"{explanation.explain.resource} " if explanation.explain is not None else ""
        lines += [f"  held by {each.who}: {resource}{each.amount}" for each in explanation.holders]
        lines += [f"  expected to fit at {explanation.fits_at}"] if explanation.fits_at else []
    elif why := status.explain.message if status.explain is not None else status.message:
        lines.append(f"  {why}")
    if status.explain is not None:
        lines += [f"  {counted(nodes, 'node')}: {reason}" for reason, nodes in status.explain.refusals.items()]
    if isinstance(spec, JobSpec):
        policy = f"Gang, {spec.policy}" if spec.is_gang else spec.policy
        lines.append(f"queue {spec.queue}, priority {spec.priority}, policy {policy}, quorum {spec.quorum} pods")
    if status.leader_address:
        lines.append(f"leader address: {status.leader_address}")
    if status.allocations.leader:
        lines.append(f"leader on {status.allocations.leader}")
    for name, nodes in status.allocations.workers.items():
        lines += [f"{name} {indexes} on {node}" for node, indexes in nodes.items()]
    lines += [f"condition {each.type}: {each.message or each.reason}" for each in status.conditions]
    return lines


def _post(struct: type[T], path: str, body: Any, target: Target) -> T:
    try:
        return target.ask(struct, path, body)
    except NoAnswer as problem:
        mistake(f"no Fairlead answered: {problem}")


def _object(found: TYJob) -> dict[str, Any]:
    """As kubectl prints it, so that what is printed can be applied."""
    return {"apiVersion": TYJOBS.api_version, "kind": TYJOBS.kind, **msgspec.to_builtins(found)}
