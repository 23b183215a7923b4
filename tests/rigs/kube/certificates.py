"""A throw-away certificate authority: the servers' certificate, client certificates, the service-account key.

Used by the rig only. Keys never leave the rig's temporary folder.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE: Final = datetime.timedelta(days=2)


class KeyPair(NamedTuple):
    cert: Path
    key: Path


def write_ec_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return key


class Authority:
    """Signs certificates into one folder; `ca_file` is what clients verify against."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._key = write_ec_key(folder / "ca.key")
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fairlead-rig-ca")])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        cert = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca_file: Final = folder / "ca.crt"
        self.ca_file.write_bytes(cert.public_bytes(serialization.Encoding.PEM))

    def server(self) -> KeyPair:
        """A certificate for 127.0.0.1 and localhost."""
        names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
        return self._issue("server", [], ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """A certificate that kube-apiserver reads as this user in these groups."""
        return self._issue(user, groups, ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _issue(
        self, name: str, groups: Sequence[str], purpose: x509.ObjectIdentifier, names: Sequence[x509.GeneralName]
    ) -> KeyPair:
        stem = f"{name.replace(':', '-').replace('/', '-')}-{x509.random_serial_number():x}"[:80]
        pair = KeyPair(self._folder / f"{stem}.crt", self._folder / f"{stem}.key")
        key = write_ec_key(pair.key)
        subject = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        builder = self._builder(subject, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([purpose]), critical=False
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        pair.cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return pair

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + LIFE)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
