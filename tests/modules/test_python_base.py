"""The Python base as a real process on loopback, driven over arklet's wire."""

import asyncio
import os
import sys
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from fairlead.modules import arklet
from fairlead.modules.arklet import Outcome, identity_installed, outcome_of, sentence_of
from fairlead.modules.base.pack import pack
from fairlead.modules.client import TlsAddress
from fairlead.modules.replica import tls_to_bases
from fairlead.modules.spec import Module
from fairlead.settings import ArkletSettings
from tests.modules.bases import BaseProcess, hello, module, running_base
from tests.rigs.kube.certificates import Authority
from tests.rigs.kube.servers import free_ports

SLOW = "import time\ndef main(context):\n    time.sleep(1.5)\n"
FAILS = "def main(context):\n    raise RuntimeError('boom at start')\n"
PLAIN = "def main(context):\n    print('here', context['args'])\ndef health():\n    return 'DOWN', 'no database'\n"
WSGI = """
def main(environ, start_response):
    names = (environ['SCRIPT_NAME'], environ['PATH_INFO'], environ['HTTP_X_TWICE'])
    body = '|'.join(names).encode('latin-1') + b'|' + environ['wsgi.input'].read()
    start_response('200 OK', [('Content-Type', 'text/plain'), ('Set-Cookie', 'a=1'), ('Set-Cookie', 'b=2')])
    return [body]
"""


@pytest.fixture
async def base(tmp_path: Path) -> AsyncIterator[BaseProcess]:
    async with running_base(tmp_path / "data") as base:
        yield base


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await true():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def states(base: BaseProcess) -> dict[str, str]:
    found = await base.client.modules(base.address)
    assert found is not None
    return {each.key: each.state for each in found}


async def test_a_module_is_installed_served_and_removed(base: BaseProcess, tmp_path: Path) -> None:
    one = Module("hello", "1.0.0", hello(tmp_path))
    answer = await base.client.install(base.address, one)
    assert outcome_of(arklet.INSTALL, answer) is Outcome.DONE
    assert identity_installed(answer) == "hello:1.0.0"
    assert await base.get("/hello/") == (200, "hello from version 1.0.0\n")
    assert await states(base) == {"hello:1.0.0": "activated"}

    again = await base.client.install(base.address, one)
    assert (outcome_of(arklet.INSTALL, again), again.inner_code) == (Outcome.ALREADY, arklet.REPEAT_BIZ)

    gone = await base.client.uninstall(base.address, one)
    assert outcome_of(arklet.UNINSTALL, gone) is Outcome.DONE
    assert (await base.get("/hello/"))[0] == 404
    again = await base.client.uninstall(base.address, one)
    assert (outcome_of(arklet.UNINSTALL, again), again.inner_code) == (Outcome.ALREADY, arklet.MISSING_BIZ)


async def test_a_new_version_takes_over_without_a_failed_request(base: BaseProcess, tmp_path: Path) -> None:
    versions = [Module("hello", version, hello(tmp_path, version)) for version in ("1.0.0", "2.0.0")]
    await base.client.install(base.address, versions[0])
    answers: list[tuple[int, str]] = []
    done = asyncio.Event()

    async def load() -> None:
        while not done.is_set():
            answers.append(await base.get("/hello/"))

    loads = [asyncio.create_task(load()) for _ in range(4)]
    await base.client.install(base.address, versions[1])
    assert await states(base) == {"hello:1.0.0": "deactivated", "hello:2.0.0": "activated"}
    await base.client.uninstall(base.address, versions[0])
    answers.append(await base.get("/hello/"))
    done.set()
    await asyncio.gather(*loads)
    assert {status for status, _ in answers} == {200}
    assert answers[-1][1] == "hello from version 2.0.0\n"


async def test_switching_back_activates_the_old_version(base: BaseProcess, tmp_path: Path) -> None:
    for version in ("1.0.0", "2.0.0"):
        await base.client.install(base.address, Module("hello", version, hello(tmp_path, version)))
    answer = await base.client.call(base.address, arklet.SWITCH, {"bizName": "hello", "bizVersion": "1.0.0"})
    assert answer.code == arklet.SUCCESS
    assert await base.get("/hello") == (200, "hello from version 1.0.0\n")
    assert await states(base) == {"hello:1.0.0": "activated", "hello:2.0.0": "deactivated"}


