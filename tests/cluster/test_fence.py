"""Behind a closed fence nothing leaves: not a request, not the rest of one, not over TLS."""

import asyncio
import math
import socket
import ssl
from pathlib import Path

import pytest

from fairlead.cluster.errors import NotLeader, Unavailable
from fairlead.cluster.fence import FenceClosed, FencedSocket, fenced_sockets
from fairlead.model.kinds import CONFIG_MAPS
from fairlead.testing.scripted_server import ScriptedServer, reply
from tests.cluster.kit import Gate, client_of, config_map, held
from tests.rigs.kube.certificates import Authority


@pytest.fixture
async def secure(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority(tmp_path / "ca")
    ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.load_cert_chain(*authority.server())
    return ours, ssl.create_default_context(cafile=authority.ca_file)


async def test_an_open_fence_lets_everything_pass(server: ScriptedServer) -> None:
    server.always("*", reply(config_map()))
    async with client_of(server, fence=Gate()) as api:
        assert await api.create(CONFIG_MAPS, config_map(), "ns") == held()


async def test_behind_a_closed_fence_no_connection_is_even_made(server: ScriptedServer) -> None:
    gate = Gate()
    gate.open = False
    async with client_of(server, fence=gate) as api:
        with pytest.raises(NotLeader, match=r"POST .*: not sent, the lease has run out"):
            await api.create(CONFIG_MAPS, config_map(), "ns")
    assert (server.requests, server.peak_connections) == ([], 0)


async def test_a_fence_that_closes_between_the_look_and_the_send_breaks_the_connection(server: ScriptedServer) -> None:
    async with client_of(server, fence=Gate(looks=1)) as api:
        with pytest.raises(Unavailable, match="lease ran out before the request was sent"):
            await api.create(CONFIG_MAPS, config_map(), "ns")
    await server.wait_until_left()
    assert server.requests == []


async def test_a_kept_connection_is_fenced_too(server: ScriptedServer) -> None:
    server.always("*", reply(config_map()))
    gate = Gate()
    async with client_of(server, fence=gate) as api:
        await api.create(CONFIG_MAPS, config_map(), "ns")
        gate.looks = 1
        with pytest.raises(Unavailable):
            await api.create(CONFIG_MAPS, config_map(), "ns")
    await server.wait_until_left()
    assert len(server.requests) == 1


async def test_the_tail_that_the_kernel_did_not_take_at_once_is_fenced_too() -> None:
    gate, loop, lost = Gate(), asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    class Sender(asyncio.Protocol):
        def connection_lost(self, problem: Exception | None) -> None:
            lost.set_result(problem)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = fenced_sockets(gate)((socket.AF_INET, socket.SOCK_STREAM, 0, "", listener.getsockname()))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        await loop.sock_connect(made, listener.getsockname())
        transport, _ = await loop.create_connection(Sender, sock=made)
        far, _ = listener.accept()
        with far:
            transport.write(b"x" * 10_000_000)
            gate.open = False
            far.setblocking(False)
            received = 0
            while chunk := await loop.sock_recv(far, 1 << 20):
                received += len(chunk)
    assert isinstance(await lost, FenceClosed)
    assert 0 < received < 10_000_000


async def test_the_fence_holds_under_tls(secure: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    theirs, ours = secure
    gate = Gate()
    async with ScriptedServer(theirs) as server:
        server.always("*", reply(config_map()))
        async with client_of(server, tls=ours, fence=gate) as api:
            await api.create(CONFIG_MAPS, config_map(), "ns")
            gate.looks = 1
            with pytest.raises(Unavailable):
                await api.create(CONFIG_MAPS, config_map(), "ns")
            with pytest.raises(NotLeader):
                await api.create(CONFIG_MAPS, config_map(), "ns")
        await server.wait_until_left()
        assert len(server.requests) == 1


async def test_a_fence_that_closes_during_the_handshake_ends_it(secure: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    theirs, ours = secure
    async with ScriptedServer(theirs) as server:
        async with client_of(server, tls=ours, fence=Gate(looks=1), timeout_s=2.0) as api:
            with pytest.raises(Unavailable) as caught:
                await api.create(CONFIG_MAPS, config_map(), "ns")
        assert not caught.value.may_have_happened
        assert server.requests == []


@pytest.mark.parametrize(("timeout_s", "told"), [(5.0, "5000ms"), (4.5, "4500ms"), (0.25, "250ms")])
async def test_the_server_gives_a_fenced_write_up_no_later_than_we_do(
    server: ScriptedServer, timeout_s: float, told: str
) -> None:
    server.always("*", reply(config_map()))
    async with client_of(server, fence=Gate(), timeout_s=timeout_s) as api:
        await api.create(CONFIG_MAPS, config_map(), "ns")
        await api.get(CONFIG_MAPS, "a", "ns")
    write, read = server.requests
    assert write.query["timeout"] == told
    assert math.isclose(float(told.removesuffix("ms")), timeout_s * 1000)
    assert "timeout" not in read.query


def test_every_way_a_transport_sends_asks_first() -> None:
    gate = Gate()
    made = fenced_sockets(gate)((2, 1, 6, "", ("127.0.0.1", 0)))
    with made:
        assert isinstance(made, FencedSocket)
        assert made.gettimeout() == 0.0
        gate.open = False
        with pytest.raises(FenceClosed):
            made.send(b"x")
        with pytest.raises(FenceClosed):
            made.sendmsg([b"x"])


@pytest.mark.parametrize("way", ["send", "sendmsg"])
def test_a_send_during_which_the_fence_closes_resets_the_connection(way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = fenced_sockets(Gate(looks=1))((socket.AF_INET, socket.SOCK_STREAM, 0, "", listener.getsockname()))
        made.setblocking(True)
        with made:
            made.connect(listener.getsockname())
            far, _ = listener.accept()
            with far:
                with pytest.raises(FenceClosed, match="while the request was being sent"):
                    made.send(b"x") if way == "send" else made.sendmsg([b"x"])
                assert far.recv(1) == b"x"
                with pytest.raises(ConnectionResetError):
                    far.recv(1)


async def test_a_caller_hears_that_a_write_reset_in_its_send_may_have_happened(server: ScriptedServer) -> None:
    server.always("*", reply(config_map()))
    # Open for the client's own look and for the one before the send; closed when the request has left.
    async with client_of(server, fence=Gate(looks=2)) as api:
        with pytest.raises(Unavailable, match="the connection was reset") as caught:
            await api.create(CONFIG_MAPS, config_map(), "ns")
    assert caught.value.may_have_happened
    await server.wait_until_left()
