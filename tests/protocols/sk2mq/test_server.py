"""Tests for protocols.sk2mq.server, spoken in bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.interfaces import Message, NoSuchAddress
from gateway.record import ACCEPTED, EXPIRED
from gateway.store import Retention, SqliteStore
from protocols.backlog import CHUNK
from protocols.sk2mq import wire
from protocols.sk2mq.server import Sk2mqFactory
from protocols.sk2mq.wire import DIALECTS, Create, Delivery, Hello, Join, Quit, Response, Send
from tests.protocols.sk2mq import upstream_vectors, vectors
from tests.support import NOW, DurableMemory, HeldWriter, Wired, World, accounts

BOTH = pytest.mark.parametrize("dialect", ["seed", "upstream"])
LATER = int(NOW) + 10


class Listener:
    """An sk2mq listener whose clients are called user-1, user-2 and so on."""

    def __init__(self, dialect: str = "seed", world: World | None = None, **given: Any) -> None:
        self.world = world or World()
        self.clock = self.world.clock
        self.broker = self.world.broker
        self.codec = DIALECTS[dialect]
        self.factory = Sk2mqFactory(self.broker, accounts(), self.clock, dialect=dialect, **given)
        self.factory._run = "user"
        self.factory.started()

    def connect(self) -> Client:
        return Client(self)

    def member(self, topic: bytes = b"t") -> Client:
        client = self.connect()
        client.asks(Join(topic), wire.OK)
        return client

    def topic(self, topic: bytes = b"t") -> Listener:
        self.broker.declare(self.factory.address(topic))
        return self


class Client(Wired):
    """The client's side of a connection, which says events and hears bytes."""

    def __init__(self, listener: Listener) -> None:
        self.codec = listener.codec
        super().__init__(listener.factory.buildProtocol(None))
        self.name = b"user-%d" % listener.factory._named
        assert self.hears() == self.codec.encode(Hello(self.name))

    def tells(self, *events: Any) -> None:
        self.says(b"".join(map(self.codec.encode, events)))

    def code(self, *codes: int) -> bytes:
        return b"".join(self.codec.encode(Response(code)) for code in codes)

    def asks(self, event: Any, *codes: int) -> None:
        """It is answered so, and nothing else is said."""
        self.tells(event)
        assert self.hears() == self.code(*codes)

    def message(self, body: bytes = b"x", due: int = LATER, topic: bytes = b"t") -> Send:
        return Send(due, self.name, topic, body)

    def gets(self, *sent: Send) -> None:
        """What was sent is delivered, and nothing else."""
        assert self.hears() == b"".join(map(self.codec.encode, sent))


@pytest.fixture
def listener() -> Listener:
    return Listener().topic()


class TestCaptured:
    def test_the_flow_of_the_document(self) -> None:
        listener = Listener()
        listener.factory.new_name = lambda: "yyz"  # type: ignore[method-assign]
        listener.clock.rightNow = vectors.DUE - 1.0
        yyz = Wired(listener.factory.buildProtocol(None))
        said = [data for who, data in vectors.CONVERSATIONS["flow"] if who == "C"]
        yyz.says(b"".join(said))
        heard = [data for who, data in vectors.CONVERSATIONS["flow"] if who == "S"]
        assert yyz.hears() == b"".join(heard)

    def test_the_transcript_of_the_public_server(self) -> None:
        """A's side, and what B, who joins between the fourth answer and the message, hears."""
        listener = Listener("upstream")
        listener.factory._run, listener.factory._named = "user-1794978250", 4
        listener.clock.rightNow = 1794978250.0
        a, b = (Wired(listener.factory.buildProtocol(None)) for _ in range(2))
        assert b.hears() == bytes.fromhex("03 00000011 757365722d313739343937383235302d36")
        lines = upstream_vectors.CONVERSATIONS["captured"]
        for at, (who, data) in enumerate(lines):
            if at == 9:
                b.says(bytes.fromhex("01 0000000c 0a 00000007 646a6962757469"))
                assert b.hears() == bytes.fromhex("14 00000000")
            if who == "C":
                a.says(data)
            else:
                assert a.hears() == data
        assert b.hears() == lines[9][1]


