"""What a service is like: by what it uses, else by what it asks for."""

import pytest

from fairlead.engine.presort import Kind
from fairlead.placement.forecasts.profiles import Profiles, ServiceProfile, kind_of
from fairlead.testing.builders import a_pod
from tests.placement.forecasts.kit import GI, NOW, Scripted, a_reader, of_service

CLUSTER = (100_000, 400 * GI)
POD = a_pod("p", cpu="500m", memory="2Gi")


async def profiles_with(*documents: object) -> Profiles:
    reader = a_reader(Scripted(*documents))  # type: ignore[arg-type]
    await reader.refresh()
    return Profiles(reader.loads(NOW), CLUSTER)


async def test_requests_are_the_fallback() -> None:
    profiles = await profiles_with(of_service("other", 2.0, 1.5))
    assert profiles.of("shop", ["web"], POD) == ServiceProfile(Kind.BALANCED, 0, 0, 500, 2 * GI)


async def test_the_load_is_the_baseline_per_pod_and_decides_the_kind() -> None:
    profiles = await profiles_with(
        of_service("web", 9.0, 6.0, pods=4), of_service("web", GI, 4 * GI, resource="memory", pods=4)
    )
    assert profiles.of("shop", ["web"], POD) == ServiceProfile(Kind.CPU, 1500, GI, 500, 2 * GI)


async def test_another_namespace_is_another_service() -> None:
    profiles = await profiles_with(of_service("web", 9.0, 6.0))
    assert profiles.of("default", ["web"], POD).load_cpu_milli == 0


@pytest.mark.parametrize(
    ("cpu_milli", "memory_bytes", "kind"),
    [
        (1000, 4 * GI, Kind.BALANCED),
        (2000, 4 * GI, Kind.CPU),
        (1999, 4 * GI, Kind.BALANCED),
        (500, 4 * GI, Kind.MEMORY),
        (501, 4 * GI, Kind.BALANCED),
        (0, 4 * GI, Kind.BALANCED),
        (1000, 0, Kind.BALANCED),
    ],
)
@pytest.mark.parametrize("cluster", [CLUSTER, (0, 0)])
def test_hungry_is_twice_the_share_of_the_other(
    cpu_milli: int, memory_bytes: int, kind: Kind, cluster: tuple[int, int]
) -> None:
    assert kind_of(cpu_milli, memory_bytes, *cluster) is kind


def test_what_is_much_depends_on_the_cluster() -> None:
    assert kind_of(1000, 4 * GI, 100_000, 100 * GI) is Kind.MEMORY
    assert kind_of(1000, 4 * GI, 100_000, 1600 * GI) is Kind.CPU


async def test_a_load_is_found_by_any_name_of_the_service() -> None:
    profiles = await profiles_with(of_service("web", 9.0, 6.0), of_service("web", GI, GI, resource="memory"))
    assert profiles.of("shop", ["front", "web"], POD).load_cpu_milli == 6000
    assert profiles.of("shop", ["front"], POD).load_cpu_milli == 0
