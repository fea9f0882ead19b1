"""Tests for protocols.framing."""

from __future__ import annotations

import pytest

from protocols.framing import Cut, Framer, FrameTooLong, delimited, length_prefixed

CUTS = {
    "bare length": (length_prefixed("<I"), b"\2\0\0\0hi", b"hi"),
    "length and tag": (length_prefixed(">BI"), b"\7\0\0\0\2hi", (7, b"hi")),
    "mark": (delimited(b"\0"), b"hi\0", b"hi"),
    "long mark": (delimited(b"\r\n"), b"hi\r\n", b"hi"),
}


def frames(framer: Framer, *pieces: bytes) -> list[object]:
    found = []
    for piece in pieces:
        framer.feed(piece)
        while (frame := framer.next_frame()) is not None:
            found.append(frame)
    return found


@pytest.mark.parametrize(("cut", "data", "frame"), CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("size", range(1, 10))
def test_frames_are_the_same_however_they_arrive(
    cut: Cut, data: bytes, frame: object, size: int
) -> None:
    stream = data * 5
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert frames(Framer(cut, 100), *pieces) == [frame] * 5


@pytest.mark.parametrize(("cut", "data", "frame"), CUTS.values(), ids=CUTS)
def test_a_frame_of_the_limit_passes_and_one_byte_more_does_not(
    cut: Cut, data: bytes, frame: object
) -> None:
    assert frames(Framer(cut, len(data)), data) == [frame]
    with pytest.raises(FrameTooLong):
        frames(Framer(cut, len(data) - 1), data)
    with pytest.raises(FrameTooLong):
        frames(Framer(cut, len(data) - 1), *[bytes([byte]) for byte in data])


def test_a_length_over_the_limit_is_refused_before_its_bytes_are_collected() -> None:
    framer = Framer(length_prefixed("<I"), 1000)
    with pytest.raises(FrameTooLong):
        frames(framer, b"\xff\xff\xff\xff")
    assert framer.held() == 4


def test_a_mark_that_does_not_come_is_not_waited_for_beyond_the_limit() -> None:
    framer = Framer(delimited(b"\0"), 8)
    assert frames(framer, b"1234567") == []
    with pytest.raises(FrameTooLong):
        frames(framer, b"8")


def test_an_empty_frame_is_a_frame() -> None:
    assert frames(Framer(length_prefixed("<I"), 10), b"\0\0\0\0") == [b""]
    assert frames(Framer(delimited(b"\0"), 10), b"\0\0") == [b"", b""]


def test_frames_before_a_bad_one_are_handed_out() -> None:
    framer = Framer(length_prefixed("<I"), 10)
    framer.feed(b"\1\0\0\0x\xff\xff\xff\xff")
    assert framer.next_frame() == b"x"
    with pytest.raises(FrameTooLong):
        framer.next_frame()


def test_a_frame_in_many_pieces_is_looked_at_only_when_it_may_be_whole() -> None:
    """A frame of n bytes in n pieces must not cost n looks at n bytes."""
    looks = 0
    plain = length_prefixed("<I")

    def counting(buffer: bytes, at: int) -> object:
        nonlocal looks
        looks += 1
        return plain(buffer, at)

    framer = Framer(counting, 10_000)  # type: ignore[arg-type]
    data = (5000).to_bytes(4, "little") + b"x" * 5000
    assert frames(framer, *[bytes([byte]) for byte in data]) == [b"x" * 5000]
    assert looks < 12


def test_the_stage_tells_one_unfinished_frame_from_the_next_of_its_size() -> None:
    framer = Framer(length_prefixed("<I"), 100)
    stages = []
    for piece in (b"\2", b"\0", b"\0\0a", b"b\2\0\0\0a", b"b\2\0\0\0a"):
        frames(framer, piece)
        stages.append(framer.stage)
    assert stages == [1, 1, 2, 3, 4]


def test_needed_tells_the_size_of_the_unfinished_frame_as_far_as_it_is_known() -> None:
    framer = Framer(length_prefixed("<I"), 100)
    frames(framer, b"\5")
    assert framer.needed == 4
    frames(framer, b"\0\0\0ab")
    assert framer.needed == 9
