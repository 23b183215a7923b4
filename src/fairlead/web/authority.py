"""The webhooks' serving certificates and their authority: issued, renewed and replaced without a gap.

Pure but for the randomness of keys: what there is and now → what there should be. An authority that is replaced stays
trusted beside the new one until the leaf it signed is out of use: first both are trusted, then the leaf is signed by
the new one, then the old one goes.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks differ: a certificate is valid from a little before it was made.
BACKDATED: Final = timedelta(hours=1)
# Renewed when this share of its life is over.
RENEW_AT: Final = 2 / 3
# Of one leaf, for all deployments that share it.
MOST_NAMES: Final = 32


@dataclass(frozen=True, slots=True)
class Lives:
    """How long certificates are valid, and how long old and new authorities are trusted together."""

    authority: timedelta = timedelta(days=3650)
    leaf: timedelta = timedelta(days=90)
    overlap: timedelta = timedelta(minutes=5)


class Material(msgspec.Struct, frozen=True):
    """PEM texts. `authorities` are all that are trusted, the newest first; `authority_key` is the newest's."""

    authorities: tuple[bytes, ...]
    authority_key: bytes
    leaf: bytes
    leaf_key: bytes

    @property
    def bundle(self) -> bytes:
        return b"".join(self.authorities)


def renewed(material: Material | None, names: Sequence[str], lives: Lives, now: datetime) -> Material:
    """What there should be now; the same object when nothing is due.

    A leaf keeps the names it has: two deployments that share it, each with names of its own, both find theirs in it
    and do not replace each other's for ever.
    """
    if material is None or not is_usable(material, now):
        return _fresh(names, lives, now)
    newest = x509.load_pem_x509_certificate(material.authorities[0])
    leaf = x509.load_pem_x509_certificate(material.leaf)
    if _is_due(newest, now) and _signed_by(leaf, newest):
        certificate, key = issue_authority(lives.authority, now)
        return msgspec.structs.replace(
            material, authorities=(certificate, *material.authorities[:1]), authority_key=key
        )
    is_trusted = len(material.authorities) == 1 or _issued_at(newest) + lives.overlap <= now
    others = sorted(_names(leaf) - set(names))[: MOST_NAMES - len(names)]
    if is_trusted and (_is_due(leaf, now) or not _signed_by(leaf, newest) or not _names(leaf) >= set(names)):
        certificate, key = issue_leaf(material, (*names, *others), lives.leaf, now)
        return msgspec.structs.replace(material, leaf=certificate, leaf_key=key)
    if len(material.authorities) > 1 and _signed_by(leaf, newest) and _issued_at(leaf) + lives.overlap <= now:
        return msgspec.structs.replace(material, authorities=material.authorities[:1])
    return material


def unrenewed(name: str, now: datetime) -> Material:
    """For a process that serves with a certificate of its own as long as it runs: the leaf lives as its authority."""
    return renewed(None, (name,), Lives(leaf=Lives().authority), now)


def is_usable(material: Material, now: datetime) -> bool:
    """Whether the parts belong together and are valid; a Secret may have been edited by hand."""
    try:
        trusted = [x509.load_pem_x509_certificate(each) for each in material.authorities]
        leaf = x509.load_pem_x509_certificate(material.leaf)
        key = serialization.load_pem_private_key(material.authority_key, None)
        leaf_key = serialization.load_pem_private_key(material.leaf_key, None)
    except (ValueError, TypeError):
        return False
    return (
        bool(trusted)
        and all(each.not_valid_after_utc > now for each in (*trusted, leaf))
        and trusted[0].public_key() == key.public_key()
        and leaf.public_key() == leaf_key.public_key()
        and any(_signed_by(leaf, each) for each in trusted)
    )


def split_bundle(bundle: bytes) -> tuple[bytes, ...]:
    """The certificates of a bundle, one PEM text each; empty when it is none."""
    try:
        return tuple(each.public_bytes(serialization.Encoding.PEM) for each in x509.load_pem_x509_certificates(bundle))
    except ValueError:
        return ()


def issue_authority(life: timedelta, now: datetime) -> tuple[bytes, bytes]:
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: two authorities of one name in a bundle would be mixed up.
    name = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, f"fairlead webhooks {x509.random_serial_number():x}"[:60])]
    )
    built = (
        _dated(life, now)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pem(built.sign(key, hashes.SHA256())), _key_pem(key)


def issue_leaf(material: Material, names: Sequence[str], life: timedelta, now: datetime) -> tuple[bytes, bytes]:
    authority = x509.load_pem_x509_certificate(material.authorities[0])
    signer = serialization.load_pem_private_key(material.authority_key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    built = (
        _dated(life, now)
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fairlead-webhooks")]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return _pem(built.sign(signer, hashes.SHA256())), _key_pem(key)


def _fresh(names: Sequence[str], lives: Lives, now: datetime) -> Material:
    certificate, key = issue_authority(lives.authority, now)
    material = Material((certificate,), key, b"", b"")
    leaf, leaf_key = issue_leaf(material, names, lives.leaf, now)
    return msgspec.structs.replace(material, leaf=leaf, leaf_key=leaf_key)


def _dated(life: timedelta, now: datetime) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - BACKDATED).not_valid_after(now + life)


def _issued_at(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + BACKDATED


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    issued_at = _issued_at(certificate)
    return now >= issued_at + (certificate.not_valid_after_utc - issued_at) * RENEW_AT


def _signed_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _names(leaf: x509.Certificate) -> set[str]:
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(each.value) for each in found}


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
