"""aWCS on real TCP: rooms, kicks, and peers that do not read."""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support import Process, free_port, read_exactly, running

MIB = 1 << 20
LITTLE = 4096  # bytes of a receive buffer


class Gateway(NamedTuple):
    process: Process
    ports: list[int]  # of two listeners
    sink: int

    def memory(self) -> int:
        """Bytes of memory that the process has."""
        pages = Path(f"/proc/{self.process.process.pid}/statm").read_text().split()[1]
        return int(pages) * 4096


@pytest.fixture(scope="module", params=["uvloop", "epoll"])
def gateway(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    directory: Path = tmp_path_factory.mktemp("awcs")
    ports, sink = [free_port(), free_port()], free_port()
    listeners = [
        {
            "protocol": "awcs",
            "endpoint": f"tcp:{port}:interface=127.0.0.1",
            "hub": f"room{at}",
            "notify_interval": 3600.0,
        }
        for at, port in enumerate(ports)
    ]
    config = directory / "gateway.yaml"
    content = {
        "data": str(directory / "data"),
        "durability": "full",
        "listeners": listeners,
        "sink": {"lines": f"tcp:{sink}:interface=127.0.0.1"},
    }
    config.write_text(yaml.safe_dump(content))
    with running(config, ports[0], reactor=request.param) as process:
        yield Gateway(process, ports, sink)
        log = process.log.read_text()
    assert "Traceback" not in log


class Peer:
    """A blocking peer of either role."""

    def __init__(self, port: int, says: bytes = b"", receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(20)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))
        self._left = b""
        self.say(says)

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hear(self) -> bytes:
        """The next frame, with its NUL; b"" at an orderly end."""
        while b"\0" not in self._left:
            data = self.socket.recv(1 << 16)
            if not data:
                return b""
            self._left += data
        frame, _, self._left = self._left.partition(b"\0")
        return frame + b"\0"

    def read_on(self) -> str:
        """Read until the end: how it came."""
        try:
            while self.socket.recv(1 << 20):
                pass
        except ConnectionResetError:
            return "reset"
        return "end"

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


class Room:
    """A master and its clients, and their numbers, which depend on who came before."""

    def __init__(self, port: int, clients: int, deaf: int = 0) -> None:
        """The first `deaf` of them have little room for what they do not read."""
        self.master = Peer(port, b"6 \0", LITTLE if deaf else 0)
        self.number = int(self.master.hear().split()[2])
        self.clients: list[Peer] = []
        self.numbers: list[bytes] = []
        for at in range(clients):
            client = Peer(port, b"aWCS\0", LITTLE if at < deaf else 0)
            status = self.master.hear()
            _, kind, number, place = status[:-1].split(b" ")
            assert (kind, place) == (b"0", b"127.0.0.1:%d" % client.socket.getsockname()[1])
            self.clients.append(client)
            self.numbers.append(number)

    def close(self) -> None:
        """Leave, and wait until everybody is out."""
        with suppress(OSError):  # it may be gone already
            self.master.socket.shutdown(socket.SHUT_WR)
            self.master.read_on()
        self.master.close()
        for client in self.clients:
            client.read_on()
            client.close()


@pytest.fixture
def room(gateway: Gateway) -> Iterator[Room]:
    made = Room(gateway.ports[0], 3)
    yield made
    made.close()


def test_a_room_over_tcp(room: Room) -> None:
    first, second, third = room.clients
    first.say(b"hello\0")
    assert room.master.hear() == room.numbers[0] + b" hello\0"
    room.master.say(b"0 Hallo Welt\x001 %b,%b Gruezi!\0" % (room.numbers[0], room.numbers[2]))
    assert [client.hear() for client in room.clients] == [b"Hallo Welt\0"] * 3
    assert [first.hear(), third.hear()] == [b"Gruezi!\0"] * 2
    room.master.say(b"2 \0")
    assert room.master.hear() == b"0000 3 42\0"
    second.say(b"last\0")
    second.socket.shutdown(socket.SHUT_WR)
    assert room.master.hear() == room.numbers[1] + b" last\0"
    assert room.master.hear() == b"0000 1 %b 1\0" % room.numbers[1]
    assert second.hear() == b""


def test_a_kick_is_an_orderly_end_without_what_was_said_before(room: Room) -> None:
    one, two, _ = room.numbers
    room.master.say(b"1 %b bye\x003 %b,%b\x002 \x000 after\0" % (one, two, one))
    assert room.master.hear() == b"0000 3 42\0"
    assert room.master.hear() == b"0000 1 %b 1\0" % one
    assert room.master.hear() == b"0000 1 %b 1\0" % two
    assert [client.hear() for client in room.clients] == [b"", b"", b"after\0"]


def test_a_reset_is_a_departure_like_any_other(room: Room) -> None:
    first, *others = room.clients
    first.reset()
    assert room.master.hear() == b"0000 1 %b 1\0" % room.numbers[0]
    room.master.reset()
    assert [client.hear() for client in others] == [b"", b""]
    room.clients = others


