"""SPDY/3.1 frames, as port-forward speaks them inside a WebSocket: bytes to frames and back, no I/O.

Written from the published draft (draft-mbelshe-httpbis-spdy-00 and its 3.1 addition of a session window). Only what
streams need: SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS (passed over), PING, GOAWAY, HEADERS, WINDOW_UPDATE and data.
Everything that arrives is bounded: a frame's length, a header block before and after it is unpacked, and the number of
headers. What breaks the protocol raises `ProtocolError`, after which nothing more can be read.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

VERSION: Final = 3
SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS, WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
FLAG_FIN: Final = 0x01
PROTOCOL_ERROR: Final = 1
REFUSED_STREAM: Final = 3
CANCEL: Final = 5

MAX_CONTROL_BYTES: Final = 16 << 10
MAX_DATA_BYTES: Final = 1 << 20
MAX_HEADER_BYTES: Final = 16 << 10
MAX_HEADERS: Final = 100

_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200|OK version HTTP/1.1 url public set-cookie "
    "keep-alive origin"
)
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative "
    "Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 "
    "Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec "
    "00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset="
    "iso-8859-1,utf-,*,enq=0."
)
DICTIONARY: Final = (
    b"".join(
        struct.pack(">I", len(word)) + word.encode() for word in (each.replace("|", " ") for each in _WORDS.split(" "))
    )
    + _TEXT.encode()
)
"""The constant of the protocol with which header blocks are compressed; both ends must have the very same."""


class ProtocolError(Exception):
    """The other end broke the protocol or one of our bounds."""


@dataclass(frozen=True, slots=True)
class HeaderFrame:
    stream: int
    headers: Mapping[str, str] = field(default_factory=dict)
    fin: bool = False


class SynStream(HeaderFrame):
    pass


class SynReply(HeaderFrame):
    pass


class Headers(HeaderFrame):
    pass


@dataclass(frozen=True, slots=True)
class Data:
    stream: int
    data: bytes = b""
    fin: bool = False


@dataclass(frozen=True, slots=True)
class RstStream:
    stream: int
    status: int = CANCEL


@dataclass(frozen=True, slots=True)
class Ping:
    id: int


@dataclass(frozen=True, slots=True)
class GoAway:
    last_stream: int = 0
    status: int = 0


@dataclass(frozen=True, slots=True)
class WindowUpdate:
    stream: int
    delta: int


Frame = SynStream | SynReply | Headers | Data | RstStream | Ping | GoAway | WindowUpdate


class Decoder:
    """Bytes in any portions → whole frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now; to be exhausted before the next call."""
        self._buffer += data
        while len(self._buffer) >= 8:
            first, second = struct.unpack_from(">II", self._buffer)
            is_control, flags, length = first >> 31, second >> 24, second & 0xFFFFFF
            limit = MAX_CONTROL_BYTES if is_control else MAX_DATA_BYTES
            if length > limit:
                raise ProtocolError(f"a frame of {length} bytes; at most {limit} are read")
            if len(self._buffer) < 8 + length:
                return
            body = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            if not is_control:
                yield Data(_stream(first), body, bool(flags & FLAG_FIN))
            elif (first >> 16) & 0x7FFF != VERSION:
                raise ProtocolError(f"version {(first >> 16) & 0x7FFF} of the protocol; only {VERSION} is supported")
            elif (frame := self._control(first & 0xFFFF, flags, body)) is not None:
                yield frame

    def _control(self, kind: int, flags: int, body: bytes) -> Frame | None:
        fin = bool(flags & FLAG_FIN)
        match kind:
            case 1:  # SYN_STREAM: stream, associated stream, priority and slot
                (stream,) = _unpack(">I6x", body)
                return SynStream(_stream(stream), self._headers(body[10:]), fin)
            case 2 | 8:
                (stream,) = _unpack(">I", body)
                frame = SynReply if kind == SYN_REPLY else Headers
                return frame(_stream(stream), self._headers(body[4:]), fin)
            case 3:
                stream, status = _unpack(">II", body)
                return RstStream(_stream(stream), status)
            case 6:
                return Ping(_unpack(">I", body)[0])
            case 7:
                last, status = _unpack(">II", body)
                return GoAway(last & 0x7FFFFFFF, status)
            case 9:
                stream, delta = _unpack(">II", body)
                return WindowUpdate(stream & 0x7FFFFFFF, delta & 0x7FFFFFFF)
        return None  # settings, and kinds that the protocol says to pass over

    def _headers(self, packed: bytes) -> Mapping[str, str]:
        try:
            block = self._inflate.decompress(packed, MAX_HEADER_BYTES + 1)
        except zlib.error as problem:
            raise ProtocolError(f"headers cannot be unpacked: {problem}") from None
        if len(block) > MAX_HEADER_BYTES or self._inflate.unconsumed_tail or self._inflate.eof:
            raise ProtocolError(f"headers of more than {MAX_HEADER_BYTES} bytes, or after their end")
        (count,) = _unpack(">I", block)
        if count > MAX_HEADERS:
            raise ProtocolError(f"{count} headers; at most {MAX_HEADERS} are read")
        at, headers = 4, dict[str, str]()
        for _ in range(count):
            name, at = _text(block, at)
            value, at = _text(block, at)
            if not name or name != name.lower() or name in headers:
                raise ProtocolError("a header name is empty, not in lower case, or given twice")
            headers[name] = value
        return headers


class Encoder:
    """Frames → bytes. One per connection: header blocks are compressed as one stream."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def encode(self, frame: Frame) -> bytes:
        match frame:
            case Data(stream, data, fin):
                return struct.pack(">II", stream, (fin << 24) | len(data)) + data
            case SynStream(stream, headers, fin):
                return _control(SYN_STREAM, struct.pack(">I6x", stream) + self._packed(headers), fin)
            case SynReply(stream, headers, fin):
                return _control(SYN_REPLY, struct.pack(">I", stream) + self._packed(headers), fin)
            case Headers(stream, headers, fin):
                return _control(HEADERS, struct.pack(">I", stream) + self._packed(headers), fin)
            case RstStream(stream, status):
                return _control(RST_STREAM, struct.pack(">II", stream, status))
            case Ping(number):
                return _control(PING, struct.pack(">I", number))
            case GoAway(last, status):
                return _control(GOAWAY, struct.pack(">II", last, status))
            case WindowUpdate(stream, delta):
                return _control(WINDOW_UPDATE, struct.pack(">II", stream, delta))

    def _packed(self, headers: Mapping[str, str]) -> bytes:
        block = struct.pack(">I", len(headers))
        for text in (part for pair in headers.items() for part in pair):
            raw = text.encode()
            block += struct.pack(">I", len(raw)) + raw
        return self._deflate.compress(block) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


def _control(kind: int, body: bytes, fin: bool = False) -> bytes:
    return struct.pack(">HHI", 0x8000 | VERSION, kind, (fin << 24) | len(body)) + body


def _stream(number: int) -> int:
    number &= 0x7FFFFFFF
    if not number:
        raise ProtocolError("a frame of stream 0")
    return number


def _unpack(layout: str, body: bytes) -> tuple[int, ...]:
    try:
        return struct.unpack_from(layout, body)
    except struct.error:
        raise ProtocolError(f"a frame or header block of {len(body)} bytes ends too early") from None


def _text(block: bytes, at: int) -> tuple[str, int]:
    (length,) = _unpack(">I", block[at : at + 4])
    end = at + 4 + length
    if end > len(block):
        raise ProtocolError("a header is longer than its block")
    try:
        return block[at + 4 : end].decode(), end
    except UnicodeDecodeError:
        raise ProtocolError("a header is not UTF-8") from None
