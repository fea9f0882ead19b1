"""sk2mq on real TCP: both dialects, a restart, and peers that do not read, reset or flood."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from protocols.sk2mq import wire
from protocols.sk2mq.wire import DIALECTS, Create, Join, Response, Send
from tests.support import free_port, read_exactly, running

BOTH = pytest.mark.parametrize("dialect", list(DIALECTS))


class Gateway:
    """A real gateway with a listener for each dialect and a line sink."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.ports = {dialect: free_port() for dialect in DIALECTS}
        self.sink = free_port()
        self.config = directory / "gateway.yaml"
        listeners = [
            {
                "protocol": "sk2mq",
                "endpoint": f"tcp:{port}:interface=127.0.0.1",
                "dialect": dialect,
                **settings,
            }
            for dialect, port in self.ports.items()
        ]
        content = {
            "data": str(directory / "data"),
            "listeners": listeners,
            "sink": {"lines": f"tcp:{self.sink}:interface=127.0.0.1"},
        }
        self.config.write_text(yaml.safe_dump(content))

    @contextmanager
    def running(self, reactor: str = "uvloop") -> Iterator[Gateway]:
        with running(self.config, self.ports["seed"], reactor=reactor):
            yield self

    def log(self) -> str:
        return self.config.with_suffix(".log").read_text()


