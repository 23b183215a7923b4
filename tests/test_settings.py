"""One configuration from file, environment and flags; and mistakes that name the key, the place and what was wanted."""

from pathlib import Path
from typing import Any

import pytest

from fairlead import settings
from fairlead.settings import BadSettings, LeaseSettings, LogSettings, Settings, load
from tests.house.rules import ROOT

KEYS = list(settings.keys())
HEAD = "apiVersion: fairlead.io/v1alpha1\nkind: Configuration\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "fairlead.yaml"


def refusal(**sources: Any) -> str:
    with pytest.raises(BadSettings) as caught:
        load(**({"environment": {}} | sources))
    return str(caught.value)


# --- where settings come from -----------------------------------------------------------------------------


def test_everything_has_a_default() -> None:
    assert load(environment={}) == Settings()


def test_a_file_sets_what_it_names(file: Path) -> None:
    file.write_text(HEAD + "namespace: here\ncapabilities: [placement, jobs]\nlease:\n  durationS: 30\n")
    assert load(file=file, environment={}) == Settings(
        namespace="here", capabilities=("placement", "jobs"), lease=LeaseSettings(duration_s=30)
    )


def test_variables_set_what_they_name() -> None:
    environment = {
        "FAIRLEAD_LEASE_DURATION_S": "30",
        "FAIRLEAD_LEASE_RENEW_DEADLINE_S": "12.5",
        "FAIRLEAD_IN_FLIGHT": "8",
        "FAIRLEAD_CAPABILITIES": "placement, jobs,",
        "FAIRLEAD_LOGS_LEVEL": "debug",
        "PATH": "/bin",
    }
    assert load(environment=environment) == Settings(
        in_flight=8,
        capabilities=("placement", "jobs"),
        lease=LeaseSettings(duration_s=30, renew_deadline_s=12.5),
        logs=LogSettings(level="debug"),
    )


def test_flags_set_what_is_given() -> None:
    flags = {"namespace": "there", "capabilities": "data", "context": None, "logs.level": "error"}
    assert load(environment={}, flags=flags) == Settings(
        namespace="there", capabilities=("data",), logs=LogSettings(level="error")
    )


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        pytest.param({"file"}, "file", id="file"),
        pytest.param({"file", "variable"}, "variable", id="variable over file"),
        pytest.param({"file", "variable", "flag"}, "flag", id="flag over both"),
        pytest.param({"file", "flag"}, "flag", id="flag over file"),
    ],
)
def test_the_later_source_wins_and_leaves_the_rest(file: Path, sources: set[str], expected: str) -> None:
    file.write_text(HEAD + "namespace: file\nlease: {name: kept}\n")
    found = load(
        file=file,
        environment={"FAIRLEAD_NAMESPACE": "variable"} if "variable" in sources else {},
        flags={"namespace": "flag" if "flag" in sources else None},
    )
    assert (found.namespace, found.lease.name) == (expected, "kept")


def test_settings_that_only_fit_together_may_come_one_by_one(file: Path) -> None:
    file.write_text(HEAD + "lease: {durationS: 5}\n")
    found = load(
        file=file, environment={"FAIRLEAD_LEASE_RENEW_DEADLINE_S": "3", "FAIRLEAD_LEASE_RETRY_S": "1"}, flags={}
    )
    assert found.lease == LeaseSettings(duration_s=5, renew_deadline_s=3.0, retry_s=1.0)


@pytest.mark.parametrize(
    "name",
    [
        "FAIRLEAD_SERVICE_HOST",
        "FAIRLEAD_SERVICE_PORT",
        "FAIRLEAD_SERVICE_PORT_HTTPS",
        "FAIRLEAD_PORT",
        "FAIRLEAD_PORT_8470_TCP",
        "FAIRLEAD_PORT_8470_TCP_PROTO",
        "FAIRLEAD_PORT_8470_TCP_ADDR",
        "FAIRLEAD_WEBHOOK_SERVICE_HOST",
        "FAIRLEAD_WEBHOOK_PORT_443_TCP_PORT",
    ],
)
def test_what_kubernetes_says_of_a_service_called_fairlead_is_not_a_setting(name: str) -> None:
    assert load(environment={name: "10.0.0.1"}) == Settings()


def test_no_setting_is_called_like_a_services_variable() -> None:
    assert [key for key in KEYS if settings._SERVICE_LINK.search(settings._variable(key))] == []


@pytest.mark.parametrize(
    "name",
    ["FAIRLEAD_SANDBOX", "FAIRLEAD_VOLUME_DATA", "FAIRLEAD_VOLUME_KUBE_API_ACCESS_X2K4B", "FAIRLEAD_SERVICE_ACCOUNT"],
)
def test_what_process_pods_find_in_their_environment_is_not_a_setting(name: str) -> None:
    assert load(environment={name: "/some/where"}) == Settings()


