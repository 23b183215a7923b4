"""Health, readiness and metrics, as Kubernetes components serve them."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
import structlog
from prometheus_client import CollectorRegistry

from fairlead.cluster.metrics import Metrics
from fairlead.settings import BadSettings
from fairlead.web.probes import Probes, served


@pytest.fixture
def probes() -> Probes:
    return Probes(Metrics().registry)


@pytest.fixture
async def url(probes: Probes) -> AsyncIterator[str]:
    async with served(probes.routes(), "127.0.0.1", 0) as (host, port):
        yield f"http://{host}:{port}"


async def ask(url: str, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as http, http.get(url + path) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_all_is_well(url: str, path: str) -> None:
    assert await ask(url, path) == (200, "ok")


async def test_a_check_that_fails_is_named(url: str, probes: Probes) -> None:
    probes.readiness["kubernetes"] = lambda: "no answer yet"
    probes.readiness["mirror"] = lambda: None
    expected = "[+]ping ok\n[-]kubernetes failed: no answer yet\n[+]mirror ok\ncheck failed\n"
    assert await ask(url, "/readyz") == (503, expected)
    assert await ask(url, "/healthz") == (200, "ok"), "not ready is not ill"


async def test_what_is_ill_is_not_ready(url: str, probes: Probes) -> None:
    probes.health["loop"] = lambda: "stuck"
    assert [(await ask(url, path))[0] for path in ("/healthz", "/livez", "/readyz")] == [503, 503, 503]


async def test_every_check_can_be_seen(url: str, probes: Probes) -> None:
    probes.readiness["kubernetes"] = lambda: None
    assert await ask(url, "/readyz?verbose") == (200, "[+]ping ok\n[+]kubernetes ok\ncheck passed\n")


async def test_metrics_are_served_as_prometheus_reads_them(url: str) -> None:
    async with aiohttp.ClientSession() as http, http.get(f"{url}/metrics") as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        assert "# TYPE rest_client_requests_total counter" in await answer.text()


async def test_nothing_else_is_served(url: str) -> None:
    assert (await ask(url, "/"))[0] == 404
    async with aiohttp.ClientSession() as http, http.post(f"{url}/healthz") as answer:
        assert answer.status == 405


async def test_a_port_that_is_taken_is_the_users_to_mend(url: str) -> None:
    port = int(url.rpartition(":")[2])
    with pytest.raises(BadSettings, match=f"listen: cannot listen on 127.0.0.1:{port}: "):
        async with served(Probes(CollectorRegistry()).routes(), "127.0.0.1", port):
            pass


async def test_the_setting_of_each_listener_is_named() -> None:
    with structlog.testing.capture_logs() as logged:
        async with served([], "127.0.0.1", 0, setting="webhooks.listen") as (_, port):
            with pytest.raises(BadSettings, match=f"modules.listen: cannot listen on 127.0.0.1:{port}: "):
                async with served([], "127.0.0.1", port, setting="modules.listen"):
                    pass
    assert [(each["event"], each["setting"]) for each in logged] == [("listening", "webhooks.listen")]


async def test_an_address_that_is_not_ours_is_the_users_to_mend() -> None:
    with pytest.raises(BadSettings, match=r"listen: cannot listen on 203\.0\.113\.1:0: "):
        async with served([], "203.0.113.1", 0):
            pass
