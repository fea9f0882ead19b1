"""Tests for protocols.rq.wire: the golden bytes, and what a connection remembers."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.conversation import Conversation
from protocols.framing import Framer, FrameTooLong, WireError
from protocols.rq import wire
from protocols.rq.wire import Delivered, Memory, Ping, Reply, Request
from tests.protocols.rq import vectors
from tests.wire_vectors import WireVectors, rows


class TestRqWire(WireVectors):
    package = "rq"


def heard(data: bytes, memory: Memory | None = None, size: int | None = None) -> list[Any]:
    """What a controller understands of the bytes; a WireError is in its place among the events."""
    talk = Conversation(memory or Memory(), "client")
    for at in range(0, len(data), size or len(data)):
        talk.feed(data[at : at + (size or len(data))])
    events: list[Any] = []
    while True:
        try:
            event = talk.next_event()
        except FrameTooLong:
            raise
        except WireError as error:
            events.append(str(error))
            continue
        if event is None:
            return events
        events.append(event)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_rows_glued_together_are_all_understood(size: int) -> None:
    """librq glues DELIVERED and REPLY; here all sentences of a node come in one stream."""
    spoken = [row for side, row in rows(vectors) if side == "client"]
    framer, memory, found = Framer(wire.cut, wire.LIMIT), Memory(), []
    data = b"\x01".join(row[2] for row in spoken)  # a CLEAR between: some do not begin with one
    for at in range(0, len(data), size):
        framer.feed(data[at : at + size])
        while (frame := framer.next_frame()) is not None:
            found.append(memory.decode_client(wire.START, frame))
    assert found == [row[3] for row in spoken]


class TestMemory:
    def test_fields_are_kept_until_clear(self) -> None:
        first = b"\x80\0\0\0\x07\xa0\x01q\xe0\0\0\0\x01a\x0a"
        again = b"\xe0\0\0\0\x01b\x0a"
        cleared = b"\x01\xe0\0\0\0\x01c\x0a"
        assert heard(first + again + cleared) == [
            Request(7, b"q", b"a"),
            Request(7, b"q", b"b"),
            "REQUEST without an id",
        ]

    def test_what_was_cut_in_one_piece_is_remembered_too(self) -> None:
        whole = b"\x01\x80\0\0\0\x07\xa0\x01q\xe0\0\0\0\x01a\x21\x0a"
        assert heard(whole + b"\xe0\0\0\0\x01b\x0a" + b"\x0d" * 9) == [
            Request(7, b"q", b"a", noreply=True),
            Request(7, b"q", b"b", noreply=True),
            *[Delivered(7)] * 9,
        ]

    def test_a_payload_goes_with_the_verb_that_carries_it(self) -> None:
        data = b"\x80\0\0\0\x07\xa0\x01q\xe0\0\0\0\x01a\x0a\x0a\x0b"
        assert heard(data) == [Request(7, b"q", b"a"), Request(7, b"q", b""), Reply(7, b"")]

    def test_a_payload_that_is_cleared_is_dropped(self) -> None:
        assert heard(b"\xe0\0\0\0\x01a\x01\x80\0\0\0\x01\x0b") == [Reply(1, b"")]

    def test_a_second_payload_replaces_the_first(self) -> None:
        assert heard(b"\x80\0\0\0\x01\xe0\0\0\0\x01a\xe0\0\0\0\x01b\x0b") == [Reply(1, b"b")]

    @pytest.mark.parametrize("size", [1, 100])
    def test_a_ping_disturbs_no_sentence(self, size: int) -> None:
        data = b"\x01\x80\0\0\0\x07\x05\xa0\x01q\x05\xe0\0\0\0\x01a\x0a"
        assert heard(data, size=size) == [Ping(), Ping(), Request(7, b"q", b"a")]

    def test_what_is_unknown_is_stepped_over_by_its_shape(self) -> None:
        unknown = b"\0\x02\x1f\x3f\x5f1\x7f12\x9f1234\xbf\x02ab\xdf\0\x02ab\xff\0\0\0\x02ab\xa1\0"
        data = b"\x01" + unknown + b"\x80\0\0\0\x07" + unknown + b"\x0d"
        for size in (1, 2, 100):
            assert heard(data, size=size) == [Delivered(7)]

    def test_commands_without_end_and_without_a_verb_are_not_collected(self) -> None:
        """They would be read again with every segment; fields among them count all the same."""
        data = b"\x80\0\0\0\x07" + bytes(wire.COMMANDS - 1) + b"\x0d"
        assert heard(data) == ["64 commands and no verb", Delivered(7)]

    def test_what_we_do_not_know_is_not_remembered(self) -> None:
        memory = Memory()
        heard(b"\xf0\0\0\0\x02ab\xb0\x01a\x05", memory)
        assert memory.remembered() == {}


class TestLimit:
    def test_a_payload_over_the_limit_is_refused_at_its_length(self) -> None:
        head = b"\x01\x80\0\0\0\x07\xa0\x01q\xe0"
        assert heard(head + b"\0\0\0\x0a" + bytes(10) + b"\x0a", Memory(10)) != []
        with pytest.raises(FrameTooLong):
            heard(head + b"\0\0\0\x0b", Memory(10))

    def test_so_is_anything_else_that_is_long(self) -> None:
        with pytest.raises(FrameTooLong):
            heard(b"\xff\xff\xff\xff\xff")

    def test_a_sentence_of_many_payloads_is_too_long(self) -> None:
        many = (b"\xe0\0\1\0\0" + bytes(1 << 16)) * 4
        with pytest.raises(FrameTooLong):
            heard(many, Memory(1 << 16))
