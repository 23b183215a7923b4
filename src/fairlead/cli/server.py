"""A running Fairlead as the commands ask it: where it is, as whom, and what its answers mean."""

import asyncio
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import NoReturn, TypeVar

import click
import msgspec

from fairlead.settings import BadSettings, default_data_folder, load

T = TypeVar("T")

MOST_BYTES = 64 << 20
TIMEOUT_S = 30.0


class NoAnswer(Exception):
    """Nothing listens at the address, or it is not Fairlead."""


def address(data: Path | None, server: str | None, token: str | None, token_file: Path | None) -> tuple[str, str]:
    """Where to ask and as whom: what is named, else what `fairlead up` wrote into its folder."""
    folder = (data or default_data_folder()).expanduser()
    try:
        if server:
            url, given = server, ""
        else:
            url = (folder / "api.url").read_text().strip()
            given = (folder / "api.token").read_text().strip()
        if token_file is not None:
            given = token_file.read_text().strip()
    except OSError as problem:
        raise NoAnswer(f"{problem.filename} cannot be read: {problem.strerror}") from None
    return url.rstrip("/"), token or given


def fairlead_address(
    data: Path | None, server: str | None, token: str | None, kubeconfig: str | None, context: str | None
) -> tuple[str, str]:
    """Where a running Fairlead is and the token for it; the kubeconfig's where none is named."""
    url, given = address(data, server, token, None)
    if server and not given:
        given = asyncio.run(kubeconfig_token(kubeconfig, context))
    return url, given


def post_to(struct: type[T], url: str, path: str, token: str, ca_file: Path | None, body: object) -> T:
    return ask_for(struct, url, path, token, ca_file, msgspec.json.encode(body))


def ask_for(struct: type[T], url: str, path: str, token: str, ca_file: Path | None, body: bytes | None = None) -> T:
    scheme = urllib.parse.urlsplit(url).scheme
    headers = {"Content-Type": "application/json"} if body else {}
    request = urllib.request.Request(url + path, data=body, headers=headers)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        tls = (
            ssl.create_default_context(cafile=None if ca_file is None else str(ca_file)) if scheme == "https" else None
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=tls) as answer:
            body = answer.read(MOST_BYTES + 1)
        if len(body) > MOST_BYTES:
            mistake(f"{url} answered with more than {MOST_BYTES} bytes; leave out --all")
        return msgspec.json.decode(body, type=struct)
    except urllib.error.HTTPError as refusal:
        message = _message(refusal)
        if message is None:
            raise NoAnswer(f"{url} answers {refusal.code}, but not as Fairlead does") from None
        mistake(f"{url}: {message}")
    except (OSError, msgspec.DecodeError) as problem:
        raise NoAnswer(f"{url}: {problem}") from None


def _message(refusal: urllib.error.HTTPError) -> str | None:
    try:
        found = json.loads(refusal.read(1 << 20))
        return str(found["message"]) if isinstance(found, dict) and "isSucceed" in found else None
    except (ValueError, KeyError):
        return None


async def kubeconfig_token(kubeconfig: str | None, context: str | None) -> str:
    from fairlead.cluster.clock import RealClock
    from fairlead.cluster.errors import ClusterError
    from fairlead.runtime import find_connection

    try:
        settings = load(flags={"kubeconfig": kubeconfig, "context": context})
        headers = await find_connection(settings, RealClock()).credentials.headers()
    except (BadSettings, ClusterError):
        return ""
    scheme, _, token = dict(headers).get("Authorization", "").partition(" ")
    return token if scheme == "Bearer" else ""


def mistake(sentence: str) -> NoReturn:
    click.echo(f"fairlead: {sentence}", err=True)
    raise SystemExit(2)
