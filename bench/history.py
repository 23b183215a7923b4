"""What keeping decisions costs, and what looking back costs: measured beside deciding, in one run.

Run by `scripts/bench history`. Deciding and remembering alternate, pod by pod, and each is timed by itself.
"""

import argparse
import json
import statistics
import time
from datetime import UTC, datetime

import msgspec
import psutil

from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import kube_profile
from fairlead.placement.explain import explain
from fairlead.placement.history import History
from fairlead.placement.replay import document_of, read, replay
from fairlead.testing.builders import a_node, a_pod, a_table

SHAPES = 20


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench history")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods-per-node", type=int, default=20)
    parser.add_argument("--decisions", type=int, default=4000)
    asked = parser.parse_args()

    names = [f"n{number:05}" for number in range(asked.nodes)]
    table = a_table([a_node(name, cpu="64", memory="256Gi") for name in names])
    for number in range(asked.nodes * asked.pods_per_node):
        labels = {"app": f"a{number % 50}"}
        table.add_pod(a_pod(f"e{number}", node=names[number % asked.nodes], labels=labels))
    cycle, history = Cycle(table, kube_profile()), History(table)
    process = psutil.Process()
    before, started_s = process.memory_info().rss, time.perf_counter()
    history.mark()
    first_s, grown = time.perf_counter() - started_s, process.memory_info().rss - before
    print(f"{asked.nodes} nodes, {len(table.occupants)} pods: taken in within {first_s:.2f} s, {grown / 2**20:.0f} MiB")

    deciding, remembering = [], []
    for number in range(asked.decisions):
        pod = a_pod(f"p{number}", cpu=f"{100 + 10 * (number % SHAPES)}m")
        times = [time.perf_counter()]
        position = history.mark()
        times.append(time.perf_counter())
        outcome = cycle.decide(pod)
        times.append(time.perf_counter())
        history.decided(position, datetime.now(UTC), cycle.profile, pod, outcome)
        times.append(time.perf_counter())
        deciding.append(times[2] - times[1])
        remembering.append(times[1] - times[0] + times[3] - times[2])
    decide_us, keep_us = 1e6 * statistics.median(deciding), 1e6 * statistics.median(remembering)
    print(f"a decision takes {decide_us:.1f} µs, keeping it {keep_us:.1f} µs more (medians of {asked.decisions})")

    oldest = min(history, key=lambda decision: decision.number)
    started_s = time.perf_counter()
    former = history.snapshot(oldest)
    world_s = time.perf_counter() - started_s
    text = msgspec.json.encode(document_of(oldest, former, "oldest"))
    document_s = time.perf_counter() - started_s - world_s
    differences = replay(read(text))
    assert not differences, differences
    started_s = time.perf_counter()
    explain(cycle, a_pod("another"))
    explain_s = time.perf_counter() - started_s
    print(
        f"back to the oldest: {1e3 * world_s:.1f} ms on the loop, {document_s:.2f} s beside it, "
        f"{len(text) / 2**20:.1f} MiB, made again the same; explained now in {1e3 * explain_s:.0f} ms"
    )
    result = {
        "nodes": asked.nodes,
        "pods": asked.nodes * asked.pods_per_node,
        "decide_us": round(decide_us, 1),
        "keep_us": round(keep_us, 1),
        "bytes_per_pod": round(grown / max(1, asked.nodes * asked.pods_per_node)),
        "world_ms": round(1e3 * world_s, 1),
        "document_s": round(document_s, 2),
        "document_mib": round(len(text) / 2**20, 1),
        "explain_ms": round(1e3 * explain_s, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
