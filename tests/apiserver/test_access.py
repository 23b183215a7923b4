"""Rights on the embedded server: what is given can be taken back, default roles gather, tokens end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlead.apiserver.auth import escalation, role_aggregation
from fairlead.apiserver.auth.role_aggregation import gathered
from fairlead.apiserver.registry import ownership
from tests.contract.servers import Contestant, ours

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
SECRETS = "/api/v1/namespaces/default/secrets"
POD = {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Contestant]:
    with ours(tmp_path) as found:
        yield found


def ask(
    server: Contestant, method: str, path: str, body: Any = None, user: str = "admin", kind: str = ""
) -> tuple[int, Any]:
    kind = kind or ("application/merge-patch+json" if method == "PATCH" else "application/json")
    headers = {"Content-Type": kind, "Authorization": f"Bearer {server.tokens.get(user, user)}"}
    heard = server.ask(method, path, None if body is None else json.dumps(body).encode(), headers)
    return heard.status, heard.json()


def made(server: Contestant, path: str, body: Any) -> Any:
    status, answer = ask(server, "POST", path, body)
    assert status == 201, answer
    return answer


def binding(name: str, role: str, kind: str = "Role") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": "stranger"}],
    }


def bind_secrets(server: Contestant) -> None:
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]
    made(server, f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "reader"}, "rules": rules})
    made(server, f"{RBAC}/namespaces/default/rolebindings", binding("other", "none"))
    made(server, f"{RBAC}/namespaces/default/rolebindings", binding("reader", "reader"))
    assert ask(server, "GET", SECRETS, user="stranger")[0] == 200


@pytest.mark.parametrize("updates", [0, 1, 2])
def test_a_deleted_binding_gives_nothing_however_often_another_is_updated(server: Contestant, updates: int) -> None:
    bind_secrets(server)
    bindings = f"{RBAC}/namespaces/default/rolebindings"
    ask(server, "DELETE", f"{bindings}/reader")
    for number in range(updates):
        ask(server, "PATCH", f"{bindings}/other", {"metadata": {"labels": {"n": str(number)}}})
    assert ask(server, "GET", SECRETS, user="stranger")[0] == 403


def test_a_deleted_role_gives_nothing_after_another_was_updated(server: Contestant) -> None:
    bind_secrets(server)
    roles = f"{RBAC}/namespaces/default/roles"
    made(server, roles, {"metadata": {"name": "second"}, "rules": []})
    assert ask(server, "GET", SECRETS, user="stranger")[0] == 200
    ask(server, "DELETE", f"{roles}/reader")
    ask(server, "PATCH", f"{roles}/second", {"metadata": {"labels": {"a": "b"}}})
    assert ask(server, "GET", SECRETS, user="stranger")[0] == 403


def test_the_admin_of_a_namespace_does_everything_in_it_and_does_not_delete_it(server: Contestant) -> None:
    made(server, "/api/v1/namespaces", {"metadata": {"name": "mine"}})
    made(server, f"{RBAC}/namespaces/mine/rolebindings", binding("admin", "admin", "ClusterRole"))
    for path in ("secrets", "pods", "configmaps"):
        assert ask(server, "GET", f"/api/v1/namespaces/mine/{path}", user="stranger")[0] == 200
    assert ask(server, "GET", f"{RBAC}/namespaces/mine/roles", user="stranger")[0] == 200
    assert ask(server, "GET", "/api/v1/namespaces/mine", user="stranger")[0] == 200
    for method, path in (("DELETE", ""), ("PATCH", ""), ("PATCH", "/status"), ("PUT", "/finalize")):
        status, answer = ask(server, method, f"/api/v1/namespaces/mine{path}", {}, user="stranger")
        assert (status, answer["reason"]) == (403, "Forbidden")
    for quota in ("resourcequotas", "limitranges"):
        assert ask(server, "DELETE", f"/api/v1/namespaces/mine/{quota}/x", user="stranger")[0] == 403


def test_default_roles_gather_what_is_labelled_for_them_and_lose_it_again(server: Contestant) -> None:
    rule = {"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]}
    labels = {f"{GROUP}/aggregate-to-view": "true"}
    made(server, f"{RBAC}/clusterroles", {"metadata": {"name": "things", "labels": labels}, "rules": [rule]})
    for name in ("view", "edit", "admin"):
        assert rule in ask(server, "GET", f"{RBAC}/clusterroles/{name}")[1]["rules"]
    ask(server, "PATCH", f"{RBAC}/clusterroles/things", {"metadata": {"labels": None}})
    for name in ("view", "edit", "admin"):
        assert rule not in ask(server, "GET", f"{RBAC}/clusterroles/{name}")[1]["rules"]


def test_a_default_role_of_an_older_folder_is_renewed_and_one_that_is_kept_stays(tmp_path: Path) -> None:
    wide = [{"apiGroups": [""], "resources": ["*"], "verbs": ["delete"]}]
    kept = {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}, "labels": None}
    with ours(tmp_path) as server:
        old = {"metadata": {"annotations": None, "labels": None}, "aggregationRule": None, "rules": wide}
        assert ask(server, "PATCH", f"{RBAC}/clusterroles/admin", old)[0] == 200
        assert ask(server, "PATCH", f"{RBAC}/clusterroles/edit", old | {"metadata": kept})[0] == 200
    with ours(tmp_path) as server:
        assert wide[0] not in ask(server, "GET", f"{RBAC}/clusterroles/admin")[1]["rules"]
        assert ask(server, "GET", f"{RBAC}/clusterroles/edit")[1]["rules"] == wide


def test_roles_that_gather_from_each_other_end() -> None:
    def role(*rules: str, label: str = "", gathers: str = "") -> dict[str, Any]:
        made: dict[str, Any] = {"metadata": {"labels": {label: ""}}, "rules": [{"verbs": [rule]} for rule in rules]}
        if gathers:
            made["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": {gathers: ""}}]}
        return made

    roles = {"a": role("old", label="x", gathers="y"), "b": role(label="y", gathers="x"), "c": role("r", label="y")}
    assert gathered(roles) == {"a": [{"verbs": ["r"]}], "b": [{"verbs": ["r"]}]}


def test_rules_beyond_comparing_are_refused_at_once(server: Contestant) -> None:
    rules = [{"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["create"]}]
    made(server, f"{RBAC}/clusterroles", {"metadata": {"name": "maker"}, "rules": rules})
    made(server, f"{RBAC}/clusterrolebindings", binding("maker", "maker", "ClusterRole"))
    many = [f"n{number}" for number in range(300)]
    rule = {"apiGroups": many, "resources": many, "verbs": many, "resourceNames": many}
    body = {"metadata": {"name": "huge"}, "rules": [rule]}
    status, answer = ask(server, "POST", f"{RBAC}/clusterroles", body, user="stranger")
    assert status == 403
    assert "too many" in answer["message"]


def token(server: Contestant, bound: dict[str, str] | None = None) -> str:
    spec = {"boundObjectRef": {"apiVersion": "v1", **bound}} if bound else {}
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    return str(made(server, path, {"spec": spec})["status"]["token"])


@pytest.mark.parametrize(
    ("kind", "path", "spec"),
    [
        ("Pod", "/api/v1/namespaces/default/pods", POD),
        ("Secret", "/api/v1/namespaces/default/secrets", None),
        ("Node", "/api/v1/nodes", {}),
    ],
)
def test_a_token_ends_with_what_it_is_bound_to_whoever_takes_its_name(
    server: Contestant, kind: str, path: str, spec: Any
) -> None:
    made(server, "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    body = {"metadata": {"name": "tie"}} | ({} if spec is None else {"spec": spec})
    made(server, path, body)
    bound = token(server, {"kind": kind, "name": "tie"})
    assert ask(server, "GET", "/api", user=bound)[0] == 200
    assert ask(server, "POST", REVIEWS, {"spec": {"token": bound}})[1]["status"]["authenticated"]
    ask(server, "DELETE", f"{path}/tie?gracePeriodSeconds=0")
    for _ in range(2):  # gone, and then another of the same name
        assert ask(server, "GET", "/api", user=bound)[0] == 401
        assert "authenticated" not in ask(server, "POST", REVIEWS, {"spec": {"token": bound}})[1]["status"]
        ask(server, "POST", path, body)


def test_a_token_for_others_is_none_for_us_and_ours_none_for_others(server: Contestant) -> None:
    made(server, "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    for found in (token(server), server.tokens["admin"]):
        review = {"spec": {"token": found, "audiences": ["vault"]}}
        assert "authenticated" not in ask(server, "POST", REVIEWS, review)[1]["status"]


def test_a_role_gathers_thousands_of_rules_and_who_owns_them_is_found_from_one(
    server: Contestant, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    merged = ownership.merged

    def noted(schema: Any, live: Any, applied: Any, *more: Any, **named: Any) -> Any:
        sizes.append(len(live.get("rules") or ()) + len(applied["rules"]))
        return merged(schema, live, applied, *more, **named)

    monkeypatch.setattr(role_aggregation, "merged", noted)
    whole = {"metadata": {"name": "whole"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}}
    made(server, f"{RBAC}/clusterroles", whole)
    for part in ("a", "b"):
        rules = [{"apiGroups": [f"{part}{at}"], "resources": ["pods"], "verbs": ["get"]} for at in range(500)]
        made(server, f"{RBAC}/clusterroles", {"metadata": {"name": part, "labels": {"x": "y"}}, "rules": rules})
    found = ask(server, "GET", f"{RBAC}/clusterroles/whole")[1]
    assert (len(found["rules"]), found["rules"][-1]["apiGroups"], max(sizes)) == (1000, ["b499"], 2)
    owners = {each["manager"]: each["fieldsV1"] for each in found["metadata"]["managedFields"]}
    assert owners["clusterrole-aggregation-controller"] == {"f:rules": {}}


def test_rules_are_compared_with_those_held_in_proportion_to_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds thousands of rules by name makes nobody wait by granting thousands more."""

    def rule(resource: str, **more: Any) -> dict[str, Any]:
        return {"apiGroups": [""], "resources": [resource], "verbs": ["get"], **more}

    compared: list[object] = []
    covers = escalation._covers

    def counting(held: escalation.Scope, scope: escalation.Scope) -> bool:
        compared.append(held)
        return covers(held, scope)

    monkeypatch.setattr(escalation, "_covers", counting)
    held = [rule("pods", resourceNames=[f"h{number}"]) for number in range(15_000)] + [rule("*")] * 1000
    asked = [rule("pods", resourceNames=[f"n{number}"]) for number in range(15_000)]
    assert escalation._apart(held, asked) == []
    assert len(compared) == 1, "the same is compared once, and rules by name not at all"
    assert escalation._apart([rule("pods")], [rule("pods"), rule("secrets")]) == [rule("secrets")]
    many = [rule(f"r{number}") for number in range(1000)]
    compared.clear()
    assert escalation._apart(many, many) == []
    assert escalation._apart(many, [rule(f"s{number}") for number in range(1000)]) is None
    assert compared == []


