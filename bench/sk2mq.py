"""sk2mq on the bench: its listener, its clients, its loads and its bare responder."""

from __future__ import annotations

import select
import socket
from functools import partial
from itertools import count
from random import Random
from struct import Struct
from time import perf_counter, time
from typing import Any

from twisted.internet.protocol import Protocol

from bench.load import PATIENCE, READ, LoadError, Stream, ask, dial, drive_count, drive_for, receive
from bench.measure import Row, Sample, meter
from bench.server import Server

NAME = "sk2mq"
TITLE = "sk2mq, messages of 100 bytes"
USERS: list[dict[str, Any]] = []
LISTENER: dict[str, Any] = {"protocol": "sk2mq", "maxConnections": 2000}
WINDOW = 64
FILL_WINDOW = 256  # where nothing is measured, as fast as it goes
MEMBERS = 100  # of the topic FAN
BACKLOG = 100_000  # messages in the topic KEPT
BATCH = 5_000  # messages of different due times that are made before they are measured
FAR = 10_000_000  # seconds until all others are due; those are spread over as many, before or after

BARE, ONE, FAN, KEPT, MANY = b"bare", b"one", b"fan", b"kept", b"many"  # topics
MESSAGE = bytes(range(100, 200))

_header = Struct(">BI")
_lengths = Struct(">IIII")
OK = b"\2\0\0\0\1\x14"
QUIT, JOIN, CREATE = 1, 0, 2


def topic_packet(action: int, topic: bytes) -> bytes:
    body = bytes([action]) + len(topic).to_bytes(4, "big") + topic
    return _header.pack(1, len(body)) + body


def message_packet(due: int, client: bytes, topic: bytes) -> bytes:
    lengths = _lengths.pack(due, len(client), len(topic), len(MESSAGE))
    body = lengths + client + topic + MESSAGE
    return _header.pack(0, len(body)) + body


class Sk2mqClients:
    """Publishers, and the members of one topic each for one and for many."""

    def __init__(self, server: Server, publishers: int) -> None:
        self.server = server
        self._due = int(time()) + FAR
        self._publishers = [self._open() for _ in range(publishers)]
        first = self._publishers[0][0]
        for topic in (BARE, ONE, FAN, KEPT, MANY):
            ask(first, topic_packet(CREATE, topic), OK)
        self._members = {ONE: [self._join(ONE)], FAN: [self._join(FAN) for _ in range(MEMBERS)]}
        self._kept = 0
        self._many = 0  # messages in the topic MANY
        self._orders = {order: count() for order in ("rising", "falling")}
        self._random = Random(1)

    def _open(self) -> tuple[socket.socket, bytes]:
        """A connection, and the name that it was given."""
        connection = dial(self.server.port)
        size = _header.unpack(receive(connection, _header.size))[1]
        return connection, receive(connection, size)[4:]

    def _join(self, topic: bytes) -> socket.socket:
        connection, _ = self._open()
        ask(connection, topic_packet(JOIN, topic), OK)
        return connection

    def close(self) -> None:
        for connection, _ in self._publishers:
            connection.close()
        for members in self._members.values():
            for member in members:
                member.close()

    # Loads.

    def push(self, seconds: float, active: int, window: int) -> Sample:
        """Send on that many connections to a topic without members."""
        streams = self._streams(active, BARE, window)
        sample = meter(self.server, lambda: drive_for(streams, seconds))
        self._check(streams)
        return sample

    def fan(self, seconds: float, topic: bytes) -> Sample:
        """Send with a window to a topic; the messages are the copies that its members have read."""
        publisher, name = self._publishers[0]
        packet = message_packet(self._due, name, topic)
        members = self._members[topic]
        work = partial(_drive_fan, publisher, members, packet, seconds)
        return meter(self.server, work)

    def join(self, seconds: float) -> Sample:
        """Join the topic with the backlog and read it all, again and again."""
        self._keep()
        connection, _ = self._open()
        publisher_name = self._publishers[0][1]
        size = len(OK) + BACKLOG * len(message_packet(self._due, publisher_name, KEPT))

        def join_until(end: float) -> int:
            joins = 0
            while joins == 0 or perf_counter() < end:
                connection.sendall(topic_packet(JOIN, KEPT))
                left = size
                while left:
                    left -= len(connection.recv(min(left, READ * 4))) or _hung_up()
                ask(connection, topic_packet(QUIT, KEPT), OK)
                joins += 1
            return joins * BACKLOG

        sample = meter(self.server, lambda: join_until(perf_counter() + seconds))
        connection.close()
        return sample

    def publish(self, seconds: float, order: str, among: int = 0) -> Sample:
        """Send messages whose due times are in this order, all different and far away, to a topic
        where so many are stored."""
        while self._many < among:
            self._send_batch(self._batch(order))
        batch = self._batch(order)
        return meter(self.server, lambda: self._send_batch(batch))

    def _batch(self, order: str) -> list[bytes]:
        name = self._publishers[0][1]
        return [message_packet(self._far(order), name, MANY) for _ in range(BATCH)]

    def _send_batch(self, batch: list[bytes]) -> int:
        """With a window; how many they are."""
        publisher = self._publishers[0][0]
        for at in range(0, len(batch), WINDOW):
            block = batch[at : at + WINDOW]
            ask(publisher, b"".join(block), OK * len(block))
        self._many += len(batch)
        return len(batch)

    def expire(self, seconds: float) -> Sample:
        """Send with a window what is due in two seconds; the cost is until it is all gone."""
        publisher, name = self._publishers[0]
        due = int(time() + seconds) + 2
        stream = Stream(publisher, message_packet(due, name, BARE), len(OK), WINDOW)

        def send_and_wait() -> int:
            sent = drive_for([stream], seconds)
            while time() < due + 0.05:
                select.select([], [], [], 0.05)
            return sent

        sample = meter(self.server, send_and_wait)
        self._check([stream])
        return sample._replace(seconds=seconds)

    def fill(self, count: int) -> None:
        streams = self._streams(min(4, len(self._publishers)), BARE, FILL_WINDOW)
        drive_count(streams, count)
        self._check(streams)

    def _keep(self) -> None:
        if not self._kept:
            streams = self._streams(1, KEPT, FILL_WINDOW)
            self._kept = drive_count(streams, BACKLOG)
            self._check(streams)

    def _far(self, order: str) -> int:
        if order == "random":
            return self._due + self._random.randrange(FAR)
        number = next(self._orders[order])
        # Falling, each is the next that is due, so that the alarm is set anew each time.
        return self._due + (number if order == "rising" else -1 - number)

    def _streams(self, active: int, topic: bytes, window: int) -> list[Stream]:
        return [
            Stream(publisher, message_packet(self._due, name, topic), len(OK), window)
            for publisher, name in self._publishers[:active]
        ]

    def _check(self, streams: list[Stream]) -> None:
        for stream in streams:
            if stream.sent and (stream.first != OK or stream.last != OK):
                raise LoadError(f"the server answered {stream.first!r} and {stream.last!r}")


