"""Where a text stops being JSON, with the messages of Go's scanner."""

from collections.abc import Callable
from typing import Final

_SPACE: Final = b" \t\r\n"
_DIGITS: Final = b"0123456789"
_HEX: Final = b"0123456789abcdefABCDEF"
_ESCAPES: Final = {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
_LITERALS: Final = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}


class _Wrong(Exception):
    """A byte that cannot stand where it is."""


def complaint(body: bytes) -> str:
    """The syntax error; empty where the text is JSON."""
    # At the end of its input the scanner is given one more blank, and may complain about that.
    scanner = _Scanner(body + b" ")
    try:
        scanner.value()
        scanner.blank()
        if scanner.at < len(scanner.text):
            raise scanner.wrong("after top-level value")
    except _Wrong as problem:
        return str(problem)
    except IndexError:
        return "unexpected end of JSON input"
    return ""


def quoted(text: str, quote: str = '"') -> str:
    """As Go quotes a text: what cannot be printed is written as an escape."""
    return quote + "".join(_escaped(character, quote) for character in text) + quote


def _escaped(character: str, quote: str) -> str:
    if character in (quote, "\\"):
        return "\\" + character
    if character.isprintable():
        return character
    if character in _ESCAPES:
        return _ESCAPES[character]
    number = ord(character)
    if number < 0x20 or number == 0x7F:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


class _Scanner:
    def __init__(self, text: bytes) -> None:
        self.text = text
        self.at = 0

    def wrong(self, where: str) -> _Wrong:
        # The scanner knows bytes, and shows each as the character of that number.
        return _Wrong(f"invalid character {quoted(chr(self.text[self.at]), chr(39))} {where}")

    def blank(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1

    def value(self) -> None:
        self.blank()
        first = self.text[self.at]
        if first == ord("{"):
            self._members("}", "after object key:value pair", self._pair)
        elif first == ord("["):
            self._members("]", "after array element", self.value)
        elif first == ord('"'):
            self._string()
        elif first in _LITERALS:
            self._literal(_LITERALS[first])
        elif first == ord("-") or first in _DIGITS:
            self._number()
        else:
            raise self.wrong("looking for beginning of value")

    def _members(self, end: str, where: str, member: Callable[[], None]) -> None:
        self.at += 1
        self.blank()
        found = self.text[self.at]
        if found == ord(end):
            self.at += 1
        while found != ord(end):
            member()
            self.blank()
            found = self.text[self.at]
            if found not in (ord(end), ord(",")):
                raise self.wrong(where)
            self.at += 1

    def _pair(self) -> None:
        self.blank()
        if self.text[self.at] != ord('"'):
            raise self.wrong("looking for beginning of object key string")
        self._string()
        self.blank()
        if self.text[self.at] != ord(":"):
            raise self.wrong("after object key")
        self.at += 1
        self.value()

    def _string(self) -> None:
        self.at += 1
        while (byte := self.text[self.at]) != ord('"'):
            if byte < 0x20:
                raise self.wrong("in string literal")
            self.at += 1
            if byte == ord("\\"):
                self._escape()
        self.at += 1

    def _escape(self) -> None:
        if self.text[self.at] not in b'bfnrt\\/"u':
            raise self.wrong("in string escape code")
        is_number = self.text[self.at] == ord("u")
        self.at += 1
        for _ in range(4 if is_number else 0):
            if self.text[self.at] not in _HEX:
                raise self.wrong("in \\u hexadecimal character escape")
            self.at += 1

    def _literal(self, word: bytes) -> None:
        for index in range(1, len(word)):
            self.at += 1
            if self.text[self.at] != word[index]:
                raise self.wrong(f"in literal {word.decode()} (expecting '{chr(word[index])}')")
        self.at += 1

    def _number(self) -> None:
        if self.text[self.at] == ord("-"):
            self.at += 1
            self._digit("in numeric literal")
        if self.text[self.at] == ord("0"):
            self.at += 1
        else:
            self._digits()
        if self.text[self.at] == ord("."):
            self.at += 1
            self._digit("after decimal point in numeric literal")
            self._digits()
        if self.text[self.at] in b"eE":
            self.at += 1
            if self.text[self.at] in b"+-":
                self.at += 1
            self._digit("in exponent of numeric literal")
            self._digits()

    def _digit(self, where: str) -> None:
        if self.text[self.at] not in _DIGITS:
            raise self.wrong(where)

    def _digits(self) -> None:
        while self.text[self.at] in _DIGITS:
            self.at += 1
