"""A real Prometheus and a real Elasticsearch, each started once; whoever stops one makes its own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.no_task_left import no_task_left
from tests.rigs.install import ServerUnavailable, ensure_elasticsearch, ensure_prometheus
from tests.rigs.servers import Elasticsearch, Prometheus

__all__ = ["no_task_left"]

NewPrometheus = Callable[..., Prometheus]


@pytest.fixture(scope="session")
def prometheus_programs() -> Path:
    try:
        return ensure_prometheus()
    except ServerUnavailable as problem:
        pytest.fail(str(problem), pytrace=False)


@pytest.fixture(scope="session")
def elasticsearch_distribution() -> Path:
    try:
        return ensure_elasticsearch()
    except ServerUnavailable as problem:
        pytest.fail(str(problem), pytrace=False)


@pytest.fixture(scope="package")
def elasticsearch(elasticsearch_distribution: Path) -> Iterator[Elasticsearch]:
    with Elasticsearch(elasticsearch_distribution) as server:
        yield server


@pytest.fixture
def new_prometheus(prometheus_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewPrometheus]:
    with ExitStack() as servers:
        yield lambda **given: servers.enter_context(
            Prometheus(prometheus_programs, tmp_path_factory.mktemp("prometheus"), **given)
        )
