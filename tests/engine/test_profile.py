"""Profiles in Kubernetes' own dialect."""

from typing import Any

import pytest

from fairlead.engine.args import PluginArgs
from fairlead.engine.dialect import parse_configuration, parse_profile
from fairlead.engine.priorities.jobs.fragment import ExpectedPods
from fairlead.engine.priorities.node_resources_fit import MOST_ALLOCATED
from fairlead.engine.profile import (
    Conditions,
    Profile,
    ProfileError,
    build,
    job_profile,
    kube_profile,
    seed_profile,
)
from fairlead.engine.registry import KUBE_PREDICATES, PREDICATE_ALIASES, PREDICATES, PRIORITIES, PRIORITY_ALIASES


def weights(profile: Profile) -> dict[str, int]:
    return {rule.name: weight for rule, weight in profile.priorities}


def names(profile: Profile) -> list[str]:
    return [rule.name for rule in profile.predicates]


def test_nothing_said_is_kubernetes_default() -> None:
    profiles = parse_configuration({})
    assert list(profiles) == ["default-scheduler"]
    profile = profiles["default-scheduler"]
    assert names(profile) == list(KUBE_PREDICATES)
    assert (
        weights(profile)
        == weights(kube_profile())
        == {
            "TaintToleration": 3,
            "NodeAffinity": 2,
            "NodeResourcesFit": 1,
            "PodTopologySpread": 2,
            "InterPodAffinity": 2,
            "NodeResourcesBalancedAllocation": 1,
            "ImageLocality": 1,
        }
    )


def test_a_point_beats_multi_point() -> None:
    profile = parse_profile(
        {
            "schedulerName": "mine",
            "plugins": {
                "multiPoint": {
                    "enabled": [{"name": "ImageLocality", "weight": 7}],
                    "disabled": [{"name": "NodePorts"}],
                },
                "score": {"enabled": [{"name": "ImageLocality", "weight": 4}], "disabled": [{"name": "NodeAffinity"}]},
            },
        }
    )
    assert profile.name == "mine"
    assert "NodePorts" not in names(profile)
    assert "NodeAffinity" in names(profile)
    assert weights(profile)["ImageLocality"] == 4
    assert "NodeAffinity" not in weights(profile)


def test_a_star_turns_all_off_and_names_turn_some_on() -> None:
    plugins = {
        "score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]},
        "filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "PodFitsResources"}, {"name": "NodeName"}]},
    }
    profile = parse_profile({"plugins": plugins})
    # In Kubernetes' order, whatever the order they are named in; no weight means one.
    assert (names(profile), weights(profile)) == (["NodeName", "NodeResourcesFit"], {"NodeResourcesFit": 1})


