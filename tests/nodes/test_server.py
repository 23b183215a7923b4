"""The kubelet's API on a real socket: who may ask, what is told, what is not there."""

import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.cluster.clock import RealClock
from fairlead.cluster.connector import connector
from fairlead.nodes.provider import LogOptions, NotNow, Unsupported, Usage
from fairlead.nodes.server import Access, KubeletServer, LogProblem, log_options
from fairlead.nodes.spec import KubeletPod
from tests.nodes.kit import T0, at, pod
from tests.rigs.kube.certificates import Authority


class Played:
    """A provider that has written one log and used a little."""

    def __init__(self) -> None:
        self.asked: list[LogOptions] = []

    def logs(self, uid: str, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        self.asked.append(options)
        if options.previous:
            raise Unsupported("there was no attempt before")

        async def text() -> AsyncIterator[bytes]:
            if options.limit_bytes == 0:
                raise NotNow("the log cannot be read now")
            yield b"one\n"
            yield b"two\n"

        return text()

    def usage(self, uid: str) -> Mapping[str, Usage]:
        return {"main": Usage(cpu_s=1.5, memory_bytes=1024)}


class Pods:
    def __init__(self, provider: Played, *held: KubeletPod) -> None:
        self._provider, self._held = provider, held

    def pod(self, namespace: str, name: str) -> KubeletPod | None:
        return next((p for p in self._held if (p.metadata.namespace, p.metadata.name) == (namespace, name)), None)

    def pods(self) -> list[KubeletPod]:
        return list(self._held)

    def provider_of(self, held: KubeletPod) -> Played:
        return self._provider


class Kubelet:
    addresses = {"node": "127.0.0.1", "far": "127.0.0.2"}

    def __init__(self, pods: Pods) -> None:
        self.pods = pods


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


@pytest.fixture
def played() -> Played:
    return Played()


@pytest.fixture
async def url(authority: Authority, played: Played) -> AsyncIterator[str]:
    pair = authority.server()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    tls.load_verify_locations(authority.ca_file)
    tls.verify_mode = ssl.CERT_OPTIONAL
    far = pod("far", nodeName="far")
    kubelet: Any = Kubelet(Pods(played, pod(), far))
    async with KubeletServer(kubelet, Access(tls, token="secret"), clock=RealClock()).served() as port:
        yield f"https://127.0.0.1:{port}"


async def ask(
    authority: Authority, url: str, *, token: str = "secret", certificate: str = "", method: str = "GET"
) -> tuple[int, str]:
    tls = ssl.create_default_context(cafile=str(authority.ca_file))
    if certificate:
        pair = authority.client(certificate)
        tls.load_cert_chain(pair.cert, pair.key)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(connector=connector(ssl=tls)) as session,
        session.request(method, url, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


PATHS = ["/pods", "/stats/summary", "/metrics/resource", "/healthz", "/containerLogs/ns/p/main", "/exec/ns/p/main"]


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_is_told_to_strangers(authority: Authority, url: str, path: str) -> None:
    assert (await ask(authority, url + path, token=""))[0] == 401
    assert (await ask(authority, url + path, token="wrong"))[0] == 401
    assert (await ask(authority, url + path, token="", certificate="somebody"))[0] == 401


async def test_an_api_server_is_known_by_its_certificate(authority: Authority, url: str) -> None:
    known = await ask(authority, f"{url}/healthz", token="", certificate="kube-apiserver-kubelet-client")
    assert known == (200, "ok")


async def test_logs_are_told_with_the_options_asked_for(authority: Authority, url: str, played: Played) -> None:
    path = f"{url}/containerLogs/ns/p/main?follow=true&tailLines=5&timestamps=true&limitBytes=100"
    assert await ask(authority, path) == (200, "one\ntwo\n")
    assert played.asked == [LogOptions(follow=True, tail_lines=5, timestamps=True, limit_bytes=100)]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("ns/nobody/main", 404, 'pod "nobody" not found'),
        ("ns/p/nobody", 400, "container nobody is not valid for pod p"),
        ("ns/p/main?previous=true", 400, "there was no attempt before"),
        ("ns/p/main?tailLines=-1", 422, "tailLines"),
        ("ns/p/main?limitBytes=0", 503, "the log cannot be read now"),
    ],
)
async def test_a_log_that_cannot_be_had_says_why(
    authority: Authority, url: str, path: str, status: int, said: str
) -> None:
    answer = await ask(authority, f"{url}/containerLogs/{path}")
    assert answer[0] == status
    assert said in answer[1]


async def test_pods_and_usage_are_those_of_the_node_that_was_called(authority: Authority, url: str) -> None:
    status, text = await ask(authority, f"{url}/pods")
    assert (status, '"name":"p"' in text, '"name":"far"' in text) == (200, True, False)
    _, summary = await ask(authority, f"{url}/stats/summary")
    assert '"usageCoreNanoSeconds":1500000000' in summary
    _, metrics = await ask(authority, f"{url}/metrics/resource")
    assert 'container_memory_working_set_bytes{container="main",namespace="ns",pod="p"} 1024' in metrics


@pytest.mark.parametrize("verb", ["exec", "attach", "portForward"])
async def test_what_is_not_there_says_so(authority: Authority, url: str, verb: str) -> None:
    status, text = await ask(authority, f"{url}/{verb}/ns/p/main", method="POST")
    assert status == 501
    assert text.startswith(verb)


def test_a_server_that_could_know_nobody_does_not_start() -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    kubelet: Any = Kubelet(Pods(Played()))
    with pytest.raises(ValueError, match="needs a token"):
        KubeletServer(kubelet, Access(tls), clock=RealClock())


def test_since_is_a_moment_or_a_span() -> None:
    assert log_options({"sinceSeconds": "60"}, at(100)).since == at(40)
    assert log_options({"sinceTime": "2026-01-01T00:00:00Z"}, at(100)).since == T0
    with pytest.raises(LogProblem):
        log_options({"sinceSeconds": "soon"}, T0)
