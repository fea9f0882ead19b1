"""RQ on the bench: its listener, its nodes, its loads and its bare responder."""

from __future__ import annotations

import select
import socket
from functools import partial
from struct import Struct
from time import perf_counter
from typing import Any

from twisted.internet.protocol import Protocol

from bench.load import (
    PATIENCE,
    READ,
    LoadError,
    Stream,
    dial,
    drive_count,
    drive_for,
    expect,
    receive,
)
from bench.measure import Row, Sample, meter
from bench.server import Server

NAME = "rq"
TITLE = "rq, messages of 100 bytes"
USERS: list[dict[str, Any]] = []
LISTENER: dict[str, Any] = {
    "protocol": "rq",
    "maxConnections": 2000,
    "maxMessages": 100_000_000,
    "pingSeconds": 86_400.0,  # who only listens here says nothing, and must not count as idle
}
WINDOW = 64
FILL_WINDOW = 256  # where nothing is measured, as fast as it goes
HEARERS = 50
AT_ONCE = 8  # broadcasts that are under way

MESSAGE = bytes(range(100, 200))
PAYLOAD = b"\xe0\0\0\0\x64" + MESSAGE
ID = b"\x80\0\0\0\x07"
DELIVERED = b"\x01" + ID + b"\x0d"
REPLY = b"\x01" + ID + PAYLOAD + b"\x0b"
ANSWER_SIZE = len(DELIVERED + REPLY)
TASK_SIZE = len(b"\x01\x60\0\1" + PAYLOAD + ID + b"\x0a")
POSTED_SIZE = TASK_SIZE + 1  # with NOREPLY
NEWS_SIZE = len(b"\x01\x60\0\1" + PAYLOAD + b"\x0e")
MOST = b"\x62\0\0\x40\x14"  # MAX and PRIORITY

_payload_size = Struct(">I").unpack_from


def queue(name: bytes) -> bytes:
    return b"\xa0" + bytes([len(name)]) + name


def request(name: bytes, flag: bytes = b"") -> bytes:
    return b"\x01" + ID + queue(name) + PAYLOAD + flag + b"\x0a"


def consume(name: bytes) -> bytes:
    return b"\x01" + queue(name) + MOST + b"\x14"


ASK, POST = request(b"ask"), request(b"post", b"\x21")
BROADCAST = b"\x01" + queue(b"news") + PAYLOAD + b"\x0e"


