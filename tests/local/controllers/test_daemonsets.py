"""Where daemons run, and how they are replaced."""

import json
from typing import Any

import msgspec
import pytest

from fairlead.local.controllers.daemonsets import DaemonSetInput, Placing, fits, plan_daemon_set, target_node
from fairlead.local.controllers.revisions import HASH, plan_revision, revision_data
from fairlead.local.controllers.spec import DAEMON_SETS, ControllerPod, ControllerRevision, DaemonSet, Node
from fairlead.model.intents import Create, Intent
from tests.local.controllers.builders import (
    APP,
    NOW,
    SELECTOR,
    ago,
    bodies,
    decoded,
    metadata,
    node,
    patches,
    pod,
    said,
    status_of,
    template,
    workload,
)


def daemons(**spec: Any) -> DaemonSet:
    return workload(DaemonSet, **spec)


def revision(owner: DaemonSet, number: int = 1, image: str = "one") -> ControllerRevision:
    """As the controller would have made it."""
    data = revision_data(template(image))
    spec = msgspec.structs.replace(owner.spec, template=template(image))
    made = plan_revision(DAEMON_SETS, msgspec.structs.replace(owner, spec=spec), [], ())
    (create,) = made.intents
    assert isinstance(create, Create)
    meta = {**metadata(made.name), **create.body["metadata"], "uid": made.name}
    return decoded(ControllerRevision, {"metadata": meta, "data": data, "revision": number})


def daemon(name: str, owner: DaemonSet, on: str, *, image: str = "one", **more: Any) -> ControllerPod:
    hashed = revision(owner, image=image).metadata.labels[HASH]
    return pod(name, owner, node=on, labels={**APP, HASH: hashed}, **more)


def plan(
    owner: DaemonSet, nodes: list[Node], *pods: ControllerPod, revisions: list[ControllerRevision] | None = None
) -> list[Intent]:
    held = [revision(owner)] if revisions is None else revisions
    return plan_daemon_set(DaemonSetInput(owner, SELECTOR, tuple(nodes), pods, tuple(held)), NOW)


def taint(key: str, effect: str) -> dict[str, str]:
    return {"key": key, "effect": effect}


@pytest.mark.parametrize(
    ("spec", "of_node", "wanted"),
    [
        pytest.param({}, {}, (True, True), id="any node"),
        pytest.param({}, {"taints": [taint("x", "NoSchedule")]}, (False, True), id="may stay, may not come"),
        pytest.param({}, {"taints": [taint("x", "NoExecute")]}, (False, False), id="may not even stay"),
        pytest.param({}, {"taints": [taint("x", "PreferNoSchedule")]}, (True, True), id="would rather not"),
        pytest.param(
            {"tolerations": [{"operator": "Exists"}]},
            {"taints": [taint("x", "NoExecute")]},
            (True, True),
            id="bears all",
        ),
        pytest.param(
            {}, {"taints": [taint("node.kubernetes.io/unreachable", "NoExecute")]}, (True, True), id="unreachable"
        ),
        pytest.param({}, {"unschedulable": True}, (True, True), id="cordoned"),
        pytest.param({"nodeSelector": {"a": "b"}}, {}, (False, False), id="label missing"),
        pytest.param({"nodeSelector": {"a": "b"}}, {"labels": {"a": "b"}}, (True, True), id="label there"),
        pytest.param({"nodeName": "other"}, {}, (False, False), id="meant for another"),
    ],
)
def test_where_a_daemon_may_be(spec: dict[str, Any], of_node: dict[str, Any], wanted: tuple[bool, bool]) -> None:
    assert fits(msgspec.convert(spec, Placing), node("n1", **of_node)) == wanted


