"""Shares of GPUs as a resource of the table."""

import pytest

from fairlead.engine.cycle import Cycle
from fairlead.engine.profile import build, job_profile, kube_profile
from fairlead.engine.statement import Statement
from fairlead.engine.table import NodeTable
from fairlead.model.outcome import Outcome, Placed, Refused
from fairlead.model.pod import SchedulerPod
from fairlead.testing.builders import a_node, a_pod, a_table

MILLI, MEMORY = "fairlead.io/gpu-milli", "fairlead.io/gpu-memory-mib"


def share(name: str, milli: int, **more: str) -> SchedulerPod:
    return a_pod(name, annotations={MILLI: str(milli), **more})


def whole(name: str, count: int) -> SchedulerPod:
    return a_pod(name, requests={"nvidia.com/gpu": str(count)})


def cycle(*models: str) -> Cycle:
    nodes = [
        a_node(f"n{i}", nvidia__com_gpu=2, labels={"nvidia.com/gpu.product": model, "nvidia.com/gpu.memory": "8000"})
        for i, model in enumerate(models or ("T4",))
    ]
    return Cycle(a_table([*nodes, a_node("plain")]), kube_profile())


def told(outcome: Outcome) -> tuple[str, tuple[int, ...]]:
    assert isinstance(outcome, Placed)
    return outcome.node, outcome.devices


def free(table: NodeTable, name: str = "n0") -> list[int]:
    found: list[int] = table.gpus.free_milli_NG[table.row_of[name], :2].tolist()
    return found


def test_shares_go_on_one_device_and_pack() -> None:
    gpu = cycle()
    assert [told(gpu.decide(share(f"p{i}", 400))) for i in range(4)] == [
        ("n0", (0,)),
        ("n0", (0,)),
        ("n0", (1,)),
        ("n0", (1,)),
    ]
    refused = gpu.decide(share("p5", 400))
    assert isinstance(refused, Refused)
    assert refused.diagnosis.message() == "0/2 nodes are available: 2 node(s) didn't have enough free on a GPU."


def test_whole_devices_are_not_shared() -> None:
    gpu = cycle()
    assert told(gpu.decide(share("small", 100))) == ("n0", (0,))
    assert isinstance(gpu.decide(whole("both", 2)), Refused)
    assert told(gpu.decide(whole("one", 1))) == ("n0", (1,))
    assert isinstance(gpu.decide(share("large", 950)), Refused)
    assert told(gpu.decide(share("fits", 900))) == ("n0", (0,))


def test_shares_by_memory_and_by_model() -> None:
    gpu = cycle("T4", "A100")
    wants = a_pod("mem", annotations={MEMORY: "6000", "fairlead.io/gpu-models": "A100|H100"})
    assert told(gpu.decide(wants)) == ("n1", (0,))
    assert free(gpu.table, "n1") == [250, 1000]


def test_devices_by_annotation_are_looked_for_even_where_nobody_shares() -> None:
    several = {"fairlead.io/gpu-count": "2"}
    assert told(cycle().decide(share("halves", 500, **several))) == ("n0", (0, 1))
    assert told(cycle().decide(share("alone", 1000))) == ("n0", (0,))
    assert isinstance(cycle().decide(share("many", 500, **{"fairlead.io/gpu-count": "3"})), Refused)
    gpu = cycle()
    assert told(gpu.decide(share("both", 1000, **several))) == ("n0", (0, 1))
    assert isinstance(gpu.decide(whole("late", 1)), Refused)


def test_the_model_of_a_whole_device_matters() -> None:
    wants = a_pod("p", requests={"nvidia.com/gpu": "1"}, annotations={"fairlead.io/gpu-models": "A100"})
    assert told(cycle("T4", "A100").decide(wants)) == ("n1", (0,))
    assert isinstance(cycle("T4").decide(wants), Refused)


