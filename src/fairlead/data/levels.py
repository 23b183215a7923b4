"""Labels of nodes that other schedulers can score by: how much of a dataset a node holds, and how many read it there.

`data.fairlead.io/cl-<dataset>` is 1 to 10, absent at 0. It changes when the value is clearly past a step, and a node is
patched once per period at most, however often reports come.
"""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from fairlead.data.cache_map import name_of
from fairlead.data.names import DOMAIN, DatasetName, key_or_nothing
from fairlead.data.objects import Dataset
from fairlead.data.spec import NODES, CacheNode
from fairlead.engine.locality import CacheMap, value
from fairlead.model.intents import Patch
from fairlead.model.numbers import whole_number

STEPS: Final = 10
HYSTERESIS: Final = 0.05
MOST_ADVISED: Final = 10
LEVEL_PREFIX: Final = f"{DOMAIN}cl-"
DEMAND_PREFIX: Final = f"{DOMAIN}dm-"


def level(share: float, current: int = 0) -> int:
    """The step of a share; the current one stays while the share is close to it."""
    if current and (current - 1) / STEPS - HYSTERESIS < share <= current / STEPS + HYSTERESIS:
        return current
    return math.ceil(round(STEPS * min(1.0, share), 9))


def demand_share(readers: Mapping[Any, int], here: int) -> float:
    """How many of a dataset's readers a node has, beside the node that has most. `readers`: by node."""
    most = max(readers.values(), default=0)
    return here / most if most else 0.0


def levels_of(
    node: CacheNode,
    datasets: Mapping[str, Dataset],
    cache: CacheMap,
    demand: Mapping[str, Mapping[str, int]],
    *,
    with_levels: bool = True,
) -> dict[str, str]:
    """The labels a node should have. `demand`: readers by dataset and node."""
    found = {}
    for key, dataset in datasets.items():
        of_dataset = cache.datasets.get(key) if with_levels else None
        held = of_dataset.nodes.get(node.metadata.name) if of_dataset is not None else None
        readers = demand.get(key, {})
        here = readers.get(node.metadata.name, 0)
        if held is None and not here:
            continue
        name = name_of(dataset)
        shares: tuple[tuple[Callable[[], str], float], ...] = (
            (name.level_key, value(of_dataset, held) if of_dataset is not None and held is not None else 0.0),
            (name.demand_key, demand_share(readers, here)),
        )
        for make_key, share in shares:
            label = key_or_nothing(make_key)
            step = level(share, _number(node.metadata.labels.get(label, "")))
            if label and step:
                found[label] = str(step)
    return found


def plan_labels(node: CacheNode, desired: Mapping[str, str]) -> Patch | None:
    """The patch that makes the node's labels of ours these; None if they are."""
    ours = {key: value for key, value in node.metadata.labels.items() if key.startswith((LEVEL_PREFIX, DEMAND_PREFIX))}
    changes: dict[str, Any] = {key: value for key, value in desired.items() if ours.get(key) != value}
    changes |= {key: None for key in ours if key not in desired}
    if not changes:
        return None
    return Patch(kind=NODES, name=node.metadata.name, patch={"metadata": {"labels": changes}})


def _number(text: str) -> int:
    return whole_number(text, 0, 99) or 0


def advice(name: DatasetName, demand: Mapping[str, int], workers: Collection[str], bytes_per_node: float) -> str:
    """Where more workers would save reading from afar, in a sentence; nothing if every reader's node has one."""
    missing = sorted((node for node in demand if node not in workers), key=lambda node: (-demand[node], node))
    if not missing:
        return ""
    readers = sum(demand[node] for node in missing)
    saved = readers * bytes_per_node / (1 << 30)
    nodes = ", ".join(missing[:MOST_ADVISED]) + (", ..." if len(missing) > MOST_ADVISED else "")
    workers_text, readers_text = _count(len(missing), "more worker"), _count(readers, "reader")
    return f"{workers_text} of {name.key}, on {nodes}, would be near {readers_text}" + (
        f" and save {saved:.0f} GiB each time these read all of it" if saved >= 1 else ""
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
