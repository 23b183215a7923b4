"""Stable hashes: suffixes of names from anything JSON can hold, and numbers from text."""

import hashlib
from typing import Any, Final

import msgspec

# No vowels and nothing that looks like one: a name never spells a word.
ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"

_canonical = msgspec.json.Encoder(order="deterministic")


def short_hash(*parts: Any, length: int = 10) -> str:
    """A stable short name for anything JSON can hold."""
    number = int.from_bytes(hashlib.sha256(_canonical.encode(parts)).digest()[:16])
    letters = []
    for _ in range(length):
        number, letter = divmod(number, len(ALPHABET))
        letters.append(ALPHABET[letter])
    return "".join(letters)


def hash_number(text: str) -> int:
    """A stable number of 64 bits, spread evenly."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
