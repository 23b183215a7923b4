"""Fixtures that hand out the real Kubernetes.

`rig` is shared by all that one worker runs, the others by a file: a test keeps to its own `namespace` and leaves no
cluster-wide object behind. A test that restarts, compacts or configures servers makes its own with `new_rig`.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.rigs.kube.build import RigUnavailable, ensure_built
from tests.rigs.kube.servers import Rig


@pytest.fixture(scope="session")
def kube_programs(request: pytest.FixtureRequest) -> Path:
    """The folder of the built programs; whoever asks for it becomes a `kube` test."""
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    try:
        return ensure_built(reporter.write_line if reporter is not None else lambda _: None)
    except RigUnavailable as problem:
        pytest.fail(str(problem), pytrace=False)


@pytest.fixture(scope="session")
def rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """etcd and kube-apiserver, the ServiceAccount admission plugin off, nobody else at work."""
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as shared:
        yield shared.start()


@pytest.fixture(scope="module")
def bare_rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Like `rig`, for tests about what the runtime's role alone allows: nobody may be given another role here."""
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as shared:
        yield shared.start()


@pytest.fixture(scope="module")
def rig_with_controllers(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """The same and a real kube-controller-manager: Deployments, DaemonSets, garbage collection, ServiceAccounts."""
    with Rig(kube_programs, tmp_path_factory.mktemp("rig")) as shared:
        yield shared.start(controller_manager=True)


@pytest.fixture
def new_rig(kube_programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Rig]]:
    """Makes rigs for this test alone, not started yet; they are stopped when it ends."""
    with ExitStack() as rigs:
        yield lambda: rigs.enter_context(Rig(kube_programs, tmp_path_factory.mktemp("rig")))


@pytest.fixture
def namespace(rig: Rig) -> Iterator[str]:
    """A fresh namespace on `rig`, deleted afterwards."""
    name = f"test-{secrets.token_hex(4)}"
    rig.create_namespace(name)
    yield name
    rig.delete_namespace(name)


@pytest.fixture
def namespace_with_controllers(rig_with_controllers: Rig) -> Iterator[str]:
    """A fresh namespace on `rig_with_controllers`, its `default` ServiceAccount made."""
    name = f"test-{secrets.token_hex(4)}"
    rig_with_controllers.create_namespace(name)
    yield name
    rig_with_controllers.delete_namespace(name)
