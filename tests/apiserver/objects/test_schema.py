"""Reading values as Go does: every text here is the real server's; tests/kube/test_objects_parity.py asks it."""

from typing import Any

import pytest

from fairlead.apiserver.schema import shape as schema
from fairlead.apiserver.schema.scalars import ScalarError, canonical_micro_time, canonical_quantity, canonical_time

POD = schema.kind_label("Pod", "v1")


def read(value: Any, kind: str = "Pod", group: str = "", version: str = "v1") -> schema.Decoded:
    shape = schema.for_kind(group, version, kind)
    assert shape is not None
    return schema.decode(shape, value, schema.kind_label(kind, version))


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (pod(restartPolicy=1), "number into Go struct field PodSpec.spec.restartPolicy of type v1.RestartPolicy"),
        (pod(containers="x"), "string into Go struct field PodSpec.spec.containers of type []v1.Container"),
        (pod(containers=[1]), "number into Go struct field PodSpec.spec.containers of type v1.Container"),
        (pod(nodeSelector={"a": 1}), "number into Go struct field PodSpec.spec.nodeSelector of type string"),
        (pod(priority=3000000000), "number 3000000000 into Go struct field PodSpec.spec.priority of type int32"),
        (
            pod(volumes=[{"name": "v", "hostPath": "x"}]),
            "string into Go struct field Volume.spec.volumes.VolumeSource.hostPath of type v1.HostPathVolumeSource",
        ),
        ({"metadata": []}, "array into Go struct field Pod.metadata of type v1.ObjectMeta"),
        (
            {"metadata": {"creationTimestamp": 5}},
            "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
    ],
)
def test_a_wrong_type_is_told_with_gos_words(value: Any, complaint: str) -> None:
    with pytest.raises(schema.DecodeError) as caught:
        read(value)
    assert str(caught.value) == f"{POD}: json: cannot unmarshal {complaint}"


def test_unknown_fields_are_dropped_and_told_in_the_documents_order() -> None:
    value = {**pod(foo=1, containers=[{"name": "c", "bar": {"x": 1}}]), "zz": 1}
    found = read(value)
    assert found.unknown == ["spec.containers[0].bar", "spec.foo", "zz"]
    assert "foo" not in found.value["spec"]
    assert schema.strict_problem(["a"], ["zz"]) == ('strict decoding error: duplicate field "a", unknown field "zz"')


def test_null_and_empty_are_absence_where_go_says_so_and_structs_are_always_there() -> None:
    found = read(pod(nodeSelector={}, hostNetwork=False, hostUsers=False, priority=0, tolerations=None))
    assert found.value == {
        "metadata": {"name": "a"},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {}}],
            "hostUsers": False,
            "priority": 0,
        },
        "status": {},
    }


def test_a_list_without_omitempty_is_owned_empty_and_kept_as_null() -> None:
    found = read({"metadata": {"name": "a"}, "rules": []}, "Role", "rbac.authorization.k8s.io")
    assert found.value["rules"] == []
    assert found.has_empty
    shape = schema.for_kind("rbac.authorization.k8s.io", "v1", "Role")
    assert shape is not None
    assert schema.forget_empty(shape, found.value)["rules"] is None


