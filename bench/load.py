"""The load: connections that keep requests under way and count the bytes of the answers."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Sequence
from time import perf_counter

PATIENCE = 60  # seconds without an answer after which a server is given up
READ = 1 << 16  # bytes read at once


class LoadError(Exception):
    """The server did not do what it was asked, so nothing was measured."""


def dial(port: int) -> socket.socket:
    """A blocking connection to a loopback port; a read or write that takes too long fails."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel's own timeout: Python's would cost a poll for each call.
    patience = struct.pack("ll", PATIENCE, 0)
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
    return connection


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly so many bytes."""
    received = b""
    while len(received) < size:
        data = connection.recv(size - len(received))
        if not data:
            raise LoadError(f"the server hung up after {received!r}")
        received += data
    return received


def ask(connection: socket.socket, request: bytes, answer: bytes) -> None:
    """One request, and the answer that it must have."""
    connection.sendall(request)
    expect(receive(connection, len(answer)), answer)


def expect(answer: bytes, wanted: bytes) -> None:
    if answer != wanted:
        raise LoadError(f"the server answered {answer[:40]!r}, not {wanted[:40]!r}")


class Stream:
    """One connection that has up to `window` equal requests under way.

    All answers have one size, so that they need not be parsed; `first` and `last` are for looking
    whether they were answers indeed.
    """

    def __init__(
        self, connection: socket.socket, request: bytes, answer_size: int, window: int
    ) -> None:
        self.connection = connection
        self._receive = connection.recv
        self._send = connection.sendall
        self._request_size = len(request)
        self._block = memoryview(request * window)
        self._answer_size = answer_size
        self._window = window
        self._bytes = 0
        self._chunks = (b"", b"")  # the last two that arrived
        self.first = b""
        self.left = 0  # requests that may still be sent
        self.sent = 0

    @property
    def last(self) -> bytes:
        """The last answer, or less if it came in more than two pieces."""
        return b"".join(self._chunks)[-self._answer_size :]

    @property
    def is_done(self) -> bool:
        return not self.left and self._bytes >= self.sent * self._answer_size

    def start(self, count: int) -> None:
        self.left = count
        self._send_up_to(self._window)

    def turn(self) -> None:
        """Take what has arrived and fill the window again."""
        data = self._receive(READ)
        if not data:
            raise LoadError(f"the server hung up after {self.last!r}")
        self._chunks = (self._chunks[1], data)
        self._bytes += len(data)
        if len(self.first) < self._answer_size:
            self.first = (self.first + data)[: self._answer_size]
        if self.left:
            self._send_up_to(self._window - self.sent + self._bytes // self._answer_size)

    def _send_up_to(self, room: int) -> None:
        room = min(room, self.left)
        if room > 0:
            self.sent += room
            self.left -= room
            self._send(self._block[: room * self._request_size])


def drive_for(streams: Sequence[Stream], seconds: float) -> int:
    """Keep the streams busy for that time and hear the last answer; how many messages."""
    endless = 1 << 60
    for stream in streams:
        stream.start(endless)
    _run(streams, perf_counter() + seconds)
    return sum(stream.sent for stream in streams)


def drive_count(streams: Sequence[Stream], count: int) -> int:
    """Send so many requests in all, divided evenly, and hear the last answer."""
    each, more = divmod(count, len(streams))
    for number, stream in enumerate(streams):
        stream.start(each + (number < more))
    _run(streams, float("inf"))
    return count


def _run(streams: Sequence[Stream], deadline: float) -> None:
    try:
        if len(streams) == 1:
            _run_one(streams[0], deadline)
        else:
            _run_many(streams, deadline)
    except BlockingIOError:
        raise LoadError(f"no answer in {PATIENCE} seconds") from None


def _run_one(stream: Stream, deadline: float) -> None:
    turn, clock = stream.turn, perf_counter
    while clock() < deadline and not stream.is_done:
        turn()
    stream.left = 0
    while not stream.is_done:
        turn()


def _run_many(streams: Sequence[Stream], deadline: float) -> None:
    by_number = {stream.connection.fileno(): stream for stream in streams if not stream.is_done}
    turns = {number: stream.turn for number, stream in by_number.items()}
    with select.epoll(len(by_number)) as poller:
        for number in by_number:
            poller.register(number, select.EPOLLIN)
        poll, clock, over = poller.poll, perf_counter, False
        while by_number:
            ready = poll(PATIENCE)
            if not ready:
                raise BlockingIOError
            for number, _ in ready:
                turns[number]()
                stream = by_number[number]
                if not stream.left and stream.is_done:
                    poller.unregister(number)
                    del by_number[number]
            if not over and clock() >= deadline:
                over = True
                for stream in streams:
                    stream.left = 0
                for number in [number for number in by_number if by_number[number].is_done]:
                    poller.unregister(number)
                    del by_number[number]
