"""The embedded API server in the place of the rig's real one, for tests that run on both."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.contract.served import Served, served
from tests.rigs.kube.servers import Rig


class EmbeddedRig(Rig):
    """What tests ask of a rig, answered by our server; there is nothing of it to start, stop or compact."""

    def __init__(self, programs: Path, home: Path, server: Served) -> None:
        super().__init__(programs, home)
        port = urlsplit(server.url).port
        assert port is not None
        self._server = server
        self._ports = {"kube-apiserver": port}
        self._tokens = {"admin": server.token}
        self._verify = ssl.create_default_context(cafile=str(server.authority))

    @property
    def ca_file(self) -> Path:
        return self._server.authority if hasattr(self, "_server") else super().ca_file


@contextmanager
def embedded_rig(programs: Path, folder: Path) -> Iterator[EmbeddedRig]:
    with served(folder / "data") as server:
        home = folder / "home"
        home.mkdir()
        yield EmbeddedRig(programs, home, server)
