"""Connections of HTTP clients that end when their client does."""

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

import aiohttp

# Python before 3.12.7 waits, for up to 30 s, for a TLS peer to take leave; aiohttp can end such connections with their
# connector, and warns where it thinks that this is no longer needed.
_ENDS_TLS = sys.version_info < (3, 12, 7)


class _Connector(aiohttp.TCPConnector):
    """Ends connections that are closing. Early releases of Python 3.11 raise when one is ended that is closed."""

    def _cleanup_closed(self) -> None:
        self._end_closing()
        super()._cleanup_closed()

    def _close(self, *, abort_ssl: bool = False) -> list[Any]:
        self._end_closing()
        return super()._close(abort_ssl=abort_ssl)

    def _end_closing(self) -> None:
        closing, self._cleanup_closed_transports = self._cleanup_closed_transports, []
        _end(closing)


def _end(transports: Iterable[asyncio.Transport | None]) -> None:
    for transport in transports:
        if transport is not None and getattr(transport, "_ssl_protocol", transport) is not None:
            transport.abort()


def connector(**options: Any) -> aiohttp.TCPConnector:
    """As aiohttp's own, but nothing stays open after it: a peer that is silent, or frozen, is not waited for."""
    return _Connector(enable_cleanup_closed=_ENDS_TLS, **options)
