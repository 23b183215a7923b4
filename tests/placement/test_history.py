"""Former worlds: whatever happened since, a kept decision is seen again as it was made, and made again the same."""

import hashlib
import os
import subprocess
import sys
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.cluster.mirror import Delta as Change
from fairlead.engine.cycle import Cycle
from fairlead.engine.dialect import parse_profile
from fairlead.engine.forecast import Forecast
from fairlead.engine.gang import Gangs
from fairlead.engine.load_basis import BASES
from fairlead.engine.occupant import Occupant, occupant_of
from fairlead.engine.pick import ROUND_ROBIN
from fairlead.engine.preemption import Preemption
from fairlead.engine.priorities.jobs.fragment import ExpectedPods
from fairlead.engine.profile import Profile, build, kube_profile, seed_profile
from fairlead.engine.statement import Statement
from fairlead.engine.unit import Member, Unit
from fairlead.model.node import Node
from fairlead.model.outcome import Placed
from fairlead.model.pod import SchedulerPod
from fairlead.model.volumes import CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass
from fairlead.model.workloads import Namespace, ReplicaSet, ReplicationController, Service, StatefulSet
from fairlead.placement.columns import sheet
from fairlead.placement.explanation import Sheet
from fairlead.placement.history import History
from fairlead.placement.replay import DecisionDocument, document_of, encode, read, replay
from fairlead.placement.snapshot import profile_document, profile_of
from fairlead.placement.state import State
from fairlead.testing.builders import a_node, a_pod, a_table
from tests.engine.test_volumes import claim, storage_class, user, volume
from tests.properties import worlds
from tests.properties.volume_twin import a_storage, mount

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CONTROLLERS = {"ReplicaSet": ReplicaSet, "StatefulSet": StatefulSet, "ReplicationController": ReplicationController}
PRIORITIES = (
    *("MostRequested", "ImageLocality", "NodeLoadForecast", "InterPodAffinity", "PodTopologySpread", "BinPack"),
    "MinFragment",
)
seeds = st.integers(min_value=0, max_value=2**32)


def some_profile(rng: Random) -> Profile:
    kube = kube_profile()
    names = [rule.name for rule in kube.predicates]
    weights = {name: rng.randint(1, 5) for name in PRIORITIES if worlds.some(rng, 0.6)}
    seed = seed_profile(load_basis=rng.choice(BASES))
    return rng.choice((kube, seed, kube_profile(pick=ROUND_ROBIN), build("mixed", names, weights, kube.args)))


