"""Credentials for servers outside the cluster: files, read again so that they may rotate."""

import base64
import ssl
from pathlib import Path
from typing import Final

import msgspec

from fairlead.placement.forecasts.sources import SourceProblem

LARGEST_SECRET: Final = 64 << 10


class Access(msgspec.Struct, frozen=True):
    url: str
    username: str = ""
    password_file: str = ""
    token_file: str = ""
    ca_file: str = ""

    def headers(self, scheme: str = "Bearer") -> dict[str, str]:
        """The Authorization header; a token that names its scheme (`ApiKey …`) keeps it."""
        if self.username:
            pair = f"{self.username}:{_secret(self.password_file)}".encode()
            return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}
        if self.token_file:
            token = _secret(self.token_file)
            return {"authorization": token if " " in token else f"{scheme} {token}"}
        return {}

    def tls(self) -> ssl.SSLContext | None:
        if not self.url.startswith("https://"):
            return None
        try:
            return ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as problem:
            raise SourceProblem(f"forecast.caFile: {self.ca_file} cannot be used: {problem}") from None


def _secret(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            found = opened.read(LARGEST_SECRET).decode().strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise SourceProblem(f"the credentials in {file} cannot be read: {problem}") from None
    if not found or not found.isprintable():
        raise SourceProblem(f"the credentials in {file} are empty or not one line of text")
    return found
