"""GPU allocation on the openb trace: our MinFragment beside the published policies, under the published load.

Run by `scripts/bench openb --data DIR`, where DIR holds `openb_node_list_gpu_node.csv`, pod lists and, if at hand, the
published figures. One decision at a time, nothing is ever moved or retried; only the order of arrival is by chance.
Ours is decided by the engine under a profile of `schedulerConfig`: MinFragment is told the list's shapes as an
argument, as the published FGD is; MinFragmentLearned knows only what it has placed. The published ones are played after
their artifact.
"""

import argparse
import csv
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench import openb_engine
from bench.openb_policies import POLICIES, TIGHTEST, Cluster, Node, Outcome, Policy, asked_milli
from fairlead.engine.axes import Bools, Floats, Ints
from fairlead.engine.cycle import Cycle
from fairlead.engine.fragmentation import Shape
from fairlead.engine.gpus import NO_GPU, GpuRequest, GpuTable, fits_devices

LOAD: Final = 1.3  # of the cluster's GPUs
FIRST_SEED: Final = 42  # as published
NODES: Final = "openb_node_list_gpu_node.csv"
PUBLISHED: Final = "published_baselines.csv"
ALL: Final = (*POLICIES, *openb_engine.TOLD)

# --- the trace --------------------------------------------------------------------------------------------


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_nodes(path: Path) -> list[Node]:
    nodes = [
        Node(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
        for row in read_rows(path)
    ]
    return sorted(nodes, key=lambda node: node.name)


def read_pods(path: Path) -> list[Shape]:
    return [parse_pod(row) for row in read_rows(path)]


def parse_pod(row: dict[str, str]) -> Shape:
    count = int(row["num_gpu"])
    # Some lists have no such column; a model may be one of several: "P100|T4".
    models = frozenset(filter(None, (row.get("gpu_spec") or "").split("|")))
    gpu = GpuRequest(count, int(row["gpu_milli"]), models=models) if count else NO_GPU
    return Shape(int(row["cpu_milli"]), int(row["memory_mib"]), gpu)


def lists_in(folder: Path) -> list[str]:
    return sorted(path.stem.removeprefix("openb_pod_list_") for path in folder.glob("openb_pod_list_*.csv"))


# --- the load ---------------------------------------------------------------------------------------------


def named_anew(nodes: Sequence[Node], rng: np.random.Generator) -> list[Node]:
    """The published runs put a number drawn by the seed before each name, so the smallest name is anyone's."""
    return [nodes[place] for place in rng.permutation(len(nodes))]


def arrivals(pods: Sequence[Shape], gpu_milli: int, rng: np.random.Generator) -> list[Shape]:
    """The list shuffled, then tuned to the load: clones drawn from it appended, or pods drawn from it dropped."""
    order = [pods[place] for place in rng.permutation(len(pods))]
    limit = LOAD * gpu_milli
    asked = sum(map(asked_milli, pods))
    while asked > limit:
        asked -= asked_milli(order.pop(int(rng.integers(len(order)))))
    if len(order) < len(pods) or not asked:
        return order
    while True:
        clone = pods[int(rng.integers(len(pods)))]
        asked += asked_milli(clone)
        if asked > limit:
            return order
        order.append(clone)


def empty_cluster(nodes: Sequence[Node]) -> Cluster:
    gpus = GpuTable.empty(len(nodes), max((node.devices for node in nodes), default=0))
    for row, node in enumerate(nodes):
        gpus.set_node(row, node.devices, node.model)
    return Cluster(
        gpus,
        np.array([node.cpu_milli for node in nodes], np.int64),
        np.array([node.memory_mib for node in nodes], np.int64),
    )


# --- one run ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ShapeScores:
    """What a policy last said of each node for pods of one shape, and when: scores are repaired, not recomputed."""

    score_N: Floats
    device_N: Ints
    seen: int  # entries of the log of placements that it knows of


def run(cluster: Cluster, policy: Policy, pods: Iterable[Shape]) -> Outcome:
    """Place the pods one after the other where the policy wants them; a pod that fits nowhere is gone."""
    known: dict[Shape, ShapeScores] = {}
    log: list[int] = []
    allocated, refused = 0, 0
    for pod in pods:
        scores = known.get(pod)
        if scores is None:
            size = len(cluster.cpu_milli_N)
            scores = known[pod] = ShapeScores(np.full(size, -np.inf), np.full(size, TIGHTEST), 0)
            changed = np.arange(size)
        else:
            changed = np.unique(np.array(log[scores.seen :], dtype=np.int64))
        scores.seen = len(log)
        repair(cluster, policy, pod, scores, changed)
        row = policy.choose(cluster, scores.score_N)
        if row < 0:
            refused += 1
            continue
        place(cluster, row, pod, int(scores.device_N[row]))
        policy.placed(row, pod)
        log.append(row)
        allocated += asked_milli(pod)
    return Outcome(allocated, len(log), refused)


def repair(cluster: Cluster, policy: Policy, pod: Shape, scores: ShapeScores, row_C: Ints) -> None:
    fits_C = fits(cluster, pod, row_C)
    scores.score_N[row_C[~fits_C]] = -np.inf
    fitting_C = row_C[fits_C]
    if len(fitting_C):
        scores.score_N[fitting_C], scores.device_N[fitting_C] = policy.score(cluster, fitting_C, pod)


def fits(cluster: Cluster, pod: Shape, row_C: Ints) -> Bools:
    fits_C = (cluster.cpu_milli_N[row_C] >= pod.cpu_milli) & (cluster.memory_mib_N[row_C] >= pod.memory_mib)
    if pod.gpu.count:
        milli_C = np.full(len(row_C), pod.gpu.milli)
        fits_C &= fits_devices(cluster.gpus.free_milli_NG[row_C], milli_C, pod.gpu.count)
        if pod.gpu.models:
            fits_C &= cluster.gpus.allows_model(pod.gpu.models)[row_C]
    return fits_C


def place(cluster: Cluster, row: int, pod: Shape, device: int) -> None:
    cluster.gpus.allocate(row, pod.gpu, () if device == TIGHTEST else (device,))
    cluster.cpu_milli_N[row] -= pod.cpu_milli
    cluster.memory_mib_N[row] -= pod.memory_mib


# --- all runs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    data: Path
    pod_list: str
    policy: str
    seed: int


@dataclass(frozen=True, slots=True)
class Result:
    job: Job
    allocated_pct: float
    decisions_per_s: float


def work(job: Job) -> Result:
    rng = np.random.default_rng(job.seed)
    pods = read_pods(job.data / f"openb_pod_list_{job.pod_list}.csv")
    nodes = named_anew(read_nodes(job.data / NODES), rng)
    cluster = empty_cluster(nodes)
    coming = arrivals(pods, cluster.gpu_milli, rng)
    start = time.perf_counter()
    outcome = play(job.policy, nodes, cluster, pods, coming, rng)
    took_s = time.perf_counter() - start
    return Result(job, 100 * outcome.allocated_milli / cluster.gpu_milli, len(coming) / took_s)


def play(
    policy: str,
    nodes: Sequence[Node],
    cluster: Cluster,
    pods: Sequence[Shape],
    coming: Sequence[Shape],
    rng: np.random.Generator,
) -> Outcome:
    if policy in POLICIES:
        return run(cluster, POLICIES[policy](cluster, pods, rng), coming)
    return openb_engine.run(Cycle(openb_engine.a_table(nodes), openb_engine.profile_for(policy, pods)), coming)


def published_in(folder: Path) -> dict[tuple[str, str], float]:
    if not (folder / PUBLISHED).is_file():
        return {}
    return {(row["pod_list"], row["policy"]): float(row["at_130"]) for row in read_rows(folder / PUBLISHED)}


Summary = dict[str, dict[str, dict[str, float]]]


def summarise(results: Sequence[Result]) -> Summary:
    grouped: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        grouped.setdefault((result.job.pod_list, result.job.policy), []).append(result)
    summary: Summary = {}
    for (pod_list, policy), runs in grouped.items():
        allocated = [each.allocated_pct for each in runs]
        summary.setdefault(pod_list, {})[policy] = {
            "alloc_130": round(statistics.mean(allocated), 3),
            "min": round(min(allocated), 3),
            "max": round(max(allocated), 3),
            "decisions_per_s": round(statistics.mean(each.decisions_per_s for each in runs), 1),
        }
    return summary


def print_table(summary: Summary, published: dict[tuple[str, str], float]) -> None:
    print(
        f"{'list':<14}{'policy':<15}{'alloc %':>9}{'min':>8}{'max':>8}{'published':>11}{'diff':>7}{'decisions/s':>13}"
    )
    for pod_list, policies in summary.items():
        for policy, row in policies.items():
            # Ours are held against FGD, the best of the published ones.
            known = published.get((pod_list, policy), published.get((pod_list, "FGD")))
            beside = f"{known:>11.2f}{row['alloc_130'] - known:>+7.2f}" if known is not None else f"{'-':>11}{'-':>7}"
            figures = f"{row['alloc_130']:>9.2f}{row['min']:>8.2f}{row['max']:>8.2f}"
            print(f"{pod_list:<14}{policy:<15}{figures}{beside}{row['decisions_per_s']:>13.0f}")


def names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench openb", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the trace's CSV files")
    parser.add_argument("--lists", type=names, help="pod lists, comma separated (all in the folder)")
    parser.add_argument("--seeds", type=int, default=10, help=f"how many, from {FIRST_SEED} on")
    parser.add_argument("--policies", type=names, default=list(ALL), help=f"of {', '.join(ALL)}")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    args = parser.parse_args(argv)
    lists = args.lists or lists_in(args.data)
    if not lists:
        parser.error(f"no openb_pod_list_*.csv in {args.data}")
    if unknown := [name for name in lists if name not in lists_in(args.data)]:
        parser.error(f"no list {unknown[0]!r} in {args.data}; there are: {', '.join(lists_in(args.data))}")
    if unknown := [name for name in args.policies if name not in ALL]:
        parser.error(f"no policy {unknown[0]!r}; there are: {', '.join(ALL)}")

    seeds = range(FIRST_SEED, FIRST_SEED + args.seeds)
    jobs = [Job(args.data, pod_list, policy, seed) for pod_list in lists for policy in args.policies for seed in seeds]
    results: list[Result] = []
    with multiprocessing.get_context("spawn").Pool(args.jobs) as pool:
        for result in pool.imap(work, jobs):
            results.append(result)
            print(f"\r{len(results)}/{len(jobs)} runs", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)

    summary = summarise(results)
    print_table(summary, published_in(args.data))
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    sys.exit(main())