def test_arguments_reach_the_rules() -> None:
    strategy = {"type": MOST_ALLOCATED, "resources": [{"name": "cpu", "weight": 3}]}
    profile = parse_profile(
        {
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {"scoringStrategy": strategy, "ignoredResources": ["example.com/x"]},
                },
                {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 40}},
                {"name": "DefaultPreemption", "args": {"minCandidateNodesAbsolute": 5}},
                {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 10}},
            ]
        }
    )
    assert profile.args.strategy.type == MOST_ALLOCATED
    assert profile.args.strategy.resources == (("cpu", 3),)
    assert profile.args.ignored_resources == {"example.com/x"}
    assert profile.args.affinity.hard_weight == 40
    assert profile.args.preemption.least_absolute == 5
    assert profile.args.bind_timeout_s == 10


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"kind": "Pod"}, "kind: must be KubeSchedulerConfiguration"),
        ({"apiVersion": "v1beta1"}, "apiVersion: must be kubescheduler.config.k8s.io/v1"),
        ({"profiles": [{"plugins": {"scoer": {}}}]}, "profiles[0].plugins.scoer: no such extension point"),
        (
            {"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
            "profiles[1].schedulerName: 'a' is there twice",
        ),
        ({"profiles": [{"schedulerName": "a"}, {}]}, "profiles[1].schedulerName: must be set, since there are several"),
        ({"nope": 1}, "Object contains unknown field `nope`"),
        ({"extenders": [{"urlPrefix": "http://x"}]}, "extenders: Fairlead calls none"),
        ({"parallelism": 0}, "parallelism: must be more than zero, not 0"),
        ({"percentageOfNodesToScore": "all"}, "percentageOfNodesToScore: Expected `int | null`, got `str`"),
        (
            {"profiles": [{"plugins": {"reserve": {"enabled": [{"name": "Nope"}]}}}]},
            "profiles[0].plugins.reserve.enabled[0].name: no plugin is called 'Nope'",
        ),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "Nope"}]}}}]},
            "profiles[0].plugins.score.enabled[0].name: no plugin is called 'Nope'",
        ),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "NodeName"}]}}}]},
            "profiles[0].plugins.score.enabled[0].name: NodeName is not a plugin of score",
        ),
        (
            {"profiles": [{"plugins": {"score": {"enabled": [{"name": "ImageLocality", "weight": -1}]}}}]},
            "profiles[0].plugins.score.enabled[0].weight: must be 0 to 2147483647, not -1",
        ),
        (
            {
                "profiles": [
                    {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Best"}}}]}
                ]
            },
            "profiles[0].pluginConfig[0].args.scoringStrategy.type: no strategy is called 'Best'",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResource": []}}]}]},
            "profiles[0].pluginConfig[0].args: Object contains unknown field `ignoredResource`",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 101}}]}]},
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: must be 0 to 100",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": "x"}}]}]},
            "profiles[0].pluginConfig[0].args.hardPodAffinityWeight: Expected `int`",
        ),
        (
            {"profiles": [{"pluginConfig": [{"name": "PodTopologySpread", "args": {"defaultConstraints": [{}]}}]}]},
            "profiles[0].pluginConfig[0].args.defaultConstraints: only with defaultingType List",
        ),
        ({"profiles": [{"pluginConfig": [{"name": "Nope"}]}]}, "profiles[0].pluginConfig[0].name: no plugin called"),
    ],
)
def test_what_is_wrong_is_told_by_its_key(document: dict[str, Any], said: str) -> None:
    with pytest.raises(ProfileError) as error:
        parse_configuration(document)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ([{"pods": 0}], "[0].pods: must be 1 to 1000000, not 0"),
        ([{}, {"gpus": -1}], "[1].gpus: must be 0 to 256, not -1"),
        ([{"gpus": 1, "gpuMilli": 1001}], "[0].gpuMilli: must be 1 to 1000, not 1001"),
        ([{"cpu": "many"}], "[0].cpu: must be a quantity, not 'many'"),
        ([{"memory": "-1Gi"}], "[0].memory: must be an amount that a node could have, not '-1Gi'"),
        ([{"memory": "1e18"}], "[0].memory: must be an amount that a node could have, not '1e18'"),
        ([{"gpu": 1}], "[0]: Object contains unknown field `gpu`"),
    ],
)
def test_what_is_wrong_with_expected_pods_is_told(expected: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ProfileError) as error:
        parse_profile({"pluginConfig": [{"name": "MinFragment", "args": {"expected": expected}}]})
    assert str(error.value) == f"profile.pluginConfig[0].args.expected{said}"


def test_expected_pods_are_read_in_the_units_of_the_engine() -> None:
    expected = [{"pods": 3, "cpu": "1500m", "memory": "1G", "gpus": 1, "gpuMilli": 250, "gpuModels": ["T4"]}, {}]
    profile = parse_profile({"pluginConfig": [{"name": "MinFragment", "args": {"expected": expected}}]})
    assert profile.args.expected == (ExpectedPods(3, 1500, 954, 1, 250, ("T4",)), ExpectedPods())


def test_where_health_is_read_from() -> None:
    assert names(kube_profile(conditions=Conditions.BOTH))[:4] == [
        "CheckNodeCondition",
        "CheckNodeMemoryPressure",
        "CheckNodePIDPressure",
        "CheckNodeDiskPressure",
    ]
    assert "NodeUnschedulable" not in names(kube_profile(conditions=Conditions.CONDITIONS))
    assert "CheckNodeCondition" in names(seed_profile())


def test_every_alias_names_a_rule() -> None:
    assert set(PREDICATE_ALIASES.values()) <= set(PREDICATES)
    assert set(PRIORITY_ALIASES.values()) <= set(PRIORITIES)
    assert not set(PREDICATE_ALIASES) & set(PREDICATES)
    assert not set(PRIORITY_ALIASES) & set(PRIORITIES)


