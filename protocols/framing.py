"""Cutting a byte stream into frames, and the errors of a peer that breaks the spec.

A *cut* is a pure function of what has arrived: `cut(buffer, at)` is `(frame, end)` for the frame
that begins at `at`, or, when it is not all there, how many bytes from `at` on are needed at least.
A frame that is None is padding, which is all that it says, and is not handed out.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

Cut = Callable[[bytes, int], "tuple[Any, int] | int"]


class WireError(Exception):
    """The peer broke the spec in one frame; the next one may be right."""


class FramingLost(WireError):
    """Nothing that follows can be understood: answer, if the spec has words for it, and close."""


class FrameTooLong(FramingLost):
    """A frame is, or says it will be, longer than the limit."""


def length_prefixed(form: str) -> Cut:
    """Frames that begin with a header whose last field is the length of what follows it.

    The frame is the body alone if the header is nothing but the length, else the header's
    other fields and the body.
    """
    header = Struct(form)
    size, unpack = header.size, header.unpack_from

    def cut_bare(buffer: bytes, at: int) -> tuple[bytes, int] | int:
        start = at + size
        if len(buffer) < start:
            return size
        end = start + unpack(buffer, at)[0]
        if len(buffer) < end:
            return end - at
        return buffer[start:end], end

    def cut_fields(buffer: bytes, at: int) -> tuple[tuple[Any, ...], int] | int:
        start = at + size
        if len(buffer) < start:
            return size
        *fields, length = unpack(buffer, at)
        end = start + length
        if len(buffer) < end:
            return end - at
        return (*fields, buffer[start:end]), end

    return cut_bare if len(unpack(bytes(size))) == 1 else cut_fields


def delimited(mark: bytes) -> Cut:
    """Frames closed by `mark`, which is not part of the frame."""

    def cut(buffer: bytes, at: int) -> tuple[bytes, int] | int:
        end = buffer.find(mark, at)
        return len(buffer) - at + 1 if end < 0 else (buffer[at:end], end + len(mark))

    return cut


class Framer:
    """Hold what has arrived and hand it out frame by frame, no frame longer than `limit`.

    A frame's bytes, its header and mark included, are counted before they are collected, so one
    that announces more than the limit is refused at its header.
    """

    def __init__(self, cut: Cut, limit: int) -> None:
        self._cut = cut
        self.limit = limit  # may change with what is known of the peer
        self._buffer = b""
        self._at = 0
        self._more = bytearray()  # arrived since `_buffer`, not yet enough for its last frame
        self._missing = 0  # so many bytes at least until it is worth looking again
        self.needed = 0  # the size of the unfinished frame, as far as it is known
        self.stage = 0  # changes when a frame begins, and when more is known of its size

    def feed(self, data: bytes) -> None:
        if self._at == len(self._buffer) and not self._more:
            self._buffer, self._at = data, 0  # the usual case costs no copy
        else:
            self._more += data
        self._missing -= len(data)

    def held(self) -> int:
        """How many bytes have arrived and not been handed out."""
        return len(self._buffer) - self._at + len(self._more)

    def next_frame(self) -> Any:
        """The next frame, or None if it is not all there; FrameTooLong."""
        if self._missing > 0:
            return None
        at = self._at
        found = self._cut(self._buffer, at)
        if type(found) is int:
            return self._unfinished(found)
        frame, end = found  # type: ignore[misc]
        if end - at > self.limit:
            raise FrameTooLong(f"a frame of over {self.limit} bytes")
        self._at = end
        self.needed = 0
        return self.next_frame() if frame is None else frame

    def _unfinished(self, needed: int) -> Any:
        if self._more:
            self._buffer = self._buffer[self._at :] + self._more
            self._at = 0
            self._more.clear()
            return self.next_frame()
        if needed > self.limit:
            raise FrameTooLong(f"a frame of over {self.limit} bytes")
        if needed != self.needed:
            self.needed = needed
            self.stage += 1
        self._missing = needed - self.held()
        return None