def test_what_was_held_is_given_back_to_the_bit() -> None:
    gpu = cycle()
    gpu.decide(share("a", 300))
    gpu.decide(share("b", 600))
    gpu.table.remove_pod("uid-default-a")
    before = gpu.table.gpus.free_milli_NG.copy()
    statement = Statement(gpu.table)
    statement.remove(gpu.table.occupants["uid-default-b"])
    gpu.decide(share("c", 900), statement)
    statement.rollback()
    assert (gpu.table.gpus.free_milli_NG == before).all()
    gpu.table.remove_pod("uid-default-b")
    assert (free(gpu.table), gpu.table.gpu_shares) == ([1000, 1000], 0)


def test_devices_written_down_are_believed() -> None:
    gpu = cycle()
    gpu.table.add_pod(a_pod("bound", node="n0", annotations={MILLI: "500", "fairlead.io/gpu-devices": "1"}))
    assert free(gpu.table) == [1000, 500]


def test_devices_that_nobody_could_have_given_are_not_believed() -> None:
    gpu = cycle()
    for i, lie in enumerate(("7", "0,0", "0,1")):
        gpu.table.add_pod(a_pod(f"lies{i}", node="n0", annotations={MILLI: "600", "fairlead.io/gpu-devices": lie}))
    # Two have a device to themselves all the same; for the third none is left.
    assert free(gpu.table) == [400, 400]
    assert told(gpu.decide(share("fits", 400))) == ("n0", (0,))


def test_a_pod_does_not_choose_its_devices() -> None:
    gpu = cycle()
    assert told(gpu.decide(share("a", 400, **{"fairlead.io/gpu-devices": "1"}))) == ("n0", (0,))
    two = {"fairlead.io/gpu-count": "2", "fairlead.io/gpu-devices": "8,9"}
    assert told(gpu.decide(share("b", 400, **two))) == ("n0", (0, 1))
    assert free(gpu.table) == [200, 600]


def test_a_node_that_changes_keeps_its_holders() -> None:
    gpu = cycle()
    gpu.decide(share("a", 300))
    gpu.table.update_node(a_node("n0", nvidia__com_gpu=4))
    assert gpu.table.gpus.free_milli_NG[gpu.table.row_of["n0"], :4].tolist() == [700, 1000, 1000, 1000]
    gpu.table.remove_node("n0")
    gpu.table.add_node(a_node("n0", nvidia__com_gpu=2))
    assert free(gpu.table) == [700, 1000]


@pytest.mark.parametrize(
    ("annotations", "said"),
    [
        ({MILLI: "1500"}, "fairlead.io/gpu-milli: must be 1 to 1000, not 1500"),
        ({MILLI: "half"}, "fairlead.io/gpu-milli: must be a whole number above zero, not 'half'"),
        ({MILLI: "5", MEMORY: "5"}, "fairlead.io/gpu-milli and fairlead.io/gpu-memory-mib: set one or the other"),
    ],
)
def test_wishes_that_make_no_sense_are_told(annotations: dict[str, str], said: str) -> None:
    outcome = cycle().decide(a_pod(annotations=annotations))
    assert isinstance(outcome, Refused)
    assert outcome.diagnosis.message() == f"0/2 nodes are available: {said}."


def test_min_fragment_keeps_devices_whole_for_those_who_want_whole_ones() -> None:
    gpu = cycle("T4", "T4")
    gpu.decide(share("first", 500))
    fragment = Cycle(gpu.table, job_profile("MinFragment", kube_profile()))
    for i in range(3):
        gpu.table.add_pod(a_pod(f"busy{i}", node="elsewhere", requests={"nvidia.com/gpu": "1"}))
    # Spreading would take the idle node; the share goes beside the other one instead.
    assert told(fragment.decide(share("second", 500))) == ("n0", (0,))
    # A pod without a GPU goes where it takes nothing from those who want one.
    assert told(fragment.decide(a_pod("cpu", cpu="4", memory="1Gi")))[0] == "plain"


def test_a_profile_without_scores_gives_shares_too() -> None:
    base = cycle()
    bare = build("bare", [rule.name for rule in base.profile.predicates], {}, base.profile.args)
    assert told(Cycle(base.table, bare).decide(share("p", 400))) == ("n0", (0,))
