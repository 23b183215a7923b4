"""SPDY/3.1 frames: what we write is read back; whatever else arrives is a frame or a ProtocolError, within bounds."""

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.nodes.streaming import spdy
from fairlead.nodes.streaming.spdy import (
    DICTIONARY,
    Data,
    Decoder,
    Encoder,
    Frame,
    GoAway,
    Headers,
    Ping,
    ProtocolError,
    RstStream,
    SynReply,
    SynStream,
    WindowUpdate,
)

numbers = st.integers(1, 0x7FFFFFFF)
words = st.integers(0, 0xFFFFFFFF)
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).map(str.lower).filter(lambda n: n == n.lower())
headers = st.dictionaries(names, st.text(max_size=40), max_size=8)
frames = st.one_of(
    st.builds(SynStream, numbers, headers, st.booleans()),
    st.builds(SynReply, numbers, headers, st.booleans()),
    st.builds(Headers, numbers, headers, st.booleans()),
    st.builds(Data, numbers, st.binary(max_size=300), st.booleans()),
    st.builds(RstStream, numbers, words),
    st.builds(Ping, words),
    st.builds(GoAway, st.integers(0, 0x7FFFFFFF), words),
    st.builds(WindowUpdate, st.integers(0, 0x7FFFFFFF), st.integers(0, 0x7FFFFFFF)),
)


def control(kind: int, body: bytes, version: int = 3, length: int | None = None) -> bytes:
    return struct.pack(">HHI", 0x8000 | version, kind, len(body) if length is None else length) + body


def packed(block: bytes) -> bytes:
    deflate = zlib.compressobj(zdict=DICTIONARY)
    return deflate.compress(block) + deflate.flush(zlib.Z_SYNC_FLUSH)


def opening(block: bytes) -> bytes:
    return control(spdy.SYN_STREAM, struct.pack(">I6x", 1) + packed(block))


def test_the_dictionary_is_the_protocols_own() -> None:
    # The checksum stands at the start of every SPDY/3 header stream ever recorded: 78 bb e3 c6 a7 c2.
    assert Encoder().encode(SynReply(1))[12:18] == bytes.fromhex("78bbe3c6a7c2")


def test_a_frame_as_client_go_writes_it_is_read() -> None:
    # Recorded from kubectl 1.36 port-forward: the two streams of a first request, and their ends.
    headers = {"streamtype": "error", "port": "8080", "requestid": "0"}
    assert list(Decoder().feed(bytes.fromhex(RECORDED))) == [
        SynStream(1, headers),
        Data(1, b"", True),
        SynStream(3, {**headers, "streamtype": "data"}),
        RstStream(3, spdy.CANCEL),
    ]


@given(st.lists(frames, max_size=8), st.lists(st.integers(1, 50), min_size=1, max_size=8))
def test_frames_survive_any_cut(sent: list[Frame], cuts: list[int]) -> None:
    encoder, decoder = Encoder(), Decoder()
    data = b"".join(encoder.encode(frame) for frame in sent)
    read: list[Frame] = []
    at = number = 0
    while at < len(data):
        step = cuts[number % len(cuts)]
        read += decoder.feed(data[at : at + step])
        at, number = at + step, number + 1
    assert read == sent


@given(st.binary(max_size=400))
def test_noise_is_frames_or_a_protocol_error(noise: bytes) -> None:
    decoder = Decoder()
    try:
        for frame in decoder.feed(noise):
            assert isinstance(frame, Frame)
    except ProtocolError:
        return


@given(st.integers(1, 12), st.binary(max_size=60))
def test_control_frames_of_noise_are_frames_or_a_protocol_error(kind: int, body: bytes) -> None:
    try:
        assert len(list(Decoder().feed(control(kind, body)))) <= 1
    except ProtocolError:
        return


@given(st.binary(max_size=200))
def test_header_blocks_of_noise_are_headers_or_a_protocol_error(block: bytes) -> None:
    try:
        (frame,) = Decoder().feed(opening(block))
        assert isinstance(frame, SynStream)
        assert len(frame.headers) <= spdy.MAX_HEADERS
    except ProtocolError:
        return


def block_of(*pairs: tuple[bytes, bytes]) -> bytes:
    texts = b"".join(struct.pack(">I", len(text)) + text for pair in pairs for text in pair)
    return struct.pack(">I", len(pairs)) + texts


@pytest.mark.parametrize(
    ("hostile", "why"),
    [
        pytest.param(struct.pack(">II", 1, spdy.MAX_DATA_BYTES + 1), "at most 1048576", id="a data frame too long"),
        pytest.param(
            control(4, b"", length=spdy.MAX_CONTROL_BYTES + 1), "at most 16384", id="a control frame too long"
        ),
        pytest.param(control(1, b"", version=2), "version 2", id="another version"),
        pytest.param(struct.pack(">II", 0, 0), "stream 0", id="data of stream 0"),
        pytest.param(control(3, struct.pack(">II", 0, 1)), "stream 0", id="reset of stream 0"),
        pytest.param(control(6, b"ab"), "too early", id="a ping cut short"),
        pytest.param(control(1, b"\0" * 9), "too early", id="a stream cut short"),
        pytest.param(opening(b"\0" * (spdy.MAX_HEADER_BYTES + 1)), "headers of more", id="a bomb of headers"),
        pytest.param(opening(struct.pack(">I", 1 << 31)), "at most 100", id="headers beyond counting"),
        pytest.param(opening(struct.pack(">II", 1, 1 << 31)), "longer than", id="a name longer than its block"),
        pytest.param(opening(block_of((b"a", b"1"), (b"a", b"2"))), "given twice", id="a header twice"),
        pytest.param(opening(block_of((b"Port", b"1"))), "lower case", id="a header in upper case"),
        pytest.param(opening(block_of((b"", b"1"))), "empty", id="a header without a name"),
        pytest.param(opening(block_of((b"a", b"\xff"))), "UTF-8", id="a header that is no text"),
        pytest.param(
            control(1, struct.pack(">I6x", 1) + zlib.compress(b"")),
            "after their end|too early",
            id="headers that end for good",
        ),
    ],
)
def test_what_breaks_the_protocol_is_refused(hostile: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        list(Decoder().feed(hostile))


def test_a_long_frame_is_refused_by_its_length_alone() -> None:
    # Nothing of the frame itself has come, so nothing of it was kept.
    with pytest.raises(ProtocolError):
        list(Decoder().feed(struct.pack(">II", 1, 0xFFFFFF)))


def test_settings_and_unknown_kinds_are_passed_over() -> None:
    told = control(spdy.SETTINGS, b"\0" * 12) + control(11, b"x") + Encoder().encode(Ping(7))
    assert list(Decoder().feed(told)) == [Ping(7)]


RECORDED = (
    "800300010000003e00000001000000000000"
    "78f9e3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45e01c60616061c0c0c0c0590489c64c50f2663400000000ffff"
    "0000000101000000"
    "800300010000001800000003000000000000c2aa19540e2512d60b000000ffff"
    "80030003000000080000000300000005"
)