def test_who_may_only_change_objects_creates_none_by_applying_them(server: Contestant) -> None:
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "patch", "update"]}]
    made(server, f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "patcher"}, "rules": rules})
    made(server, f"{RBAC}/namespaces/default/rolebindings", binding("patcher", "patcher"))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    for query in ("fieldManager=m", "fieldManager=m&force=true&dryRun=All"):
        asked = f"{SECRETS}/s?{query}"
        status, answer = ask(server, "PATCH", asked, secret, "stranger", "application/apply-patch+yaml")
        assert (status, answer["reason"]) == (403, "Forbidden")
        assert 'cannot create resource "secrets"' in answer["message"]
    assert ask(server, "GET", f"{SECRETS}/s")[0] == 404
    made(server, SECRETS, {"metadata": {"name": "s"}})
    asked = f"{SECRETS}/s?fieldManager=m"
    assert ask(server, "PATCH", asked, secret, "stranger", "application/apply-patch+yaml")[0] == 200


@pytest.mark.parametrize(("plural", "version"), [("clusterrolebindings", "v9"), ("clusterroles", "v1")])
def test_a_definition_takes_over_no_objects_of_the_server(server: Contestant, plural: str, version: str) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "metadata": {"name": f"{plural}.{GROUP}", "annotations": {"api-approved.kubernetes.io": "https://a.b/pull/1"}},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {"plural": plural, "singular": plural[:-1], "kind": "Taken"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    before = ask(server, "GET", f"{RBAC}/{plural}")[1]["items"]
    assert before
    made(server, path, definition)
    conditions = ask(server, "GET", f"{path}/{plural}.{GROUP}")[1]["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions} == {"NamesAccepted": "False", "Established": "False"}
    odd = {"apiVersion": f"{GROUP}/{version}", "kind": "Taken", "metadata": {"name": "odd"}, "subjects": 7, "rules": 7}
    assert ask(server, "POST", f"/apis/{GROUP}/{version}/{plural}", odd)[0] in (400, 404, 422)
    assert ask(server, "DELETE", f"{path}/{plural}.{GROUP}")[0] == 200
    assert ask(server, "GET", f"{RBAC}/{plural}")[1]["items"] == before