async def test_a_strategy_has_other_versions_leave_first(base: BaseProcess, tmp_path: Path) -> None:
    await base.client.install(base.address, Module("hello", "1.0.0", hello(tmp_path, "1.0.0")))
    second = Module("hello", "2.0.0", hello(tmp_path, "2.0.0"), strategy=arklet.UNINSTALL_THEN_INSTALL)
    assert (await base.client.install(base.address, second)).code == arklet.SUCCESS
    assert await states(base) == {"hello:2.0.0": "activated"}


async def test_an_asynchronous_install_is_followed_by_its_request_id(base: BaseProcess, tmp_path: Path) -> None:
    slow = Module("slow", "1.0.0", module(tmp_path, "slow", SLOW))
    answer = await base.client.install(base.address, slow, "r-1")
    assert outcome_of(arklet.INSTALL, answer) is Outcome.RUNNING
    used = await base.client.install(base.address, slow, "r-1")
    assert (used.code, outcome_of(arklet.INSTALL, used)) == (arklet.FAILED, Outcome.BUSY)
    conflict = await base.client.uninstall(base.address, slow)
    assert outcome_of(arklet.UNINSTALL, conflict) is Outcome.BUSY
    assert "unfinished command(installBiz)" in conflict.message

    async def is_done() -> bool:
        found = await base.client.call(base.address, arklet.QUERY_OPS, {"requestId": "r-1"})
        return bool(found.fields["status"] == "SUCCEEDED")

    await until(is_done)
    assert await states(base) == {"slow:1.0.0": "activated"}


async def test_what_goes_wrong_is_told_with_its_cause(base: BaseProcess, tmp_path: Path) -> None:
    fails = Module("fails", "1.0.0", module(tmp_path, "fails", FAILS))
    answer = await base.client.install(base.address, fails)
    assert outcome_of(arklet.INSTALL, answer) is Outcome.BROKEN
    assert sentence_of(answer) == "RuntimeError: boom at start"

    missing = await base.client.install(base.address, Module("no", "1", f"file://{tmp_path}/nosuch.zip"))
    assert "No such file" in sentence_of(missing)
    odd = await base.client.install(base.address, Module("no", "1", "http://[x/nosuch.zip"))
    assert sentence_of(odd) == "Internal Error: http://[x/nosuch.zip: Invalid IPv6 URL"
    bare = await base.client.install(base.address, Module("no", "1", "nosuch.zip"))
    assert outcome_of(arklet.INSTALL, bare) is Outcome.REJECTED
    other = await base.client.install(base.address, Module("hello", "7.7.7", hello(tmp_path)))
    assert other.inner_code == "BIZ_IDENTITY_MISMATCH"
    assert await states(base) == {}


async def test_odd_requests_get_the_answers_of_arklet(base: BaseProcess) -> None:
    assert (await base.client.call(base.address, "nosuch", {})).code == arklet.UNKNOWN_COMMAND
    assert (await base.client.call(base.address, "uninstallBiz", {"bizName": "x"})).code == arklet.INTERNAL_ERROR
    unknown = await base.client.call(base.address, "queryBizOps", {"requestId": "never"})
    assert (unknown.code, unknown.message) == ("FAILED", "Not found the corresponding ops record.")
    host, port = base.address
    async with base.session.get(f"http://{host}:{port}/health") as answer:
        assert answer.status == 500
    async with base.session.post(f"http://{host}:{port}/queryAllBiz", data=b"not json") as answer:
        assert (await answer.json())["code"] == arklet.INTERNAL_ERROR


