"""What holds for every route: callers are known, bodies bounded, failures of one shape."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fairlead.apiserver.auth.certificates import Certificates
from fairlead.apiserver.embedded import Embedded
from fairlead.cluster.client import Client
from fairlead.cluster.clock import RealClock
from fairlead.cluster.connector import connector
from fairlead.cluster.errors import AlreadyExists, no_answer
from fairlead.settings import BadSettings
from fairlead.testing.clock import ManualClock
from fairlead.web.dispatcher import Dispatcher
from fairlead.web.guard import Action, Guard, TokenReview, TokenStatus, User
from fairlead.web.limits import Limits
from fairlead.web.probes import served
from fairlead.web.problems import Failure, FieldProblem, Problem
from fairlead.web.routes import Answer, Call, Route, RouteTable
from fairlead.web.tls import ServingCertificate
from tests.web.conftest import Api, serving


class Hello(msgspec.Struct, rename="camel"):
    """Who said hello."""

    by_whom: str


async def hello(call: Call) -> Answer:
    return Answer(Hello(call.user.username))


def get_hello(path: str = "/hello", **more: object) -> Route:
    return Route("GET", path, hello, "Says who you are", gives={200: Hello}, **more)  # type: ignore[arg-type]


async def test_a_caller_is_who_the_cluster_says(api: Api) -> None:
    api.table.add(get_hello())
    told = await api.ask("GET", "/hello")
    assert (told.status, told.body) == (200, {"byWhom": "ann"})
    assert (await api.ask("GET", "/hello", "token-of-bob")).body == {"byWhom": "bob"}


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no token"),
        pytest.param({"Authorization": "Bearer"}, id="an empty one"),
        pytest.param({"Authorization": "Basic YW5uOnNlY3JldA=="}, id="another scheme"),
        pytest.param({"Authorization": "Bearer nobodys"}, id="nobody's token"),
    ],
)
async def test_strangers_are_turned_away(api: Api, headers: dict[str, str]) -> None:
    api.table.add(get_hello())
    told = await api.ask("GET", "/hello", None, headers=headers)
    assert (told.status, told.body["isSucceed"], told.body["reason"]) == (401, False, "Unauthorized")
    assert told.headers["WWW-Authenticate"].startswith("Bearer")


async def test_a_guesser_of_tokens_is_slowed_down_and_known_callers_are_not(api: Api) -> None:
    api.table.add(get_hello())
    assert (await api.ask("GET", "/hello")).status == 200
    seen = [(await api.ask("GET", "/hello", f"guess-{number}")).status for number in range(40)]
    assert seen[:10] == [401] * 10
    assert seen[-1] == 429
    assert (await api.ask("GET", "/hello")).status == 200


async def service_account_token(client: Client, *audiences: str) -> str:
    """A token of the default service account, issued for these audiences; none: for the API server."""
    path = "/api/v1/namespaces/default/serviceaccounts"
    with contextlib.suppress(AlreadyExists):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent"}}
        await client.request("POST", path, body=account)
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": list(audiences)},
    }
    answer = await client.request("POST", f"{path}/agent/token", body=request)
    token = msgspec.json.decode(answer)["status"]["token"]
    assert isinstance(token, str)
    return token


AGENT = {"byWhom": "system:serviceaccount:default:agent"}


@pytest.mark.parametrize(
    ("issued_for", "plain", "one", "several"),
    [
        pytest.param((), 200, 401, 401, id="the API server"),
        pytest.param(("agents",), 401, 200, 200, id="the audience"),
        pytest.param(("others", "agents"), 401, 200, 200, id="the audience among others"),
        pytest.param(("tools",), 401, 401, 200, id="the second of two audiences"),
        pytest.param(("agents-of-others",), 401, 401, 401, id="another audience"),
    ],
)
async def test_a_route_takes_only_tokens_issued_for_its_audience(
    api: Api, client: Client, issued_for: tuple[str, ...], plain: int, one: int, several: int
) -> None:
    api.table.add(get_hello("/plain"), get_hello("/one", audiences=("agents",)))
    api.table.add(get_hello("/several", audiences=("agents", "tools")))
    token = await service_account_token(client, *issued_for)
    # Twice, and from either side: an answer kept for one audience is none for another.
    paths = {"/plain": plain, "/one": one, "/several": several}
    for path in (*paths, *reversed(paths)):
        told = await api.ask("GET", path, token)
        assert (path, told.status) == (path, paths[path])
        assert told.body == AGENT if told.status == 200 else told.body["reason"] == "Unauthorized"


async def test_a_refused_token_is_answered_with_the_audience_it_lacks(api: Api) -> None:
    api.table.add(get_hello(audiences=("agents", "tools")))
    told = await api.ask("GET", "/hello")
    assert told.body["message"].endswith("; it must be issued for the audience 'agents' or 'tools'")


async def test_a_server_that_names_no_audience_confirms_none() -> None:
    class NoAudiences:
        """An authenticator that does not look at spec.audiences."""

        async def create(self, _: object, body: object) -> TokenReview:
            return TokenReview(status=TokenStatus(authenticated=True, user=User(username="ann")))

    client: Client = NoAudiences()  # type: ignore[assignment]
    guard = Guard(client, ManualClock())
    assert (await guard.user("Bearer any", "here")).username == "ann"
    with pytest.raises(Problem, match="does not confirm the audience of this token") as refused:
        await guard.user("Bearer any", "here", ("agents",))
    assert refused.value.status == 401


async def test_a_public_route_asks_for_no_audience() -> None:
    with pytest.raises(ValueError, match="GET /open is public and asks for an audience"):
        get_hello("/open", public=True, audiences=("agents",))


async def raw(api: Api, path: bytes, *lines: bytes) -> int:
    """The status of a request whose bytes no client would send."""
    host, port = api.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"\r\n".join((b"GET " + path + b" HTTP/1.1", b"Host: here", b"Connection: close", *lines, b"", b"")))
    status = (await reader.readline()).split()[1]
    writer.close()
    await writer.wait_closed()
    return int(status)


@pytest.mark.parametrize("token", [b"\xff", b"\xff.\xfe.\xfd", "é".encode(), b"\xed\xa0\x80"])
async def test_a_token_that_does_not_decode_is_nobodys_and_counts_as_a_guess(api: Api, token: bytes) -> None:
    api.table.add(get_hello())
    seen = [await raw(api, b"/hello", b"Authorization: Bearer " + token + b"%d" % number) for number in range(40)]
    assert seen[:10] == [401] * 10
    assert seen[-1] == 429
    assert set(seen) == {401, 429}


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param(b"/hello", b"Idempotency-Key: \xff", id="a header"),
        pytest.param(b"/hello", b"Cookie: \xff=\xff", id="a cookie"),
        pytest.param(b"/hello/%ff", b"X: y", id="the path"),
        pytest.param(b"/hello?a=%ff&%ff=b", b"X: y", id="the query"),
        pytest.param(b"/hello\xff", b"X: y", id="the path in the raw"),
        pytest.param(b"/hello", b"Content-Length: -1", id="a length"),
        pytest.param(b"/hello", b"Transfer-Encoding: nonsense", id="an encoding"),
    ],
)
async def test_bytes_that_are_no_text_are_the_callers_mistake(api: Api, path: bytes, line: bytes) -> None:
    async def echo(call: Call) -> Answer:
        return Answer({"headers": dict(call.headers), "query": dict(call.query), "path": call.parameters})

    api.table.add(Route("GET", "/hello", echo, ""), Route("GET", "/hello/{name}", echo, ""))
    assert await raw(api, path, b"Authorization: Bearer token-of-ann", line) in (200, 400)


async def test_what_the_roles_do_not_allow_is_refused(api: Api, cluster: Embedded, client: Client) -> None:
    async def handle(call: Call) -> Answer:
        assert call.guard is not None
        await call.guard.require(call.user, Action("patch", "deployments", "apps", "default", "web"))
        return Answer({"done": True})

    api.table.add(Route("POST", "/change", handle, "Changes something", changes=True))
    told = await api.ask("POST", "/change")
    assert (told.status, told.body["reason"]) == (403, "Forbidden")
    assert told.body["message"] == "ann may not patch deployments.apps 'web' in namespace 'default'"
    assert (await api.ask("POST", "/change", cluster.admin_token)).status == 200


async def test_a_role_given_or_taken_counts_within_seconds(client: Client, cluster: Embedded) -> None:
    clock = ManualClock()
    guard = Guard(client, clock)
    user = await guard.user("Bearer token-of-ann", "here")
    patch = Action("patch", "deployments", "apps", "default", "web")
    assert not await guard.allows(user, patch)
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    await client.request(
        "POST",
        path,
        body={
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "devs-edit"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}],
        },
    )
    assert not await guard.allows(user, patch), "still remembered"
    await clock.advance(11.0)
    assert await guard.allows(user, patch)
    await client.request("DELETE", f"{path}/devs-edit")
    assert await guard.allows(user, patch), "still remembered"
    await clock.advance(11.0)
    assert not await guard.allows(user, patch)


async def test_nothing_that_changes_is_open_to_strangers() -> None:
    with pytest.raises(ValueError, match="POST /change changes something and must not be public"):
        Route("POST", "/change", hello, "", public=True, changes=True)


async def test_two_handlers_for_one_route_are_a_bug() -> None:
    table = RouteTable()
    table.add(get_hello())
    with pytest.raises(ValueError, match="GET /hello is served already"):
        table.add(get_hello())


async def test_public_routes_need_no_token_and_no_cluster() -> None:
    table = RouteTable()
    table.add(get_hello("/open", public=True), get_hello())
    async with serving(table) as api:
        assert (await api.ask("GET", "/open", None)).body == {"byWhom": ""}
        told = await api.ask("GET", "/hello")
        assert (told.status, told.headers["Retry-After"]) == (503, "2")


async def test_parts_of_the_path_reach_the_handler(api: Api) -> None:
    async def handle(call: Call) -> Answer:
        return Answer({"path": dict(call.parameters), "query": dict(call.query)})

    api.table.add(Route("GET", "/things/{kind}/{name}", handle, "One thing"))
    told = await api.ask("GET", "/things/pod/a%20b?deep=1")
    assert told.body == {"path": {"kind": "pod", "name": "a b"}, "query": {"deep": "1"}}
    assert (await api.ask("GET", "/things/pod")).status == 404


async def test_what_is_not_served_says_so(api: Api) -> None:
    api.table.add(get_hello())
    told = await api.ask("GET", "/nowhere")
    assert (told.status, told.body["reason"], told.body["isSucceed"]) == (404, "NotFound", False)
    told = await api.ask("DELETE", "/hello")
    assert (told.status, told.headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "unannounced"])
async def test_a_body_has_a_bound(api: Api, chunked: bool) -> None:
    async def handle(call: Call) -> Answer:
        return Answer({"bytes": len(call.body)})

    api.table.add(Route("POST", "/take", handle, "Takes a body", most_bytes=1000))

    async def parts(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b"x" * 100

    small, large = (parts(10), parts(11)) if chunked else (b"x" * 1000, b"x" * 1001)
    assert (await api.ask("POST", "/take", data=small)).body == {"bytes": 1000}
    told = await api.ask("POST", "/take", data=large)
    assert (told.status, told.body["reason"]) == (413, "TooLarge")


async def test_each_caller_has_a_bucket_of_their_own(client: Client) -> None:
    table = RouteTable()
    table.guard = Guard(client, RealClock())
    table.add(get_hello())
    async with serving(table, limits=Limits(per_s=0.001, burst=3)) as api:
        seen = [(await api.ask("GET", "/hello")).status for _ in range(4)]
        assert seen == [200, 200, 200, 429]
        told = await api.ask("GET", "/hello")
        assert told.body["reason"] == "TooManyRequests"
        assert 1 <= int(told.headers["Retry-After"]) <= 1000
        assert (await api.ask("GET", "/hello", "token-of-bob")).status == 200


async def test_problems_clusters_and_bugs_have_one_shape(api: Api) -> None:
    async def known(_: Call) -> Answer:
        errors = [FieldProblem(index=1, field="number", message="wanted more than 0")]
        raise Problem(422, "Invalid", "1 of 2 items", errors=errors, retry_after_s=0.2)

    async def cluster(_: Call) -> Answer:
        raise no_answer("GET /x", "timed out", may_have_happened=False)

    async def bug(_: Call) -> Answer:
        raise RuntimeError("secret of the house")

    for path, handle in (("/known", known), ("/cluster", cluster), ("/bug", bug)):
        api.table.add(Route("GET", path, handle, ""))
    told = await api.ask("GET", "/known")
    assert told.headers["Retry-After"] == "1"
    assert told.body == {
        "isSucceed": False,
        "reason": "Invalid",
        "message": "1 of 2 items",
        "errors": [{"index": 1, "field": "number", "message": "wanted more than 0"}],
    }
    for path, status in (("/cluster", 503), ("/bug", 500)):
        told = await api.ask("GET", path)
        assert told.status == status
        assert msgspec.convert(told.body, Failure).is_succeed is False
        assert "secret" not in str(told.body)


async def test_requests_are_counted_by_route_not_by_path(api: Api) -> None:
    api.table.add(get_hello("/hello/{name}"))
    for name in ("a", "b"):
        await api.ask("GET", f"/hello/{name}")
    await api.ask("GET", "/random-1")

    def count(**labels: str) -> float | None:
        return api.registry.get_sample_value("fairlead_http_requests_total", labels)

    assert count(route="/hello/{name}", method="GET", code="200") == 2.0
    assert count(route="unknown", method="-", code="404") == 1.0


@pytest.mark.parametrize(
    ("address", "allowed", "expected"),
    [
        ("127.0.0.1", False, 200),
        ("::1", False, 200),
        ("203.0.113.9", False, 403),
        ("203.0.113.9", True, 200),
        ("", False, 403),
    ],
)
async def test_tokens_do_not_cross_a_network_in_the_clear(
    client: Client, monkeypatch: pytest.MonkeyPatch, address: str, allowed: bool, expected: int
) -> None:
    table = RouteTable()
    table.guard = Guard(client, RealClock())
    table.add(get_hello())
    # Loopback is all that tests may use; what the socket says of the other side is put in its place.
    monkeypatch.setattr(web.BaseRequest, "remote", property(lambda _: address))
    async with serving(table, allow_plaintext=allowed) as api:
        told = await api.ask("GET", "/hello")
    assert told.status == expected
    assert expected == 200 or told.body["reason"] == "InsecureTransport"


# --- TLS --------------------------------------------------------------------------------------------------


def a_pair(folder: Path, name: str) -> tuple[Path, Path, str]:
    made = Certificates(folder / name, RealClock().now())
    made.server_context(RealClock().now(), ("localhost",), ("127.0.0.1",))
    certificate, key = folder / "tls.crt", folder / "tls.key"
    certificate.write_bytes((folder / name / "server.crt").read_bytes())
    key.write_bytes((folder / name / "server.key").read_bytes())
    return certificate, key, made.authority


@contextlib.asynccontextmanager
async def opened(pair: ServingCertificate) -> AsyncIterator[Callable[[str], Awaitable[bool]]]:
    """A listener with the pair; gives a question: does whoever trusts this authority get an answer?"""
    table = RouteTable()
    table.add(get_hello("/open", public=True))
    dispatcher = Dispatcher(table, clock=RealClock(), registry=CollectorRegistry(), limits=Limits(100.0, 100))
    async with served(dispatcher.routes(), "127.0.0.1", 0, pair.context) as (_, port):

        async def is_served_as(authority: str) -> bool:
            trust = ssl.create_default_context(cadata=authority)
            try:
                async with (
                    aiohttp.ClientSession(connector=connector()) as http,
                    http.get(f"https://127.0.0.1:{port}/open", ssl=trust) as answer,
                ):
                    return answer.status == 200
            except aiohttp.ClientConnectorCertificateError:
                return False

        yield is_served_as


async def test_a_renewed_certificate_is_served_without_a_restart(tmp_path: Path) -> None:
    certificate, key, first = a_pair(tmp_path, "one")
    pair = ServingCertificate(certificate, key)
    async with opened(pair) as is_served_as:
        assert await is_served_as(first)
        clock = ManualClock()
        following = asyncio.create_task(pair.follow(clock))
        _, _, second = a_pair(tmp_path, "two")
        await clock.advance(61.0)
        assert (await is_served_as(first), await is_served_as(second)) == (False, True)
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def test_files_that_are_no_certificate_are_the_users_to_mend(tmp_path: Path) -> None:
    certificate, key, _ = a_pair(tmp_path, "one")
    with pytest.raises(BadSettings, match="nowhere cannot be read"):
        ServingCertificate(tmp_path / "nowhere", key)
    key.write_text("not a key")
    with pytest.raises(BadSettings, match="do not make a certificate and its key"):
        ServingCertificate(certificate, key)


async def test_half_a_renewal_leaves_the_old_pair_in_use(tmp_path: Path) -> None:
    certificate, key, first = a_pair(tmp_path, "one")
    pair = ServingCertificate(certificate, key)
    async with opened(pair) as is_served_as:
        key.write_text("not a key")
        pair.look_again()
        assert await is_served_as(first)
        _, new_key, second = a_pair(tmp_path, "two")
        whole = new_key.read_bytes()
        new_key.write_bytes(whole[: len(whole) // 2])
        pair.look_again()
        assert (await is_served_as(first), await is_served_as(second)) == (True, False)
        new_key.write_bytes(whole)
        pair.look_again()
        assert (await is_served_as(first), await is_served_as(second)) == (False, True)
