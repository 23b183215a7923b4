"""Takes the facts about Kubernetes' kinds from the real server and writes them into apiserver/schema/facts.json.

Two sources: the running kube-apiserver (`/openapi/v3`, aggregated discovery) and the Go types it was built from
(facts.go), which alone know pointers, omitempty, named types and protobuf numbers. No descriptions are kept.
Run by hand after the rig's Kubernetes changes: `python -m tests.rigs.kube.facts`; tests/kube/test_facts.py keeps the
file equal. fairlead/apiserver/schema/facts.py explains the file's short keys where it reads them.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.rigs.kube.build import HERE, KUBERNETES, ensure_built
from tests.rigs.kube.servers import Rig

Json = dict[str, Any]
Get = Callable[[str], Any]

FACTS: Final = Path(__file__).resolve().parents[3] / "src/fairlead/apiserver/schema/facts.json"
INTERNAL: Final = FACTS.with_name("internal.json")
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
REF: Final = "#/components/schemas/"

GROUPS: Final = (
    ("", "v1"),
    ("admissionregistration.k8s.io", "v1"),
    ("apiextensions.k8s.io", "v1"),
    ("apiregistration.k8s.io", "v1"),
    ("apps", "v1"),
    ("authentication.k8s.io", "v1"),
    ("authorization.k8s.io", "v1"),
    ("autoscaling", "v1"),
    ("autoscaling", "v2"),
    ("batch", "v1"),
    ("coordination.k8s.io", "v1"),
    ("discovery.k8s.io", "v1"),
    ("events.k8s.io", "v1"),
    ("networking.k8s.io", "v1"),
    ("node.k8s.io", "v1"),
    ("policy", "v1"),
    ("rbac.authorization.k8s.io", "v1"),
    ("resource.k8s.io", "v1"),
    ("scheduling.k8s.io", "v1"),
    ("storage.k8s.io", "v1"),
)
# Served by the real server in these groups and not by us.
UNSERVED: Final = {"componentstatuses", "validatingadmissionpolicies", "validatingadmissionpolicybindings",
                   "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"}  # fmt: skip

PREFIXES: Final = (
    ("io.k8s.api.", "k8s.io/api/"),
    ("io.k8s.apimachinery.pkg.apis.", "k8s.io/apimachinery/pkg/apis/"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.", "k8s.io/apiextensions-apiserver/pkg/apis/"),
    ("io.k8s.kube-aggregator.pkg.apis.", "k8s.io/kube-aggregator/pkg/apis/"),
)
SCALARS: Final = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "microtime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Duration": "duration",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "any",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "raw",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intstr",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON": "any",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray": "schema_or_array",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool": "schema_or_bool",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray": "schema_or_strings",
}
GO_SCALARS: Final = {
    "string": "string", "bool": "bool", "int32": "int32", "int64": "int64", "double": "float64", "bytes": "[]uint8",
    "quantity": "resource.Quantity", "time": "v1.Time", "microtime": "v1.MicroTime", "duration": "v1.Duration",
    "raw": "runtime.RawExtension", "intstr": "intstr.IntOrString",
}  # fmt: skip


def gather(get: Get, go_types: Mapping[str, Json]) -> Json:
    """All the facts, from a function that reads one path of the server and from facts.go's output."""
    resources = list(read_resources(get))
    schemas: Json = {}
    for group, version in GROUPS:
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        schemas.update(get(f"/openapi/v3/{path}")["components"]["schemas"])
    wanted = [name for name, schema in schemas.items() if is_wanted(schema)]
    types: Json = {}
    while wanted:
        name = wanted.pop()
        if short(name) not in types and name not in SCALARS:
            types[short(name)] = read_type(name, schemas[name], go_types)
            wanted += references(schemas[name])
    return {"kubernetes": KUBERNETES, "resources": resources, "types": dict(sorted(types.items()))}


def read_resources(get: Get) -> Iterator[Json]:
    for root in ("/api", "/apis"):
        for group in get(root)["items"]:
            name = group["metadata"].get("name", "")
            for version in group["versions"]:
                if (name, version["version"]) in GROUPS:
                    for resource in version["resources"]:
                        if resource["resource"] not in UNSERVED:
                            yield read_resource(name, version["version"], resource)


def read_resource(group: str, version: str, found: Json) -> Json:
    subresources = [
        {
            "name": sub["subresource"],
            "kind": sub["responseKind"]["kind"],
            **{key: sub["responseKind"][key] for key in ("group", "version") if sub["responseKind"].get(key)},
            "verbs": sub["verbs"],
        }
        for sub in found.get("subresources", ())
    ]
    response = found["responseKind"]
    return {
        "group": group,
        "version": version,
        "plural": found["resource"],
        "kind": response["kind"],
        "singular": found["singularResource"],
        "scope": found["scope"],
        "verbs": found["verbs"],
        **({"short": found["shortNames"]} if found.get("shortNames") else {}),
        **({"categories": found["categories"]} if found.get("categories") else {}),
        **({"subresources": subresources} if subresources else {}),
    }


def is_wanted(schema: Json) -> bool:
    kinds = schema.get("x-kubernetes-group-version-kind", ())
    # DeleteOptions, WatchEvent and Status belong to every group there is; one is enough.
    return any((kind["group"], kind["version"]) in GROUPS for kind in kinds)