class Peer:
    """A client that waits for each answer, unless it is told not to."""

    def __init__(self, gateway: Gateway, dialect: str = "seed") -> None:
        self.codec = DIALECTS[dialect]
        self.socket = socket.create_connection(("127.0.0.1", gateway.ports[dialect]), 20)
        self._state = wire.START
        self.name = self.hears().client
        self._state = wire.State.OPEN

    def says(self, *events: Any) -> None:
        self.socket.sendall(b"".join(map(self.codec.encode, events)))

    def hears(self) -> Any:
        """The next event."""
        head = read_exactly(self.socket, wire.HEADER_SIZE)
        assert len(head) == wire.HEADER_SIZE, "the connection has ended"
        size = int.from_bytes(head[1:], "big")
        return self.codec.decode_server(self._state, (head[0], read_exactly(self.socket, size)))

    def asks(self, event: Any) -> int:
        self.says(event)
        answer = self.hears()
        assert isinstance(answer, Response)
        return answer.code

    def message(self, body: bytes, topic: bytes = b"t", seconds: int = 100) -> Send:
        return Send(int(time.time()) + seconds, self.name, topic, body)

    def close(self) -> None:
        self.socket.close()

    def resets(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    made = Gateway(tmp_path_factory.mktemp("sk2mq"), max_unread_bytes=1 << 20)
    with made.running():
        yield made
    assert "Traceback" not in made.log()


@BOTH
def test_a_message_goes_to_its_members_and_to_the_sink(gateway: Gateway, dialect: str) -> None:
    topic = dialect.encode()
    author, member = Peer(gateway, dialect), Peer(gateway, dialect)
    with socket.create_connection(("127.0.0.1", gateway.sink), 20) as sink:
        assert author.asks(Create(topic)) == wire.OK
        assert member.asks(Join(topic)) == wire.OK
        sent = author.message(b"hello", topic)
        assert author.asks(sent) == wire.OK
        heard = member.hears()
        assert (heard.due, heard.client, heard.message) == (sent.due, author.name, b"hello")
        with sink.makefile() as lines:
            rows = (json.loads(line) for line in lines)
            row = next(row for row in rows if row["event"] == "accepted")
        assert (row["address"], row["sender"]) == (dialect, author.name.decode())
    author.close()
    member.close()


def test_the_dialects_share_their_topics(gateway: Gateway) -> None:
    author, member = Peer(gateway, "seed"), Peer(gateway, "upstream")
    assert author.asks(Create(b"shared")) == wire.OK
    assert member.asks(Create(b"shared")) == wire.FOUND
    assert member.asks(Join(b"shared")) == wire.OK
    assert author.asks(author.message(b"x", b"shared")) == wire.OK
    assert (member.hears().client, author.name != member.name) == (author.name, True)
    author.close()
    member.close()


def test_topics_and_messages_survive_a_kill(tmp_path: Path) -> None:
    made = Gateway(tmp_path)
    with running(made.config, made.ports["seed"]) as process:
        author = Peer(made)
        assert author.asks(Create(b"t")) == wire.OK
        for number in range(20):
            assert author.asks(author.message(b"%d" % number)) == wire.OK
        process.kill()
        author.close()
    with made.running():
        member = Peer(made)
        assert member.name != author.name
        assert member.asks(Create(b"t")) == wire.FOUND
        assert member.asks(Join(b"t")) == wire.OK
        assert [member.hears().message for _ in range(20)] == [b"%d" % n for n in range(20)]
        member.close()


@pytest.mark.parametrize("reactor", ["uvloop", "epoll"])
def test_a_member_that_does_not_read_is_dropped_and_the_others_are_served(
    tmp_path: Path, reactor: str
) -> None:
    """The public server hung here, for everybody, after 66 messages of 60 kB."""
    made = Gateway(tmp_path, max_unread_bytes=1 << 20)
    with made.running(reactor):
        author, member, idle = Peer(made), Peer(made), Peer(made)
        assert author.asks(Create(b"t")) == wire.OK
        for each in (member, idle):
            assert each.asks(Join(b"t")) == wire.OK
        for number in range(300):
            assert author.asks(author.message(b"%04d" % number + bytes(60_000))) == wire.OK
            assert member.hears().message[:4] == b"%04d" % number
        assert "does not read" in made.log()
        late = Peer(made)
        assert late.asks(Create(b"t")) == wire.FOUND
        with pytest.raises(ConnectionResetError):
            read_all(idle.socket)
        for each in (author, member, idle, late):
            each.close()


def read_all(connection: socket.socket) -> None:
    while connection.recv(1 << 20):
        pass


def test_a_backlog_larger_than_what_may_wait_reaches_a_member_that_reads(
    gateway: Gateway,
) -> None:
    author = Peer(gateway)
    assert author.asks(Create(b"long")) == wire.OK
    for number in range(100):
        assert author.asks(author.message(b"%04d" % number + bytes(60_000), b"long")) == wire.OK
    member = Peer(gateway)
    assert member.asks(Join(b"long")) == wire.OK
    assert author.asks(author.message(b"live", b"long")) == wire.OK
    bodies = [member.hears().message[:4] for _ in range(101)]
    assert bodies == [*(b"%04d" % number for number in range(100)), b"live"]
    author.close()
    member.close()


def test_probes_and_resets_hurt_nobody(gateway: Gateway) -> None:
    """Each of these ended the public server."""
    author, member = Peer(gateway), Peer(gateway)
    author.asks(Create(b"resets"))
    assert member.asks(Join(b"resets")) == wire.OK
    for _ in range(50):
        socket.create_connection(("127.0.0.1", gateway.ports["seed"]), 20).close()
        gone = Peer(gateway)
        assert gone.asks(Join(b"resets")) == wire.OK
        author.says(*[author.message(b"x", b"resets", 2)] * 5)
        gone.resets()
        assert [author.hears() for _ in range(5)] == [Response(wire.OK)] * 5
        assert [member.hears().message for _ in range(5)] == [b"x"] * 5
    author.close()
    member.close()


def test_many_connect_at_once(gateway: Gateway) -> None:
    peers = []
    for _ in range(200):
        peers.append(socket.create_connection(("127.0.0.1", gateway.ports["seed"]), 20))
    for peer in peers:
        assert read_exactly(peer, 1) == b"\3"
        peer.close()


def test_one_that_pipelines_without_reading_its_responses_can_read_them_later(
    gateway: Gateway,
) -> None:
    author = Peer(gateway)
    author.asks(Create(b"flood"))
    count = 20_000
    packet = author.codec.encode(author.message(bytes(100), b"flood", 3))
    author.socket.settimeout(20)
    author.socket.sendall(packet * count)
    answers = read_exactly(author.socket, 6 * count)
    assert answers == author.codec.encode(Response(wire.OK)) * count
    author.close()


def test_a_half_close_after_a_request_gets_its_response(gateway: Gateway) -> None:
    peer = Peer(gateway)
    peer.says(*[Create(b"half")] * 3)
    peer.socket.shutdown(socket.SHUT_WR)
    assert [peer.hears().code for _ in range(3)] == [wire.OK, wire.FOUND, wire.FOUND]
    assert read_exactly(peer.socket, 1) == b""
    peer.close()


def test_a_body_over_the_limit_is_answered_before_the_end(gateway: Gateway) -> None:
    peer = Peer(gateway)
    peer.socket.sendall(b"\0\xff\xff\xff\xff" + bytes(200_000))
    assert peer.hears() == Response(wire.BADPACKET)
    assert read_exactly(peer.socket, 1) == b""
    peer.close()