def test_every_name_that_the_seed_uses_can_be_configured() -> None:
    filters = (
        *("CheckNodeCondition", "PodFitsResources", "PodFitsHostPorts", "PodMatchNodeSelector", "PodSelectorMatches"),
        *("PodToleratesNodeTaints", "CheckVolumeBinding", "CheckNodeMemoryPressure", "CheckNodePIDPressure"),
        *("CheckNodeDiskPressure", "MatchInterPodAffinity", "PodFitsHost", "NoDiskConflict", "NoVolumeZoneConflict"),
    )
    scores = (
        *("RequestedPriority", "LeastRequestedPriority", "BalancedResourceAllocation", "InterPodAffinityPriority"),
        *("SelectorSpreadPriority", "NodeAffinityPriority", "NodePreferAvoidPodsPriority", "TaintTolerationPriority"),
        *("ImageLocalityPriority", "NodeLoadForecastPriority"),
    )
    for point, names in (("filter", filters), ("score", scores)):
        for name in names:
            only = {"disabled": [{"name": "*"}], "enabled": [{"name": name}]}
            profile = parse_profile({"plugins": {point: only}})
            found = profile.predicates if point == "filter" else profile.priorities
            assert len(found) == 1, name


def test_every_rule_is_called_by_its_key() -> None:
    """Scores are told by name: two of one name would be told as one."""
    args = PluginArgs()
    assert {key: make(args).name for key, make in PREDICATES.items()} == {key: key for key in PREDICATES}
    assert {key: make(args).name for key, make in PRIORITIES.items()} == {key: key for key in PRIORITIES}


def test_the_forecast_is_in_force_where_there_is_one_unless_it_is_left_out() -> None:
    assert "NodeLoadForecast" not in weights(kube_profile())
    assert weights(kube_profile(forecasts=True))["NodeLoadForecast"] == 1
    (profile,) = parse_configuration({}, forecasts=True).values()
    assert weights(profile)["NodeLoadForecast"] == 1
    for point in ("score", "multiPoint"):
        for name in ("NodeLoadForecast", "NodeLoadForecastPriority", "*"):
            off = {"profiles": [{"plugins": {point: {"disabled": [{"name": name}]}}}]}
            if (point, name) == ("multiPoint", "*"):
                off["profiles"][0]["plugins"] |= {
                    each: {"enabled": [{"name": plugin}]}
                    for each, plugin in (("queueSort", "PrioritySort"), ("bind", "DefaultBinder"))
                }
            (profile,) = parse_configuration(off, forecasts=True).values()
            assert "NodeLoadForecast" not in weights(profile), (point, name)


def test_an_old_name_is_turned_off_by_the_new_one_and_the_other_way_round() -> None:
    for on, off in (("NodeLoadForecastPriority", "NodeLoadForecast"), ("SelectorSpreadPriority", "SelectorSpread")):
        for enabled, disabled in ((on, off), (off, on)):
            points = {"multiPoint": {"enabled": [{"name": enabled}]}, "score": {"disabled": [{"name": disabled}]}}
            (profile,) = parse_configuration({"profiles": [{"plugins": points}]}, forecasts=True).values()
            assert not {on, off} & weights(profile).keys(), (enabled, disabled)


@pytest.mark.parametrize("conditions", Conditions)
def test_a_configuration_does_not_change_which_reason_comes_first(conditions: Conditions) -> None:
    (profile,) = parse_configuration({}, conditions=conditions).values()
    expected = [rule.name for rule in kube_profile(conditions=conditions).predicates]
    assert [rule.name for rule in profile.predicates] == expected


def test_a_profile_says_its_own_pick_and_load() -> None:
    said = {"pluginConfig": [{"name": "Fairlead", "args": {"pick": "round-robin", "loadBasis": "max"}}]}
    (profile,) = parse_configuration({"profiles": [said]}).values()
    assert (profile.args.pick, profile.args.load_basis) == ("round-robin", "max")
    base = PluginArgs(pick="round-robin")
    (profile,) = parse_configuration({}, base=base).values()
    assert profile.args.pick == "round-robin"
    assert (seed_profile().args.pick, kube_profile().args.pick) == ("round-robin", "first")
    for args, wrong in (({"pick": "best"}, "pick"), ({"loadBasis": "guess"}, "loadBasis"), ({"pack": 1}, "")):
        with pytest.raises(ProfileError, match=f"args.*{wrong}"):
            parse_configuration({"profiles": [{"pluginConfig": [{"name": "Fairlead", "args": args}]}]})


def test_weights_hold_for_scores_on_one_scale() -> None:
    names = ("LeastRequestedPriority", "NodeResourcesFit", "SeedFreeRatio")
    profile = build("mixed", (), dict.fromkeys(names, 2), PluginArgs())
    assert profile.unit == 10**6
    assert {rule.name: points for rule, points in profile.weighed} == {
        "LeastRequestedPriority": 2 * 10**5,
        "NodeResourcesFit": 2 * 10**4,
        "SeedFreeRatio": 2,
    }
    kube = kube_profile()
    assert kube.weighed == kube.priorities
    policy = job_profile("MinFragment", kube_profile())
    assert [points for _, points in policy.weighed] == [1]