def test_the_input_is_left_alone() -> None:
    value = pod(nodeSelector={"a": "b"})
    read(value).value["spec"]["nodeSelector"]["c"] = "d"
    assert value == pod(nodeSelector={"a": "b"})


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0.5", "500m"), ("1000m", "1"), ("1000", "1k"), ("1500", "1500"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"),
        ("512Ki", "512Ki"), ("1000Ki", "1000Ki"), ("0", "0"), ("0Mi", "0"), ("1e3", "1e3"), ("12E6", "12E6"),
        ("1.5e3", "1500"), ("100m", "100m"), ("-1", "-1"), (".5", "500m"), ("1E", "1E"), ("1n", "1n"), ("0.1n", "1n"),
        ("1Ki", "1Ki"), ("0.5Ki", "512"), ("+5", "+5"), ("007", "007"), ("2048", "2048"), ("0.5Mi", "512Ki"),
        ("1e30", "1e30"), ("1e31", "10e30"), ("1000e30", "1e33"), ("1e4", "10e3"), ("1.500", "1.500"),
        ("8Ei", "9223372036854775807"), ("1.0005Ki", "1024512m"), ("-1.5", "-1500m"), (".", "0"), ("1e-10", "1e-9"),
        ("1e3000000", "1e3000000"), ("1e999999999", "1e999999999"), ("1e3000001", "10e3000000"),
        ("1e-999999999", "1e-9"), ("9" * 40, "9" * 40),
    ],
)  # fmt: skip
def test_a_quantity_has_one_spelling(text: str, canonical: str) -> None:
    assert canonical_quantity(text) == canonical


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *((text, "quantities must match the regular expression") for text in ("", "x", "1x", "1.2.3", "1Kib", "1 ")),
        *((text, "unable to parse quantity's suffix") for text in ("--1", "1e", "1Kii", "1e99999999999999999999")),
        *((text, "unable to parse numeric part of quantity") for text in ("Ei", "+e-12")),
        pytest.param("9" * 1001, "quantities must match", id="beyond all measure"),
    ],
)
def test_what_is_no_quantity_is_refused(text: str, why: str) -> None:
    with pytest.raises(ScalarError, match=why):
        canonical_quantity(text)


def test_times_are_utc() -> None:
    assert canonical_time("2026-01-02T03:04:05Z") == "2026-01-02T03:04:05Z"
    assert canonical_time("2026-01-02T03:04:05.9+02:00") == "2026-01-02T01:04:05Z"
    assert canonical_micro_time("2026-01-02T03:04:05.000001+01:00") == "2026-01-02T02:04:05.000001Z"
    with pytest.raises(ScalarError) as caught:
        canonical_time("2020-01-01")
    assert str(caught.value) == ('parsing time "2020-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"')


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ("x", "illegal base64 data at input byte 0"),
        ("eHh4!", "illegal base64 data at input byte 4"),
        ("YgY", "illegal base64 data at input byte 0"),
        ("YWFhYg", "illegal base64 data at input byte 4"),
        ("YWFhYg=", "illegal base64 data at input byte 7"),
        ("YWFhYg===", "illegal base64 data at input byte 8"),
        ("YWFhYg==YQ", "illegal base64 data at input byte 8"),
        ("YWF=YWFh", "illegal base64 data at input byte 4"),
        ("YW=h", "illegal base64 data at input byte 2"),
        ("Y===", "illegal base64 data at input byte 1"),
        ("=YWF", "illegal base64 data at input byte 0"),
    ],
)
def test_bytes_are_base64(data: str, complaint: str) -> None:
    with pytest.raises(schema.DecodeError, match=complaint):
        read({"data": {"a": data}}, "Secret")


def test_duplicate_fields_are_found_while_parsing() -> None:
    parsed = schema.parse(b'{"data":{"a":"x","a":"y"},"list":[{"b":1,"b":2}],"data":{"b":"x"}}')
    assert parsed.duplicates == ["data.a", "list[0].b", "data"]
    assert parsed.value["data"] == {"b": "x"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b'{"metadata":', "unexpected end of JSON input"),
        (b"", "unexpected end of JSON input"),
        (b'{"a":x}', "invalid character 'x' looking for beginning of value"),
        (b'{"a":1} x', "invalid character 'x' after top-level value"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"{a:1}", "invalid character 'a' looking for beginning of object key string"),
        (b"[NaN]", "invalid character 'N' looking for beginning of value"),
        (b"[" * 100_000, "exceeded max depth"),
    ],
)
def test_bad_json_is_told_with_gos_words(text: bytes, complaint: str) -> None:
    with pytest.raises(schema.ParseError) as caught:
        schema.parse(text)
    assert str(caught.value) == complaint


def test_bad_unicode_is_replaced_never_an_error() -> None:
    assert schema.parse(b'{"a":"\xff","b":"\\ud800"}').value == {"a": "\ufffd", "b": "\ufffd"}


@pytest.mark.parametrize("number", ["1e999", "-1e400", "9" * 5000], ids=["float", "negative", "digits"])
def test_a_number_that_nothing_can_hold_is_refused_and_not_read_as_another(number: str) -> None:
    with pytest.raises(schema.ParseError, match=r"^json: cannot unmarshal number into Go value of type float64$"):
        schema.parse(f'{{"spec": {{"a": {number}}}}}'.encode())
