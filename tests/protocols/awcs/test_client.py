"""Tests for protocols.awcs.client, against our own server and against scripted bytes."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.test.iosim import FakeTransport
from twisted.test.iosim import connect as join

from protocols.awcs.client import (
    LONGEST,
    AwcsClient,
    AwcsMaster,
    connect_client,
    connect_master,
)
from protocols.awcs.wire import Connected, Disconnected, Elapsed, Kicked, Relay
from tests.protocols.awcs.test_server import Listener
from tests.support import Wired


def outcome(deferred: Deferred[Any]) -> Any:
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert found, "no answer yet"
    return found[0].value if isinstance(found[0], Failure) else found[0]


class Room:
    """Our server, and our clients face to face with it."""

    def __init__(self, **given: Any) -> None:
        self.listener = Listener(**given)
        self.heard: list[Any] = []  # by the master
        self.told: list[tuple[int, bytes]] = []  # which client, and what
        self._pumps: list[Any] = []
        self.master = self.connect(AwcsMaster(self.listener.clock, self.heard.append))
        self.clients = [self.new_client(number) for number in range(2)]
        self.flush()

    def connect(self, peer: Any) -> Any:
        server = self.listener.factory.buildProtocol(None)
        ends = FakeTransport(server, isServer=True), FakeTransport(peer, isServer=False)
        self._pumps.append(join(server, ends[0], peer, ends[1]))
        self.flush()
        return peer

    def new_client(self, at: int) -> AwcsClient:
        client = AwcsClient(self.listener.clock, lambda body: self.told.append((at, body)))
        self.connect(client)
        return client

    def flush(self) -> None:
        for _ in range(3):
            for pump in self._pumps:
                pump.flush()
            self.listener.turn()


@pytest.fixture(
    params=[
        {},
        {"announce_master": False},
        {"status_prefix": "master"},
        {"status_prefix": "master", "announce_master": False},
    ],
    ids=["document", "not-announced", "of-old", "of-old-not-announced"],
)
def room(request: Any) -> Room:
    return Room(**request.param)


def kinds(events: list[Any]) -> list[tuple[type, int]]:
    return [(type(event), event.client) for event in events]


def test_a_master_has_its_seat_and_knows_who_is_there(room: Room) -> None:
    assert outcome(room.master.seated) is room.master
    assert room.master.number == (1 if room.listener.factory.announce_master else None)
    assert list(room.master.clients) == [2, 3]
    assert kinds(room.heard) == [(Connected, 2), (Connected, 3)]


def test_what_a_client_says_the_master_hears(room: Room) -> None:
    room.clients[0].say(b"hello")
    room.clients[1].say(b"1 0 fake")
    room.flush()
    assert room.heard[2:] == [Relay(2, b"hello"), Relay(3, b"1 0 fake")]


def test_what_the_master_says_its_clients_hear(room: Room) -> None:
    room.master.broadcast(b"all")
    room.master.multicast([3, 3], b"two")
    room.flush()
    assert sorted(room.told) == [(0, b"all"), (1, b"all"), (1, b"two"), (1, b"two")]


def test_a_kick_closes_and_is_told(room: Room) -> None:
    room.master.kick(2)
    room.flush()
    assert outcome(room.clients[0].lost) is None
    assert kinds(room.heard[2:]) == [(Disconnected, 2)]
    assert list(room.master.clients) == [3]
    with pytest.raises(ConnectionDone):
        room.clients[0].say(b"late")


def test_flood_protection_is_switched(room: Room) -> None:
    room.master.flood_off(2)
    room.flush()
    room.clients[0].say(b"x" * 7000)
    room.flush()
    assert room.heard.pop() == Relay(2, b"x" * 7000)
    room.master.flood_on(2)
    room.flush()
    room.clients[0].say(b"x" * 7000)
    room.flush()
    assert kinds(room.heard[2:]) == [(Kicked, 2), (Disconnected, 2)]


def test_the_server_is_alive_and_time_passes(room: Room) -> None:
    alive = room.master.alive()
    room.flush()
    assert outcome(alive) is None
    room.listener.clock.advance(3)
    room.flush()
    assert [type(event) for event in room.heard[2:]] == [Elapsed]


def test_a_second_master_gets_no_seat(room: Room) -> None:
    second = room.connect(AwcsMaster(room.listener.clock, print))
    room.flush()
    assert isinstance(outcome(second.seated), ConnectionDone)
    assert isinstance(outcome(second.alive()), ConnectionDone)


def test_the_master_takes_everybody_with_it(room: Room) -> None:
    room.master.disconnect()
    room.flush()
    assert [outcome(client.lost) for client in room.clients] == [None, None]
    assert outcome(room.master.lost) is None


def test_a_nul_cannot_be_said(room: Room) -> None:
    for say in (room.clients[0].say, room.master.broadcast):
        with pytest.raises(ValueError, match="NUL"):
            say(b"a\0b")


class Endpoint:
    """One that connects to a server that the test plays."""

    def connect(self, factory: Any) -> Deferred[Any]:
        protocol = factory.buildProtocol(None)
        self.server = Wired(protocol)
        return succeed(protocol)


class TestScripted:
    """A server that says what the test says."""

    def master(self) -> tuple[AwcsMaster, Wired, list[Any]]:
        heard: list[Any] = []
        master = AwcsMaster(Clock(), heard.append)
        return master, Wired(master), heard

    def test_what_a_master_says(self) -> None:
        master, server, _ = self.master()
        assert server.hears() == b"6 \x002 \0"
        server.says(b"0000 3 42\0")
        master.broadcast(b"Hallo Welt")
        master.multicast([1, 4, 6], b"Gruezi!")
        master.kick(3, 4)
        master.flood_off(4, 16)
        master.flood_on(1, 5)
        assert server.hears() == (
            b"0 Hallo Welt\x001 0001,0004,0006 Gruezi!\x003 0003,0004\x00"
            b"4 0004,0016\x005 0001,0005\0"
        )

    def test_the_last_server_of_old_is_understood(self) -> None:
        """facts, section 11: its numbers are not padded, and it says more than the document."""
        master, server, heard = self.master()
        server.says(b"5 0 5 127.0.0.1:39120\x005 3 42\x005 0 6 127.0.0.1:39122\0")
        server.says(b"5 5 6 localhost\x006 hello\x005 2 6 0\x005 1 6 1\0")
        assert outcome(master.seated) is master
        assert master.number == 5
        assert heard == [
            Connected(6, "127.0.0.1:39122", 5),
            Relay(6, b"hello"),
            Kicked(6, 0, 5),
            Disconnected(6, 1, 5),
        ]

    def test_nonsense_is_ignored(self) -> None:
        master, server, heard = self.master()
        server.says(b"\0x\x000000\x000000 3 42\x000000 3 42\x000000 9\x000000 4 42\0")
        assert heard == [Elapsed()]
        assert outcome(master.seated) is master

    def test_a_frame_without_end_is_not_collected(self) -> None:
        master, server, _ = self.master()
        server.says(b"x" * (LONGEST + 1))
        assert server.transport.aborted
        assert isinstance(outcome(master.seated), ConnectionDone)

    def test_what_a_client_says_and_hears(self) -> None:
        heard: list[bytes] = []
        client = AwcsClient(Clock(), heard.append)
        server = Wired(client)
        client.say(b"hello")
        assert server.hears() == b"aWCS\0hello\0"
        server.says(b"a\0\0b")
        server.says(b"c\0")
        assert heard == [b"a", b"", b"bc"]

    def test_to_connect_as_a_master_is_to_wait_for_the_seat(self) -> None:
        endpoint = Endpoint()
        connecting = connect_master(Clock(), endpoint, print)  # type: ignore[arg-type]
        assert not connecting.called or connecting.paused
        endpoint.server.says(b"0000 0 0001 127.0.0.1:1\x000000 3 42\0")
        assert outcome(connecting).number == 1
        refused = connect_master(Clock(), endpoint, print)  # type: ignore[arg-type]
        endpoint.server.hangs_up()
        assert isinstance(outcome(refused), ConnectionDone)

    def test_to_connect_as_a_client_is_to_wait_for_nothing(self) -> None:
        endpoint = Endpoint()
        client = outcome(connect_client(Clock(), endpoint, print))  # type: ignore[arg-type]
        assert isinstance(client, AwcsClient)
        assert endpoint.server.hears() == b"aWCS\0"