@pytest.mark.parametrize("name", ["FAIRLEAD_SANDBOXES", "FAIRLEAD_VOLUMES", "FAIRLEAD_MY_SANDBOX"])
def test_what_only_looks_like_it_is_a_mistake(name: str) -> None:
    with pytest.raises(BadSettings, match="no such setting"):
        load(environment={name: "x"})


def test_no_setting_is_called_like_a_variable_of_process_pods() -> None:
    assert [key for key in KEYS if settings._OF_PODS.fullmatch(settings.PREFIX + settings._variable(key))] == []


def test_a_process_pod_without_mounts_is_told_where_its_service_account_is() -> None:
    assert settings.service_account_folder({"FAIRLEAD_SERVICE_ACCOUNT": "/a/b"}) == Path("/a/b")
    assert settings.service_account_folder({}) is None


# --- mistakes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("names: x", "object contains unknown field `names`", id="unknown key"),
        pytest.param("lease: {durations: 3}", "lease: object contains unknown field `durations`", id="unknown inside"),
        pytest.param("lease: {durationS: soon}", "lease.durationS: expected `int`, got `str`", id="wrong type"),
        pytest.param("lease: 5", "lease: expected `object`, got `int`", id="not a section"),
        pytest.param("lease: {durationS: 0}", "lease.durationS: expected `int` >= 1, got 0", id="too small"),
        pytest.param("inFlight: 5000", "inFlight: expected `int` <= 1024, got 5000", id="too large"),
        pytest.param("1: x", "every key must be text", id="a number for a key"),
        pytest.param(
            "logs: {form: xml}",
            "logs.form: invalid enum value 'xml'; it must be one of auto, json, text",
            id="no such word",
        ),
        pytest.param(
            "capabilities: [placement, No Name]",
            "capabilities[1]: expected `str` matching regex '^[a-z][a-z0-9-]{0,62}$'",
            id="no such word in a list",
        ),
        pytest.param("capabilities: placement", "capabilities: expected `array`, got `str`", id="not a list"),
    ],
)
def test_a_mistake_in_a_file_names_file_key_and_what_was_wanted(file: Path, content: str, said: str) -> None:
    file.write_text(HEAD + content)
    assert refusal(file=file) == f"{file}: {said}"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        pytest.param("FAIRLEAD_LEASE_DURATION_S", "soon", "lease.durationS: expected `int`, got `str`", id="type"),
        pytest.param("FAIRLEAD_IN_FLIGHT", "0", "inFlight: expected `int` >= 1, got '0'", id="range"),
        pytest.param(
            "FAIRLEAD_LOGS_LEVEL",
            "loud",
            "logs.level: invalid enum value 'loud'; it must be one of debug, info, warning, error",
            id="word",
        ),
        pytest.param(
            "FAIRLEAD_LISTEN",
            "here",
            "listen: expected `str` matching regex '^\\\\S*:\\\\d{1,5}$', got 'here'",
            id="form",
        ),
    ],
)
def test_a_mistake_in_a_variable_names_it(name: str, value: str, said: str) -> None:
    assert refusal(environment={name: value}) == f"{name}: {said}"


def test_an_unknown_variable_is_told_the_known_ones() -> None:
    said = refusal(environment={"FAIRLEAD_NAMESPCE": "x"})
    assert said.startswith("FAIRLEAD_NAMESPCE: no such setting; there are FAIRLEAD_API_")
    assert ", FAIRLEAD_CAPABILITIES, " in said
    assert "FAIRLEAD_NAMESPACE" in said


