"""The API as settings have it: where it listens, whether over TLS."""

import ssl
from pathlib import Path

import aiohttp
import pytest

from fairlead import serving
from fairlead.cluster.clock import RealClock
from fairlead.cluster.connector import connector
from fairlead.cluster.metrics import Metrics
from fairlead.serving import listening
from fairlead.settings import BadSettings, Settings, load
from fairlead.web.probes import Probes
from fairlead.web.routes import RouteTable
from tests.web.test_dispatcher import a_pair


async def status(url: str, tls: ssl.SSLContext | bool = True) -> int:
    async with aiohttp.ClientSession(connector=connector()) as http, http.get(url, ssl=tls) as answer:
        return answer.status


async def test_plain_http_where_there_is_no_certificate() -> None:
    metrics, routes = Metrics(), RouteTable()
    settings = Settings(listen="127.0.0.1:0")
    async with listening(settings, Probes(metrics.registry), routes, RealClock(), metrics) as url:
        assert url.startswith("http://127.0.0.1:")
        for path in ("/healthz", "/metrics", "/docs", "/openapi.json"):
            assert await status(url + path) == 200


@pytest.mark.parametrize("listen", [":0", "0.0.0.0:0"])
async def test_every_address_is_called_by_one_that_can_be_reached(listen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name alone is looked at: tests listen on loopback only."""

    class Bound:
        async def __aenter__(self) -> tuple[str, int]:
            return "0.0.0.0", 8470

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr(serving, "served", lambda *_: Bound())
    metrics = Metrics()
    settings = Settings(listen=listen)
    async with listening(settings, Probes(metrics.registry), RouteTable(), RealClock(), metrics) as url:
        assert url == "http://127.0.0.1:8470"


async def test_tls_where_there_is_a_certificate(tmp_path: Path) -> None:
    certificate, key, authority = a_pair(tmp_path, "one")
    settings = load(
        environment={
            "FAIRLEAD_LISTEN": "127.0.0.1:0",
            "FAIRLEAD_TLS_CERTIFICATE": str(certificate),
            "FAIRLEAD_TLS_KEY": str(key),
        }
    )
    metrics = Metrics()
    async with listening(settings, Probes(metrics.registry), RouteTable(), RealClock(), metrics) as url:
        assert url.startswith("https://127.0.0.1:")
        assert await status(f"{url}/healthz", ssl.create_default_context(cadata=authority)) == 200
        with pytest.raises(aiohttp.ClientError):
            await status(url.replace("https:", "http:") + "/healthz")


def test_half_a_pair_is_refused() -> None:
    with pytest.raises(BadSettings, match="tls: set both certificate and key, or neither"):
        load(environment={"FAIRLEAD_TLS_KEY": "key.pem"})


async def test_a_certificate_that_is_none_is_the_users_to_mend(tmp_path: Path) -> None:
    settings = load(
        environment={"FAIRLEAD_TLS_CERTIFICATE": str(tmp_path / "no"), "FAIRLEAD_TLS_KEY": str(tmp_path / "no")}
    )
    metrics = Metrics()
    with pytest.raises(BadSettings, match="cannot be read"):
        async with listening(settings, Probes(metrics.registry), RouteTable(), RealClock(), metrics):
            pass
