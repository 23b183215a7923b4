"""A running Fairlead as the commands ask it: what its answers mean, and what is wrong when it gives none."""

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

import click
import msgspec

T = TypeVar("T")

MOST_BYTES = 64 << 20
TIMEOUT_S = 30.0


class NoAnswer(Exception):
    """Nothing listens at the address, or it is not Fairlead."""


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


def print_json(found: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())


def table_lines(rows: Sequence[Sequence[str]], gap: str = "   ") -> list[str]:
    """Rows of the same length, in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def mistake(sentence: str) -> NoReturn:
    click.echo(f"fairlead: {sentence}", err=True)
    raise SystemExit(2)
