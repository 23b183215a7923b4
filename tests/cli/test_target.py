"""Which cluster and which running Fairlead a command is about."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from fairlead.cli.main import cli
from fairlead.cli.server import NoAnswer
from fairlead.cli.target import Target

COMMANDS = (
    ["explain", "pod/p"],
    ["job", "list"],
    ["job", "describe", "j"],
    ["job", "logs", "j"],
    ["task", "list"],
    ["task", "delete", "netreach/n"],
    ["data", "scale", "ns/d", "--replicas", "1"],
    ["data", "explain", "pod/p"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_names_a_data_folder_in_which_nothing_runs(command: list[str], tmp_path: Path) -> None:
    answer = CliRunner().invoke(cli, [*command, "--data", str(tmp_path)])
    assert answer.exit_code == 2
    assert str(tmp_path) in answer.output


def test_a_data_folder_has_the_cluster_and_the_running_fairlead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "another"))
    (tmp_path / "kubeconfig").touch()
    assert Target(data=tmp_path).settings().kubeconfig == str(tmp_path / "kubeconfig")
    assert Target(data=tmp_path, kubeconfig="mine").settings().kubeconfig == "mine"
    with pytest.raises(NoAnswer, match=r"api\.url cannot be read"):
        Target(data=tmp_path).ask(dict, "/")


def test_an_address_without_a_scheme_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        Target(server="127.0.0.1:1", token="t").ask(dict, "/")
    assert "--server: must be an http:// or https:// address, not '127.0.0.1:1'" in capsys.readouterr().err


def kubeconfig(folder: Path) -> Path:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": "team", "context": {"cluster": "c", "user": "u", "namespace": "team-red"}},
            {"name": "none", "context": {"cluster": "c", "user": "u"}},
        ],
        "current-context": "team",
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(config))
    file.chmod(0o600)
    return file


def test_the_namespace_is_the_one_named_else_the_contexts(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path)
    assert Target(kubeconfig=str(file)).namespace(None) == "team-red"
    assert Target(kubeconfig=str(file)).namespace("other") == "other"
    assert Target(kubeconfig=str(file), context="none").namespace(None) == "default"
    assert Target(data=tmp_path).namespace(None) == "default"


@pytest.mark.parametrize(
    ("flags", "namespace"), [((), "team-red"), (("--context=none",), "default"), (("-n", "x"), "x")]
)
def test_explain_asks_for_a_pod_in_the_contexts_namespace(
    flags: tuple[str, ...], namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []

    def ask(target: Target, struct: type, path: str) -> Any:
        paths.append(path)
        raise NoAnswer("nobody is there")

    monkeypatch.setattr(Target, "ask", ask)
    command = ["explain", "pod/p", f"--kubeconfig={kubeconfig(tmp_path)}", "--server=http://127.0.0.1:1", *flags]
    answer = CliRunner().invoke(cli, command)
    assert (answer.exit_code, paths) == (2, [f"/explain/pods/{namespace}/p"])
