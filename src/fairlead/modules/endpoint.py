"""The kubelet endpoint of module nodes: what API servers call for `kubectl logs`, and metrics servers for usage.

TLS by a certificate from files, which is taken up again when they change. Callers are the API server, by its client
certificate, and bearers of tokens that the cluster knows and allows `nodes/proxy`.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead.cluster.client import Client
from fairlead.cluster.clock import Clock
from fairlead.nodes.kubelet import VirtualKubelet
from fairlead.nodes.server import Access, KubeletServer, NodePorts, reviewed
from fairlead.settings import BadSettings, KubeletSettings
from fairlead.web.tls import ServingCertificate


def certificate_of(settings: KubeletSettings) -> ServingCertificate | None:
    """None where no endpoint is served; BadSettings where its files cannot be used."""
    if not settings.listen:
        return None
    if not (settings.certificate and settings.key):
        raise BadSettings("modules.kubelet: an endpoint needs a certificate and its key")
    certificate = ServingCertificate(Path(settings.certificate), Path(settings.key))
    if settings.client_ca:
        try:
            certificate.context.load_verify_locations(settings.client_ca)
        except (OSError, ssl.SSLError) as problem:
            raise BadSettings(f"modules.kubelet.clientCa: {settings.client_ca}: {problem}") from None
        # Others come with a token.
        certificate.context.verify_mode = ssl.CERT_OPTIONAL
    return certificate


@asynccontextmanager
async def kubelet_endpoint(
    settings: KubeletSettings, kubelet: VirtualKubelet, reader: Client, clock: Clock
) -> AsyncIterator[NodePorts | None]:
    """Served for as long as the block runs; yields the ports of the nodes, None where none is served."""
    certificate = certificate_of(settings)
    if certificate is None:
        yield None
        return
    host, _, port = settings.listen.rpartition(":")
    access = Access(certificate.context, check=reviewed(reader))
    following = asyncio.create_task(certificate.follow(clock), name="kubelet endpoint: certificate")
    try:
        host = host.strip("[]") or "0.0.0.0"
        # A base's address is not ours: its node is told from others by a port of its own.
        ports = NodePorts(host)
        async with KubeletServer(kubelet, access, clock=clock, ports=ports).served([host], int(port)) as bound:
            ports.shared = bound
            yield ports
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
