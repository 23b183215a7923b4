"""How the rounds of scripts/bench e2e are ordered and summed up. Needs no Kubernetes."""

from bench.e2e import in_turn, median


def test_the_schedulers_take_turns_at_going_first() -> None:
    everybody = ["kube_scheduler", "fairlead", "bare"]
    assert in_turn(everybody, 0) == ["bare", "fairlead", "kube_scheduler"]
    assert in_turn(everybody, 1) == ["bare", "kube_scheduler", "fairlead"]
    assert in_turn(everybody, 2) == in_turn(everybody, 0)
    assert in_turn(["fairlead"], 1) == ["fairlead"]


def test_the_median_is_of_each_figure_by_itself() -> None:
    runs = [
        {"pods_per_s": rate, "p50_ms": 10.0 - rate, "cpu_ms_per_pod_of_servers": {"etcd": rate / 2}}
        for rate in (1.0, 9.0, 4.0)
    ]
    assert median(runs) == {"pods_per_s": 4.0, "p50_ms": 6.0, "cpu_ms_per_pod_of_servers": {"etcd": 2.0}}
