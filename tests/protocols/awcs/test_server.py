"""Tests for protocols.awcs.server and hub, spoken in bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress

from gateway.config import ConfigErrors, load
from gateway.interfaces import Message
from gateway.record import ACCEPTED, LOGGED_IN, REFUSED
from protocols.awcs.hub import Numbers
from protocols.awcs.server import BURST, GRACE, MASTER_BURST, AwcsFactory
from tests.protocols.awcs import vectors
from tests.support import DurableMemory, HeldWriter, Transport, Wired, World, accounts

PORT = 39120  # of the first peer


class Peer(Wired):
    """A peer that comes from somewhere."""

    def __init__(self, protocol: Any, address: Any) -> None:
        self.protocol = protocol
        self.transport = Transport(peerAddress=address)
        self.transport.protocol = protocol
        protocol.makeConnection(self.transport)

    @property
    def is_connected(self) -> bool:
        return bool(self.transport.connected)

    @property
    def points(self) -> int:
        return int(self.protocol._points)

    def stops_reading(self) -> None:
        """Its transport has more than it can send."""
        self.protocol.outbox.pauseProducing()

    def reads_again(self) -> None:
        self.protocol.outbox.resumeProducing()


class Listener:
    """An aWCS listener, and whoever connects to it."""

    def __init__(self, world: World | None = None, **given: Any) -> None:
        self.world = world or World()
        self.clock = self.world.clock
        self.broker = self.world.broker
        self.factory = AwcsFactory(self.broker, accounts(), self.clock, **given)
        self.factory.started()
        self._port = PORT

    def connect(self, says: bytes = b"", address: Any = None) -> Peer:
        address = address or IPv4Address("TCP", "127.0.0.1", self._port)
        self._port += 1
        peer = Peer(self.factory.buildProtocol(None), address)
        if says:
            peer.says(says)
        return peer

    def master(self) -> Peer:
        """One whose announcement has been heard."""
        peer = self.connect(b"6 \0")
        peer.hears()
        return peer

    def clients(self, master: Peer, count: int) -> list[Peer]:
        found = [self.connect(b"aWCS\0") for _ in range(count)]
        master.hears()
        return found

    def turn(self) -> None:
        """The reactor's turn is over."""
        self.clock.advance(0)


@pytest.fixture
def listener() -> Listener:
    """One whose first number is gone, as in the recorded runs: the master will be 2."""
    made = Listener()
    made.connect().hangs_up()
    return made


@pytest.fixture
def master(listener: Listener) -> Peer:
    return listener.master()


@pytest.fixture
def clients(listener: Listener, master: Peer) -> list[Peer]:
    """3, 4 and 5."""
    return listener.clients(master, 3)