def test_a_mistake_in_a_flag_names_it() -> None:
    said = refusal(flags={"scores": "magic"})
    assert said == "--scores: scores: invalid enum value 'magic'; it must be one of kube, seed"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(
            {"lease.durationS": 5},
            "lease: durationS must be larger than renewDeadlineS, and that larger than retryS; they are 5, 10 and 2",
            id="lease times",
        ),
        pytest.param(
            {"lease.retryS": 10},
            "lease: durationS must be larger than renewDeadlineS, and that larger than retryS; they are 15, 10 and 10",
            id="no time to retry",
        ),
        pytest.param(
            {"forecast.source": "elasticsearch"},
            "forecast.url: must be the http:// or https:// address of elasticsearch, not ''",
            id="no address",
        ),
        pytest.param(
            {"forecast.source": "file"},
            "forecast.file: must be the path of a file, because forecast.source is file",
            id="no file",
        ),
        pytest.param(
            {"forecast.username": "me"},
            "forecast.passwordFile: must be a file that holds the password of forecast.username",
            id="no password",
        ),
        pytest.param(
            {"forecast.username": "me", "forecast.passwordFile": "p", "forecast.tokenFile": "t"},
            "forecast: set username and passwordFile, or tokenFile, not both",
            id="two credentials",
        ),
        pytest.param(
            {
                "forecast.forecaster.history": "metrics-server",
                "forecast.source": "prometheus",
                "forecast.url": "http://p",
            },
            "forecast.source: must be elasticsearch, configmap or file, not prometheus, while forecaster.history "
            "is set: the built-in forecaster writes where forecasts are read",
            id="nowhere to write",
        ),
        pytest.param(
            {"forecast.forecaster.history": "prometheus", "forecast.source": "configmap"},
            "forecast.forecaster.prometheusUrl: must be the http:// or https:// address of a Prometheus, not ''",
            id="no history",
        ),
        pytest.param(
            {
                "forecast.forecaster.history": "prometheus",
                "forecast.source": "configmap",
                "forecast.forecaster.prometheusUrl": "http://p",
            },
            "forecast.forecaster: set nodeUsage or serviceUsage, a PromQL query",
            id="nothing to ask",
        ),
        pytest.param(
            {
                "forecast.forecaster.history": "metrics-server",
                "forecast.source": "configmap",
                "forecast.forecaster.stepS": 700,
            },
            "forecast.forecaster: seasonS must be a multiple of stepS; they are 86400 and 700",
            id="a season of broken steps",
        ),
        pytest.param(
            {"listen": "127.0.0.1:99999"},
            "listen: must be host:port with a port up to 65535, not '127.0.0.1:99999'",
            id="no such port",
        ),
    ],
)
def test_what_does_not_fit_together(flags: dict[str, Any], said: str) -> None:
    assert refusal(flags=flags) == said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"", ": must be a mapping with apiVersion fairlead.io/v1alpha1 and kind Config", id="empty"),
        pytest.param(b"- a", ": must be a mapping with apiVersion", id="a list"),
        pytest.param(
            b"kind: Pod", ": apiVersion and kind are None and 'Pod'; they must be fairlead.io/v1alpha1", id="a pod"
        ),
        pytest.param(b"{", " is not YAML: ", id="not YAML"),
        pytest.param(b"\xff\xfe\xff", " is not YAML: it is not text", id="not text"),
    ],
)
def test_a_file_that_is_no_configuration(file: Path, content: bytes, said: str) -> None:
    file.write_bytes(content)
    assert refusal(file=file).startswith(f"{file}{said}")


def test_a_file_that_is_not_there(file: Path) -> None:
    assert refusal(file=file) == f"{file} cannot be read: No such file or directory"


# --- what the environment says besides --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "variable", "expected"),
    [
        pytest.param("/etc/k", "/a:/b", ["/etc/k"], id="named"),
        pytest.param("", "/a::/b", ["/a", "/b"], id="listed"),
        pytest.param("", "", [str(Path.home() / ".kube" / "config")], id="the usual place"),
        pytest.param("~/k", "", [str(Path.home() / "k")], id="at home"),
    ],
)
def test_where_to_look_for_a_kubeconfig(named: str, variable: str, expected: list[str]) -> None:
    found = settings.kubeconfig_paths(Settings(kubeconfig=named), {"KUBECONFIG": variable})
    assert [str(path) for path in found] == expected


def test_a_strangers_home_is_a_mistake() -> None:
    with pytest.raises(BadSettings, match=r"kubeconfig: there is no home folder for '~nobody-here/k'"):
        settings.kubeconfig_paths(Settings(kubeconfig="~nobody-here/k"), {})


def test_the_address_in_a_pod() -> None:
    told = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert settings.in_cluster_address(told) == ("10.0.0.1", "443")
    assert settings.in_cluster_address({}) is None


def test_an_identity_is_unique_unless_it_is_given() -> None:
    assert settings.identity(Settings(), "abc").endswith("_abc")
    assert settings.identity(Settings(identity="me"), "abc") == "me"


# --- the page ---------------------------------------------------------------------------------------------


def test_every_setting_is_on_the_page_with_its_variable_and_default() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    rows = dict(line.strip("| ").split(" | ", 1) for line in page.splitlines() if line.startswith("| `"))
    assert sorted(rows) == sorted(f"`{key}`" for key in KEYS)
    for key in KEYS:
        value: Any = Settings()
        for part in key.split("."):
            value = getattr(value, settings._words(part, "_"))
        shown = ",".join(value) if isinstance(value, tuple) else value
        if isinstance(value, bool):
            shown = str(value).lower()  # as a file spells it
        default = f"`{shown}`" if shown != "" else "none"
        variable, told, meaning = rows[f"`{key}`"].split(" | ")
        assert (variable, told) == (f"`FAIRLEAD_{settings._variable(key)}`", default)
        assert meaning