class TestNames:
    def test_no_name_is_given_twice(self) -> None:
        world = World()
        factories = [Sk2mqFactory(world.broker, accounts(), world.clock) for _ in range(3)]
        names = {factory.new_name() for factory in factories for _ in range(100)}
        assert len(names) == 300
        assert all(name.startswith(f"user-{int(NOW)}-") for name in names)

    def test_a_client_must_use_its_own(self, listener: Listener) -> None:
        first, second = listener.connect(), listener.connect()
        second.asks(first.message(), wire.BADCLIENT)
        second.asks(Send(LATER, b"", b"t", b"x"), wire.BADCLIENT)
        second.asks(second.message(), wire.OK)


@BOTH
class TestTopics:
    @pytest.fixture
    def listener(self, dialect: str) -> Listener:
        return Listener(dialect)

    def test_create_makes_one_once_and_does_not_join(self, listener: Listener) -> None:
        client = listener.connect()
        client.asks(Create(b"t"), wire.OK)
        client.asks(Create(b"t"), wire.FOUND)
        other = listener.connect()
        other.asks(Create(b"t"), wire.FOUND)
        other.asks(other.message(), wire.OK)
        assert client.hears() == b""

    def test_create_leaves_alone_what_another_protocol_made(self, listener: Listener) -> None:
        listener.broker.declare("topic:t", limit=5)
        listener.connect().asks(Create(b"t"), wire.FOUND)
        assert listener.broker.info("topic:t").options["limit"] == 5

    @pytest.mark.parametrize("event", [Join(b"t"), Quit(b"t")])
    def test_a_missing_topic_is_not_found(self, listener: Listener, event: Any) -> None:
        listener.connect().asks(event, wire.NOTFOUND)

    def test_to_quit_what_one_has_not_joined_is_ok(self, listener: Listener) -> None:
        listener.topic().connect().asks(Quit(b"t"), wire.OK)

    def test_a_member_that_quit_hears_no_more(self, listener: Listener) -> None:
        member, client = listener.topic().member(), listener.connect()
        member.asks(Quit(b"t"), wire.OK)
        client.asks(client.message(), wire.OK)
        assert member.hears() == b""

    def test_to_join_twice_brings_no_second_backlog_and_no_second_copy(
        self, listener: Listener
    ) -> None:
        client = listener.topic().connect()
        sent = client.message()
        client.asks(sent, wire.OK)
        member = listener.connect()
        member.tells(Join(b"t"), Join(b"t"))
        assert member.hears() == (
            member.code(wire.OK) + member.codec.encode(sent) + member.code(wire.OK)
        )
        client.asks(sent, wire.OK)
        member.gets(sent)

    def test_to_join_again_after_quit_brings_the_whole_backlog(self, listener: Listener) -> None:
        client, member = listener.topic().connect(), listener.member()
        sent = client.message()
        client.asks(sent, wire.OK)
        member.gets(sent)
        member.asks(Quit(b"t"), wire.OK)
        member.tells(Join(b"t"))
        assert member.hears() == member.code(wire.OK) + member.codec.encode(sent)

    def test_one_client_may_join_many(self, listener: Listener) -> None:
        member = listener.topic(b"a").topic(b"b").member(b"a")
        member.asks(Join(b"b"), wire.OK)
        client = listener.connect()
        first, second = client.message(topic=b"a"), client.message(topic=b"b")
        client.tells(first, second)
        member.gets(first, second)

    @pytest.mark.parametrize("topic", [b"", b" ", b"%", b"%20", b"\0\xff", b"x" * 70_000, b"T"])
    def test_any_bytes_are_a_name(self, listener: Listener, topic: bytes) -> None:
        client = listener.topic(b"t").connect()
        client.asks(Create(topic), wire.OK)
        client.asks(Create(topic), wire.FOUND)
        member = listener.member(topic)
        sent = client.message(topic=topic)
        client.asks(sent, wire.OK)
        member.gets(sent)

    def test_who_hangs_up_leaves_all_topics(self, listener: Listener) -> None:
        listener.topic().member().hangs_up()
        assert listener.broker.info("topic:t").consumers == 0

    def test_topics_are_shared_with_other_protocols(self, listener: Listener) -> None:
        """What another protocol publishes comes with a due time, whatever it said itself."""
        member = listener.topic("żółw".encode()).member("żółw".encode())
        for due in (None, NOW + 0.5, 1e12):
            listener.broker.publish(Message("topic:żółw", b"x", "bob", "other", due=due))
        member.gets(
            *(
                Send(due, b"bob", "żółw".encode(), b"x")
                for due in (0xFFFFFFFF, int(NOW) + 1, 0xFFFFFFFF)
            )
        )