async def check_wsgi(base: BaseProcess, name: str) -> None:
    """As PEP 3333 has it: bytes as Latin-1, headers that come twice, cookies that are set twice."""
    url = f"http://{base.host}:{base.web_port}/{name}/a/%C3%A9%E6%97%A5?c=d"
    async with base.session.post(url, data=b"posted", headers=[("X-Twice", "1"), ("X-Twice", "2")]) as answer:
        assert (answer.status, await answer.text()) == (200, f"/{name}|/a/é日|1,2|posted")
        assert answer.headers.getall("Set-Cookie") == ["a=1", "b=2"]


async def test_a_wsgi_module_is_mounted_by_its_path_and_a_plain_one_has_health(
    base: BaseProcess, tmp_path: Path
) -> None:
    web = module(tmp_path, "shop", WSGI, context="/shop")
    assert (await base.client.install(base.address, Module("shop", "1.0.0", web))).code == arklet.SUCCESS
    await check_wsgi(base, "shop")
    async with base.session.get(
        f"http://{base.host}:{base.web_port}/shop/.base/health", headers={"X-Twice": ""}
    ) as own:
        assert await own.text() == "/shop|/.base/health||"

    plain = Module("plain", "1.0.0", module(tmp_path, "plain", PLAIN))
    assert (await base.client.install(base.address, plain)).code == arklet.SUCCESS
    answer_ = await base.client.call(base.address, "health", {"bizName": "plain", "bizVersion": "1.0.0"})
    assert answer_.fields["healthData"]["bizInfo"]["health"] == "DOWN"
    log = await base.client.call(base.address, "queryBizLog", {"bizName": "plain", "bizVersion": "1.0.0"})
    assert log.fields["log"] == "here []\n"
    assert (await base.client.uninstall(base.address, plain)).code == arklet.SUCCESS
    assert (await base.client.install(base.address, plain)).code == arklet.SUCCESS
    log = await base.client.call(base.address, "queryBizLog", {"bizName": "plain", "bizVersion": "1.0.0"})
    assert log.fields["log"] == "here []\n", "lines of the module's last stay are nobody else's to read"
    health = await base.client.health(base.address)
    assert health is not None
    assert health.capacity_bytes > (health.used_bytes or 0) > 0


async def test_a_worker_that_is_killed_comes_back(base: BaseProcess, tmp_path: Path) -> None:
    await base.client.install(base.address, Module("hello", "1.0.0", hello(tmp_path)))
    log = await base.client.call(base.address, "queryBizLog", {"bizName": "hello", "bizVersion": "1.0.0"})
    os.kill(int(log.fields["log"].split()[-1]), 9)

    async def is_back() -> bool:
        return (await base.get("/hello/"))[0] == 200 and (await states(base))["hello:1.0.0"] == "activated"

    await until(is_back)
    found = await base.client.call(base.address, arklet.QUERY_ALL, {})
    reasons = [(each["state"], each["reason"]) for each in found.data[0]["bizStateRecords"]]
    assert ("BROKEN", "Undefine") in reasons


async def test_a_base_that_is_killed_brings_its_modules_back_from_the_journal(tmp_path: Path) -> None:
    async with running_base(tmp_path / "data") as base:
        for version in ("1.0.0", "2.0.0"):
            await base.client.install(base.address, Module("hello", version, hello(tmp_path, version)))
        base.process.kill()
        await base.process.wait()
    async with running_base(tmp_path / "data") as base:
        assert await states(base) == {"hello:1.0.0": "deactivated", "hello:2.0.0": "activated"}
        assert await base.get("/hello/") == (200, "hello from version 2.0.0\n")


async def test_a_base_that_is_killed_while_it_brings_modules_back_forgets_none(tmp_path: Path) -> None:
    begun, data = tmp_path / "begun", tmp_path / "data"
    source = f"import time\ndef main(context):\n    open({str(begun)!r}, 'a').write('x')\n    time.sleep(1.5)\n"
    async with running_base(data) as base:
        await base.client.install(base.address, Module("hello", "1.0.0", hello(tmp_path)))
        await base.client.install(base.address, Module("slow", "1.0.0", module(tmp_path, "slow", source)))
        base.process.kill()
        await base.process.wait()

    async def is_restoring() -> bool:
        return begun.read_text() == "xx"

    arguments = ("-m", "fairlead.modules.base", "--port", "0", "--web-port", "0", "--data", str(data))
    again = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    await until(is_restoring)
    again.kill()
    await again.wait()
    journal = msgspec.json.decode((data / "journal.json").read_bytes())
    assert [each["bizName"] for each in journal] == ["hello", "slow"]


