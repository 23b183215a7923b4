"""The embedded cluster's own certificate authority and server certificate, made once per data folder."""

import ipaddress
import ssl
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlead.apiserver.auth.tokens import write_secret

LIFE = timedelta(days=3650)
# A leaf is made anew at every start whose leaf has less than this left; the authority lives with the folder.
LEAF_LIFE = timedelta(days=365)


class Certificates:
    def __init__(self, folder: Path, now: datetime) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.authority_file = folder / "ca.crt"
        self._authority_key = folder / "ca.key"
        self._folder = folder
        if not self.authority_file.exists():
            self._make_authority(now)

    @property
    def authority(self) -> str:
        return self.authority_file.read_text()

    def server_context(self, now: datetime, names: tuple[str, ...], addresses: tuple[str, ...]) -> ssl.SSLContext:
        """TLS for a server under these names, with a fresh leaf."""
        certificate, key = self._leaf("fairlead-apiserver", now, names, addresses)
        write_secret(self._folder / "server.crt", certificate)
        write_secret(self._folder / "server.key", key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._folder / "server.crt", self._folder / "server.key")
        return context

    def _make_authority(self, now: datetime) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fairlead embedded cluster")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        write_secret(self._authority_key, _pem(key))
        write_secret(self.authority_file, certificate.public_bytes(serialization.Encoding.PEM))

    def _leaf(
        self, common_name: str, now: datetime, names: tuple[str, ...], addresses: tuple[str, ...]
    ) -> tuple[bytes, bytes]:
        authority = x509.load_pem_x509_certificate(self.authority_file.read_bytes())
        signer = serialization.load_pem_private_key(self._authority_key.read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + LEAF_LIFE)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
            .sign(signer, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM), _pem(key)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
