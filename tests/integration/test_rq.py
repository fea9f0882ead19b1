"""RQ on real TCP: many requesters, consumers that die, nothing lost and nothing said twice."""

from __future__ import annotations

import json
import selectors
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import yaml

from protocols.conversation import Conversation
from protocols.rq import wire
from protocols.rq.wire import Consume, Consuming, Delivered, Reply, Request, Task, Undelivered
from tests.support import Process, free_port, read_exactly, running

REQUESTERS, CONSUMERS, REQUESTS = 100, 20, 10_000
WINDOW = 10  # requests that one requester has under way
DEATH = 0.01  # how likely a consumer dies of a request
PATIENCE = 120.0  # seconds for all of it


class Gateway(NamedTuple):
    process: Process
    port: int
    sink: int
    config: Path


@pytest.fixture(params=["uvloop", "epoll"])
def gateway(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Gateway]:
    port, sink, config = free_port(), free_port(), tmp_path / "gateway.yaml"
    content = {
        "data": str(tmp_path / "data"),
        "listeners": [
            {
                "protocol": "rq",
                "endpoint": f"tcp:{port}:interface=127.0.0.1",
                "maxConnections": REQUESTERS + CONSUMERS + 50,
            }
        ],
        "sink": {"lines": f"tcp:{sink}:interface=127.0.0.1", "bufferBytes": 1 << 28},
    }
    config.write_text(yaml.safe_dump(content))
    config.chmod(0o600)
    with running(config, port, reactor=request.param) as process:
        yield Gateway(process, port, sink, config)


class Peer:
    """A node on a socket that does not block."""

    def __init__(self, crowd: Crowd) -> None:
        self.crowd = crowd
        self.socket = socket.create_connection(("127.0.0.1", crowd.gateway.port), 20)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._talk = Conversation(wire.Memory(), "server")
        crowd.selector.register(self.socket, selectors.EVENT_READ, self)

    def says(self, *events: Any) -> None:
        self.socket.sendall(b"".join(map(wire.encode, events)))  # little enough never to block

    def readable(self) -> None:
        data = self.socket.recv(1 << 16)
        assert data, "the gateway hung up"
        self._talk.feed(data)
        while self.socket.fileno() >= 0 and (event := self._talk.next_event()) is not None:
            self.hears(event)

    def hears(self, event: Any) -> None:
        raise NotImplementedError

    def close(self, reset: bool = False) -> None:
        self.crowd.selector.unregister(self.socket)
        if reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Requester(Peer):
    """Asks so many things, and sees that each is answered once."""

    def __init__(self, crowd: Crowd, number: int) -> None:
        super().__init__(crowd)
        self._number = number
        self._asked = 0
        self._open: dict[int, bytes] = {}
        self._delivered: set[int] = set()
        for _ in range(WINDOW):
            self._ask()

    def _ask(self) -> None:
        if self._asked < REQUESTS // REQUESTERS:
            payload = b"%d/%d" % (self._number, self._asked)
            self._open[self._asked] = payload
            self.says(Request(self._asked, b"work", payload, retries=self._asked % 3))
            self._asked += 1

    def hears(self, event: Any) -> None:
        assert isinstance(event, Delivered | Reply | Undelivered)
        payload = self._open[event.id]  # KeyError: it was answered before
        if isinstance(event, Delivered):
            assert event.id not in self._delivered
            self._delivered.add(event.id)
            return
        if isinstance(event, Reply):
            assert event.id in self._delivered
            assert event.payload == b"done " + payload
        del self._open[event.id]
        self.crowd.answered[payload].append(type(event).__name__)
        self._ask()


class Consumer(Peer):
    """Works, puts off some of its work, and sometimes dies of it."""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__(crowd)
        self._later: list[Task] = []
        self.says(Consume(b"work", crowd.random.randrange(1, 8)))

    def hears(self, event: Any) -> None:
        if isinstance(event, Consuming):
            return
        assert isinstance(event, Task)
        crowd, chance = self.crowd, self.crowd.random.random()
        crowd.handed[event.payload] += 1
        if chance < DEATH:
            if chance < DEATH / 2:
                self.says(Delivered(event.id))
            self.close(reset=crowd.random.random() < 0.5)
            crowd.deaths += 1
            crowd.consumers.remove(self)
            crowd.consumers.append(Consumer(crowd))
            return
        self.says(Delivered(event.id))
        self._later.append(event)
        if chance < 0.5:
            crowd.random.shuffle(self._later)
            self.finish()

    def finish(self) -> None:
        self.says(*[Reply(task.id, b"done " + task.payload) for task in self._later])
        self._later.clear()


class Sink:
    """Reads the log while the rest goes on."""

    def __init__(self, crowd: Crowd) -> None:
        self.socket = socket.create_connection(("127.0.0.1", crowd.gateway.sink), 20)
        self._data = bytearray()
        crowd.selector.register(self.socket, selectors.EVENT_READ, self)

    def readable(self) -> None:
        data = self.socket.recv(1 << 20)
        assert data, "the sink hung up"
        self._data += data

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._data.splitlines()]

    def read_until(self, count: int, kind: bytes) -> None:
        self.socket.settimeout(20)
        while self._data.count(b'"event":"%s"' % kind) < count or self._data[-1:] != b"\n":
            self.readable()


