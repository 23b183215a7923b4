"""What deploy/ ships is what the code knows."""

from pathlib import Path

import pytest
import yaml

from fairlead.cli.data import manifest_text
from tests.house.rules import ROOT

SHIPPED = {
    "webhook": "webhook/data.yaml",
    "cachereports": "crds/cachereports.yaml",
    "datagroups": "crds/datagroups.yaml",
}


@pytest.mark.parametrize("what", sorted(SHIPPED))
def test_the_shipped_manifest_is_the_codes_own(what: str) -> None:
    file = Path(ROOT) / "deploy" / SHIPPED[what]
    assert file.read_text() == manifest_text(what), f"fairlead data manifests {what} > deploy/{SHIPPED[what]}"


def test_the_service_of_webhooks_is_the_same_with_data_and_without() -> None:
    deploy = Path(ROOT) / "deploy" / "webhook"
    (alone,) = yaml.safe_load_all((deploy / "service.yaml").read_text())
    assert alone in list(yaml.safe_load_all((deploy / "data.yaml").read_text()))


def entries(*, namespace_mode: bool) -> dict[str, dict[str, object]]:
    documents = yaml.safe_load_all(manifest_text("webhook", namespace_mode=namespace_mode))
    (found,) = (each for each in documents if each["kind"] == "MutatingWebhookConfiguration")
    return {each["name"].partition(".")[0]: each for each in found["webhooks"]}


def test_sidecars_fail_and_everything_else_is_ignored() -> None:
    policies = {name: each["failurePolicy"] for name, each in entries(namespace_mode=True).items()}
    assert policies == {
        "sidecar": "Fail", "serverful": "Ignore", "namespace": "Ignore", "cache-worker": "Ignore", "scale-in": "Ignore",
    }  # fmt: skip
    assert "namespace" not in entries(namespace_mode=False)


def test_s80_neither_our_own_pods_nor_kube_system_are_sent_to_us() -> None:
    expected = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", "fairlead-system"],
    }
    for name, each in entries(namespace_mode=True).items():
        if name != "scale-in":
            assert expected in each["namespaceSelector"]["matchExpressions"], name  # type: ignore[index]
