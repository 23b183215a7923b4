"""Warnings beside an answer, as `Warning` headers: each once, and bounded."""

from collections.abc import Iterable
from typing import Final

from aiohttp import web

MOST_WARNINGS: Final = 20
MOST_CHARACTERS: Final = 4096
# How much is left of each where all together are too long.
SHORTENED: Final = 256


def bounded(warnings: Iterable[str]) -> list[str]:
    texts = list(dict.fromkeys(warnings))[:MOST_WARNINGS]
    if sum(map(len, texts)) <= MOST_CHARACTERS:
        return texts
    shortened: list[str] = []
    for text in texts:
        if sum(map(len, shortened)) < MOST_CHARACTERS:
            shortened.append(text[:SHORTENED])
    return shortened


def add(response: web.StreamResponse, warnings: Iterable[str]) -> None:
    for warning in bounded(warnings):
        response.headers.add("Warning", f'299 - "{warning.replace(chr(34), chr(92) + chr(34))}"')
