"""Certificates over years: at every moment a server that trusts the bundle trusts the leaf."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from cryptography import x509

from fairlead.web.authority import Lives, Material, is_usable, issue_authority, renewed, split_bundle, unrenewed

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NAMES = ("hooks.ns.svc", "127.0.0.1")
LIVES = Lives(authority=timedelta(days=30), leaf=timedelta(days=9), overlap=timedelta(hours=2))


def trusts(bundle: bytes, leaf: bytes) -> bool:
    certificate = x509.load_pem_x509_certificate(leaf)
    for each in split_bundle(bundle):
        try:
            certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(each))
        except Exception:
            continue
        return True
    return False


def test_nothing_changes_while_nothing_is_due() -> None:
    material = renewed(None, NAMES, LIVES, NOW)
    assert is_usable(material, NOW)
    assert renewed(material, NAMES, LIVES, NOW + timedelta(days=1)) is material


def test_a_server_that_read_the_bundle_an_overlap_ago_always_trusts_the_leaf() -> None:
    step, material = timedelta(hours=1), renewed(None, NAMES, LIVES, NOW)
    bundles, leaves, authorities = [material.bundle], {material.leaf}, set(material.authorities)
    for hour in range(1, 24 * 120):
        now = NOW + step * hour
        material = renewed(material, NAMES, LIVES, now)
        assert is_usable(material, now)
        for old in bundles[-2:]:
            assert trusts(old, material.leaf), f"after {hour} hours"
        bundles.append(material.bundle)
        leaves.add(material.leaf)
        authorities |= set(material.authorities)
    assert (len(authorities), len(leaves)) >= (5, 19)
    assert len(material.authorities) <= 2


def test_a_certificate_that_nobody_renews_outlives_its_process() -> None:
    material = unrenewed("metrics.ns.svc", NOW)
    assert is_usable(material, NOW + timedelta(days=3600))
    assert renewed(material, ("metrics.ns.svc",), Lives(), NOW + timedelta(days=1000)) is material


def test_names_that_change_get_a_new_leaf_of_the_same_authority() -> None:
    material = renewed(None, NAMES, LIVES, NOW)
    other = renewed(material, ("other.ns.svc",), LIVES, NOW + timedelta(minutes=1))
    assert (other.authorities, other.leaf != material.leaf) == (material.authorities, True)


def test_two_deployments_that_share_the_secret_do_not_replace_each_others_leaf_for_ever() -> None:
    first, second, at = ("a.ns.svc", "127.0.0.1"), ("b.ns.svc",), NOW
    material = renewed(renewed(None, first, LIVES, at), second, LIVES, at)
    for names in (first, second, first):
        assert renewed(material, names, LIVES, at) is material
    leaf = x509.load_pem_x509_certificate(material.leaf)
    found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(each.value) for each in found} == {*first, *second}
    later = renewed(material, second, LIVES, at + LIVES.leaf * 0.7)
    assert later.leaf != material.leaf
    assert renewed(later, first, LIVES, at + LIVES.leaf * 0.7) is later


@pytest.mark.parametrize("part", ["authorities", "authority_key", "leaf", "leaf_key"])
@pytest.mark.parametrize("text", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_secret_that_somebody_edited_is_made_anew(part: str, text: bytes) -> None:
    spoilt = msgspec.structs.replace(
        renewed(None, NAMES, LIVES, NOW), **{part: (text,) if part == "authorities" else text}
    )
    assert not is_usable(spoilt, NOW)
    assert is_usable(renewed(spoilt, NAMES, LIVES, NOW), NOW)


def test_a_foreign_authority_is_not_usable() -> None:
    material = renewed(None, NAMES, LIVES, NOW)
    certificate, key = issue_authority(LIVES.authority, NOW)
    foreign = Material((certificate,), key, material.leaf, material.leaf_key)
    assert not is_usable(foreign, NOW)


@pytest.mark.parametrize("bundle", [b"", b"nonsense", b"\xff"])
def test_what_is_no_bundle_holds_nothing(bundle: bytes) -> None:
    assert split_bundle(bundle) == ()