class RqClients:
    """Requesters, one that works, and some that hear broadcasts."""

    def __init__(self, server: Server, publishers: int) -> None:
        self.server = server
        self._is_bare = server.mode == "bare"
        self._stored = 0  # requests that are there to stay
        self._requesters = [dial(server.port) for _ in range(publishers)]
        self._worker = self._consumer(b"ask")
        self._hearers = [self._consumer(b"news") for _ in range(HEARERS)]

    def _consumer(self, name: bytes) -> socket.socket:
        connection = dial(self.server.port)
        connection.sendall(consume(name))
        accepted = receive(connection, 4 + len(queue(name)) + 1)
        expect(accepted[4:], queue(name) + b"\x18")
        return connection

    def close(self) -> None:
        for connection in [*self._requesters, self._worker, *self._hearers]:
            connection.close()

    # Loads.

    def push(self, seconds: float, active: int, window: int) -> Sample:
        """NOREPLY requests on that many connections; then take them out again, unmeasured."""
        streams = self._streams(active, window)
        sample = meter(self.server, lambda: drive_for(streams, seconds))
        for stream in streams:
            if stream.sent:
                expect(stream.last, DELIVERED)
        self._drain(sample.messages)
        return sample

    def _streams(self, active: int, window: int) -> list[Stream]:
        if active > len(self._requesters):
            raise ValueError(f"only {len(self._requesters)} requesters are connected")
        return [Stream(each, POST, len(DELIVERED), window) for each in self._requesters[:active]]

    def fill(self, count: int) -> None:
        drive_count(self._streams(min(4, len(self._requesters)), FILL_WINDOW), count)
        self._stored += count

    def _drain(self, count: int) -> None:
        """Consume so many requests.  Those that are to stay were there first, so none may be."""
        if self._is_bare:
            return
        if self._stored:
            raise LoadError("requests that are to stay cannot be told from others")
        consumer = self._consumer(b"post")
        while count:
            data = receive(consumer, POSTED_SIZE * min(count, WINDOW))
            ids = _ids(data, POSTED_SIZE)
            consumer.sendall(b"".join([b"\x01\x80" + number + b"\x0d" for number in ids]))
            count -= len(ids)
        consumer.sendall(b"\x16")
        expect(consumer.recv(1), b"")  # it was the last, and all are done
        consumer.close()

    def ask(self, seconds: float) -> Sample:
        """A request and its reply, then the next."""
        requester, worker = self._requesters[0], self._worker

        def ask_until(end: float) -> int:
            asked = 0
            while perf_counter() < end:
                requester.sendall(ASK)
                worker.sendall(_replies(receive(worker, TASK_SIZE)))
                answers = receive(requester, ANSWER_SIZE)
                asked += 1
            expect(answers, DELIVERED + REPLY)
            return asked

        return meter(self.server, lambda: ask_until(perf_counter() + seconds))

    def ask_many(self, seconds: float, window: int) -> Sample:
        """So many requests under way, and a worker that answers at once what it has."""
        requester, worker = self._requesters[0], self._worker

        def ask_until(end: float) -> int:
            requester.sendall(ASK * window)
            asked, under_way, tasks, heard = window, window, b"", 0
            with select.epoll(2) as poller:
                for connection in (requester, worker):
                    poller.register(connection, select.EPOLLIN)
                while under_way:
                    ready = [number for number, _ in poller.poll(PATIENCE)]
                    if not ready:
                        raise LoadError(f"no answer in {PATIENCE} seconds")
                    if worker.fileno() in ready:
                        tasks += worker.recv(READ)
                        whole = len(tasks) // TASK_SIZE * TASK_SIZE
                        worker.sendall(_replies(tasks[:whole]))
                        tasks = tasks[whole:]
                    if requester.fileno() in ready:
                        heard += len(requester.recv(READ))
                        under_way = asked - heard // ANSWER_SIZE
                        if perf_counter() < end:
                            requester.sendall(ASK * (window - under_way))
                            asked, under_way = asked + window - under_way, window
            return asked

        return meter(self.server, lambda: ask_until(perf_counter() + seconds))

    def broadcast(self, seconds: float) -> Sample:
        """Broadcasts to all who hear; each copy counts."""
        sender, hearers = self._requesters[0], self._hearers

        def broadcast_until(end: float) -> int:
            sent = 0
            while perf_counter() < end:
                sender.sendall(BROADCAST * AT_ONCE)
                for hearer in hearers:
                    data = receive(hearer, AT_ONCE * NEWS_SIZE)
                expect(data[-106:], PAYLOAD + b"\x0e")
                sent += AT_ONCE
            return sent * len(hearers)

        return meter(self.server, lambda: broadcast_until(perf_counter() + seconds))


def _ids(tasks: bytes, size: int) -> list[bytes]:
    """The delivery ids of tasks of one size: the four bytes before the verb."""
    return [tasks[at - 5 : at - 1] for at in range(size, len(tasks) + 1, size)]


def _replies(tasks: bytes) -> bytes:
    """DELIVERED and REPLY to each, the payload as it came."""
    ids = _ids(tasks, TASK_SIZE)
    return b"".join(
        [b"\x01\x80%b\x0d\x01\x80%b%b\x0b" % (number, number, PAYLOAD) for number in ids]
    )


def connect(server: Server, publishers: int) -> RqClients:
    return RqClients(server, publishers)