async def test_a_base_that_keeps_the_old_version_active_does_so_after_a_restart(tmp_path: Path) -> None:
    expected = {"hello:1.0.0": "activated", "hello:2.0.0": "deactivated"}
    async with running_base(tmp_path / "data", "--keep-active") as base:
        for version in ("1.0.0", "2.0.0"):
            await base.client.install(base.address, Module("hello", version, hello(tmp_path, version)))
        assert await states(base) == expected
        base.process.kill()
        await base.process.wait()
    async with running_base(tmp_path / "data", "--keep-active") as base:
        assert await states(base) == expected


async def test_a_version_that_another_has_replaced_while_it_was_down_does_not_take_over_again(
    base: BaseProcess, tmp_path: Path
) -> None:
    await base.client.install(base.address, Module("hello", "1.0.0", hello(tmp_path)))
    log = await base.client.call(base.address, "queryBizLog", {"bizName": "hello", "bizVersion": "1.0.0"})
    os.kill(int(log.fields["log"].split()[-1]), 9)

    async def is_broken() -> bool:
        return (await states(base))["hello:1.0.0"] == "broken"

    async def is_back() -> bool:
        return not await is_broken()

    await until(is_broken)
    await base.client.install(base.address, Module("hello", "2.0.0", hello(tmp_path, "2.0.0")))
    await until(is_back)
    assert await states(base) == {"hello:1.0.0": "deactivated", "hello:2.0.0": "activated"}