def _hung_up() -> int:
    raise LoadError("the server hung up")


def _drive_fan(
    publisher: socket.socket, members: list[socket.socket], packet: bytes, seconds: float
) -> int:
    """Keep a window of messages under way and read all copies; how many they are."""
    sent = WINDOW
    heard = 0  # bytes of answers
    copies = dict.fromkeys((member.fileno() for member in members), 0)  # bytes, by member
    receives = {member.fileno(): member.recv for member in members}
    number, end = publisher.fileno(), perf_counter() + seconds
    with select.epoll() as poller:
        for each in (number, *copies):
            poller.register(each, select.EPOLLIN)
        publisher.sendall(packet * sent)
        while heard < sent * len(OK) or min(copies.values()) < sent * len(packet):
            ready = poller.poll(PATIENCE)
            if not ready:
                raise LoadError(f"no answer in {PATIENCE} seconds")
            for each, _ in ready:
                if each != number:
                    copies[each] += len(receives[each](READ)) or _hung_up()
                    continue
                heard += len(publisher.recv(READ)) or _hung_up()
                more = WINDOW - sent + heard // len(OK)
                if more and perf_counter() < end:
                    publisher.sendall(packet * more)
                    sent += more
    if set(copies.values()) != {sent * len(packet)}:
        raise LoadError("members got more than was sent")
    return sent * len(members)


def connect(server: Server, publishers: int) -> Sk2mqClients:
    return Sk2mqClients(server, publishers)


def _push(clients: Sk2mqClients, seconds: float, active: int, window: int) -> Sample:
    return clients.push(seconds, active, window)


ROWS = [
    Row("sk2mq MSG ping-pong", {}, partial(_push, active=1, window=1)),
    Row("sk2mq 1 to 1, window 64", {}, partial(Sk2mqClients.fan, topic=ONE)),
    Row("sk2mq 1 to 100, window 64", {}, partial(Sk2mqClients.fan, topic=FAN)),
    Row("sk2mq JOIN, backlog 100,000", {}, Sk2mqClients.join),
    Row("sk2mq MSG, due rising", {}, partial(Sk2mqClients.publish, order="rising")),
    Row("sk2mq MSG, due falling", {}, partial(Sk2mqClients.publish, order="falling")),
    Row("sk2mq MSG, due random", {}, partial(Sk2mqClients.publish, order="random")),
    Row(
        "sk2mq MSG among 1,000,000",
        {},
        partial(Sk2mqClients.publish, order="random", among=1_000_000),
    ),
    Row("sk2mq MSG until expired", {}, Sk2mqClients.expire),
]


class Responder(Protocol):
    """Cuts sk2mq's packets and answers each as the gateway would, all of one read in one write.

    It checks nothing, keeps nothing but the backlog's last packet and how often it came, and
    forgets no member.
    """

    _named = 0  # of the class: one responder serves one bench
    _members: dict[bytes, list[Responder]] = {}
    _kept: list[bytes] = []

    def connectionMade(self) -> None:
        assert self.transport is not None
        Responder._named += 1
        name = b"user-%d" % Responder._named
        self._write = self.transport.write
        self._left = b""
        self._write(_header.pack(3, 4 + len(name)) + len(name).to_bytes(4, "big") + name)

    def dataReceived(self, data: bytes) -> None:
        if self._left:
            data = self._left + data
        answers: list[bytes] = []
        copies: dict[bytes, list[bytes]] = {}
        at, end = 0, len(data)
        while end - at >= 5:
            tag, size = _header.unpack_from(data, at)
            start, stop = at + 5, at + 5 + size
            if stop > end:
                break
            answers.append(OK)
            if tag == 0:
                _, client, topic, _ = _lengths.unpack_from(data, start)
                name = data[start + 16 + client : start + 16 + client + topic]
                if name in self._members:
                    copies.setdefault(name, []).append(data[at:stop])
                elif name == KEPT:
                    self._kept.append(data[at:stop])
            elif data[start] == JOIN:
                self._join(data[start + 5 : stop], answers)
            at = stop
        self._left = data[at:]
        self._write(b"".join(answers))
        for name, packets in copies.items():
            joined = b"".join(packets)
            for member in self._members[name]:
                member._write(joined)

    def _join(self, topic: bytes, answers: list[bytes]) -> None:
        if topic == KEPT:
            answers.extend(self._kept)
        else:
            self._members.setdefault(topic, []).append(self)