def references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(REF)
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def short(name: str) -> str:
    for prefix, _ in PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def go_key(name: str) -> str:
    """`io.k8s.api.core.v1.Pod` as Go spells it: `k8s.io/api/core/v1.Pod`."""
    for prefix, package in PREFIXES:
        if name.startswith(prefix):
            path, _, last = name.removeprefix(prefix).rpartition(".")
            return f"{package}{path.replace('.', '/')}.{last}"
    return name


def read_type(name: str, schema: Json, go_types: Mapping[str, Json]) -> Json:
    go_fields = go_types.get(go_key(name), {})
    fields = {
        field: read_field(inner, go_fields[field]) for field, inner in sorted(schema.get("properties", {}).items())
    }
    kinds = [
        [kind["group"], kind["version"], kind["kind"]]
        for kind in schema.get("x-kubernetes-group-version-kind", ())
        if (kind["group"], kind["version"]) in GROUPS
    ]
    shared = len(kinds) > 1
    return {
        **({"kinds": kinds[:1] if shared else kinds} if kinds else {}),
        **({"required": schema["required"]} if "required" in schema else {}),
        **({"map": schema["x-kubernetes-map-type"]} if "x-kubernetes-map-type" in schema else {}),
        "fields": fields,
    }


def read_field(schema: Json, go: Json) -> Json:
    form = expression(schema)
    derived: Any = None
    if "p" not in go["flags"]:
        derived = {} if form.startswith("@") or form in ("time", "microtime", "raw", "duration") else None
        if "o" not in go["flags"]:
            derived = {"string": "", "int32": 0, "int64": 0, "bool": False, "double": 0.0}.get(form, derived)
    extras = {
        "g": go["type"] if go["type"] != go_name(form) else None,
        "f": go["flags"] or None,
        "b": go["protobuf"] if all(go["protobuf"]) else None,
        "i": go["inlined"] if go["inlined"] not in ("", "TypeMeta") else None,
        "e": schema.get("enum"),
        "d": schema.get("default") if schema.get("default") != derived else None,
        "l": schema.get("x-kubernetes-list-type"),
        "k": schema.get("x-kubernetes-list-map-keys"),
        "m": schema.get("x-kubernetes-map-type"),
        "mk": schema.get("x-kubernetes-patch-merge-key"),
        "ps": schema.get("x-kubernetes-patch-strategy"),
    }
    return {"t": form, **{key: value for key, value in extras.items() if value is not None}}


def expression(schema: Json) -> str:
    """The type as one text: `string`, `@core.v1.Pod`, `[]…` a list, `{}…` a map."""
    if "allOf" in schema:
        return expression(schema["allOf"][0])
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(REF)
        return SCALARS.get(name) or f"@{short(name)}"
    match schema.get("type"), schema.get("format"):
        case "array", _:
            return f"[]{expression(schema['items'])}"
        case "object", _:
            return f"{{}}{expression(schema['additionalProperties'])}" if "additionalProperties" in schema else "any"
        case "string", "byte":
            return "bytes"
        case "string", "date-time":
            return "time"
        case "integer", form:
            return form or "int64"
        case "number", _:
            return "double"
        case "boolean", _:
            return "bool"
        case "string", _:
            return "string"
    return "any"


def go_name(form: str) -> str:
    if form.startswith("[]"):
        return f"[]{go_name(form[2:])}"
    if form.startswith("{}"):
        return f"map[string]{go_name(form[2:])}"
    if form.startswith("@"):
        return ".".join(form.split(".")[-2:]).removeprefix("@")
    return GO_SCALARS.get(form, form)


def read_go_types(program: str = "facts.go") -> Any:
    """What facts.go prints; the flags are those of the rig's build, so that its cache serves."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    command = ["go", "run", "-trimpath", program]
    return json.loads(subprocess.run(command, cwd=HERE, env=environment, check=True, capture_output=True).stdout)


def internal_text(types: Mapping[str, Any]) -> str:
    """The second file: the server's own PodSpec, one type a line."""
    lines = (f"{json.dumps(name)}:{json.dumps(types[name], separators=(',', ':'))}" for name in sorted(types))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def text(facts: Json) -> str:
    """The file: one resource or one type a line, so that a difference can be read."""
    resources = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in facts["resources"])
    types = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(entry, separators=(',', ':'))}" for name, entry in facts["types"].items()
    )
    head = json.dumps(facts["kubernetes"])
    return f'{{"kubernetes":{head},\n"resources":[\n{resources}\n],\n"types":{{\n{types}\n}}}}\n'


def from_rig(rig: Rig) -> Get:
    def get(path: str) -> Any:
        answer = rig.request("GET", path, accept=AGGREGATED if path in ("/api", "/apis") else "application/json")
        assert answer.status == 200, f"{path}: {answer.status} {answer.body[:200]!r}"
        return answer.json()

    return get


def main() -> None:
    with Rig(ensure_built()) as rig:
        rig.start()
        FACTS.write_text(text(gather(from_rig(rig), read_go_types())))
    INTERNAL.write_text(internal_text(read_go_types("internal.go")))
    print(f"{FACTS}: {FACTS.stat().st_size} bytes, {INTERNAL}: {INTERNAL.stat().st_size} bytes")


if __name__ == "__main__":
    main()