def test_a_flood_is_a_kick(room: Room) -> None:
    room.clients[0].say(b"x" * 20_000 + b"\0")
    assert room.master.hear() == b"0000 2 %b 0\0" % room.numbers[0]
    assert room.master.hear() == b"0000 1 %b 1\0" % room.numbers[0]
    room.master.say(b"4 %b\0" % room.numbers[1])
    room.master.say(b"2 \0")
    room.master.hear()
    room.clients[1].say((b"x" * 8191 + b"\0") * 20)
    for _ in range(20):
        assert room.master.hear() == room.numbers[1] + b" " + b"x" * 8191 + b"\0"


def test_a_second_master_and_a_client_without_one_are_closed(gateway: Gateway, room: Room) -> None:
    second = Peer(gateway.ports[0], b"6 \0")
    assert second.hear() == b""
    alone = Peer(gateway.ports[1], b"aWCS\0hello\0")
    assert alone.hear() == b""
    room.master.close()
    assert [client.hear() for client in room.clients] == [b""] * 3
    heir = Peer(gateway.ports[0], b"6 \0")
    assert int(heir.hear().split()[2]) > room.number
    heir.socket.shutdown(socket.SHUT_WR)
    heir.read_on()  # until the seat is free for the next test
    for peer in (second, alone, heir):
        peer.close()


def test_two_listeners_are_two_rooms_and_every_message_is_a_line(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.sink)) as sink:
        sink.settimeout(20)
        rooms = [Room(port, 1) for port in gateway.ports]
        for at, room in enumerate(rooms):
            room.clients[0].say(b"text %d\0" % at)
            assert room.master.hear().endswith(b" text %d\0" % at)
            room.master.say(b"0 told %d\0" % at)
            assert room.clients[0].hear() == b"told %d\0" % at
        heard: list[tuple[str, str, str]] = []
        with sink.makefile() as lines:
            for line in lines:
                record = json.loads(line)
                if record["event"] == "accepted":
                    heard.append((record["address_kind"], record["address"], record["sender"]))
                if len(heard) == 4:
                    break
        senders = [room.numbers[0].decode() for room in rooms]
        assert sorted(heard) == sorted(
            [("hub", f"room{at}", sender) for at, sender in enumerate(senders)]
            + [("hub", f"room{at}", "master") for at in range(2)]
        )
        for room in rooms:
            room.close()


def test_a_client_that_reads_gets_all_of_a_long_broadcast(room: Room) -> None:
    """Far more than its limit in one turn of the reactor, but the kernel takes it."""
    frame = b"0 " + b"x" * 100_000 + b"\0"
    size = 3 * (len(frame) - 2)
    for _ in range(30):
        room.master.say(frame * 3)
        for client in room.clients:
            assert len(read_exactly(client.socket, size)) == size


@pytest.mark.parametrize("pause", [0, 0.05], ids=["at-once", "slowly"])
def test_a_client_that_does_not_read_is_kicked_for_reason_1_and_memory_stays(
    gateway: Gateway, pause: float
) -> None:
    """By how much waits for it, or by how long.  The others read on, and get everything."""
    room = Room(gateway.ports[0], 3, deaf=1)
    deaf, *others = room.clients
    before = most = gateway.memory()
    frame = b"0 " + b"x" * 60_000 + b"\0"
    said = 0
    while not select.select([room.master.socket], [], [], pause)[0]:
        room.master.say(frame)
        said += 1
        for other in others:
            assert len(read_exactly(other.socket, 60_001)) == 60_001
        most = max(most, gateway.memory())
        assert said < 2000, "nobody is kicked"
    assert room.master.hear() == b"0000 2 %b 1\0" % room.numbers[0]
    assert room.master.hear() == b"0000 1 %b 1\0" % room.numbers[0]
    assert most - before < 16 * MIB
    assert deaf.read_on() == "reset"
    room.close()


def test_one_that_is_named_very_often_does_not_fill_the_memory(gateway: Gateway) -> None:
    """600 MB in one frame."""
    room = Room(gateway.ports[0], 1, deaf=1)
    before = gateway.memory()
    named = b",".join(room.numbers * 10_000)
    room.master.say(b"1 " + named + b" " + b"x" * 60_000 + b"\0")
    assert room.master.hear() == b"0000 2 %b 1\0" % room.numbers[0]
    assert gateway.memory() - before < 16 * MIB
    room.close()


def test_a_master_that_does_not_read_goes_with_its_room_and_the_gateway_lives(
    gateway: Gateway,
) -> None:
    """The server of old died here."""
    room = Room(gateway.ports[0], 3, deaf=1)
    other = Room(gateway.ports[1], 1)
    room.master.say(b"4 " + b",".join(room.numbers) + b"\0")
    room.master.say(b"2 \0")
    assert room.master.hear() == b"0000 3 42\0"
    before = most = gateway.memory()
    texts = (b"x" * 8000 + b"\0") * 8
    said = 0
    with suppress(BrokenPipeError, ConnectionResetError):
        while said < 5000:
            for client in room.clients:
                client.say(texts)
            said += 1
            most = max(most, gateway.memory())
    assert said < 5000, "the master is not dropped"
    assert most - before < 48 * MIB
    assert room.master.read_on() == "reset"
    other.clients[0].say(b"still here\0")
    assert other.master.hear().endswith(b" still here\0")
    heir = Peer(gateway.ports[0], b"6 \0")
    assert heir.hear().startswith(b"0000 0 ")
    heir.close()
    room.close()
    other.close()
