"""The server's certificate: from files, read again when they change, so that a renewal needs no restart; or issued."""

import ssl
import tempfile
from pathlib import Path

import structlog

from fairlead.cluster.clock import Clock
from fairlead.settings import BadSettings
from fairlead.web.authority import Material

log = structlog.get_logger("fairlead.api")

LOOK_EVERY_S = 60.0


class ServingCertificate:
    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self.context = serving_context()
        self._seen = self._moments()
        self._load(self.context)

    async def follow(self, clock: Clock) -> None:
        """Take up new files for connections made from then on, until cancelled."""
        while True:
            await clock.sleep(LOOK_EVERY_S)
            # Not in a thread: OpenSSL does not bear a context that changes while a handshake reads it.
            self.look_again()

    def look_again(self) -> None:
        """Load the files if they have changed; a bad pair is logged and the old one stays in use."""
        try:
            seen = self._moments()
            if seen == self._seen:
                return
            self._load(serving_context())  # a bad pair must not half replace a good one
            self._load(self.context)
            self._seen = seen
            log.info("certificate renewed", file=str(self._certificate))
        except BadSettings as problem:
            # Half of a renewal, perhaps: the next look will find the rest.
            log.warning("certificate not renewed", problem=str(problem))

    def _moments(self) -> tuple[int, int]:
        try:
            return self._certificate.stat().st_mtime_ns, self._key.stat().st_mtime_ns
        except OSError as problem:
            raise BadSettings(f"tls: {problem.filename} cannot be read: {problem.strerror}") from None

    def _load(self, context: ssl.SSLContext) -> None:
        try:
            # A key under a passphrase is refused: without one to try, OpenSSL would ask the terminal for it.
            context.load_cert_chain(self._certificate, self._key, password="")
        except (ssl.SSLError, OSError) as problem:
            raise BadSettings(
                f"tls: {self._certificate} and {self._key} do not make a certificate and its key: {problem}"
            ) from None


def serving_context() -> ssl.SSLContext:
    """Without a certificate yet. The oldest protocol is named: what Python is built with need not forbid any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def load_leaf(context: ssl.SSLContext, material: Material) -> None:
    """Serve with this leaf from the next handshake on; OpenSSL reads it from a file only, here one for us alone."""
    with tempfile.TemporaryDirectory(prefix="fairlead-") as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(0o600)
        pair.write_bytes(material.leaf_key + material.leaf)
        context.load_cert_chain(pair)