class TestRecorded:
    """The transcripts of the servers of old, byte for byte, under both prefixes."""

    @pytest.fixture(params=["master", "0000"])
    def prefix(self, request: Any) -> str:
        return str(request.param)

    @pytest.fixture
    def listener(self, prefix: str) -> Listener:
        made = Listener(status_prefix=prefix)
        made.connect().hangs_up()
        return made

    @pytest.fixture
    def status(self, prefix: str) -> bytes:
        return b"0002" if prefix == "master" else b"0000"

    def test_master_init(self, listener: Listener, status: bytes) -> None:
        master = listener.connect(b"6 \0")
        assert master.hears() == status + b" 0 0002 127.0.0.1:39121\0"

    def test_client_connect_and_message(self, listener: Listener, status: bytes) -> None:
        master = listener.master()
        client = listener.connect(b"aWCS\0")
        assert client.hears() == b""
        assert master.hears() == status + b" 0 0003 127.0.0.1:39122\0"
        client.says(b"hello\0")
        assert master.hears() == b"0003 hello\0"
        assert client.hears() == b""

    def test_broadcast(self, master: Peer, clients: list[Peer]) -> None:
        master.says(b"0 Hallo Welt\0")
        assert [client.hears() for client in clients] == [b"Hallo Welt\0"] * 3
        assert master.hears() == b""

    def test_multicast(self, master: Peer, clients: list[Peer]) -> None:
        master.says(b"1 0003,0005 Gruezi!\0")
        assert [client.hears() for client in clients] == [b"Gruezi!\0", b"", b"Gruezi!\0"]

    def test_status_request(self, master: Peer, status: bytes) -> None:
        master.says(b"2 \0")
        assert master.hears() == status + b" 3 42\0"

    def test_kick(
        self, listener: Listener, master: Peer, clients: list[Peer], status: bytes
    ) -> None:
        master.says(b"3 0003,0004\0")
        listener.turn()
        assert [client.is_connected for client in clients] == [False, False, True]
        assert [client.hears() for client in clients] == [b"", b"", b""]
        assert master.hears() == status + b" 1 0003 1\0" + status + b" 1 0004 1\0"

    def test_flood_off_and_on(
        self, listener: Listener, master: Peer, clients: list[Peer], status: bytes
    ) -> None:
        client = clients[0]
        master.says(b"4 0003\0")
        assert master.hears() == b""
        client.says(b"x" * 7000 + b"\0")
        assert master.hears() == b"0003 " + b"x" * 7000 + b"\0"
        master.says(b"5 0003\0")
        assert master.hears() == b""
        client.says(b"z" * 7000 + b"\0")
        listener.turn()
        assert master.hears() == status + b" 2 0003 0\0" + status + b" 1 0003 1\0"
        assert not client.is_connected
        assert client.hears() == b""

    def test_client_disconnect(self, master: Peer, clients: list[Peer], status: bytes) -> None:
        clients[0].hangs_up()
        assert master.hears() == status + b" 1 0003 1\0"

    def test_master_disconnect(self, listener: Listener, prefix: str) -> None:
        master = listener.master()
        clients = listener.clients(master, 2)
        master.hangs_up()
        assert [client.is_connected for client in clients] == [False, False]
        assert [client.hears() for client in clients] == [b"", b""]
        status = b"0005" if prefix == "master" else b"0000"
        assert listener.connect(b"6 \0").hears() == status + b" 0 0005 127.0.0.1:39124\0"


