"""CEL parsed into a tree with the position of each part, so that an error can point at it.

For checking rules (`types.py`) and for what evaluating them costs and reads (`cost.py`, `mentions.py`); a library
evaluates them (`rules.py`).
"""

import re
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\r\n\f]+|//[^\n]*)
    |(?P<text>[bBrR]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''
        |\"(?:\\.|[^\\\"\n\r])*\"|'(?:\\.|[^\\'\n\r])*'))
    |(?P<double>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<uint>(?:0x[0-9a-fA-F]+|\d+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|\d+)
    |(?P<name>[_a-zA-Z][_a-zA-Z0-9]*|`[^`]*`)
    |(?P<mark>[=!<>]=|&&|\|\||[-+*/%!<>?:.,()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_OPERAND = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)
_RELATIONS: Final = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
# The library that evaluates rules goes some 100 levels deep; the real compiler names its own limit.
MOST_DEPTH: Final = 100
MOST_CODE_POINTS: Final = 100_000
TOO_DEEP: Final = "expression recursion limit exceeded: 250"
NOWHERE: Final = -1
"""Position of an error about the whole rule."""


@dataclass(frozen=True, slots=True)
class Node:
    """`op`: an operator, or `name`, `text`, `int`, `double`, `bool`, `null`, `select`, `call`, `index`, `list`, `map`.

    `word` is a name's, a field's or a function's; of a call the first part is what it is called on, if anything is.
    """

    op: str
    at: int
    word: str = ""
    parts: tuple["Node", ...] = ()
    on: bool = False
    maybe: bool = False


class SyntaxMistake(ValueError):
    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def parse(text: str) -> Node:
    if len(text) > MOST_CODE_POINTS:
        message = f"expression code point size exceeds limit: size: {len(text)}, limit {MOST_CODE_POINTS}"
        raise SyntaxMistake(NOWHERE, message)
    reader = _Reader(_tokens(text), len(text))
    try:
        node = reader.expression()
    except RecursionError:
        raise SyntaxMistake(NOWHERE, TOO_DEEP) from None
    reader.end()
    return node


def pointed(rule: str, at: int, message: str) -> str:
    """An error with the line it is about and an arrow at the place, as the compiler draws it."""
    if at == NOWHERE:
        return f"ERROR: <input>:-1:0: {message}"
    line = rule.count("\n", 0, at)
    column = at - (rule.rfind("\n", 0, at) + 1)
    shown = rule.split("\n")[line]
    return f"ERROR: <input>:{line + 1}:{column + 1}: {message}\n | {shown}\n | {'.' * column}^"


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            shown = text[at:] if text[at] in "\"'" else text[at]
            raise SyntaxMistake(at, f"Syntax error: token recognition error at: '{shown}'")
        if match.lastgroup != "blank":
            found.append(_Token(match.lastgroup or "", match[0], at))
        at = match.end()
    return found


class _Reader:
    def __init__(self, tokens: list[_Token], length: int) -> None:
        self._tokens = [*tokens, _Token("end", "<EOF>", length)]
        self._at = 0
        self._depth = 0

    @property
    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _is(self, *marks: str) -> bool:
        return self._now.kind in ("mark", "name") and self._now.text in marks

    def _take(self) -> _Token:
        token = self._now
        self._at += 1
        return token

    def _expect(self, mark: str) -> _Token:
        if not self._is(mark):
            raise SyntaxMistake(self._now.at, f"Syntax error: missing '{mark}' at '{self._now.text}'")
        return self._take()

    def end(self) -> None:
        if self._now.kind != "end":
            raise SyntaxMistake(self._now.at, f"Syntax error: extraneous input '{self._now.text}' expecting <EOF>")

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise SyntaxMistake(NOWHERE, TOO_DEEP)
        node = self._chain(("||",), lambda: self._chain(("&&",), self._relation))
        if self._is("?"):
            mark = self._take()
            yes = self._chain(("||",), lambda: self._chain(("&&",), self._relation))
            self._expect(":")
            node = Node("_?_:_", mark.at, parts=(node, yes, self.expression()))
        self._depth -= 1
        return node

    def _chain(self, marks: tuple[str, ...], below) -> Node:  # type: ignore[no-untyped-def]
        node: Node = below()
        while self._is(*marks):
            mark = self._take()
            node = Node(f"_{mark.text}_", mark.at, parts=(node, below()))
        return node

    def _relation(self) -> Node:
        node = self._sum()
        while self._is(*_RELATIONS):
            mark = self._take()
            op = "@in" if mark.text == "in" else f"_{mark.text}_"
            node = Node(op, mark.at, parts=(node, self._sum()))
        return node

    def _sum(self) -> Node:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/", "%"), self._unary))

    def _unary(self) -> Node:
        if self._is("!", "-"):
            mark, times = self._take(), 1
            while self._is(mark.text):
                self._take()
                times += 1
            below = self._unary()
            # Pairs of ! or - cancel.
            return Node("!_" if mark.text == "!" else "-_", mark.at, parts=(below,)) if times % 2 else below
        return self._member()

    def _member(self) -> Node:
        node = self._primary()
        while self._is(".", "["):
            mark = self._take()
            maybe = self._is("?")
            if maybe:
                self._take()
            if mark.text == "[":
                node = Node("index", mark.at, parts=(node, self.expression()), maybe=maybe)
                self._expect("]")
                continue
            if self._now.kind != "name":
                raise SyntaxMistake(
                    self._now.at, f"Syntax error: mismatched input '{self._now.text}' expecting IDENTIFIER"
                )
            name = self._take()
            if self._is("(") and not maybe:
                bracket = self._take()
                node = Node("call", bracket.at, name.text, (node, *self._listed(")")), on=True)
            else:
                node = Node("select", mark.at, name.text.strip("`"), (node,), maybe=maybe)
        return node

    def _listed(self, end: str) -> list[Node]:
        found: list[Node] = []
        while not self._is(end):
            if self._is("?"):
                self._take()
            found.append(self.expression())
            if not self._is(","):
                break
            self._take()
        self._expect(end)
        return found

    def _primary(self) -> Node:
        token = self._now
        match token.kind:
            case "text":
                self._take()
                raw = token.text.lstrip("bBrR")
                is_bytes = "b" in token.text[: len(token.text) - len(raw)].lower()
                quote = 3 if raw[:3] in ('"""', "'''") else 1
                return Node("bytes" if is_bytes else "text", token.at, raw[quote:-quote])
            case "int" | "uint" | "double":
                self._take()
                return Node(token.kind, token.at, token.text)
            case "name" if token.text in ("true", "false"):
                self._take()
                return Node("bool", token.at, token.text)
            case "name" if token.text == "null":
                self._take()
                return Node("null", token.at)
            case "name" if token.text != "in":
                self._take()
                if self._is("("):
                    bracket = self._take()
                    return Node("call", bracket.at, token.text, tuple(self._listed(")")))
                return Node("name", token.at, token.text)
            case "mark" if token.text in ("(", "[", "{", "."):
                return self._opened(self._take())
        following = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        starts = following.kind not in ("mark", "end") or following.text in ("(", "[", "{", ".", "-", "!")
        what = "extraneous" if token.kind != "end" and starts else "mismatched"
        raise SyntaxMistake(token.at, f"Syntax error: {what} input '{token.text}' expecting {_OPERAND}")

    def _opened(self, mark: _Token) -> Node:
        if mark.text == "(":
            node = self.expression()
            self._expect(")")
            return node
        if mark.text == "[":
            return Node("list", mark.at, parts=tuple(self._listed("]")))
        if mark.text == ".":
            return self._primary()
        parts: list[Node] = []
        while not self._is("}"):
            if self._is("?"):
                self._take()
            parts.append(self.expression())
            self._expect(":")
            parts.append(self.expression())
            if not self._is(","):
                break
            self._take()
        self._expect("}")
        return Node("map", mark.at, parts=tuple(parts))
