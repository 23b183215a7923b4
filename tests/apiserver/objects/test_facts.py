from fairlead.apiserver.schema import facts


def test_every_resource_has_a_type() -> None:
    known = facts.load()
    for resource in known.resources:
        assert known.type_name(resource.group, resource.version, resource.kind) in known.types, resource


def test_a_subresource_with_a_kind_of_another_group_says_so() -> None:
    deployments = facts.load().by_kind["apps", "v1", "Deployment"]
    scale = deployments.subresource("scale")
    assert scale is not None
    assert (scale.group, scale.version, scale.kind) == ("autoscaling", "v1", "Scale")
    status = deployments.subresource("status")
    assert status is not None
    assert (status.group, status.version, status.kind) == ("apps", "v1", "Deployment")


def test_openapi_says_what_kubectl_looks_for() -> None:
    document = facts.load().openapi_v3("apps", "v1")
    patch = document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    schemas = document["components"]["schemas"]
    deployment = schemas["io.k8s.api.apps.v1.Deployment"]
    assert deployment["x-kubernetes-group-version-kind"] == [{"group": "apps", "kind": "Deployment", "version": "v1"}]
    assert schemas["io.k8s.api.core.v1.Container"]["properties"]["ports"]["x-kubernetes-patch-merge-key"] == (
        "containerPort"
    )


def test_every_reference_of_every_document_resolves() -> None:
    for group, version in sorted({(each.group, each.version) for each in facts.load().resources}):
        document = facts.load().openapi_v3(group, version)
        for schema in document["components"]["schemas"].values():
            for field in schema["properties"].values():
                for part in (field, field.get("items", {}), field.get("additionalProperties", {})):
                    for reference in part.get("allOf", ()):
                        name = reference["$ref"].removeprefix("#/components/schemas/")
                        assert name in document["components"]["schemas"]