class Story:
    """A cluster in which things happen at random, with a loop's habits: follow, decide, assume."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.state = State()
        self.history = self.state.history
        self.profile = some_profile(rng)
        self.cycle = Cycle(self.state.table, self.profile)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, SchedulerPod] = {}
        self.sheets: dict[int, Sheet] = {}
        self.count = 0
        world = worlds.a_world(rng)
        storage = a_storage(rng, world)
        around: list[Any] = [msgspec.convert(each, Namespace) for each in world["namespaces"]]
        around += [msgspec.convert(each, Service) for each in world["services"]]
        around += [msgspec.convert(each, CONTROLLERS[each["kind"]]) for each in worlds.controllers(rng)]
        around += [msgspec.convert(each, StorageClass) for each in storage["classes"]]
        around += [msgspec.convert(each, PersistentVolume) for each in storage["volumes"]]
        around += [msgspec.convert(each, PersistentVolumeClaim) for each in storage["claims"]]
        around += [msgspec.convert(each, CsiNode) for each in storage["csi_nodes"]]
        self.around = around
        self.state.related_objects([Change(each.metadata.key, None, each) for each in around])
        for document in world["nodes"]:
            self.set_node(document["metadata"]["name"])
        for document in world["pods"]:
            self.set_pod(document)

    def set_node(self, name: str) -> None:
        document = worlds.a_node(self.rng, name)
        worlds.equip(self.rng, document)
        for image in document["status"]["images"]:
            image["sizeBytes"] += self.rng.choice((0, 0, 50 * 2**20))
        node = msgspec.convert(document, Node)
        self.state.nodes([Change(name, self.nodes.get(name), node)])
        self.nodes[name] = node

    def set_pod(self, document: dict[str, Any]) -> None:
        worlds.dress(self.rng, document, placed=True)
        mount(self.rng, document, 0.3)
        document["spec"]["priority"] = self.rng.randint(0, 2)
        pod = msgspec.convert(document, SchedulerPod)
        self.see_pod(pod)

    def see_pod(self, pod: SchedulerPod) -> None:
        self.state.pods([Change(pod.key, self.pods.get(pod.key), pod)])
        self.pods[pod.key] = pod

    def happens(self) -> None:
        rng = self.rng
        match rng.randint(0, 9):
            case 0:
                self.set_node(f"node-{rng.randint(0, 7)}")
            case 1 if self.nodes:
                name = rng.choice(sorted(self.nodes))
                self.state.nodes([Change(name, self.nodes.pop(name), None)])
            case 2:
                self.count += 1
                document = worlds.a_pod(rng, f"x{self.count}")
                document["spec"]["nodeName"] = f"node-{rng.randint(0, 7)}"
                self.set_pod(document)
            case 3 if self.pods:
                key = rng.choice(sorted(self.pods))
                self.state.pods([Change(key, self.pods.pop(key), None)])
            case 4 if self.pods:
                self.see_pod(self.later(self.pods[rng.choice(sorted(self.pods))]))
            case 5:
                thing = rng.choice(self.around)
                gone = rng.choice((None, thing))
                self.state.related_objects([Change(thing.metadata.key, thing, gone)])
            case 6:
                world = {"nodes": [{"metadata": {"name": name}} for name in self.nodes]}
                forecast = msgspec.convert(worlds.forecast(rng, world), Forecast)
                self.state.table.catalog.set_forecast(forecast)
            case 7:
                self.reservation()
            case _:
                self.decide()

    def later(self, pod: SchedulerPod) -> SchedulerPod:
        """The same pod as the cluster shows it later: started, or on its way out for another."""
        status = msgspec.structs.replace(pod.status, start_time=f"2026-01-01T00:00:{self.rng.randint(10, 59)}Z")
        if worlds.some(self.rng, 0.3):
            metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:01:00Z")
            return msgspec.structs.replace(pod, metadata=metadata, status=status)
        return msgspec.structs.replace(pod, status=status)

    def reservation(self) -> None:
        """Somebody plans on the table: a place is held, others are tried and given back."""
        table = self.state.table
        self.count += 1
        pod = a_pod(f"planned-{self.count}", cpu="1")
        statement = Statement(table)
        for node in sorted(self.nodes):
            statement.place(self.occupant(pod, node))
            if worlds.some(self.rng, 0.2):
                statement.commit()
                return
            statement.rollback()

    def occupant(self, pod: SchedulerPod, node: str) -> Occupant:
        return occupant_of(pod, self.state.table.request(pod), node)

    def decide(self) -> None:
        rng = self.rng
        self.count += 1
        document = worlds.a_pod(rng, f"p{self.count}", fancy=0.3)
        worlds.dress(rng, document, placed=False)
        mount(rng, document, 0.3)
        document["spec"]["priority"] = rng.randint(0, 2)
        document["spec"].pop("nodeName", None)
        pod = msgspec.convert(document, SchedulerPod)
        first = f"node-{rng.randint(0, 7)}" if worlds.some(rng, 0.2) else ""
        nominated = self.nominated()
        position, turn = self.history.mark(), self.cycle.pick.counter
        before = sheet(self.cycle, pod, nominated)
        outcome = self.cycle.decide(pod, nominated=nominated, first=first)
        plan = None
        if not isinstance(outcome, Placed):
            plan = Preemption(self.state.table, self.profile).plan(pod, nominated)
        self.history.decided(
            position, NOW, self.profile, pod, outcome, nominated=nominated, first=first, plan=plan, turn=turn
        )
        self.sheets[next(iter(self.history)).number] = before
        if isinstance(outcome, Placed):
            if worlds.some(rng, 0.6):
                spec = msgspec.structs.replace(pod.spec, node_name=outcome.node)
                self.see_pod(msgspec.structs.replace(pod, spec=spec))
            elif worlds.some(rng, 0.3):
                self.state.table.remove_pod(pod.uid)  # its binding came to nothing

    def nominated(self) -> tuple[SchedulerPod, ...]:
        if worlds.some(self.rng, 0.7):
            return ()
        document = worlds.a_pod(self.rng, "nominated")
        document["spec"]["priority"] = self.rng.randint(0, 2)
        document["status"]["nominatedNodeName"] = f"node-{self.rng.randint(0, 7)}"
        return (msgspec.convert(document, SchedulerPod),)


def raw(history: History, number: int) -> bytes:
    """The document as GET /decisions/ID answers it."""
    decision = history.get(number)
    assert decision is not None
    return encode(document_of(decision, history.snapshot(decision), str(number)))


def written(history: History, number: int) -> DecisionDocument:
    """The document as it comes out of a file."""
    return read(raw(history, number))


@given(seeds)
@settings(max_examples=150, deadline=None)
def test_every_kept_decision_is_made_again_the_same(seed: int) -> None:
    story = Story(Random(seed))
    for _ in range(25):
        story.happens()
    assert len(story.history) == len(story.sheets)
    for number, seen in story.sheets.items():
        document = written(story.history, number)
        assert document.sheet == seen, "the world that was rebuilt is not the one that was decided on"
        assert replay(document) == []


@given(seeds)
@settings(max_examples=40, deadline=None)
def test_a_history_that_is_too_short_forgets_whole_decisions_and_keeps_the_others_right(seed: int) -> None:
    story = Story(Random(seed))
    story.history = story.state.history = History(story.state.table, most_decisions=3, most_changes=12)
    story.state.related_objects([Change(each.metadata.key, None, each) for each in story.around])
    for _ in range(25):
        story.happens()
    assert len(story.history) <= 3
    for decision in story.history:
        assert written(story.history, decision.number).sheet == story.sheets[decision.number]
        assert replay(written(story.history, decision.number)) == []
        assert any(story.history.latest(pod.uid) is not None for pod in decision.pods)


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_the_bytes_of_a_decision_stay_the_same_whatever_happens_later(seed: int) -> None:
    story = Story(Random(seed))
    first: dict[int, bytes] = {}
    for _ in range(20):
        story.happens()
        first.update(
            (each.number, raw(story.history, each.number)) for each in story.history if each.number not in first
        )
    for number, text in first.items():
        assert raw(story.history, number) == text
        assert encode(read(text)) == text, "what is read is written again byte for byte"


def digest_of_decisions(count: int) -> str:
    """Of the bytes of decisions about pods and about gangs under MinFragment, refused ones among them."""
    story = Story(Random(7))
    while len(story.history) < count:
        story.happens()
    story.cycle = Cycle(story.state.table, msgspec.structs.replace(story.profile, args=ODD_ARGS))
    for number in range(count):
        gang = tuple(
            Member(a_pod(f"g{number}-{i}", cpu="1", requests={"nvidia.com/gpu": "1"})) for i in range(1 + number)
        )
        unit = Unit(f"g{number}", gang, policies={"": "MinFragment"})
        position, statement = story.history.mark(), Statement(story.state.table)
        outcome = Gangs(story.cycle).decide(unit, statement)
        statement.commit()
        story.history.decided_unit(position, NOW, story.cycle.profile, unit, outcome)
    texts = [raw(story.history, each.number) for each in story.history]
    assert any(b'"wakeup_events":[' in text for text in texts)
    assert [difference for text in texts for difference in replay(read(text))] == []
    return hashlib.sha256(b"\n".join(texts)).hexdigest()


# Sets of several texts, whose order is another in every process.
ODD_ARGS = msgspec.structs.replace(
    kube_profile().args,
    ignored_resources=frozenset(f"example.com/{name}" for name in ("a", "b", "c", "d")),
    ignored_groups=frozenset(f"{name}.example.com" for name in ("a", "b", "c", "d")),
)


def test_every_process_decides_again_and_writes_the_same_bytes() -> None:
    code = "from tests.placement.test_history import digest_of_decisions; print(digest_of_decisions(12))"
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": other}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stdout.split()[-1] == digest_of_decisions(12)


class Told:
    """A cluster told step by step, and decisions about it."""

    def __init__(self, *things: Any) -> None:
        self.state = State()
        self.cycle = Cycle(self.state.table, kube_profile())
        self.seen: dict[str, SchedulerPod] = {}
        for thing in things:
            if isinstance(thing, Node):
                self.state.nodes([Change(thing.name, None, thing)])
            elif isinstance(thing, SchedulerPod):
                self.see(thing)
            else:
                self.state.related_objects([Change(thing.metadata.key, None, thing)])

    def see(self, pod: SchedulerPod) -> None:
        self.state.pods([Change(pod.key, self.seen.get(pod.key), pod)])
        self.seen[pod.key] = pod

    def decide(self, pod: SchedulerPod) -> DecisionDocument:
        history = self.state.history
        position, turn = history.mark(), self.cycle.pick.counter
        outcome = self.cycle.decide(pod)
        plan = None
        if not isinstance(outcome, Placed):
            plan = Preemption(self.state.table, self.cycle.profile).plan(pod)
        history.decided(position, NOW, self.cycle.profile, pod, outcome, plan=plan, turn=turn)
        return written(history, next(iter(history)).number)


def test_when_pods_started_is_part_of_the_world_though_no_journal_tells() -> None:
    """Of two nodes that cost the same, the one is cleared whose pod started later."""

    def victim(node: str, second: int) -> SchedulerPod:
        return a_pod(f"on-{node}", cpu="8", node=node, priority=0, status={"startTime": f"2026-01-01T00:00:{second}Z"})

    told = Told(a_node("n1"), a_node("n2"), victim("n1", 10), victim("n2", 20))
    first = told.decide(a_pod("vip", cpu="8", priority=9))
    told.state.history.mark()  # what was tried for the first is behind us
    told.see(victim("n1", 30))
    second = told.decide(a_pod("vip-2", cpu="8", priority=9))
    cleared = [document.result.evicting and document.result.evicting.node for document in (first, second)]
    assert cleared == ["n2", "n1"]
    assert replay(first) == replay(second) == replay(written(told.state.history, 1)) == []


def test_which_device_a_share_is_on_is_part_of_the_world() -> None:
    def share(name: str, milli: int) -> SchedulerPod:
        return a_pod(name, annotations={"fairlead.io/gpu-milli": str(milli)})

    told = Told(a_node("n1", nvidia__com_gpu=2))
    assert told.decide(share("a", 600)).result.places[0].devices == (0,)
    assert told.decide(share("b", 600)).result.places[0].devices == (1,)
    told.state.table.remove_pod("uid-default-a")
    assert told.decide(share("c", 300)).result.places[0].devices == (1,), "the tighter one"
    last = told.decide(share("d", 500))
    assert last.result.places[0].devices == (0,)
    assert replay(last) == []


def test_volumes_promised_to_pods_that_are_not_bound_yet_are_part_of_the_world() -> None:
    stored = (storage_class("kubernetes.io/no-provisioner"), claim("one"), claim("two"), volume("v", "n1"))
    told = Told(*stored, a_node("n1"))
    assert told.decide(user("p1", "one")).result.places[0].volumes[0].volume == "v"
    refused = told.decide(user("p2", "two"))
    assert refused.result.diagnosis is not None
    assert replay(refused) == []


def test_the_first_size_heard_of_an_image_is_part_of_the_world() -> None:
    small, large = {"app:1": 100 * 2**20}, {"app:1": 900 * 2**20}
    told = Told(a_node("n1", images=small), a_node("n2", images=large))
    told.state.nodes([Change("n1", a_node("n1", images=small), None)])
    told.state.nodes([Change("n3", None, a_node("n3"))])
    document = told.decide(a_pod(image="app:1"))
    assert document.snapshot.image_sizes == {"app:1": 100 * 2**20}
    assert replay(document) == []


def test_whoever_decides_nothing_does_not_remember_every_pod_it_ever_heard_of() -> None:
    state = State()
    state.history = History(state.table, most_changes=10)
    state.nodes([Change("n1", None, a_node("n1"))])
    for number in range(100):
        pod = a_pod(f"p{number}", node="n1")
        state.pods([Change(pod.key, None, pod)])
        state.pods([Change(pod.key, pod, None)])
        assert len(state.history._touched) < 10
        assert len(state.history._log) <= 10
    assert state.history.present([a_pod("x")]).document().pods == ()


def test_a_unit_is_decided_again_the_same() -> None:
    table = a_table([a_node(f"n{i}", cpu="2") for i in range(3)])
    history, cycle = History(table), Cycle(table, kube_profile())
    for size in (4, 9):
        unit = Unit(f"u{size}", tuple(Member(a_pod(f"u{size}-{i}", cpu="700m")) for i in range(size)))
        position = history.mark()
        statement = Statement(table)
        outcome = Gangs(cycle).decide(unit, statement)
        statement.commit()
        history.decided_unit(position, NOW, cycle.profile, unit, outcome)
    placed, refused = written(history, 1), written(history, 2)
    assert len(placed.result.places) == 4
    assert refused.result.failed
    assert replay(placed) == replay(refused) == []
    found = history.find("default/u4-0")
    assert found is not None
    assert found.number == 1


@pytest.mark.parametrize("expected", [(), (ExpectedPods(3, 1000, 128, 1), ExpectedPods(1, 100, 128, 2))])
def test_min_fragment_decides_again_the_same_whatever_came_before(expected: tuple[ExpectedPods, ...]) -> None:
    table = a_table([a_node(f"n{i}", cpu="64", nvidia__com_gpu=4) for i in range(4)])
    kube = kube_profile()
    names = [rule.name for rule in kube.predicates]
    args = msgspec.structs.replace(kube.args, expected=expected)
    history, cycle = History(table), Cycle(table, build("packed", names, {"MinFragment": 1}, args))
    rng = Random(5)
    gangs = Gangs(cycle)
    for number in range(60):
        milli = rng.choice((200, 300, 500, 700))
        pod = a_pod(f"p{number}", cpu=rng.choice(("100m", "1", "3")), annotations={"fairlead.io/gpu-milli": str(milli)})
        position = history.mark()
        if number % 10 == 9:
            unit = Unit(f"u{number}", (Member(pod),), policies={"": "MinFragment"})
            statement = Statement(table)
            outcome = gangs.decide(unit, statement)
            statement.commit()
            history.decided_unit(position, NOW, cycle.profile, unit, outcome)
        else:
            history.decided(position, NOW, cycle.profile, pod, cycle.decide(pod))
        if rng.random() < 0.3:
            table.remove_pod(rng.choice(sorted(table.occupants)))
    assert {difference for number in range(1, 61) for difference in replay(written(history, number))} == set()


def a_decision() -> DecisionDocument:
    table = a_table([a_node("n1"), a_node("n2", cpu="4")])
    history, cycle, pod = History(table), Cycle(table, kube_profile()), a_pod("p")
    position = history.mark()
    history.decided(position, NOW, cycle.profile, pod, cycle.decide(pod))
    return written(history, 1)


def test_a_replay_tells_what_came_out_differently() -> None:
    document = a_decision()
    assert document.sheet is not None
    scores = dict(document.sheet.raw, NodeResourcesFit=(1, 2))
    (place,) = document.result.places
    wrong = msgspec.structs.replace(
        document,
        result=msgspec.structs.replace(document.result, places=(msgspec.structs.replace(place, node="n2"),)),
        sheet=msgspec.structs.replace(document.sheet, raw=scores),
    )
    told = replay(wrong)
    assert told[0] == 'result.places[0].node: was "n2", now "n1"'
    assert told[1].startswith("sheet.raw.NodeResourcesFit[0]: was 1, now ")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param({"kind": "Pod"}, "must be fairlead.io/v1alpha1 Decision", id="another kind"),
        pytest.param({"pod": None}, "neither a pod nor a unit", id="about nobody"),
        pytest.param({"snapshot": {"nodes": 3}}, "Expected `array`", id="no snapshot"),
    ],
)
def test_what_is_no_decision_is_told(change: dict[str, Any], complaint: str) -> None:
    document = msgspec.to_builtins(a_decision(), enc_hook=str)
    with pytest.raises(ValueError, match=complaint):
        read(msgspec.json.encode({**document, **change}))


def test_profiles_survive_as_documents() -> None:
    config = {
        "plugins": {"score": {"enabled": [{"name": "MostRequested", "weight": 3}, {"name": "LeastRequested"}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/x"]}}],
    }
    for profile in (kube_profile(), seed_profile(), parse_profile(config)):
        document = profile_document(profile)
        again = profile_of(msgspec.json.decode(msgspec.json.encode(document), type=type(document)))
        assert [rule.name for rule in again.predicates] == [rule.name for rule in profile.predicates]
        assert [(rule.name, weight) for rule, weight in again.priorities] == [
            (rule.name, weight) for rule, weight in profile.priorities
        ]
        assert again.args == profile.args


def test_a_turn_is_part_of_the_decision() -> None:
    """Equal nodes, taken in turn: made again from its document, each decision has its own turn."""
    told = Told(*(a_node(name) for name in ("a", "b", "c")))
    told.cycle = Cycle(told.state.table, kube_profile(pick=ROUND_ROBIN))
    idle = {"cpu": None, "memory": None, "requests": {"cpu": "0", "memory": "0"}}
    documents = [told.decide(a_pod(f"p{number}", **idle)) for number in range(4)]  # type: ignore[arg-type]
    assert [document.result.places[0].node for document in documents] == ["a", "b", "c", "a"]
    assert [document.turn for document in documents] == [0, 1, 2, 3]
    assert [replay(document) for document in documents] == [[]] * 4
    other = msgspec.structs.replace(documents[1], turn=2)
    assert replay(other) == ['result.places[0].node: was "b", now "c"']
