"""The embedded cluster's own certificate authority and server certificate, made once per data folder."""

import ipaddress
import ssl
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairlead.apiserver.auth.tokens import private_pem, write_secret

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
        leaf = self._leaf(FRONT_PROXY, now, (), (), self._front_proxy, ExtendedKeyUsageOID.CLIENT_AUTH)
        context = ssl.create_default_context(cadata=authority or None)
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return self._with_leaf(context, "front-proxy-client", *leaf)

    @property
    def authority(self) -> str:
        return self.authority_file.read_text()

    def server_context(self, now: datetime, names: tuple[str, ...], addresses: tuple[str, ...]) -> ssl.SSLContext:
        """TLS for a server under these names, with a fresh leaf."""
        leaf = self._leaf("fairlead-apiserver", now, names, addresses, (self.authority_file, self._authority_key))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # whatever Python was built with
        return self._with_leaf(context, "server", *leaf)

    def _with_leaf(self, context: ssl.SSLContext, stem: str, certificate: bytes, key: bytes) -> ssl.SSLContext:
        files = self._folder / f"{stem}.crt", self._folder / f"{stem}.key"
        for file, content in zip(files, (certificate, key), strict=True):
            write_secret(file, content)
        context.load_cert_chain(*files)
        return context

    @staticmethod
    def _make_authority(now: datetime, file: Path, key_file: Path, called: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called)])
        certificate = (
            _builder(name, name, key, now, LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .sign(key, hashes.SHA256())
        )
        write_secret(key_file, private_pem(key))
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
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        builder = (
            _builder(name, authority.subject, key, now, LEAF_LIFE)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(signer, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), private_pem(key)


def _builder(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + life)
    )


_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