@pytest.mark.parametrize(
    ("terms", "wanted"),
    [
        ([{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}], True),
        ([{"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}], False),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}], True),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}, {}], False),
        ([{"matchExpressions": [{"key": "a", "operator": "Sideways"}]}], False),
    ],
)
def test_affinity_is_asked_of_the_node(terms: list[Any], wanted: bool) -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    placing = msgspec.convert({"affinity": affinity}, Placing)
    assert fits(placing, node("n1", labels={"a": "b"}))[0] is wanted


def test_a_daemon_is_made_for_its_node_and_bears_what_daemons_bear() -> None:
    owner = daemons()
    intents = plan(owner, [node("n1"), node("n2")], daemon("a", owner, "n1"))
    assert said(intents) == ["create Pod", "status web"]
    (body,) = bodies(intents)
    assert (
        target_node(
            decoded(ControllerPod, {"metadata": body["metadata"], "spec": {"affinity": body["spec"]["affinity"]}})
        )
        == "n2"
    )
    assert {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"} in body["spec"][
        "tolerations"
    ]
    assert body["metadata"]["labels"][HASH] == revision(owner).metadata.labels[HASH]


def test_daemons_go_from_nodes_they_may_not_stay_on_and_from_nodes_that_are_gone() -> None:
    owner = daemons()
    out = node("n1", taints=[taint("x", "NoExecute")])
    assert said(plan(owner, [out], daemon("a", owner, "n1"), daemon("b", owner, "n9"))) == [
        "delete a",
        "delete b",
        "status web",
    ]


def test_of_two_on_a_node_the_younger_goes() -> None:
    owner = daemons()
    old, young = daemon("old", owner, "n1"), daemon("young", owner, "n1", creationTimestamp=ago(5))
    assert said(plan(owner, [node("n1")], young, old)) == ["delete young", "status web"]


def test_an_ended_daemon_is_replaced_after_a_rest() -> None:
    owner = daemons()
    assert "delete a" in said(plan(owner, [node("n1")], daemon("a", owner, "n1", phase="Failed")))
    young = daemon("a", owner, "n1", phase="Failed", creationTimestamp=ago(2))
    assert said(plan(owner, [node("n1")], young)) == ["status web", "wake 3"]


def test_a_changed_template_is_written_down_and_rolled_out_node_by_node() -> None:
    owner = daemons(template=template("two"))
    held = [revision(owner, image="one")]
    pods = [daemon(name, owner, name, image="one") for name in ("n1", "n2", "n3")]
    intents = plan(owner, [node(name) for name in ("n1", "n2", "n3")], *pods, revisions=held)
    assert said(intents) == ["create ControllerRevision", "delete n1", "status web"]
    (made,) = bodies(intents)
    assert (made["revision"], made["data"]) == (2, revision_data(template("two")))


@pytest.mark.parametrize(
    ("states", "unavailable", "deleted"),
    [
        # one letter a node: old and good, old and bad, new and good, new and bad
        pytest.param("oooo", 1, 1, id="one at a time"),
        pytest.param("oooo", "50%", 2, id="by share"),
        pytest.param("nooo", 1, 1, id="the new one is good: on"),
        pytest.param("Nooo", 1, 0, id="the new one is bad: wait"),
        pytest.param("Oooo", 1, 1, id="a bad old one goes, and is all"),
        pytest.param("OOoo", 1, 2, id="bad old ones cost nothing"),
    ],
)
def test_how_many_are_replaced_at_once(states: str, unavailable: int | str, deleted: int) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": 0}}
    owner = daemons(template=template("two"), updateStrategy=strategy)
    pods = [
        daemon(f"n{number}", owner, f"n{number}", image="two" if state in "nN" else "one", ready=state.islower())
        for number, state in enumerate(states)
    ]
    nodes = [node(f"n{number}") for number in range(len(states))]
    intents = plan(owner, nodes, *pods, revisions=[revision(owner, 2, "two"), revision(owner, 1, "one")])
    gone = [text for text in said(intents) if text.startswith("delete")]
    assert len(gone) == deleted
    assert not any(states[int(text.removeprefix("delete n"))] in "nN" for text in gone)


def test_a_surging_update_makes_the_new_one_first() -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    owner = daemons(template=template("two"), updateStrategy=strategy)
    held = [revision(owner, 2, "two"), revision(owner, 1, "one")]
    nodes = [node("n1"), node("n2")]
    olds = [daemon("old1", owner, "n1", image="one"), daemon("old2", owner, "n2", image="one")]
    assert said(plan(owner, nodes, *olds, revisions=held))[0] == "create Pod"
    rising = daemon("new1", owner, "n1", image="two", ready=False)
    assert said(plan(owner, nodes, *olds, rising, revisions=held)) == ["status web"]
    risen = daemon("new1", owner, "n1", image="two")
    assert said(plan(owner, nodes, *olds, risen, revisions=held)) == ["delete old1", "status web"]


def test_on_delete_leaves_the_old_ones() -> None:
    owner = daemons(template=template("two"), updateStrategy={"type": "OnDelete"})
    held = [revision(owner, 2, "two"), revision(owner, 1, "one")]
    assert said(plan(owner, [node("n1")], daemon("a", owner, "n1", image="one"), revisions=held)) == ["status web"]


def test_a_revision_that_is_gone_back_to_comes_first_again() -> None:
    owner = daemons()
    old, newer = revision(owner, 1, "one"), revision(owner, 2, "two")
    intents = plan(owner, [], revisions=[old, newer])
    assert patches(intents)[old.metadata.name] == {"revision": 3}


def test_a_revision_is_in_order_however_its_template_is_written() -> None:
    written = {"spec": {"z": [{"b": 1, "a": 2}], "a": {}}, "metadata": {"labels": {"b": "1", "a": "2"}}}
    data = msgspec.json.encode(revision_data(written)).decode()
    assert data == json.dumps(revision_data(written), sort_keys=True, separators=(",", ":"))
    assert data.startswith('{"spec":{"template":{"$patch":"replace","metadata"')


def test_only_as_many_revisions_are_kept_as_asked_for() -> None:
    owner = daemons(revisionHistoryLimit=1)
    held = [revision(owner, number, f"i{number}") for number in (1, 2, 3)] + [revision(owner, 4, "one")]
    gone = [text for text in said(plan(owner, [], revisions=held)) if text.startswith("delete")]
    assert gone == [f"delete {found.metadata.name}" for found in held[:2]]


def test_the_status_counts_nodes() -> None:
    owner = daemons()
    nodes = [node("n1"), node("n2"), node("n3", taints=[taint("x", "NoSchedule")])]
    pods = [daemon("a", owner, "n1"), daemon("b", owner, "n2", ready=False), daemon("c", owner, "n3")]
    assert status_of(plan(owner, nodes, *pods)) == {
        "desiredNumberScheduled": 2,
        "currentNumberScheduled": 2,
        "numberMisscheduled": 1,
        "numberReady": 1,
        "updatedNumberScheduled": 2,
        "numberAvailable": 1,
        "numberUnavailable": 1,
        "observedGeneration": 1,
    }