async def test_a_module_that_is_removed_while_it_starts_again_leaves_no_process(
    base: BaseProcess, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    source = f"import os, time\ndef main(context):\n    open({str(pids)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    source += "    time.sleep(1.5)\n"
    slow = Module("slow", "1.0.0", module(tmp_path, "slow", source))
    assert (await base.client.install(base.address, slow)).code == arklet.SUCCESS
    os.kill(int(pids.read_text()), 9)

    async def is_starting() -> bool:
        return len(pids.read_text().split()) == 2

    async def is_gone() -> bool:
        return not Path(f"/proc/{pids.read_text().split()[1]}").exists()

    await until(is_starting)
    assert (await base.client.uninstall(base.address, slow)).code == arklet.SUCCESS
    await until(is_gone)
    assert await states(base) == {}


async def test_a_base_that_is_asked_to_stop_answers_what_it_has_begun(tmp_path: Path) -> None:
    source = "import asyncio\nasync def main(scope, receive, send):\n    await asyncio.sleep(1)\n"
    source += "    await send({'type': 'http.response.start', 'status': 200})\n"
    source += "    await send({'type': 'http.response.body', 'body': b'late'})\n"
    async with running_base(tmp_path / "data") as base:
        url = module(tmp_path, "late", source, context="/late")
        assert (await base.client.install(base.address, Module("late", "1.0.0", url))).code == arklet.SUCCESS
        asked = asyncio.create_task(base.get("/late/"))
        await asyncio.sleep(0.3)
        assert await base.terminate() == 0
        assert await asked == (200, "late")


async def test_a_base_with_a_token_answers_nobody_without_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    async with running_base(tmp_path / "data", "--token-file", str(tmp_path / "token")) as base:
        answer = await base.client.call(base.address, arklet.QUERY_ALL, {})
        assert answer.problem == "HTTP status 401"
        base.client._token = "secret"
        assert await states(base) == {}


async def test_nothing_is_left_when_a_base_is_killed(base: BaseProcess, tmp_path: Path) -> None:
    await base.client.install(base.address, Module("hello", "1.0.0", hello(tmp_path)))
    log = await base.client.call(base.address, "queryBizLog", {"bizName": "hello", "bizVersion": "1.0.0"})
    pid = int(log.fields["log"].split()[-1])
    assert is_alive(pid)
    base.process.kill()
    await base.process.wait()

    async def is_gone() -> bool:
        return not is_alive(pid)

    await until(is_gone)
    assert not is_alive(pid)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_base_with_tls_answers_callers_with_a_certificate_of_its_authority_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    own, caller = authority.server(), authority.client("fairlead")
    flags = ("--certificate", str(own.cert), "--key", str(own.key), "--client-ca", str(authority.ca_file))
    settings = ArkletSettings(ca_file=str(authority.ca_file))
    known = ArkletSettings(ca_file=str(authority.ca_file), certificate=str(caller.cert), key=str(caller.key))
    async with running_base(tmp_path / "data", *flags) as base:
        address = TlsAddress(*base.address)
        assert (await base.client.call(base.address, arklet.QUERY_ALL, {})).problem
        assert "modules.arklet.caFile" in (await base.client.call(address, arklet.QUERY_ALL, {})).problem
        base.client._tls = tls_to_bases(settings)
        assert (await base.client.call(address, arklet.QUERY_ALL, {})).problem
        base.client._tls = tls_to_bases(known)
        one = Module("hello", "1.0.0", hello(tmp_path))
        assert (await base.client.install(address, one)).code == arklet.SUCCESS
        assert await base.client.modules(address) != []


async def test_switching_drains_what_the_old_version_has_begun(base: BaseProcess, tmp_path: Path) -> None:
    source = "import asyncio\nasync def main(scope, receive, send):\n    await asyncio.sleep(1)\n"
    source += "    await send({'type': 'http.response.start', 'status': 200})\n"
    source += "    await send({'type': 'http.response.body', 'body': VERSION})\n"
    for version in ("1.0.0", "2.0.0"):
        url = module(tmp_path, "late", f"VERSION = b'{version}'\n{source}", version=version, context="/late")
        assert (await base.client.install(base.address, Module("late", version, url))).code == arklet.SUCCESS
    body = {"bizName": "late", "bizVersion": "1.0.0"}
    begun = asyncio.create_task(base.get("/late/"))
    await asyncio.sleep(0.3)
    assert (await base.client.call(base.address, arklet.SWITCH, body)).code == arklet.SUCCESS
    gone = await base.client.uninstall(base.address, Module("late", "2.0.0", ""))
    assert gone.code == arklet.SUCCESS
    assert await begun == (200, "2.0.0")
    assert await base.get("/late/") == (200, "1.0.0")


async def test_arguments_variables_and_a_wheel_with_the_budget_of_the_pods_limit(tmp_path: Path) -> None:
    wheel = tmp_path / "shop-2.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as zipped:
        zipped.writestr("shop-2.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: shop\nVersion: 2.1\n")
        zipped.writestr("shop-2.1.dist-info/entry_points.txt", "[fairlead.module]\nStart-Class = shop:main\n")
        source = "import os\ndef main(context):\n    print(context['args'], os.environ['COLOUR'])\n"
        zipped.writestr("shop.py", source)
    async with running_base(tmp_path / "data", MODULE_MEMORY_LIMIT=str(1 << 30)) as base:
        shop = Module("shop", "2.1", f"file://{wheel}", ("--fast",), (("COLOUR", "blue"),))
        assert (await base.client.install(base.address, shop)).code == arklet.SUCCESS
        log = await base.client.call(base.address, arklet.QUERY_LOG, {"bizName": "shop", "bizVersion": "2.1"})
        assert log.fields["log"] == "['--fast'] blue\n"
        health = await base.client.health(base.address)
        assert health is not None
        assert health.capacity_bytes == int((1 << 30) * 0.8)


LEAKY = """
import sys

def main(context):
    # Kept where nobody looks: a module that is forgotten leaves it behind.
    sys.__dict__.setdefault("_leaks", []).append(bytearray(b"x") * (24 << 20))

def stop():
    print("leaky stops")
"""


async def test_k71_what_inproc_modules_leak_stays_with_the_base_and_is_reported(tmp_path: Path) -> None:
    home = tmp_path / "leaky"
    home.mkdir()
    (home / "leaky.py").write_text(LEAKY)
    archive = pack(home, tmp_path / "leaky.zip", name="leaky", version="1", entry="leaky:main", isolation="inproc")
    found = Module("leaky", "1", f"file://{archive}")
    async with running_base(tmp_path / "data", MODULE_MEMORY_LIMIT=str(200 << 20)) as base:
        first = await base.client.health(base.address)
        assert first is not None
        used = []
        for _ in range(3):
            answer = await base.client.install(base.address, found)
            assert answer.code == "SUCCESS", answer
            assert (await base.client.uninstall(base.address, found)).code == "SUCCESS"
            health = await base.client.health(base.address)
            assert health is not None
            used.append(health.used_bytes or 0)
        assert await base.client.modules(base.address) == []
        assert used[0] > 24 << 20
        assert used[2] - used[0] > 40 << 20, "two more rounds, nothing given back"
        answer = await base.client.call(base.address, "health", {})
        assert answer.fields["healthData"]["python"]["leaked"] > 60 << 20


WEB = """
state = []

async def start(context):
    state.append(context["version"])

async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-root", scope["root_path"].encode())]})
    await send({"type": "http.response.body", "body": f"{state} {scope['path']}".encode()})
"""


async def test_inproc_web_modules_share_a_process_and_each_answers_at_its_path(tmp_path: Path) -> None:
    home = tmp_path / "web"
    home.mkdir()
    (home / "web.py").write_text(WEB)

    def packed(name: str, version: str, entry: str = "web:app") -> Module:
        file = tmp_path / f"{name}-{version}.zip"
        pack(home, file, name=name, version=version, entry=entry, context_path=f"/{name}", isolation="inproc")
        return Module(name, version, f"file://{file}")

    shop, cart, newer = packed("shop", "1"), packed("cart", "1"), packed("shop", "2")
    async with running_base(tmp_path / "data") as base:
        for each in (shop, cart):
            answer = await base.client.install(base.address, each)
            assert answer.code == "SUCCESS", answer
        assert await base.get("/shop/a") == (200, "['1'] /shop/a")
        assert await base.get("/cart/b") == (200, "['1'] /cart/b")
        # The host's own commands and questions are nobody's to call.
        for path in ("/shop/load", "/shop/.base/health"):
            assert await base.get(path) == (200, f"['1'] {path}")
        assert (await base.client.install(base.address, newer)).code == "SUCCESS"
        assert (await base.get("/shop/"))[1].startswith("['2']")
        for each in (shop, newer):
            assert (await base.client.uninstall(base.address, each)).code == "SUCCESS"
        assert (await base.get("/shop/"))[0] == 404
        assert await base.get("/cart/b") == (200, "['1'] /cart/b")
        (home / "web.py").write_text(WSGI)
        assert (await base.client.install(base.address, packed("old", "1", "web:main"))).code == "SUCCESS"
        await check_wsgi(base, "old")


def archive(folder: Path, name: str, source: str, **attributes: str) -> str:
    """A module with more in its manifest; its URL."""
    target = folder / f"{name}.zip"
    lines = {"Ark-Biz-Name": name, "Ark-Biz-Version": "1", "Start-Class": f"{name}:main", **attributes}
    with zipfile.ZipFile(target, "w") as zipped:
        zipped.writestr("META-INF/MANIFEST.MF", "".join(f"{key}: {value}\n" for key, value in lines.items()))
        zipped.writestr(f"{name}.py", source)
    return f"file://{target}"


NOTE = "def main(context):\n    open('{0}', 'a').write(context['name'] + ' ')\n"
DENIED = """
import json
def main(context):
    try:
        import aiohttp
    except ModuleNotFoundError as problem:
        print(problem.name, "hidden")
"""


async def test_a_batch_goes_by_priority_and_one_that_cannot_be_had_stops_it(base: BaseProcess, tmp_path: Path) -> None:
    order = tmp_path / "order"
    urls = [
        archive(tmp_path, name, NOTE.format(order), priority=priority)
        for name, priority in (("last", "300"), ("first", "1"), ("middle", "100"))
    ]
    listed = [{"bizUrl": url} for url in urls]
    stopped = await base.client.call(base.address, "batchInstallBiz", {"bizList": [*listed, {"bizUrl": "file:///no"}]})
    assert stopped.code == arklet.INTERNAL_ERROR
    assert await states(base) == {}
    answer = await base.client.call(base.address, "batchInstallBiz", {"bizList": listed})
    assert answer.code == arklet.SUCCESS
    assert {each["code"] for each in answer.fields["bizUrlToResponse"].values()} == {arklet.SUCCESS}
    assert order.read_text() == "first middle last "


async def test_validating_installs_nothing_and_draining_takes_nothing_more(base: BaseProcess, tmp_path: Path) -> None:
    url, cache = hello(tmp_path), tmp_path / "data" / "cache"
    found = await base.client.call(base.address, "validateBiz", {"bizUrl": url})
    assert [each["bizName"] for each in found.fields["bizInfos"]] == ["hello"]
    other = {"bizUrl": url, "bizName": "hello", "bizVersion": "9"}
    for command in ("validateBiz", "installBiz"):
        answer = await base.client.call(base.address, command, other)
        assert answer.inner_code == arklet.OTHER_BIZ
    assert await states(base) == {}
    assert [path for path in cache.rglob("*") if path.is_file()] == [], "nothing is left of what was not installed"

    assert (await base.client.call(base.address, "drainBase", {})).fields == {"draining": True}
    health = await base.client.health(base.address)
    assert health is not None
    assert (health.state, health.cpus) == ("DEACTIVATED", len(os.sched_getaffinity(0)))
    assert (await base.client.install(base.address, Module("hello", "1.0.0", url))).code == arklet.FAILED
    await base.client.call(base.address, "drainBase", {"drain": False})
    assert (await base.client.install(base.address, Module("hello", "1.0.0", url))).code == arklet.SUCCESS
    kinds = {kind: await base.client.call(base.address, "health", {"type": kind}) for kind in ("system", "biz", "x")}
    assert {"version", "rss", "pss", "gc"} <= set(kinds["system"].fields["healthData"]["python"])
    assert [each["bizName"] for each in kinds["biz"].fields["healthData"]["bizListInfo"]] == ["base", "hello"]
    assert kinds["x"].message == "Internal Error: type: x can not be found"


async def test_packages_of_the_base_are_hidden_where_the_manifest_says_so(base: BaseProcess, tmp_path: Path) -> None:
    url = archive(tmp_path, "shy", DENIED, **{"deny-import-packages": "aiohttp, json.tool"})
    assert (await base.client.install(base.address, Module("shy", "1", url))).code == arklet.SUCCESS
    log = await base.client.call(base.address, arklet.QUERY_LOG, {"bizName": "shy", "bizVersion": "1"})
    assert log.fields["log"] == "aiohttp hidden\n"


async def test_a_base_counts_for_prometheus(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    beats = ("--heartbeat", "http://127.0.0.1:9")
    async with running_base(tmp_path / "data", "--metrics-port", str(port), *beats) as base:
        await base.client.install(base.address, Module("hello", "1.0.0", hello(tmp_path)))
        await base.client.install(base.address, Module("no", "1", "file:///nothing"))

        async def is_counted() -> bool:
            async with base.session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                lines = (await answer.text()).splitlines()
            counted = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[:1] != "#"}
            names = {'fairlead_base_installs_total{result="success"}', 'fairlead_base_installs_total{result="failed"}'}
            assert {counted.get(name) for name in names} == {1.0}
            assert counted['fairlead_base_biz_state{name="hello",state="activated",version="1.0.0"}'] == 1.0
            assert counted['fairlead_base_module_rss_bytes{name="hello",version="1.0.0"}'] > 1 << 20
            assert counted["fairlead_base_install_seconds_count"] == 2.0
            return counted["fairlead_base_heartbeat_failures_total"] >= 1.0

        await until(is_counted)