ROWS = [
    Row("REQUEST/REPLY, 1 in flight", {"memory": 0.4}, RqClients.ask),
    Row("REQUEST/REPLY, 16 in flight", {"memory": 0.4}, partial(RqClients.ask_many, window=16)),
    Row("NOREPLY window 64", {}, partial(RqClients.push, active=1, window=WINDOW)),
    Row("NOREPLY window 64, 8 conn.", {}, partial(RqClients.push, active=8, window=WINDOW)),
    Row("BROADCAST to 50, copies", {}, RqClients.broadcast),
]


class Responder(Protocol):
    """Cuts the sentences of this bench and passes them on as the gateway would, all of one read in
    one write to each.

    It has no queues and no errors: a request goes to the one who works, or nowhere.
    """

    _consumers: dict[bytes, list[Responder]] = {}  # of the class: one responder serves one bench
    _asked: dict[bytes, Responder] = {}  # by delivery id
    _last = 0

    def connectionMade(self) -> None:
        assert self.transport is not None
        self._write = self.transport.write
        self._left = b""

    def dataReceived(self, data: bytes) -> None:
        if self._left:
            data = self._left + data
        said: dict[Responder, list[bytes]] = {}
        at = 0
        while (end := self._sentence(data, at, said)) > 0:
            at = end
        self._left = data[at:]
        for target, pieces in said.items():
            target._write(b"".join(pieces))

    def _sentence(self, data: bytes, at: int, said: dict[Responder, list[bytes]]) -> int:
        """Where the sentence ends that begins at `at`; 0 if it is not all there."""
        here, size = at, len(data)
        fields: dict[int, bytes] = {}
        while here < size:
            command = data[here]
            if command == 0x80:
                start, end = here + 1, here + 5
            elif command == 0xE0 and here + 5 <= size:
                start = here + 5
                end = start + _payload_size(data, here + 1)[0]
            elif command == 0xA0 and here + 2 <= size:
                start = here + 2
                end = start + data[here + 1]
            elif command in (0x62, 0x40):
                start = end = here + (3 if command == 0x62 else 2)
            elif command in (0x01, 0x21):
                start = end = here + 1
            elif command < 0x20:
                self._do(command, fields, said)
                return here + 1
            else:
                return 0
            if end > size:
                return 0
            fields[command] = data[start:end]
            here = end
        return 0

    def _do(self, verb: int, fields: dict[int, bytes], said: dict[Responder, list[bytes]]) -> None:
        consumers, asked, mine = self._consumers, self._asked, said.setdefault(self, [])
        if verb == 0x0A and 0x21 in fields:
            mine.append(b"\x01\x80" + fields[0x80] + b"\x0d")
        elif verb == 0x0A:
            Responder._last = Responder._last % 0x7FFF + 1
            number = b"\0\0" + Responder._last.to_bytes(2, "big")
            asked[number] = self
            pieces = said.setdefault(consumers[fields[0xA0]][0], [])
            pieces.append(_task(fields[0xE0], number))
        elif verb == 0x0D:
            said.setdefault(asked[fields[0x80]], []).append(DELIVERED)
        elif verb == 0x0B:
            payload = fields[0xE0]
            pieces = said.setdefault(asked.pop(fields[0x80]), [])
            pieces.append(b"\x01%b\xe0%b%b\x0b" % (ID, len(payload).to_bytes(4, "big"), payload))
        elif verb == 0x0E:
            payload = fields[0xE0]
            news = b"\x01\x60\0\1\xe0%b%b\x0e" % (len(payload).to_bytes(4, "big"), payload)
            for consumer in consumers[fields[0xA0]]:
                said.setdefault(consumer, []).append(news)
        elif verb == 0x14:
            name = fields[0xA0]
            consumers.setdefault(name, []).append(self)
            mine.append(b"\x01\x60\0\1" + queue(name) + b"\x18")


def _task(payload: bytes, number: bytes) -> bytes:
    size = len(payload).to_bytes(4, "big")
    return b"\x01\x60\0\1\xe0%b%b\x80%b\x0a" % (size, payload, number)
