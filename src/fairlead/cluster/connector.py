"""Connections of HTTP clients that end when their client does."""

import sys
from typing import Any

import aiohttp

# Python before 3.12.7 waits, for up to 30 s, for a TLS peer to take leave; aiohttp can end such connections with their
# connector, and warns where it thinks that this is no longer needed.
_ENDS_TLS = sys.version_info < (3, 12, 7)


def connector(**options: Any) -> aiohttp.TCPConnector:
    """As aiohttp's own, but nothing stays open after it: a peer that is silent, or frozen, is not waited for."""
    return aiohttp.TCPConnector(enable_cleanup_closed=_ENDS_TLS, **options)
