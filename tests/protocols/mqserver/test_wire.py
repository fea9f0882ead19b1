"""Tests for protocols.mqserver.wire and encoding: the golden bytes, with one NUL and with two."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocols.conversation import Conversation, OutOfTurn
from protocols.framing import Framer, WireError
from protocols.mqserver import encoding, events, wire
from protocols.mqserver.proof import is_proved, prove
from protocols.mqserver.server import MqServer
from tests.protocols.mqserver import vectors
from tests.protocols.mqserver.vectors import PROOF, SALT, frame, raw
from tests.wire_vectors import WireVectors


class TestWire(WireVectors):
    package = "mqserver"

    @classmethod
    def load(cls) -> None:
        cls.wire, cls.vectors, cls.server = wire, vectors, MqServer

    def test_a_row_decodes_doubled_with_an_unfinished_third(self, vector: Any) -> None:
        """A frame is finished by its first NUL, so that the third must end before it."""
        side, (_, state, data, event) = vector
        pieces = [data + data + data.rstrip(b"\0")]
        assert self.decode_all(side, state, pieces) == [event, event]


class OneNul:
    """The golden bytes as a peer has them that ends its frames with one NUL."""

    def __init__(self) -> None:
        self.WRONG: list[Any] = []
        self.DECODE_ONLY = vectors.DECODE_ONLY
        self.REJECTED_FROM_CLIENT = vectors.REJECTED_FROM_CLIENT
        for name in ("FROM_CLIENT", "FROM_SERVER"):
            rows = [
                (row, state, shorten(data), event)
                for row, state, data, event in getattr(vectors, name)
            ]
            setattr(self, name, rows)
        self.CONVERSATIONS = {
            name: [(who, shorten(data)) for who, data in said]
            for name, said in vectors.CONVERSATIONS.items()
        }


def shorten(data: bytes) -> bytes:
    return data[:-1] if data.endswith(b"\0\0") else data


class TestWireWithOneNul(TestWire):
    @classmethod
    def load(cls) -> None:
        cls.wire, cls.vectors, cls.server = wire.Profile(nuls=1), OneNul(), MqServer


# The encoder.

TABLE = [  # facts, section 3: plain, encoded, CRC
    (b"", "78", 2363233923),
    (b"1", "01 30", 2115703570),
    (b"0", "01 2f", 4078116583),
    (b"hello", "01 67 64 6b 6b 6e", 2370397181),
    (b"fish haha", "01 65 68 72 67 1f 67 60 67 60", 472652476),
    (b"\0", "01 ff", 1975569459),
    (b"\1", "02 ff", 1592631280),
    (b"\2", "03 ff", 1207348913),
    (b"'", "01 26", 2328864323),
    (b"(", "02 26", 2716005760),
    (b"(1,2)", "03 25 2e 29 2f 26", 2300013451),
    (b"a|b\0c'd", "01 60 7b 61 ff 62 26 63", 1706728084),
]


@pytest.mark.parametrize(("plain", "encoded", "crc"), TABLE)
def test_the_encoder_gives_what_sqlite_gave(plain: bytes, encoded: str, crc: int) -> None:
    assert encoding.encode(plain) == bytes.fromhex(encoded)
    assert encoding.decode(bytes.fromhex(encoded)) == plain
    assert wire.crc32(bytes.fromhex(encoded)) == crc


def test_all_byte_values_are_encoded_with_four_escapes() -> None:
    plain = bytes(range(256))
    encoded = encoding.encode(plain)
    assert encoded[:9] == bytes.fromhex("01 ff 01 01 01 02 02 03 04")
    assert (len(encoded), wire.crc32(encoded)) == (260, 2961838853)
    assert encoding.decode(encoded) == plain


def plainly_encoded(plain: bytes) -> bytes:
    """The definition, byte by byte."""
    if not plain:
        return b"x"
    best, offset = len(plain), 0
    for k in range(1, 256):
        cost = sum(byte in (k, (k + 1) & 255, (k + 0x27) & 255) for byte in plain)
        if k != 0x27 and cost < best:
            best, offset = cost, k
    out = bytearray([offset])
    for byte in plain:
        value = (byte - offset) & 255
        out += {0: b"\1\1", 1: b"\1\2", 0x27: b"\1\3"}.get(value, bytes([value]))
    return bytes(out)


@given(
    st.one_of(
        st.binary(max_size=40),
        st.binary(max_size=40).map(lambda some: bytes(range(256)) + some),
        st.lists(st.sampled_from(b"\0\1\2'()\xff"), max_size=40).map(bytes),
    )
)
@example(bytes(range(256)) * 2)
def test_the_encoder_is_its_definition(plain: bytes) -> None:
    encoded = encoding.encode(plain)
    assert encoded == plainly_encoded(plain)
    assert b"\0" not in encoded
    assert b"'" not in encoded
    assert encoding.decode(encoded) == plain


@given(st.binary(), st.integers(1, 255))
def test_any_offset_is_decoded(plain: bytes, offset: int) -> None:
    out = bytearray([offset])
    for byte in plain:
        value = (byte - offset) & 255
        out += {0: b"\1\1", 1: b"\1\2", 0x27: b"\1\3"}.get(value, bytes([value]))
    assert encoding.decode(bytes(out)) == plain


# Round trips.

NAMES = st.text(
    st.characters(exclude_characters="|\x7f", min_codepoint=0x21, codec="utf-8"), min_size=1
).filter(lambda name: len(name.encode()) <= events.NAME and name[0] not in "+-#")
INTS = st.integers(0, 2**32 - 1)
USUAL = st.one_of(
    st.builds(
        events.SendToQueue, mid=INTS, queue=NAMES, topic=NAMES, payload=st.binary(), flags=INTS
    ),
    st.builds(events.SendToClient, mid=INTS, user=NAMES, app_id=INTS, payload=st.binary()),
    st.builds(events.CreateQueue, mid=INTS, queue=NAMES, flags=INTS, info=st.text()),
    st.builds(events.Ack, mid=INTS, text=st.text()),
    st.builds(events.FindQueue, mid=INTS, queues=st.lists(NAMES, min_size=1).map(tuple)),
    st.builds(
        events.AlterQueue, mid=INTS, queue=NAMES, ttl=INTS, owner=NAMES, info=st.none() | st.text()
    ),
)


@given(st.lists(USUAL, max_size=5), st.integers(1, 2), st.integers(1, 50))
def test_what_is_encoded_decodes_in_any_pieces(said: list[Any], nuls: int, size: int) -> None:
    profile = wire.Profile(nuls=nuls)
    data = b"".join(map(profile.encode, said))
    framer, heard = Framer(profile.cut, profile.LIMIT), []
    for at in range(0, len(data), size):
        framer.feed(data[at : at + size])
        while (found := framer.next_frame()) is not None:
            heard.append(profile.decode_client(wire.S.SYNCED, found))
    assert heard == said
    assert framer.held() == 0


# What else a server relies on.


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (raw("PARTQUEUE", b"\x01p", crc="1"), "ECRC"),
        (raw("NOTIFY", b"\x01\x01"), "EDATA"),
        (frame("NOSUCH", b""), "ETYPE"),
        (frame("PARTQUEUE", b""), "ESYNTAX"),
        (raw("PARTQUEUE", b"\x01p", version="2"), "EVERSION"),
        (raw("PARTQUEUE", b"\x01p", end=b"x"), "EFRAME"),
        (b"7|PARTQUEUE|1|9999999|0|1|", "ETOOBIG"),
        (frame("PARTQUEUE", b"q"), "out of turn"),
    ],
)
def test_an_error_knows_the_mid_of_its_frame(data: bytes, error: str) -> None:
    talk = Conversation(wire, "client")
    talk.feed(data)
    with pytest.raises(WireError) as caught:
        talk.next_event()
    if isinstance(caught.value, OutOfTurn):
        assert caught.value.event.mid == 7  # type: ignore[attr-defined]
    else:
        assert (caught.value.id, caught.value.mid) == (error, 7)  # type: ignore[attr-defined]


def test_padding_is_no_unfinished_frame() -> None:
    """NULs that come alone are forgotten, however many, and do not hide what follows them."""
    framer = Framer(wire.cut, wire.LIMIT)
    framer.feed(bytes(wire.LIMIT))
    assert framer.next_frame() is None
    assert framer.held() == 0
    framer.feed(b"\0")
    framer.feed(frame("NOTIFY", b"") + b"\0")
    assert framer.next_frame() is not None
    assert framer.next_frame() is None
    assert framer.held() == 0


def test_a_listener_may_take_less_data() -> None:
    profile = wire.Profile(most_data=10)
    assert profile.cut(raw("NOTIFY", b"x" * 10), 0)
    with pytest.raises(events.TooBig):
        profile.cut(raw("NOTIFY", b"x" * 11), 0)


def test_a_tail_is_the_frame_without_its_mid() -> None:
    event = events.FromQueue(7, "q", "t", 1, 2, "fish", b"hello")
    assert b"7" + wire.tail(event) == wire.encode(event)


def test_a_proof_is_made_of_password_and_salt() -> None:
    """facts, section 4.2"""
    assert prove(b"haha", SALT) == PROOF
    assert is_proved(b"haha", SALT, PROOF)
    assert not is_proved(b"hahaha", SALT, PROOF)
    assert not is_proved(b"haha", "other", PROOF)
    assert not is_proved(b"haha", SALT, "\u00e9")
    assert PROOF not in repr(events.Auth(2, "fish", PROOF))
