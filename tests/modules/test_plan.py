"""Strays, peers and the baseline as plans: what is seen and when gives exactly what is done."""

from typing import Any

import msgspec
import pytest

from fairlead.model.node import Node
from fairlead.modules.deployments import (
    ModuleDeployment,
    baseline,
    baseline_of,
    in_environment,
    newest_versions,
    plan_replicas,
)
from fairlead.modules.heartbeats import BaseMetadata
from fairlead.modules.plan import FORGET_AGE_S, plan_forget, plan_sweep, plan_update
from fairlead.modules.spec import ModuleState
from fairlead.nodes.spec import KubeletPod

OURS = frozenset(f"m{number}:1" for number in range(500))


def states(count: int) -> list[ModuleState]:
    return [ModuleState(f"m{number}", "1", "ACTIVATED") for number in range(count)]


def test_k41_a_stray_is_removed_after_two_polls_and_a_minute_and_not_before() -> None:
    first = plan_sweep(states(1), {}, OURS, {}, now_s=0)
    early = plan_sweep(states(1), {}, OURS, first.strays, now_s=59)
    due = plan_sweep(states(1), {}, OURS, early.strays, now_s=60)
    assert [first.uninstall, early.uninstall] == [(), ()]
    assert [each.key for each in due.uninstall] == ["m0:1"]
    # One poll alone is not enough, however late it comes.
    assert plan_sweep(states(1), {}, OURS, {}, now_s=1000).uninstall == ()


def test_a_stray_that_finds_its_pod_again_begins_from_the_start() -> None:
    first = plan_sweep(states(1), {}, OURS, {}, now_s=0)
    owned = plan_sweep(states(1), {"m0:1": "ns/p"}, OURS, first.strays, now_s=30)
    assert owned.strays == {}
    assert plan_sweep(states(1), {}, OURS, owned.strays, now_s=61).uninstall == ()


def test_k42_k44_foreign_modules_are_told_and_a_flood_is_removed_ten_at_a_time() -> None:
    first = plan_sweep(states(501), {}, OURS, {}, now_s=0)
    due = plan_sweep(states(501), {}, OURS, first.strays, now_s=61)
    assert len(due.uninstall) == 10
    assert [each.key for each in due.foreign] == ["m500:1"]
    assert plan_sweep(states(501), {}, OURS, first.strays, now_s=61, budget=0).uninstall == ()


def test_a_key_is_forgotten_after_it_was_away_and_asked_for_by_nobody_without_a_break() -> None:
    since, gone = plan_forget(["a:1", "b:1"], {"b:1"}, {}, now_s=10)
    assert (since, gone) == ({"a:1": 10}, frozenset())
    # It was back for a moment: from the start.
    since, gone = plan_forget(["a:1", "b:1"], {"a:1", "b:1"}, since, now_s=20)
    assert (since, gone) == ({}, frozenset())
    since, _ = plan_forget(["a:1"], set(), since, now_s=30)
    assert plan_forget(["a:1"], set(), since, now_s=29 + FORGET_AGE_S)[1] == frozenset()
    assert plan_forget(["a:1"], set(), since, now_s=30 + FORGET_AGE_S) == ({}, frozenset({"a:1"}))


def node(name: str, *, ready: str = "True", env: str = "dev", cluster: str = "blue") -> Node:
    labels = {"base.koupleless.io/cluster-name": cluster, "virtual-kubelet.koupleless.io/env": env}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, Node)


def peer(
    replicas: int = 0, version: str = "1", created: str = "2026-01-01T00:00:00Z", **labels: str
) -> ModuleDeployment:
    whole = {
        "virtual-kubelet.koupleless.io/strategy": "peer",
        "virtual-kubelet.koupleless.io/env": "dev",
        "base.koupleless.io/cluster-name": "blue",
        **labels,
    }
    container = {"name": "cart", "image": "http://h/a.jar", "env": [{"name": "BIZ_VERSION", "value": version}]}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    metadata = {"name": f"d{version}", "labels": whole, "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "spec": spec}, ModuleDeployment)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], []),
        ([node("a"), node("b"), node("c")], [3]),
        ([node("a"), node("b"), node("c", ready="False")], [2]),
        ([node("a"), node("b", env="prod"), node("c", cluster="green")], [1]),
    ],
    ids=["none", "three", "one not ready", "others' bases"],
)
def test_k64_a_peer_follows_the_ready_bases_of_its_cluster(nodes: list[Node], expected: list[int]) -> None:
    assert [change.replicas for change in plan_replicas([peer()], nodes, "dev")] == expected


def test_k64_a_peer_may_opt_out() -> None:
    label = {"virtual-kubelet.koupleless.io/replicas-control": "true"}
    assert plan_replicas([peer(0, "1", "2026-01-01T00:00:00Z", **label)], [node("a")], "dev") == []


def test_k64_a_peer_of_another_environment_is_another_controllers() -> None:
    other = peer(3, **{"virtual-kubelet.koupleless.io/env": "prod"})
    known = in_environment([peer(), other], "dev")
    assert [change.replicas for change in plan_replicas(known, [node("a"), node("b", env="prod")], "dev")] == [1]


def test_k67_a_base_starts_with_one_version_of_each_module_the_youngest() -> None:
    old, new = peer(version="1"), peer(version="2", created="2026-02-01T00:00:00Z")
    modules = baseline([new, old], "blue", "dev")
    assert [module.key for module in modules] == ["cart:1", "cart:2"]
    assert [module.key for module in newest_versions(modules)] == ["cart:2"]
    assert [module.key for module in baseline_of([new, old], BaseMetadata("b", "shop", "1", "blue"), "dev")] == [
        "cart:2"
    ]


def test_k67_a_deployment_that_asks_for_other_bases_is_not_in_the_baseline() -> None:
    ours = msgspec.to_builtins(peer())
    ours["spec"]["template"]["spec"]["nodeSelector"] = {"base.koupleless.io/name": "shop"}
    chosen = [msgspec.convert(ours, ModuleDeployment)]
    assert len(baseline_of(chosen, BaseMetadata("b", "shop", "1", "blue"), "dev")) == 1
    assert baseline_of(chosen, BaseMetadata("b", "bank", "1", "blue"), "dev") == []


def test_k32_a_changed_image_is_uninstalled_first_and_a_removed_container_goes() -> None:
    def pod(*images: str) -> KubeletPod:
        containers: list[dict[str, Any]] = [
            {"name": f"c{number}", "image": image, "env": [{"name": "BIZ_VERSION", "value": "1"}]}
            for number, image in enumerate(images)
        ]
        return msgspec.convert({"metadata": {"name": "p"}, "spec": {"containers": containers}}, KubeletPod)

    commands = plan_update(pod("a", "b", "c"), pod("a", "x"))
    assert [(each.name, each.container, each.module.url) for each in commands] == [
        ("uninstallBiz", "c1", "b"),
        ("uninstallBiz", "c2", "c"),
        ("installBiz", "c1", "x"),
    ]
