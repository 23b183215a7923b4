"""Who we are to the API server: a token, a token file that is rotated under us, or an exec plugin.

`headers()` is asked before every request, `renew(refused)` once after a 401 with the headers that were refused:
true when there are others by now, so that the request is worth sending again.
Client certificates are not here: they live in the TLS context (`cluster.kubeconfig`).
"""

import asyncio
import base64
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec

from fairlead.cluster.clock import Clock
from fairlead.cluster.errors import UNDECODABLE, ConfigurationError
from fairlead.model.times import parse_time


class Credentials(Protocol):
    async def headers(self) -> Mapping[str, str]: ...

    async def renew(self, refused: Mapping[str, str]) -> bool: ...


class Fixed:
    """Headers that never change: a static token, a user and password, or nothing at all."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = dict(headers)

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    async def renew(self, refused: Mapping[str, str]) -> bool:
        return False


def bearer(token: str) -> Fixed:
    return Fixed({"Authorization": f"Bearer {token}"})


def basic(username: str, password: str) -> Fixed:
    packed = base64.b64encode(f"{username}:{password}".encode()).decode()
    return Fixed({"Authorization": f"Basic {packed}"})


class TokenFile:
    """A mounted service-account token. The kubelet replaces the file at 80 % of the token's life."""

    # A stat costs next to nothing, yet not on every one of a thousand binds a second.
    LOOK_EVERY_S = 10.0

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._headers: Mapping[str, str] = {}
        self._mtime_ns = -1
        self._looked_at_s = float("-inf")

    async def headers(self) -> Mapping[str, str]:
        if self._clock.elapsed_s() - self._looked_at_s >= self.LOOK_EVERY_S:
            self._read()
        return self._headers

    async def renew(self, refused: Mapping[str, str]) -> bool:
        self._read()
        return self._headers != refused

    def _read(self) -> None:
        self._looked_at_s = self._clock.elapsed_s()
        try:
            mtime_ns = self._path.stat().st_mtime_ns
            if mtime_ns == self._mtime_ns:
                return
            token = self._path.read_text().strip()
        except (OSError, UnicodeDecodeError) as problem:
            if self._headers:
                return  # in the middle of being replaced: what we have is still good
            raise ConfigurationError(f"the token file {self._path} cannot be read: {_error_text(problem)}") from problem
        if not token:
            if self._headers:
                return  # likewise: emptied, not yet written
            raise ConfigurationError(f"the token file {self._path} is empty")
        self._mtime_ns = mtime_ns
        self._headers = {"Authorization": f"Bearer {token}"}


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    status: ExecStatus = ExecStatus()


class ExecPlugin:
    """A program that prints a credential, asked again when it has expired or was refused."""

    DEADLINE_S = 60.0
    # Ask a little before the end, so that no request leaves with a token that expires on the way.
    EARLY = timedelta(seconds=30)

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        api_version: str,
        cluster: Mapping[str, Any] | None,
        install_hint: str,
        use_certificate: Callable[[str, str], None],
        clock: Clock,
    ) -> None:
        self._command = list(command)
        self._environment = dict(environment)
        self._api_version = api_version
        self._cluster = cluster
        self._install_hint = install_hint
        self._use_certificate = use_certificate
        self._clock = clock
        self._headers: Mapping[str, str] = {}
        self._expires_at: datetime | None = None
        self._is_loaded = False
        self._one_at_a_time = asyncio.Lock()

    async def headers(self) -> Mapping[str, str]:
        if not self._is_fresh():
            async with self._one_at_a_time:
                if not self._is_fresh():
                    await self._ask()
        return self._headers

    async def renew(self, refused: Mapping[str, str]) -> bool:
        async with self._one_at_a_time:
            if self._headers is refused:  # nobody else renewed since that request left
                await self._ask()
        return True

    def _is_fresh(self) -> bool:
        return self._is_loaded and (self._expires_at is None or self._clock.now() < self._expires_at - self.EARLY)

    async def _ask(self) -> None:
        name = self._command[0]
        spec: dict[str, Any] = {"interactive": False}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        question = {"apiVersion": self._api_version, "kind": "ExecCredential", "spec": spec}
        environment = {
            **os.environ,
            **self._environment,
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(question).decode(),
        }
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *self._command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        )
        try:
            # Shielded: cancelled half-way, asyncio would end the program but wait for its children, for whom nobody
            # but us knows how to send.
            process = await asyncio.shield(starting)
        except OSError as problem:
            hint = f" {self._install_hint}" if self._install_hint else ""
            raise ConfigurationError(
                f"the credential plugin {name!r} cannot be run: {problem.strerror}.{hint}"
            ) from None
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                await _end(await starting)
            raise
        try:
            async with asyncio.timeout(self.DEADLINE_S):
                out, err = await process.communicate()
        except TimeoutError:
            raise ConfigurationError(
                f"the credential plugin {name!r} gave no answer in {self.DEADLINE_S:g} s"
            ) from None
        finally:
            if process.returncode is None:
                await _end(process)
        if process.returncode != 0:
            output = err.decode("utf-8", "replace").strip()[-400:]
            raise ConfigurationError(f"the credential plugin {name!r} failed with {process.returncode}: {output}")
        self._take(name, out)

    def _take(self, name: str, out: bytes) -> None:
        try:
            credential = msgspec.json.decode(out, type=ExecCredential)
        except UNDECODABLE as problem:
            raise ConfigurationError(f"the credential plugin {name!r} printed no ExecCredential: {problem}") from None
        if credential.api_version != self._api_version:
            raise ConfigurationError(
                f"the credential plugin {name!r} answered in {credential.api_version!r}, not in {self._api_version!r}"
            )
        status = credential.status
        if not status.token and not status.client_certificate_data:
            raise ConfigurationError(f"the credential plugin {name!r} gave neither a token nor a certificate")
        try:
            expires_at = parse_time(status.expiration_timestamp) if status.expiration_timestamp is not None else None
        except ValueError:
            raise ConfigurationError(
                f"the credential plugin {name!r} gave an invalid expirationTimestamp: {status.expiration_timestamp!r}"
            ) from None
        if status.client_certificate_data:
            self._use_certificate(status.client_certificate_data, status.client_key_data)
        self._headers = {"Authorization": f"Bearer {status.token}"} if status.token else {}
        self._expires_at = expires_at
        self._is_loaded = True


async def _end(process: asyncio.subprocess.Process) -> None:
    # With its children: one that holds the pipe open would keep us waiting for its own end.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _error_text(problem: Exception) -> str:
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
