"""qlite on the bench: its listener, its clients, its loads and its bare responder."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from struct import Struct
from time import perf_counter
from typing import Any

from twisted.internet.protocol import Protocol

from bench.load import LoadError, Stream, ask, dial, drive_count, drive_for, expect, receive
from bench.measure import Row, Sample, meter
from bench.server import Server
from protocols.qlite.proof import prove

NAME = "qlite"
TITLE = "qlite, messages of 100 bytes"
USERS: list[dict[str, Any]] = [
    {"name": "pub", "password": "publisher", "publisher": True},
    {"name": "sub", "password": "subscriber", "subscriber": True},
]
LISTENER: dict[str, Any] = {
    "protocol": "qlite",
    "maxConnections": 2000,
    "maxPublisherConnections": 1000,
    "maxUnauthenticatedConnections": 1000,
    "maxMessages": 100_000_000,
    "maxIoTimeSeconds": 60.0,
    "maxPollingTimeSeconds": 60.0,
}
LOGINS = 2  # at once: each takes a core of ours and one of the server for 75 ms
WINDOW = 64
FILL_WINDOW = 256  # where nothing is measured, as fast as it goes

_length = Struct("<I")
_number_answer = Struct("<I5sI").pack


def frame(body: bytes) -> bytes:
    return _length.pack(len(body)) + body


MESSAGE = bytes(range(100, 200))
PUSH, SPOP, LPOP, LEN = (frame(body) for body in (b"PUSH;" + MESSAGE, b"SPOP;", b"LPOP;", b"LEN;"))
POPPED = frame(b"PASS;" + MESSAGE)
NUMBER_HEAD = _number_answer(9, b"PASS;", 0)[:9]
NUMBER_SIZE = 13


class QliteClients:
    """Publishers and one subscriber, logged in; the bare responder asks for no login."""

    def __init__(self, server: Server, publishers: int) -> None:
        self.server = server
        self._is_bare = server.mode == "bare"
        self._stored = 0  # messages that are there to stay
        roles = [*[(0, b"pub", b"publisher")] * publishers, (1, b"sub", b"subscriber")]
        with ThreadPoolExecutor(LOGINS) as logins:
            *self.publishers, self._subscriber = logins.map(lambda role: self._open(*role), roles)

    def _open(self, role: int, name: bytes, password: bytes) -> socket.socket:
        connection = dial(self.server.port)
        if not self._is_bare:
            greeting = receive(connection, 30)
            expect(greeting[:14], b"\x1a\0\0\0greetings;")
            proof = prove(password, greeting[14:])
            ask(connection, frame(bytes([role]) + name + b";" + proof), frame(b"PASS;"))
        return connection

    def close(self) -> None:
        for connection in [*self.publishers, self._subscriber]:
            connection.close()

    # Loads.

    def push(self, seconds: float, active: int, window: int) -> Sample:
        """Publish on that many connections; then take it all out again, unmeasured."""
        streams = self._push_streams(active, window)
        sample = meter(self.server, lambda: drive_for(streams, seconds))
        self._check_pushed(streams, sample.messages)
        self.drain(sample.messages, FILL_WINDOW)
        return sample

    def pop(self, seconds: float) -> Sample:
        """Fill for that long, unmeasured, and take it all out again with a window."""
        if self._is_bare:
            stream = self._pop_stream(WINDOW)
            sample = meter(self.server, lambda: drive_for([stream], seconds))
            self._check_popped(stream)
            return sample
        streams = self._push_streams(1, WINDOW)
        count = drive_for(streams, seconds)
        self._check_pushed(streams, count)
        return self.drain(count, WINDOW)

    def wake(self, seconds: float) -> Sample:
        """Push one message to a subscriber that waits for it, again and again.

        Timed is the way from the PUSH to the subscriber.  The LEN before it, on the publisher's
        connection, is answered after the LPOP was read, so that the subscriber does wait.
        """
        publisher, subscriber = self.publishers[0], self._subscriber
        latencies: list[float] = []

        def wake_until(end: float) -> int:
            while perf_counter() < end:
                subscriber.sendall(LPOP)
                publisher.sendall(LEN)
                expect(receive(publisher, NUMBER_SIZE)[:9], NUMBER_HEAD)
                start = perf_counter()
                publisher.sendall(PUSH)
                expect(receive(subscriber, len(POPPED)), POPPED)
                latencies.append(perf_counter() - start)
                expect(receive(publisher, NUMBER_SIZE)[:9], NUMBER_HEAD)
            return len(latencies)

        sample = meter(self.server, lambda: wake_until(perf_counter() + seconds))
        self._check_stored(0)
        return sample._replace(seconds=sum(latencies), latencies=latencies)

    def fill(self, count: int) -> None:
        streams = self._push_streams(min(4, len(self.publishers)), FILL_WINDOW)
        drive_count(streams, count)
        self._check_pushed(streams, count)
        self._stored += count

    def _push_streams(self, active: int, window: int) -> list[Stream]:
        if active > len(self.publishers):
            raise ValueError(f"only {len(self.publishers)} publishers are connected")
        publishers = self.publishers[:active]
        return [Stream(publisher, PUSH, NUMBER_SIZE, window) for publisher in publishers]

    def _pop_stream(self, window: int) -> Stream:
        return Stream(self._subscriber, SPOP, len(POPPED), window)

    def drain(self, count: int, window: int) -> Sample:
        """Take so many out, which must be all."""
        if self._is_bare:
            return Sample(0, 0.0, 0.0)
        stream = self._pop_stream(window)
        sample = meter(self.server, lambda: drive_count([stream], count))
        self._check_popped(stream)
        self._check_stored(0)
        return sample

    # Whether the server did what it was asked.

    def _check_pushed(self, streams: list[Stream], count: int) -> None:
        """That the positions from the first answer to the last are as many as the messages."""
        streams = [stream for stream in streams if stream.sent]
        for stream in streams:
            expect(stream.first[:9], NUMBER_HEAD)
            expect(stream.last[:9], NUMBER_HEAD)
        first = min(_length.unpack_from(stream.first, 9)[0] for stream in streams)
        last = max(_length.unpack_from(stream.last, 9)[0] for stream in streams)
        if last - first + 1 != count:
            raise LoadError(f"{count} messages got the positions {first} to {last}")
        self._check_stored(count)

    def _check_popped(self, stream: Stream) -> None:
        expect(stream.first, POPPED)
        expect(stream.last, POPPED)

    def _check_stored(self, more: int) -> None:
        """That so many messages wait as we believe; the bare responder has none."""
        if not self._is_bare:
            ask(self.publishers[0], LEN, _number_answer(9, b"PASS;", self._stored + more))


def connect(server: Server, publishers: int) -> QliteClients:
    return QliteClients(server, publishers)


def _push(clients: QliteClients, seconds: float, active: int, window: int) -> Sample:
    return clients.push(seconds, active, window)


_PIPELINED = {"memory": 0.3, "full": 0.2}
ROWS = [
    Row("PUSH ping-pong, 1 connection", {}, partial(_push, active=1, window=1)),
    Row("PUSH ping-pong, 8 connections", {"memory": 0.75}, partial(_push, active=8, window=1)),
    Row("PUSH window 64, 1 connection", _PIPELINED, partial(_push, active=1, window=WINDOW)),
    Row("PUSH window 64, 8 connections", _PIPELINED, partial(_push, active=8, window=WINDOW)),
    Row("SPOP window 64, 1 connection", {}, QliteClients.pop),
    Row("LPOP woken by a PUSH", {}, QliteClients.wake),
]


class Responder(Protocol):
    """Cuts qlite's frames and answers each as the gateway would, all of one read in one write.

    It has no login, no queue and no errors: a pushed body goes to whoever waits, or nowhere.
    """

    _waiting: Responder | None = None  # of the class: one responder serves one bench
    _pushed = 0

    def connectionMade(self) -> None:
        assert self.transport is not None
        self._write = self.transport.write
        self._left = b""

    def dataReceived(self, data: bytes) -> None:
        if self._left:
            data = self._left + data
        unpack, number, shared = _length.unpack_from, _number_answer, Responder
        answers: list[bytes] = []
        at, end = 0, len(data)
        while end - at >= 4:
            start = at + 4
            stop = start + unpack(data, at)[0]
            if stop > end:
                break
            function, body = data[start : start + 5], data[start + 5 : stop]
            at = stop
            if function == b"PUSH;":
                shared._pushed += 1
                answers.append(number(9, b"PASS;", shared._pushed))
                if shared._waiting is not None:
                    shared._waiting._write(frame(b"PASS;" + body))
                    shared._waiting = None
            elif function == b"SPOP;":
                answers.append(POPPED)
            elif function == b"LPOP;":
                shared._waiting = self
            else:
                answers.append(number(9, b"PASS;", 0))
        self._left = data[at:]
        if answers:
            self._write(b"".join(answers))