class TestWhoIsIt:
    """Detection by the first bytes."""

    @pytest.mark.parametrize("pieces", [[b"6 ", b"\0"], [b"6", b" ", b"\0"], [b"6 \0"]])
    def test_a_master_may_come_in_pieces(self, listener: Listener, pieces: list[bytes]) -> None:
        peer = listener.connect()
        for piece in pieces:
            assert peer.hears() == b""
            peer.says(piece)
        assert peer.hears() == b"0000 0 0002 127.0.0.1:39121\0"

    def test_what_is_glued_to_the_first_bytes_is_handled_at_once(self, listener: Listener) -> None:
        master = listener.connect(b"6 \x002 \x002 \0")
        assert master.hears() == b"0000 0 0002 127.0.0.1:39121\0" + b"0000 3 42\0" * 2
        client = listener.connect(b"aWC")
        client.says(b"S\0hi\0more\0")
        assert master.hears() == b"0000 0 0003 127.0.0.1:39122\x000003 hi\x000003 more\0"

    def test_sixteen_bytes_may_wait_and_the_seventeenth_closes(self, listener: Listener) -> None:
        peer = listener.connect(b"x" * 16)
        assert peer.is_connected
        peer.says(b"x")
        assert not peer.is_connected
        assert peer.hears() == b""

    def test_there_is_no_second_beginning(self, master: Peer, listener: Listener) -> None:
        peer = listener.connect(b"awcs\0")
        peer.says(b"aWCS\0")
        assert master.hears() == b""
        assert peer.is_connected

    def test_silence_and_a_half_role_have_their_time(self, listener: Listener) -> None:
        silent, half = listener.connect(), listener.connect(b"aWCS")
        listener.clock.advance(29.9)
        half.says(b"x")
        assert silent.is_connected
        listener.clock.advance(0.1)
        assert not silent.is_connected
        assert not half.is_connected

    def test_who_is_known_may_be_silent_for_ever(self, listener: Listener, master: Peer) -> None:
        (client,) = listener.clients(master, 1)
        listener.clock.advance(86_400)
        assert client.is_connected

    def test_later_the_first_bytes_are_ordinary(self, master: Peer, clients: list[Peer]) -> None:
        clients[0].says(b"6 \0aWCS\0")
        assert master.hears() == b"0003 6 \x000003 aWCS\0"
        master.says(b"6 \0")
        assert master.hears() == b""
        assert master.is_connected

    def test_a_client_without_a_master_is_closed(self, listener: Listener) -> None:
        peer = listener.connect(b"aWCS\0hello\0")
        assert not peer.is_connected
        assert peer.hears() == b""
        assert ACCEPTED not in listener.world.kinds()

    def test_a_second_master_is_closed_and_nobody_told(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        second = listener.connect(b"6 \x000 hello\0")
        assert not second.is_connected
        assert second.hears() == master.hears() == clients[0].hears() == b""
        clients[0].says(b"still\0")
        assert master.hears() == b"0003 still\0"

    def test_who_is_not_known_stays_when_the_master_leaves(
        self, listener: Listener, master: Peer
    ) -> None:
        heir, late = listener.connect(b"6"), listener.connect(b"aWCS")
        master.hangs_up()
        late.says(b"\0")
        assert not late.is_connected
        heir.says(b" \0")
        assert heir.hears() == b"0000 0 0003 127.0.0.1:39122\0"

    def test_the_announcement_can_be_switched_off(self) -> None:
        assert Listener(announce_master=False).connect(b"6 \0").hears() == b""


class TestMasterFrom:
    @pytest.mark.parametrize(
        ("allowed", "host", "may"),
        [
            ("any", "203.0.113.5", True),
            ("127.0.0.1", "127.0.0.1", True),
            ("127.0.0.1", "127.0.0.2", False),
            ("192.168.0.0/16, 10.0.0.0/8", "10.1.2.3", True),
            ("192.168.0.0/16, 10.0.0.0/8", "11.1.2.3", False),
            ("10.0.0.0/8", "::ffff:10.1.2.3", True),
            ("fd00::/8", "fd00::1", True),
            ("fd00::/8", "10.1.2.3", False),
        ],
    )
    def test_the_seat_is_for_some(self, allowed: str, host: str, may: bool) -> None:
        kind = IPv6Address if ":" in host else IPv4Address
        listener = Listener(master_from=allowed)
        peer = listener.connect(b"6 \0", kind("TCP", host, 1))
        assert peer.is_connected is may
        assert (peer.hears() != b"") is may
        if not may:
            assert listener.broker.counts["refused", "awcs", "may not be master"] == 1

    def test_a_local_socket_has_no_address(self) -> None:
        peer = Listener(master_from="0.0.0.0/0").connect(b"6 \0", UNIXAddress("/run/x"))
        assert not peer.is_connected
        peer = Listener().connect(b"6 \0", UNIXAddress("/run/x"))
        assert peer.hears() == b"0000 0 0001 0.0.0.0:0\0"

    def test_an_address_of_six_is_in_brackets(self) -> None:
        peer = Listener().connect(b"6 \0", IPv6Address("TCP", "::1", 9))
        assert peer.hears() == b"0000 0 0001 [::1]:9\0"

    @pytest.mark.parametrize(
        ("setting", "problem"),
        [
            ("status_prefix: slave", "status_prefix: must be one of 0000, master"),
            ("master_from: 10.0.0.0/99", "master_from: must be any, or addresses"),
            ("status_prefix: 0", "status_prefix: must be text"),
        ],
    )
    def test_a_wrong_setting_is_told(self, tmp_path: Any, setting: str, problem: str) -> None:
        path = tmp_path / "gateway.yaml"
        path.write_text(f"listeners:\n  - protocol: awcs\n    endpoint: tcp:1\n    {setting}\n")
        with pytest.raises(ConfigErrors, match=problem):
            load(path, {"awcs": AwcsFactory}, lambda text: None)


class TestTexts:
    def test_frames_may_be_split_glued_and_empty(self, master: Peer, clients: list[Peer]) -> None:
        clients[0].says(b"one\0tw")
        assert master.hears() == b"0003 one\0"
        clients[0].says(b"o\0\0\0\0")
        assert master.hears() == b"0003 two\x000003 \x000003 \x000003 \0"

    def test_any_bytes_pass_and_no_prefix_can_be_forged(
        self, master: Peer, clients: list[Peer]
    ) -> None:
        clients[0].says(b"\xff\n\x01\x000003 0 fake\0")
        assert master.hears() == b"0003 \xff\n\x01\x000003 0003 0 fake\0"

    def test_an_unfinished_text_is_lost_with_its_client(
        self, master: Peer, clients: list[Peer]
    ) -> None:
        clients[0].says(b"half")
        clients[0].hangs_up()
        assert master.hears() == b"0000 1 0003 1\0"

    def test_a_client_that_half_closes_is_heard_and_gone(
        self, master: Peer, clients: list[Peer]
    ) -> None:
        clients[0].says(b"last\0")
        clients[0].protocol.readConnectionLost()
        assert master.hears() == b"0003 last\x000000 1 0003 1\0"
        assert not clients[0].is_connected

    def test_several_listeners_are_several_hubs(self) -> None:
        world = World()
        one, two = Listener(world, hub="one"), Listener(world, hub="two")
        masters = one.master(), two.master()
        (first,), (second,) = one.clients(masters[0], 1), two.clients(masters[1], 1)
        first.says(b"a\0")
        masters[1].says(b"0 b\0")
        assert [master.hears() for master in masters] == [b"0002 a\0", b""]
        assert [first.hears(), second.hears()] == [b"", b"b\0"]


class TestCommands:
    @pytest.mark.parametrize(
        "frame",
        [row[2] for row in vectors.REJECTED_FROM_CLIENT if row[1] is vectors.S.MASTER][:-1],
    )
    def test_a_bad_frame_is_ignored_and_the_next_is_not(
        self, listener: Listener, master: Peer, clients: list[Peer], frame: bytes
    ) -> None:
        master.says(frame + b"2 \0")
        listener.turn()
        assert master.hears() == b"0000 3 42\0"
        assert [client.hears() for client in clients] == [b""] * 3
        assert all(client.is_connected for client in clients)

    def test_a_bad_list_does_nothing_at_all(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        """The list is parsed whole before anybody is kicked."""
        master.says(b"3 0003,0004,x\x001 0003,x text\0")
        listener.turn()
        assert all(client.is_connected for client in clients)
        assert clients[0].hears() == b""

    def test_unknown_numbers_are_skipped_and_duplicates_served_twice(
        self, master: Peer, clients: list[Peer]
    ) -> None:
        master.says(b"1 0099,3,0003,00003,0002,0000 dup\0")
        assert clients[0].hears() == b"dup\0dup\0dup\0"
        assert master.hears() == b""

    def test_only_clients_can_be_named(self, listener: Listener, master: Peer) -> None:
        unknown = listener.connect(b"aW")
        master.says(b"1 0002,0003 x\x003 0002,0003\0")
        listener.turn()
        assert unknown.hears() == master.hears() == b""
        assert unknown.is_connected
        assert master.is_connected

    def test_an_empty_broadcast_is_a_nul(self, master: Peer, clients: list[Peer]) -> None:
        master.says(b"0 \x001 0003 \0")
        assert clients[0].hears() == b"\0\0"
        assert clients[1].hears() == b"\0"

    def test_nobody_to_hear_a_broadcast(self, master: Peer) -> None:
        master.says(b"0 hello\0")
        assert master.hears() == b""

    def test_the_notify_time_begins_with_the_master(self, listener: Listener) -> None:
        listener.clock.advance(2)
        master = listener.master()
        listener.clock.advance(2.9)
        assert master.hears() == b""
        for _ in range(3):
            listener.clock.advance(3)
            assert master.hears() == b"0000 4 42\0"
        master.hangs_up()
        second = listener.master()
        listener.clock.advance(3)
        assert (master.hears(), second.hears()) == (b"", b"0000 4 42\0")

    def test_the_notify_interval_can_be_set(self) -> None:
        listener = Listener(notify_interval=0.5)
        master = listener.master()
        listener.clock.advance(0.5)
        assert master.hears() == b"0000 4 42\0"


class TestKick:
    def test_answers_of_the_same_read_come_before_the_status(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        master.says(b"3 0003\x002 \x000 after\0")
        assert master.hears() == b"0000 3 42\0"
        listener.turn()
        assert master.hears() == b"0000 1 0003 1\0"
        assert [client.hears() for client in clients] == [b"", b"after\0", b"after\0"]

    def test_what_was_not_sent_is_dropped(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        master.says(b"1 0003 bye\x003 0003\0")
        listener.turn()
        assert clients[0].hears() == b""
        assert not clients[0].transport.aborted  # an end of file, no reset

    def test_the_kicked_is_not_heard_any_more(self, master: Peer, clients: list[Peer]) -> None:
        master.says(b"3 0003\0")
        clients[0].says(b"too late\0")
        assert master.hears() == b""

    def test_statuses_come_in_the_order_of_arrival_and_once(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        master.says(b"3 0005,0003,0005\x003 0004,0003\0")
        listener.turn()
        assert master.hears() == b"0000 1 0003 1\x000000 1 0004 1\x000000 1 0005 1\0"

    def test_one_that_leaves_by_itself_meanwhile_is_told_once(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        master.says(b"3 0003\0")
        clients[0].hangs_up()
        listener.turn()
        assert master.hears() == b"0000 1 0003 1\0"

    def test_a_new_master_hears_nothing_of_the_old_ones_kicks(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        master.says(b"3 0003\0")
        master.hangs_up()
        second = listener.connect(b"6 \0")
        listener.turn()
        assert second.hears() == b"0000 0 0006 127.0.0.1:39125\0"
        assert not any(client.is_connected for client in clients)


class TestNumbers:
    def test_they_go_on_and_round_and_skip_who_is_there(self) -> None:
        numbers = Numbers()
        assert [numbers.take() for _ in range(3)] == [1, 2, 3]
        numbers.give_back(2)
        assert numbers.take() == 4
        for number in range(5, 10_000):
            assert numbers.take() == number
            numbers.give_back(number)
        assert [numbers.take(), numbers.take()] == [2, 5]

    def test_when_all_are_taken_there_is_none(self) -> None:
        numbers = Numbers()
        assert [numbers.take() for _ in range(9999)] == [*range(1, 10_000)]
        assert numbers.take() is None
        numbers.give_back(77)
        assert numbers.take() == 77

    def test_every_connection_has_one_and_none_comes_again(self, listener: Listener) -> None:
        listener.connect(b"nonsense, certainly").hangs_up()
        listener.connect(b"aWCS\0")
        master = listener.connect(b"6 \0")
        assert master.hears() == b"0000 0 0004 127.0.0.1:39123\0"
        listener.connect(b"6 \0")
        listener.connect(b"aWCS\0").hangs_up()
        listener.connect(b"aWCS\0")
        assert master.hears() == (
            b"0000 0 0006 127.0.0.1:39125\x000000 1 0006 1\x000000 0 0007 127.0.0.1:39126\0"
        )

    def test_without_a_number_a_connection_is_closed(self, listener: Listener) -> None:
        while listener.factory.room.numbers.take():
            pass
        peer = listener.connect(b"")
        assert not peer.is_connected
        assert listener.broker.counts["refused", "awcs", "no number is free"] == 1


class TestFlood:
    def test_the_edge_is_between_4999_and_5000_bytes(
        self, master: Peer, listener: Listener
    ) -> None:
        client, other = listener.clients(master, 2)
        listener.clock.advance(1)  # the first read cost a point
        client.says(b"x" * 4998 + b"\0")
        assert len(master.hears()) == 5004
        assert client.points == 100
        other.says(b"x" * 4999 + b"\0")
        listener.turn()
        assert master.hears() == b"0000 2 0004 0\x000000 1 0004 1\0"

    def test_the_whole_read_is_thrown_away(self, master: Peer, clients: list[Peer]) -> None:
        clients[0].says(b"fine\0" * 1000)
        assert master.hears() == b"0000 2 0003 0\0"

    def test_a_hundred_reads_are_too_many_and_a_hundred_frames_are_not(
        self, master: Peer, clients: list[Peer]
    ) -> None:
        clients[1].says(b"m\0" * 100)
        assert clients[1].points == 1 + 1 + 4
        master.hears()
        for number in range(1, 101):
            clients[0].says(b"m%d\0" % number)
        assert master.hears().endswith(b"0003 m99\x000000 2 0003 0\0")

    def test_a_second_takes_off_a_point(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        clients[0].says(b"x" * 4899 + b"\0")
        assert clients[0].points == 1 + 99
        listener.clock.advance(6)
        master.hears()
        for _ in range(7):
            clients[0].says(b"m\0")
        assert master.hears() == b"0003 m\0" * 6 + b"0000 2 0003 0\0"

    def test_points_are_never_below_zero(self, listener: Listener, clients: list[Peer]) -> None:
        listener.clock.advance(500)
        clients[0].says(b"m\0")
        assert clients[0].points == 1

    def test_while_it_is_off_nothing_counts_and_then_the_old_points_do(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        client = clients[0]
        client.says(b"x" * 4000 + b"\0")
        assert client.points == 82
        master.says(b"4 3\0")
        client.says(b"x" * 7000 + b"\0")
        client.says(b"x" * 7000 + b"\0")
        listener.clock.advance(10)
        master.says(b"5 3\0")
        client.says(b"m\0")
        assert client.points == 82 - 10 + 1
        assert client.is_connected

    def test_the_master_may_send_what_it_likes(self, master: Peer, clients: list[Peer]) -> None:
        for _ in range(200):
            master.says(b"0 " + b"x" * 5000 + b"\0")
        assert len(clients[0].hears()) == 200 * 5001

    def test_before_the_role_is_known_it_counts_and_closes_without_a_word(
        self, listener: Listener, master: Peer
    ) -> None:
        peer = listener.connect(b"aWCS\0" + b"x" * 5001)
        assert not peer.is_connected
        assert master.hears() == peer.hears() == b""

    def test_the_numbers_can_be_set(self) -> None:
        listener = Listener(flood_points=3, flood_bytes=10)
        (client,) = listener.clients(listener.master(), 1)
        client.says(b"x" * 9 + b"\0")  # the third point
        assert client.is_connected
        client.says(b"\0")
        listener.turn()
        assert not client.is_connected


class TestInputLimits:
    def test_8192_bytes_of_a_client_may_wait_and_pass(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        master.says(b"4 3,4\0")
        clients[0].says(b"x" * 8191 + b"\0")
        assert len(master.hears()) == 8197
        clients[0].says(b"x" * 8192)
        listener.turn()
        assert master.hears() == b""
        clients[0].says(b"\0")
        listener.turn()
        assert master.hears() == b"0000 2 0003 0\x000000 1 0003 1\0"
        assert not clients[0].is_connected
        clients[1].says(b"fine\0" + b"x" * 8193)
        listener.turn()
        assert master.hears() == b"0004 fine\x000000 2 0004 0\x000000 1 0004 1\0"

    def test_131072_bytes_of_the_master_may_wait_and_one_more_ends_it_all(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        master.says(b"0 " + b"x" * 131_069 + b"\0")
        assert len(clients[0].hears()) == 131_070
        master.says(b"0 " + b"x" * 131_070)
        assert master.is_connected
        master.says(b"x")
        assert not master.is_connected
        assert master.hears() == b""
        assert not any(client.is_connected for client in clients)
        assert listener.master().is_connected


class TestOutputLimits:
    def test_the_transport_is_told_the_limit(self, master: Peer, clients: list[Peer]) -> None:
        assert clients[0].transport.bufferSize == 8192
        assert master.transport.bufferSize == 65_536

    def test_a_client_that_does_not_read_is_kicked_for_reason_1(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        clients[0].stops_reading()
        listener.clock.advance(GRACE * 0.9)
        assert master.hears() == b""
        listener.clock.advance(GRACE * 0.1)
        assert master.hears() == b"0000 2 0003 1\x000000 1 0003 1\0"
        assert clients[0].transport.aborted  # it would not read an orderly end either

    def test_one_that_the_kernel_was_only_not_asked_for_is_not(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        """A long turn may let the time pass before the transport has tried to write."""
        clients[0].stops_reading()
        master.says(b"0 x\0")
        listener.clock.callLater(GRACE, clients[0].reads_again)  # the turn in which the time is up
        for _ in range(4):
            listener.clock.advance(GRACE)
        assert clients[0].hears() == b"x\0"
        assert clients[0].is_connected

    def test_too_much_at_once_is_not_waited_for(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        """A frame that names one client very often must not fill the memory."""
        clients[0].stops_reading()
        master.says(b"1 " + b",".join([b"3"] * 10_000) + b" " + b"x" * 100_000 + b"\x002 \0")
        listener.turn()
        assert master.hears() == b"0000 2 0003 1\x000000 3 42\x000000 1 0003 1\0"
        assert clients[0].protocol.outbox.size == 0
        assert BURST > 100_000

    def test_the_others_hear_the_broadcast_that_was_too_much_for_one(
        self, master: Peer, clients: list[Peer]
    ) -> None:
        """To kick one in the middle of it once lost it for all that came after."""
        clients[0].stops_reading()
        clients[0].protocol.outbox.size = BURST
        master.says(b"0 all\x001 3,4,5 some\0")
        assert [client.hears() for client in clients] == [b"", *[b"all\0some\0"] * 2]

    def test_a_master_that_does_not_read_goes_with_all_its_clients(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        master.stops_reading()
        master.protocol.outbox.size = MASTER_BURST
        clients[0].says(b"x\0")
        assert master.transport.aborted
        assert not any(client.is_connected for client in clients)
        assert listener.broker.counts["bugs", "awcs"] == 0
        assert listener.connect(b"6 \0").hears() == b"0000 0 0006 127.0.0.1:39125\0"

    def test_a_master_has_its_262144_bytes(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        master.stops_reading()
        texts = 0
        for client in clients:
            client.protocol.is_protected = False
        while texts < 262_144 - 65_536 - 9000:
            clients[0].says(b"x" * 8000 + b"\0")
            texts += 8006
        for _ in range(5):
            listener.clock.advance(GRACE)
        assert master.is_connected
        clients[0].says(b"x" * 8000 + b"\x00" + b"x" * 8000 + b"\0")
        for _ in range(5):
            listener.clock.advance(GRACE)
        assert not master.is_connected

    def test_a_master_that_has_said_all_and_does_not_read_keeps_no_seat(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        master.stops_reading()
        master.protocol.readConnectionLost()
        listener.clock.advance(GRACE)
        assert not any(peer.is_connected for peer in (master, *clients))

    def test_a_kick_told_to_a_full_master_does_not_recur(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        """The server of old died here."""
        for peer in (master, *clients):
            peer.stops_reading()
        master.protocol.outbox.size = MASTER_BURST - 10
        clients[0].says(b"x" * 6000 + b"\0")
        listener.clock.advance(GRACE)
        assert not any(peer.is_connected for peer in (master, *clients))
        assert listener.broker.counts["bugs", "awcs"] == 0


class TestBroker:
    """The hub is an address of the one Broker."""

    def accepted(self, listener: Listener) -> list[tuple[str, bytes, str, Any]]:
        listener.world.kinds()
        return [
            (record.address, record.body, record.sender, record.headers)
            for record in listener.world.records
            if record.kind == ACCEPTED
        ]

    def test_every_message_is_an_event(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        clients[0].says(b"hello\0")
        master.says(b"0 all\x001 3,5 some\x002 \0")
        assert self.accepted(listener) == [
            ("hub:awcs", b"hello", "0003", None),
            ("hub:awcs", b"all", "master", {"to": "all"}),
            ("hub:awcs", b"some", "master", {"to": [3, 5]}),
        ]

    def test_who_comes_and_who_is_refused_is_one_too(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        master.says(b"3 0004\0")
        listener.turn()
        kinds = listener.world.kinds()
        assert kinds.count(LOGGED_IN) == 4
        assert [r.reason for r in listener.world.records if r.kind == REFUSED] == [
            "kicked by the master"
        ]

    def test_a_subscriber_hears_what_clients_say(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        heard: list[Message] = []
        listener.broker.subscribe("hub:awcs", heard.append)
        clients[1].says(b"out\0")
        assert [(message.sender, message.body) for message in heard] == [("0004", b"out")]
        assert clients[0].hears() == b""

    def test_what_others_publish_is_broadcast(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        assert listener.broker.publish(Message("hub:awcs", b"in", "somebody", "qlite")) == 1
        assert [client.hears() for client in clients] == [b"in\0"] * 3
        assert master.hears() == b""

    def test_a_nul_from_elsewhere_is_not_two_texts(
        self, listener: Listener, clients: list[Peer]
    ) -> None:
        listener.broker.publish(Message("hub:awcs", b"a\0b", "somebody", "qlite"))
        assert clients[0].hears() == b""
        assert listener.broker.counts["dropped", "awcs", "has a NUL"] == 1

    def test_a_subscriber_that_answers_at_once_is_broadcast_and_not_echoed(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        def answer(message: Message) -> None:
            if message.sender != "echo":
                listener.broker.publish(Message("hub:awcs", b"re: " + message.body, "echo", "x"))

        listener.broker.subscribe("hub:awcs", answer)
        clients[0].says(b"hi\0")
        assert clients[0].hears() == b"re: hi\0"
        assert master.hears() == b"0003 hi\0"

    def test_nothing_that_is_said_waits_for_the_disk(self) -> None:
        writer = HeldWriter()
        listener = Listener(World(DurableMemory(), writer.run))
        master = listener.master()
        (client,) = listener.clients(master, 1)
        client.says(b"a\0")
        master.says(b"0 b\x002 \0")
        assert (master.hears(), client.hears()) == (b"0002 a\x000000 3 42\0", b"b\0")

    def test_what_cannot_be_recorded_is_not_delivered(
        self, listener: Listener, master: Peer, clients: list[Peer]
    ) -> None:
        listener.world.journal.failing = "the disk is full"
        clients[0].says(b"lost\0")
        master.says(b"0 lost\x002 \0")
        assert clients[0].hears() == b""
        assert master.hears() == b"0000 3 42\0"
        assert listener.broker.counts["refused", "awcs", "Overloaded"] == 2


def test_any_bytes_at_any_time_break_nothing() -> None:
    true = st.sampled_from([row[2] for row in vectors.FROM_CLIENT if len(row[2]) < 100])
    piece = st.one_of(st.binary(max_size=40), true)
    lines = st.lists(st.tuples(st.integers(0, 3), piece), max_size=20)

    @settings(max_examples=200, deadline=None)
    @given(lines)
    def check(lines: list[tuple[int, bytes]]) -> None:
        listener = Listener()
        peers = [listener.connect(), listener.connect(b"6 \0")]
        peers += [listener.connect(b"aWCS\0") for _ in range(2)]
        for at, data in lines:
            if data and peers[at].is_connected:
                peers[at].says(data)
        listener.clock.advance(1)
        listener.clock.advance(100)
        assert listener.broker.counts["bugs", "awcs"] == 0
        room = listener.factory.room
        assert all(client.number == number for number, client in room.clients.items())
        assert room.master is not None or not room.clients

    check()
