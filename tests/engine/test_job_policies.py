"""Job-level priorities, worked by hand."""

import numpy as np
import pytest

from fairlead.engine.cycle import Cycle
from fairlead.engine.priorities.jobs.packing import EVEN, LEADER, WORKER, idle, packed
from fairlead.engine.profile import ProfileError, job_profile, kube_profile
from fairlead.engine.table import NodeTable
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.testing.builders import a_node, a_pod, a_table

JOB = "example.com/job"


def choose(policy: str, table: NodeTable, pod: SchedulerPod, *, is_leader: bool = False) -> str:
    profile = job_profile(policy, kube_profile(), job_label=JOB, is_leader=is_leader)
    outcome = Cycle(table, profile).decide(pod)
    assert isinstance(outcome, Placed)
    return outcome.node


def of_job(name: str, node: str = "", **more: object) -> SchedulerPod:
    return a_pod(name, node=node, labels={JOB: "train"}, **more)  # type: ignore[arg-type]


def test_packing_is_the_mean_use_of_what_is_asked_for() -> None:
    table = a_table(
        [a_node("a", cpu="4", memory="1000Mi", nvidia__com_gpu=4)], [a_pod("b", node="a", cpu="1", memory="0")]
    )
    request = table.request(a_pod(cpu="1", memory="500Mi"))
    view = table.view()
    # cpu (1+1)/4, memory 500/1000; the GPU is not asked for
    assert packed(view, request, EVEN, requested_only=True)[0] == pytest.approx(50.0)
    # cpu 0.5·1, memory 0.5·1, gpu 0·5 over 7; and for workers cpu weighs five
    assert packed(view, request, LEADER, requested_only=False)[0] == pytest.approx(100 / 7)
    assert packed(view, request, WORKER, requested_only=False)[0] == pytest.approx(100 * 3 / 7)


def test_bin_pack_fills_used_nodes_first() -> None:
    table = a_table([a_node("a"), a_node("b")], [a_pod("busy", node="b", cpu="2")])
    assert choose("BinPack", table, a_pod("p")) == "b"


def test_bin_pack_ties_go_to_fewer_idle_gpus_then_less_idle_cpu_then_the_name() -> None:
    nodes = [a_node("a", nvidia__com_gpu=4), a_node("b", nvidia__com_gpu=2), a_node("c", nvidia__com_gpu=2)]
    pod = a_pod("p", cpu=None, memory=None, requests={"cpu": "0"})
    assert choose("BinPack", a_table(nodes), pod) == "b"
    assert choose("BinPack", a_table([a_node("x", cpu="8"), a_node("y", cpu="4")]), pod) == "y"


def test_a_leader_goes_where_it_is_quiet_and_workers_where_it_is_busy() -> None:
    nodes = [a_node("a", nvidia__com_gpu=8), a_node("b", nvidia__com_gpu=8)]
    busy = a_pod("busy", node="a", cpu="4", requests={"nvidia.com/gpu": "4"})
    assert choose("LeaderFirst", a_table(nodes, [busy]), of_job("p"), is_leader=True) == "b"
    assert choose("LeaderFirst", a_table(nodes, [busy]), of_job("p")) == "a"


def test_affinity_and_its_opposite() -> None:
    nodes = [a_node("a"), a_node("b"), a_node("c")]
    placed = [of_job("1", "b"), of_job("2", "b"), of_job("3", "c"), a_pod("other", node="a", cpu="3")]
    assert choose("JobAffinity", a_table(nodes, placed), of_job("p")) == "b"
    assert choose("JobAntiAffinity", a_table(nodes, placed), of_job("p")) == "a"


def test_ties_of_affinity_go_to_the_fuller_and_of_its_opposite_to_the_emptier_node() -> None:
    nodes = [a_node("a"), a_node("b")]
    busy = [a_pod("busy", node="b", cpu="3")]
    assert choose("JobAffinity", a_table(nodes, busy), of_job("p")) == "b"
    assert choose("JobAntiAffinity", a_table(nodes, busy), of_job("p")) == "a"


def test_scores_stay_within_their_bound() -> None:
    table = a_table([a_node("a")], [a_pod("busy", node="a", cpu="8")])
    profile = job_profile("BinPack", kube_profile())
    (rule, _), *_ = profile.priorities
    raw = rule.raw(table.view(), table.request(a_pod("p")), np.ones(1, dtype=np.bool_))
    assert 0 <= int(raw[0]) <= rule.best * 2


def test_an_unknown_policy_is_told() -> None:
    with pytest.raises(ProfileError, match="policy: must be one of"):
        job_profile("Chaos", kube_profile())


def test_devices_taken_beyond_what_there_is_make_no_others_less_idle() -> None:
    node = a_node("a", cpu="4", amd__com_gpu=1)
    oversold = a_pod("b", node="a", requests={"nvidia.com/gpu": 2})
    alone = a_table([node], [oversold])
    # Somebody offers the other vendor's, so that they are counted.
    beside = a_table([node, a_node("z", cpu="4", nvidia__com_gpu=2)], [oversold])
    assert idle(beside.view())[beside.row_of["a"]] == idle(alone.view())[0]