class Crowd:
    """Everybody, in one loop."""

    def __init__(self, gateway: Gateway, seed: int) -> None:
        self.gateway = gateway
        self.random = Random(seed)
        self.selector = selectors.DefaultSelector()
        self.answered: defaultdict[bytes, list[str]] = defaultdict(list)
        self.handed: Counter[bytes] = Counter()
        self.deaths = 0
        self.sink = Sink(self)
        self.consumers = [Consumer(self) for _ in range(CONSUMERS)]
        self.requesters = [Requester(self, number) for number in range(REQUESTERS)]

    def run(self) -> None:
        until = time.monotonic() + PATIENCE
        while len(self.answered) < REQUESTS:
            assert time.monotonic() < until, f"{len(self.answered)} of {REQUESTS} are answered"
            for key, _ in self.selector.select(0.05):
                if key.fileobj.fileno() >= 0:  # type: ignore[union-attr]
                    key.data.readable()
            for consumer in [*self.consumers]:
                consumer.finish()

    def close(self) -> None:
        for peer in [*self.requesters, *self.consumers]:
            peer.close()
        self.selector.close()


def test_every_request_is_answered_once_though_consumers_die(gateway: Gateway) -> None:
    """10,000 requests of 100 requesters: each has one REPLY or one UNDELIVERED, none is lost, and
    none is handed out twice without the log counting it."""
    seed = time.time_ns() & 0xFFFFFFFF
    print(f"seed {seed}")
    crowd = Crowd(gateway, seed)
    crowd.run()
    assert crowd.deaths > 20
    assert all(len(answers) == 1 for answers in crowd.answered.values())
    undelivered = sum(answers == ["Undelivered"] for answers in crowd.answered.values())
    assert 0 < undelivered <= crowd.deaths * 8
    crowd.sink.read_until(REQUESTS - undelivered, b"settled")
    rows = crowd.sink.rows()
    crowd.close()
    crowd.sink.socket.close()
    kinds = Counter(row["event"] for row in rows)
    assert kinds["accepted"] == REQUESTS
    assert kinds["settled"] == kinds["replied"] == REQUESTS - undelivered
    assert kinds["dropped"] == undelivered
    counts: defaultdict[int, list[int]] = defaultdict(list)
    for row in rows:
        if row["event"] == "delivered":
            counts[row["message"]].append(row["deliveries"])
    assert len(counts) == REQUESTS
    assert all(found == [*range(1, len(found) + 1)] for found in counts.values())
    # What a consumer saw, the log has; what died on the way to him only the log has.
    assert 0 <= sum(map(len, counts.values())) - sum(crowd.handed.values()) <= crowd.deaths * 8


def test_what_was_accepted_outlives_a_kill(gateway: Gateway) -> None:
    """DELIVERED of a NOREPLY request means that it is on disk; queue ids stay."""
    with socket.create_connection(("127.0.0.1", gateway.port), 20) as requester:
        many = [Request(n, b"kept", b"%d" % n, noreply=True) for n in range(100)]
        requester.sendall(b"".join(map(wire.encode, many)))
        said = b"".join(wire.encode(Delivered(n)) for n in range(100))
        assert read_exactly(requester, len(said)) == said
    gateway.process.kill()
    with (
        running(gateway.config, gateway.port) as process,
        socket.create_connection(("127.0.0.1", gateway.port), 20) as consumer,
    ):
        consumer.sendall(wire.encode(Consume(b"kept")))
        wanted = wire.encode(Consuming(1, b"kept")) + b"".join(
            wire.encode(Task(n + 1, 1, b"%d" % n, noreply=True)) for n in range(100)
        )
        assert read_exactly(consumer, len(wanted)) == wanted
        consumer.sendall(b"".join(wire.encode(Delivered(n + 1)) for n in range(100)) + b"\x16")
        assert read_exactly(consumer, 1) == b""  # it closes, and said nothing more
        assert process.stop() == 0


def test_the_gateways_end_is_told(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), 20) as node:
        node.sendall(wire.encode(Consume(b"q")) + wire.encode(Request(7, b"nobody", b"a")))
        said = wire.encode(Consuming(1, b"q"))
        assert read_exactly(node, len(said)) == said
        assert gateway.process.stop() == 0
        assert read_exactly(node, 99) == b"\x01\x16" + wire.encode(Undelivered(7))


def test_the_gateway_ends_when_what_is_in_flight_is_answered(gateway: Gateway) -> None:
    place = ("127.0.0.1", gateway.port)
    with (
        socket.create_connection(place, 20) as consumer,
        socket.create_connection(place, 20) as requester,
    ):
        consumer.sendall(wire.encode(Consume(b"q")))
        consuming = wire.encode(Consuming(1, b"q"))
        assert read_exactly(consumer, len(consuming)) == consuming
        requester.sendall(wire.encode(Request(7, b"q", b"a")))
        task = wire.encode(Task(1, 1, b"a"))
        assert read_exactly(consumer, len(task)) == task
        gateway.process.process.terminate()
        assert read_exactly(consumer, 2) == b"\x01\x16"
        assert gateway.process.process.poll() is None
        consumer.sendall(wire.encode(Delivered(1)) + wire.encode(Reply(1, b"A")))
        answers = b"\x01\x16" + wire.encode(Delivered(7)) + wire.encode(Reply(7, b"A"))
        assert read_exactly(requester, 99) == answers
    assert gateway.process.process.wait(20) == 0
