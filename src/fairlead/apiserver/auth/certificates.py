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


FRONT_PROXY = "front-proxy-client"


class Certificates:
    def __init__(self, folder: Path, now: datetime) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.authority_file = folder / "ca.crt"
        self._authority_key = folder / "ca.key"
        self._folder = folder
        self._front_proxy = (folder / "front-proxy-ca.crt", folder / "front-proxy-ca.key")
        if not self.authority_file.exists():
            self._make_authority(now, self.authority_file, self._authority_key, "fairlead embedded cluster")
        if not self._front_proxy[0].exists():
            self._make_authority(now, *self._front_proxy, "fairlead front proxy")

    @property
    def front_proxy_authority(self) -> str:
        """The authority by which other API servers recognise this one."""
        return self._front_proxy[0].read_text()

    def front_proxy_context(self, now: datetime, authority: str, insecure: bool) -> ssl.SSLContext:
        """TLS towards a server of an APIService, with our certificate as the front proxy."""
        certificate, key = self._leaf(FRONT_PROXY, now, (), (), self._front_proxy, ExtendedKeyUsageOID.CLIENT_AUTH)
        write_secret(self._folder / "front-proxy-client.crt", certificate)
        write_secret(self._folder / "front-proxy-client.key", key)
        context = ssl.create_default_context(cadata=authority or None)
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(self._folder / "front-proxy-client.crt", self._folder / "front-proxy-client.key")
        return context

    @property
    def authority(self) -> str:
        return self.authority_file.read_text()

    def server_context(self, now: datetime, names: tuple[str, ...], addresses: tuple[str, ...]) -> ssl.SSLContext:
        """TLS for a server under these names, with a fresh leaf."""
        pair = (self.authority_file, self._authority_key)
        certificate, key = self._leaf("fairlead-apiserver", now, names, addresses, pair)
        write_secret(self._folder / "server.crt", certificate)
        write_secret(self._folder / "server.key", key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # whatever Python was built with
        context.load_cert_chain(self._folder / "server.crt", self._folder / "server.key")
        return context

    @staticmethod
    def _make_authority(now: datetime, file: Path, key_file: Path, called: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
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
        write_secret(key_file, _pem(key))
        write_secret(file, certificate.public_bytes(serialization.Encoding.PEM))

    @staticmethod
    def _leaf(
        common_name: str,
        now: datetime,
        names: tuple[str, ...],
        addresses: tuple[str, ...],
        signed_by: tuple[Path, Path],
        usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
    ) -> tuple[bytes, bytes]:
        authority = x509.load_pem_x509_certificate(signed_by[0].read_bytes())
        signer = serialization.load_pem_private_key(signed_by[1].read_bytes(), None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
            .issuer_name(authority.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + LEAF_LIFE)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(signer, hashes.SHA256())
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
