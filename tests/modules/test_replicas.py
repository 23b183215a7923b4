"""Several replicas: shares, take-over, hand-over, and heartbeats that reach another replica."""

from pathlib import Path

from fairlead.model.kinds import LEASES
from fairlead.runtime import member_lease
from tests.modules.replicas import LEASE, Crew, crew


async def settled(crew: Crew) -> bool:
    """Every base has a node that a replica which runs holds, and none has far more than its share."""
    holders = await crew.holders()
    shares = await crew.shares()
    even = len(crew.bases) / len(crew.replicas)
    is_whole = len(holders) == len(crew.bases) and set(holders.values()) <= set(crew.replicas)
    return is_whole and all(abs(share - even) <= max(1, 0.2 * even) for share in shares.values())


async def test_k46_k50_k51_replicas_share_bases_and_take_over_what_another_leaves(tmp_path: Path) -> None:
    async with crew(tmp_path, bases=9) as at:
        for name in ("one", "two", "three"):
            at.start(name)
        await at.until(lambda: settled(at))
        assert set((await at.nodes()).values()) == {"True"}
        for base in at.bases:
            await at.install(base)
        pods = {f"shop-{base}" for base in at.bases}

        async def all_run() -> bool:
            return await at.ready_pods() == pods

        await at.until(all_run)

        # Killed: taken over once its lease has run out, and not before.
        await at.kill("one")
        taken_s = await at.until(lambda: settled(at))
        assert taken_s >= LEASE.renew_deadline_s - LEASE.retry_s

        # Stopped: given up, so that nobody waits; its member lease goes with it.
        mine = [node for node, holder in (await at.holders()).items() if holder == "two"]
        assert mine
        await at.stop("two")
        left = await at.holders()
        assert all(left[node] != "two" for node in mine), "given up, not left to run out"
        await at.until(lambda: settled(at))
        assert await at.api.find(LEASES, member_lease("fairlead", "two"), "fairlead-system") is None

        # Back again: nodes are handed over to it, one after the other.
        at.start("one")
        await at.until(lambda: settled(at))
        assert (await at.shares())["one"] >= 3

        await at.until(all_run)
        assert set((await at.nodes()).values()) == {"True"}
        for mock in at.bases.values():
            assert mock.count("installBiz", "shop:1") == 1
            assert mock.count("uninstallBiz", "shop:1") == 0


async def test_a_heartbeat_that_reaches_another_replica_is_passed_on_and_a_forged_one_is_not_believed(
    tmp_path: Path,
) -> None:
    async with crew(tmp_path, bases=4) as at:
        at.start("one")
        at.start("two")
        await at.until(lambda: settled(at))
        node, holder = next(iter((await at.holders()).items()))
        base = node.removeprefix("virtual-node-blue-")
        other = "two" if holder == "one" else "one"
        at.bases[base].is_away = True  # a base that still answers wins over its farewell
        assert await at.beat(base, other, state="deactivated") == 200

        async def is_stopped() -> bool:
            return (await at.nodes())[node] == "False"

        await at.until(is_stopped)

        headers = {"Fairlead-Member": other, "Fairlead-Signature": "AAAA"}
        url = at.replicas[holder].url
        async with at.session.post(f"{url}/heartbeat", json=at.body("b0"), headers=headers) as answer:
            assert answer.status == 401
