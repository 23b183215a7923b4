"""Profiles: what is refused, and that a bad one leaves the old in force."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from fairlead.data.plugin import Plugin
from fairlead.data.profile import BadProfile, parse
from fairlead.data.webhook import DataMetrics, ProfileFile

AFFINITY = "pluginConfig: [{name: NodeAffinityWithCache, args: %s}]\nplugins: {serverful: {withDataset: [%s]}}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param(AFFINITY % ("{}", "NoSuchPlugin"), "there is no plugin 'NoSuchPlugin'", id="an unknown plugin"),
        pytest.param(
            AFFINITY % ("{preferred: [{name: x, weight: 0}]}", "NodeAffinityWithCache"),
            "x: must be a weight from 1 to 100, not 0",
            id="weight 0",
        ),
        pytest.param(
            AFFINITY % ("{preferred: [{name: x, weight: 101}]}", "NodeAffinityWithCache"),
            "x: must be a weight from 1 to 100, not 101",
            id="weight 101",
        ),
        pytest.param("plugins: [1,2", "not YAML: while parsing a flow sequence in", id="no YAML, with its line"),
        pytest.param("[]x", "not YAML", id="no YAML at all"),
        pytest.param("plugins: " + "[" * 100_000, "not YAML: nested too deeply", id="nested without end"),
        pytest.param("plugins: 2026-13-01", "not YAML: month must be in 1..12", id="a date that is none"),
        pytest.param(AFFINITY % ("'" + "[" * 100_000 + "'", "FuseSidecar"), "args are not YAML: nested", id="args"),
        pytest.param("plugins: 3", "plugins: must have serverful", id="no lists"),
        pytest.param(AFFINITY % ("{preferred: 3}", "NodeAffinityWithCache"), "preferred: must be a list", id="no list"),
        pytest.param(
            "pluginConfig: [{name: FuseSidecar, policy: maybe}]", "must be ignore or fail, not 'maybe'", id="a policy"
        ),
    ],
)
def test_s27_a_profile_that_makes_no_sense_is_refused_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(BadProfile) as caught:
        parse(text)
    assert sentence in str(caught.value)


def test_s27_a_bad_profile_leaves_the_old_in_force_and_is_counted(tmp_path: Path) -> None:
    file, registry = tmp_path / "plugins.profile", CollectorRegistry()
    file.write_text("plugins: {serverful: {withDataset: [DatasetUsageInjector]}}")
    profile = ProfileFile(str(file), DataMetrics(registry))
    first = profile.current
    file.write_text("plugins: {serverful: {withDataset: [Nothing]}}")
    profile.look()
    assert profile.current is first
    assert registry.get_sample_value("fairlead_data_profile_errors_total") == 1
    assert "there is no plugin 'Nothing'" in profile.problem
    file.write_text("plugins: {serverful: {withDataset: [RequireNodeWithFuse]}}")
    profile.look()
    assert [step.plugin.name for step in profile.current.chain("serverful", True)] == ["RequireNodeWithFuse"]
    assert profile.problem == ""


@pytest.mark.parametrize("content", [None, b"\xf9"], ids=["no file", "no text"])
def test_s27_a_profile_that_comes_back_as_it_was_is_no_longer_reported(tmp_path: Path, content: bytes | None) -> None:
    file, text = tmp_path / "plugins.profile", "plugins: {serverful: {withDataset: [DatasetUsageInjector]}}"
    file.write_text(text)
    profile = ProfileFile(str(file), DataMetrics(CollectorRegistry()))
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    profile.look()
    assert profile.problem
    file.write_text(text)
    profile.look()
    assert profile.problem == ""


def test_a_plugin_of_another_package_that_cannot_be_made_is_a_bad_profile() -> None:
    def factory(arguments: object) -> Plugin:
        raise ZeroDivisionError("of theirs")

    with pytest.raises(BadProfile, match="pluginConfig: Theirs: ZeroDivisionError: of theirs"):
        parse("plugins: {serverful: {withDataset: [Theirs]}}", lambda name: factory)


def test_the_policy_of_a_plugin_can_be_set() -> None:
    text = "plugins: {serverless: {withDataset: [FuseSidecar]}}\npluginConfig: [{name: FuseSidecar, policy: ignore}]"
    (step,) = parse(text).chain("serverless", True)
    assert step.policy == "ignore"


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        pytest.param({}, "has no name", id="nothing"),
        pytest.param({"name": 5}, "has no name", id="a name that is no text"),
        pytest.param({"name": "X"}, "policy: must be ignore or fail, not None", id="no policy"),
        pytest.param({"name": "X", "policy": "maybe"}, "policy: must be ignore or fail, not 'maybe'", id="policy"),
        pytest.param({"name": "X", "policy": "fail"}, "has no method mutate", id="no method"),
    ],
)
def test_what_another_package_returns_is_a_plugin_or_the_profile_is_not_used(made: Any, problem: str) -> None:
    text = "plugins: {serverful: {withDataset: [X]}}"
    with pytest.raises(BadProfile, match=f"^pluginConfig: X: .*{problem}"):
        parse(text, lambda name: lambda arguments: SimpleNamespace(**made))


def test_a_package_that_ends_the_process_when_it_is_loaded_is_a_bad_profile() -> None:
    def leave(name: str) -> None:
        raise SystemExit(2)

    with pytest.raises(BadProfile, match=r"^pluginConfig: X: SystemExit: 2"):
        parse("plugins: {serverful: {withDataset: [X]}}", leave)


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
LOOP = "a: &a [*a]\n"


@pytest.mark.parametrize("bomb", [BOMB, LOOP], ids=["aliases", "a loop"])
@pytest.mark.parametrize(
    "rest",
    [
        "plugins: {serverful: {withDataset: [*%s]}}",
        "pluginConfig: [{name: X, policy: *%s}]",
        "plugins: {serverful: {withDataset: [FilePrefetcher]}}\npluginConfig: [{name: FilePrefetcher, args: *%s}]",
    ],
)
def test_a_small_text_that_stands_for_a_huge_profile_is_refused(bomb: str, rest: str) -> None:
    with pytest.raises(BadProfile, match="more than 10000 values"):
        parse(bomb + rest % ("a11" if bomb is BOMB else "a"))


def test_arguments_as_text_are_bounded_too() -> None:
    text = yaml.safe_dump({"pluginConfig": [{"name": "X", "args": BOMB}]})
    with pytest.raises(BadProfile, match="pluginConfig: X: args are not YAML that can be used: more than 10000"):
        parse(text)


def test_a_profile_beyond_all_bounds_is_refused_in_few_words() -> None:
    for text in ("#" * (1 << 19), f"plugins: {{serverful: {{withDataset: [{'x' * 100_000}]}}}}"):
        with pytest.raises(BadProfile) as problem:
            parse(text)
        assert len(str(problem.value)) <= 1000