class TestSend:
    @BOTH
    def test_every_member_gets_it_with_its_author_and_due_time(self, dialect: str) -> None:
        listener = Listener(dialect).topic()
        members = [listener.member() for _ in range(3)]
        client = listener.connect()
        sent = client.message(b"hello")
        client.asks(sent, wire.OK)
        for member in members:
            member.gets(sent)

    def test_the_author_hears_himself_before_his_response(self, listener: Listener) -> None:
        author = listener.member()
        sent = author.message()
        author.tells(sent)
        assert author.hears() == author.codec.encode(sent) + author.code(wire.OK)

    @pytest.mark.parametrize(
        "given", [{"dialect": "seed", "echo_own": False}, {"dialect": "upstream"}]
    )
    def test_or_does_not_but_in_a_backlog(self, given: dict[str, Any]) -> None:
        listener = Listener(**given).topic()
        author, member = listener.member(), listener.member()
        sent = author.message()
        author.asks(sent, wire.OK)
        member.gets(sent)
        author.asks(Quit(b"t"), wire.OK)
        author.tells(Join(b"t"))
        assert author.hears() == author.code(wire.OK) + author.codec.encode(sent)

    def test_an_empty_message_is_one(self, listener: Listener) -> None:
        member, client = listener.member(), listener.connect()
        sent = client.message(b"")
        client.asks(sent, wire.OK)
        member.gets(sent)

    def test_upstream_accepts_one_and_keeps_it_from_libraries_that_it_would_end(self) -> None:
        listener = Listener("upstream").topic()
        member, client = listener.member(), listener.connect()
        client.asks(client.message(b""), wire.OK)
        assert member.hears() == b""
        listener.member()  # gets no backlog
        assert len(listener.broker.retained("topic:t")) == 1

    @pytest.mark.parametrize("due", [0, 1, int(NOW) - 1, int(NOW)])
    def test_what_is_due_is_in_the_past(self, listener: Listener, due: int) -> None:
        member, client = listener.member(), listener.connect()
        client.asks(client.message(due=due), wire.INPAST)
        assert member.hears() == b""
        assert listener.broker.retained("topic:t") == []

    @pytest.mark.parametrize("extra_codes", [False, True])
    def test_upstream_says_ok_and_drops_it(self, extra_codes: bool) -> None:
        listener = Listener("upstream", extra_codes=extra_codes).topic()
        member, client = listener.member(), listener.connect()
        client.asks(client.message(due=int(NOW)), wire.INPAST if extra_codes else wire.OK)
        assert member.hears() == b""
        assert ACCEPTED not in listener.world.kinds()

    def test_the_due_time_is_unsigned(self, listener: Listener) -> None:
        client = listener.connect()
        sent = client.message(due=0xFFFFFFFF)
        client.asks(sent, wire.OK)
        listener.clock.advance(1_000_000_000)
        member = listener.connect()
        member.tells(Join(b"t"))
        assert member.hears() == member.code(wire.OK) + member.codec.encode(sent)

    @pytest.mark.parametrize(
        ("dialect", "expected"),
        [
            ("seed", [wire.BADCLIENT, wire.BADCLIENT, wire.NOTFOUND, wire.INPAST]),
            ("upstream", [wire.NOTFOUND, wire.BADCLIENT, wire.NOTFOUND, wire.OK]),
        ],
    )
    def test_the_order_of_checks(self, dialect: str, expected: list[int]) -> None:
        """Each message is wrong in all that is left of: client, topic, due time."""
        client = Listener(dialect).topic().connect()
        client.tells(
            Send(0, b"lax", b"nope", b"x"),
            Send(0, b"lax", b"t", b"x"),
            Send(0, client.name, b"nope", b"x"),
            Send(0, client.name, b"t", b"x"),
        )
        assert client.hears() == client.code(*expected)

    def test_a_message_is_a_record_with_its_author(self, listener: Listener) -> None:
        client = listener.connect()
        client.asks(client.message(b"hello"), wire.OK)
        listener.world.kinds()
        (record,) = [each for each in listener.world.records if each.kind == ACCEPTED]
        assert (record.address, record.body) == ("topic:t", b"hello")
        assert (record.sender, record.protocol, record.due) == ("user-1", "sk2mq", LATER)

    def test_it_is_encoded_once_for_all_members(
        self, listener: Listener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        members = [listener.member() for _ in range(50)]
        client = listener.connect()
        packets: list[Message] = []
        encode: Callable[[Message], bytes] = listener.factory.packet

        def count(message: Message) -> bytes:
            packets.append(message)
            return encode(message)

        monkeypatch.setattr(listener.factory, "packet", count)
        client.tells(client.message(b"a"), client.message(b"b"))
        assert len(packets) == 2
        for member in members:
            member.gets(client.message(b"a"), client.message(b"b"))


class TestBacklog:
    def backlog(self, listener: Listener, dues: list[int]) -> list[bytes]:
        """The bodies, which are numbers, in the order in which a new member gets them."""
        client = listener.topic().connect()
        for number, due in enumerate(dues):
            client.asks(client.message(b"%d" % number, due), wire.OK)
        member = listener.connect()
        member.tells(Join(b"t"))
        heard = member.hears()
        code = member.code(wire.OK)
        assert heard.startswith(code)
        return [delivery.message for delivery in decoded(listener, heard[len(code) :])]

    def test_it_comes_in_order_of_arrival(self) -> None:
        dues = [LATER + 5, LATER, LATER + 5, LATER + 9, LATER]
        assert self.backlog(Listener(), dues) == [b"0", b"1", b"2", b"3", b"4"]

    def test_upstream_sends_the_first_due_first_and_of_equal_ones_the_newest(self) -> None:
        dues = [LATER + 5, LATER, LATER + 9, LATER + 5, LATER + 5]
        assert self.backlog(Listener("upstream"), dues) == [b"1", b"4", b"3", b"0", b"2"]

    @BOTH
    def test_a_message_is_kept_until_its_second_and_not_longer(self, dialect: str) -> None:
        listener = Listener(dialect)
        assert self.backlog(listener, [LATER, LATER + 1]) in ([b"0", b"1"], [b"1", b"0"])
        listener.clock.advance(9.9)
        assert len(self.backlog(listener, [])) == 2
        listener.clock.advance(0.1)
        assert self.backlog(listener, []) == [b"1"]
        assert listener.world.kinds().count(EXPIRED) == 1

    def test_it_is_sent_as_fast_as_the_member_reads(self, listener: Listener) -> None:
        client = listener.connect()
        for number in range(40):
            client.asks(client.message(b"%02d" % number + bytes(1 << 16)), wire.OK)
        member = BusyMember(listener)
        client.asks(client.message(b"live"), wire.OK)
        while member.protocol.outbox.blocked:
            assert len(member.transport.value()) < 2 * CHUNK
            member.reads()
        assert [each.message[:2] for each in member.got()] == [
            *(b"%02d" % number for number in range(40)),
            b"li",
        ]
        assert member.times > 5

    @pytest.fixture
    def busy(self) -> BusyMember:
        """One that has not read the first of three messages yet; the second is due next."""
        listener = Listener(max_unread_bytes=1 << 16).topic()
        client = listener.connect()
        for body, due in ((b"a", LATER + 100), (b"b", LATER), (b"c", LATER + 100)):
            client.asks(client.message(body * CHUNK, due), wire.OK)
        return BusyMember(listener)

    def test_what_is_due_meanwhile_is_left_out(self, busy: BusyMember) -> None:
        busy.listener.clock.advance(10)
        busy.reads()
        busy.reads()
        assert [each.message[:1] for each in busy.got()] == [b"a", b"c"]

    def test_quit_ends_it(self, busy: BusyMember) -> None:
        busy.tells(Quit(b"t"))
        busy.reads()
        assert busy.hears() == busy.code(wire.OK)
        assert [each.message[:1] for each in busy.got()] == [b"a"]

    def test_too_much_behind_it_is_too_much(self, busy: BusyMember) -> None:
        client = busy.listener.connect()
        client.asks(client.message(bytes(1 << 16)), wire.OK)
        assert not busy.transport.aborted
        client.asks(client.message(b"x"), wire.OK)
        assert busy.transport.aborted


class BusyMember(Client):
    """One that joins, and whose transport has enough, as a real one has, after 64 KiB."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self.listener = listener
        self.times = 0  # it has read
        self._heard = b""
        write = self.transport.write

        def write_and_block(data: bytes) -> None:
            write(data)
            if len(data) > 1 << 16:
                self.protocol.outbox.pauseProducing()

        self.transport.write = write_and_block
        self.tells(Join(b"t"))

    def reads(self) -> None:
        self.times += 1
        self._heard += self.hears()
        self.protocol.outbox.resumeProducing()

    def got(self) -> list[Delivery]:
        data = self._heard + self.hears()
        return decoded(self.listener, data.removeprefix(self.code(wire.OK)))


def decoded(listener: Listener, data: bytes) -> list[Delivery]:
    """The deliveries in the bytes, and nothing else is in them."""
    found = []
    while data:
        cut = wire.cut(data, 0)
        assert isinstance(cut, tuple)
        event = listener.codec.decode_server(wire.State.OPEN, cut[0])
        assert isinstance(event, Delivery)
        found.append(event)
        data = data[cut[1] :]
    return found


class TestDisk:
    def test_ok_means_on_disk(self) -> None:
        writer = HeldWriter()
        listener = Listener(world=World(DurableMemory(), writer.run))
        client = listener.connect()
        for event in (Create(b"t"), client.message()):
            client.tells(event)
            listener.clock.advance(0)
            assert client.hears() == b""
            while writer.jobs:
                writer.write()
            assert client.hears() == client.code(wire.OK)

    def test_members_need_not_wait_for_it(self) -> None:
        listener = Listener(world=World(DurableMemory(), HeldWriter().run)).topic()
        member, client = listener.member(), listener.connect()
        client.tells(client.message())
        member.gets(client.message())
        assert client.hears() == b""

    def test_a_disk_that_fails_is_a_server_error(self) -> None:
        writer = HeldWriter()
        listener = Listener(world=World(DurableMemory(), writer.run)).topic()
        client = listener.connect()
        client.tells(client.message())
        listener.clock.advance(0)
        writer.fail(OSError("no space left"))
        assert client.hears() == client.code(wire.SERVERERROR)
        client.asks(client.message(), wire.SERVERERROR)

    @BOTH
    def test_topics_and_what_is_not_due_survive_a_restart(
        self, dialect: str, tmp_path: Path
    ) -> None:
        listener = Listener(dialect, World(SqliteStore(tmp_path, "FULL", Retention())))
        client = listener.connect()
        kept = [client.message(b"a", LATER + 90), client.message(b"b", LATER + 90, b"")]
        client.tells(*map(Create, (b"t", b"", b"\xff")), client.message(b"early"), *kept)
        listener.clock.advance(0)
        assert client.hears() == client.code(wire.OK) * 6
        listener.broker.stopService()
        again = Listener(dialect, World(SqliteStore(tmp_path, "FULL", Retention()), later=50))
        member = again.connect()
        member.asks(Create(b"\xff"), wire.FOUND)
        for topic, sent in zip((b"t", b""), kept, strict=True):
            member.tells(Join(topic))
            assert member.hears() == member.code(wire.OK) + member.codec.encode(sent)
        again.broker.stopService()


class TestBadInput:
    """facts, section 4: what ended the public server, and worse."""

    @pytest.mark.parametrize(
        "data",
        [pytest.param(row[2], id=row[0]) for row in vectors.REJECTED_FROM_CLIENT],
    )
    def test_it_is_a_bad_packet_and_the_next_one_is_answered(
        self, listener: Listener, data: bytes
    ) -> None:
        member, client = listener.member(), listener.connect()
        client.says(data)
        assert client.hears() == client.code(wire.BADPACKET)
        if len(data) == 5 and data[1:] != bytes(4):  # over the limit, so nothing can follow
            assert client.transport.is_closed
        else:
            client.asks(Join(b"t"), wire.OK)
        assert member.hears() == b""
        listener.connect().asks(Join(b"t"), wire.OK)
        assert listener.broker.counts["bugs", "sk2mq"] == 0

    @pytest.mark.parametrize("extra_codes", [False, True])
    @pytest.mark.parametrize(
        "data",
        [pytest.param(row[2], id=row[0]) for row in upstream_vectors.REJECTED_FROM_CLIENT],
    )
    def test_upstream_says_so_only_if_it_may(self, data: bytes, extra_codes: bool) -> None:
        listener = Listener("upstream", extra_codes=extra_codes).topic()
        client = listener.connect()
        client.says(data)
        assert client.hears() == (client.code(wire.BADPACKET) if extra_codes else b"")
        if data[1:5] == b"\xff\xff\xff\xff":
            assert client.transport.is_closed
        else:
            client.asks(Join(b"t"), wire.OK)

    def test_the_limit_is_a_setting(self) -> None:
        client = Listener(max_body_bytes=64).topic().connect()
        size = 64 - 16 - len(client.name) - 1
        client.asks(client.message(bytes(size)), wire.OK)
        client.asks(client.message(bytes(size + 1)), wire.BADPACKET)
        assert client.transport.is_closed

    def test_a_connection_that_goes_at_once_hurts_nobody(self, listener: Listener) -> None:
        listener.connect().hangs_up()
        listener.connect().asks(Join(b"t"), wire.OK)

    def test_an_unfinished_packet_has_its_time(self, listener: Listener) -> None:
        client = listener.connect()
        client.says(b"\0\0\0\0\x1f" + bytes(5))
        listener.clock.advance(59)
        assert client.transport.connected
        listener.clock.advance(1)
        assert not client.transport.connected

    def test_requests_may_come_in_any_pieces(self, listener: Listener) -> None:
        client = listener.connect()
        requests = [Join(b"t"), client.message(), Quit(b"t"), Quit(b"nope")]
        for byte in b"".join(map(client.codec.encode, requests)):
            client.says(bytes([byte]))
        assert client.hears() == (
            client.code(wire.OK)
            + client.codec.encode(requests[1])
            + client.code(wire.OK, wire.OK, wire.NOTFOUND)
        )

    def test_a_member_that_does_not_read_is_dropped_and_the_others_are_served(self) -> None:
        listener = Listener(max_unread_bytes=1 << 16).topic()
        idle, member, client = listener.member(), listener.member(), listener.connect()
        idle.protocol.outbox.pauseProducing()
        for _ in range(3):
            sent = client.message(bytes(30_000))
            client.asks(sent, wire.OK)
            member.gets(sent)
        assert idle.transport.aborted
        assert listener.broker.info("topic:t").consumers == 1
        assert listener.broker.counts["refused", "sk2mq", "does not read"] == 1

    @BOTH
    def test_any_bytes_at_any_time_break_nothing(self, dialect: str) -> None:
        rows = (vectors if dialect == "seed" else upstream_vectors).FROM_CLIENT
        true = st.sampled_from([row[2] for row in rows])
        pieces = st.lists(st.one_of(st.binary(max_size=40), true), max_size=10)

        @settings(max_examples=150, deadline=None)
        @given(pieces)
        def check(pieces: list[bytes]) -> None:
            listener = Listener(dialect).topic()
            client = listener.connect()
            for piece in pieces:
                if client.transport.connected:
                    client.says(piece)
            listener.clock.advance(100)
            assert listener.broker.counts["bugs", "sk2mq"] == 0

        check()


def test_a_queue_is_no_topic(listener: Listener) -> None:
    """The kinds are apart: a queue of that name is not found."""
    listener.broker.declare("queue:q")
    listener.connect().asks(Join(b"q"), wire.NOTFOUND)
    with pytest.raises(NoSuchAddress):
        listener.broker.info("topic:q")
