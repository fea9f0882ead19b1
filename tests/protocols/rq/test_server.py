"""Tests for protocols.rq.server, spoken in bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.interfaces import Message
from gateway.policies import ConnectionLimit
from gateway.record import (
    ACCEPTED,
    DELIVERED,
    DROPPED,
    EXPIRED,
    REPLIED,
    RETURNED,
    SETTLED,
    TAKEN,
)
from gateway.store import Retention, SqliteStore
from protocols.qlite.server import QliteFactory
from protocols.rq import wire
from protocols.rq.server import RqFactory
from protocols.rq.wire import (
    Announcement,
    Broadcast,
    Cancel,
    Consume,
    Consuming,
    Delivered,
    Reply,
    Request,
    Task,
    Undelivered,
)
from tests.protocols.qlite import test_server as qlite
from tests.support import DurableMemory, HeldWriter, Wired, World, accounts

pytestmark = pytest.mark.usefixtures("nothing_breaks")

CLOSING, PING, PONG = b"\x16", b"\x05", b"\x06"


def bytes_of(*events: Any) -> bytes:
    return b"".join(map(wire.encode, events))


class Node(Wired):
    """A node that says events, and is asked what it heard."""

    def tells(self, *events: Any) -> None:
        self.says(bytes_of(*events))

    def is_told(self, *events: Any) -> None:
        """It has heard exactly this since it was last asked."""
        assert self.hears() == bytes_of(*events)


class Listener:
    def __init__(self, world: World | None = None, **settings: Any) -> None:
        self.world = world or World()
        self.clock = self.world.clock
        self.broker = self.world.broker
        self.factory = RqFactory(self.broker, accounts(), self.clock, **settings)
        self.factory.started()

    def connect(self) -> Node:
        return Node(self.factory.buildProtocol(None))

    def consumer(self, queue: bytes = b"q", **options: Any) -> Node:
        """One that has been told CONSUMING and nothing else; the queue is the first."""
        node = self.connect()
        node.tells(Consume(queue, **options))
        node.is_told(Consuming(1, queue))
        return node

    def about_messages(self) -> list[str]:
        about = {ACCEPTED, DELIVERED, TAKEN, SETTLED, REPLIED, RETURNED, EXPIRED, DROPPED}
        return [kind for kind in self.world.kinds() if kind in about]

    def dropped(self) -> list[str]:
        self.world.clock.advance(0)
        return [record.reason for record in self.world.records if record.kind == DROPPED]


@pytest.fixture
def listener() -> Listener:
    return Listener()


class TestRequest:
    def test_a_request_and_its_reply_in_bytes(self, listener: Listener) -> None:
        """The examples of section 7, but for the delivery id: ours begin with 1."""
        consumer, requester = listener.connect(), listener.connect()
        consumer.says(bytes.fromhex("01 a00171 620005 4014 14"))
        assert consumer.hears() == bytes.fromhex("01 600001 a00171 18")
        requester.says(bytes.fromhex("01 8000000007 a00171 e000000003616263 0a"))
        assert consumer.hears() == bytes.fromhex("01 600001 e000000003616263 8000000001 0a")
        assert requester.hears() == b""
        consumer.says(bytes.fromhex("01 8000000001 0d"))
        assert requester.hears() == bytes.fromhex("01 8000000007 0d")
        consumer.says(bytes.fromhex("01 8000000001 e00000000378797a 0b"))
        assert requester.hears() == bytes.fromhex("01 8000000007 e00000000378797a 0b")
        assert consumer.hears() == b""
        assert listener.about_messages() == [ACCEPTED, DELIVERED, REPLIED, SETTLED]

    def test_byte_by_byte_it_is_the_same(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        for byte in bytes_of(Request(7, b"q", b"abc")):
            requester.says(bytes([byte]))
        consumer.is_told(Task(1, 1, b"abc"))
        for byte in bytes_of(Delivered(1), Reply(1, b"xyz")):
            consumer.says(bytes([byte]))
        requester.is_told(Delivered(7), Reply(7, b"xyz"))

    def test_a_reply_without_delivered_has_one_made_for_it(self, listener: Listener) -> None:
        """librq aborts at a REPLY that no DELIVERED came before."""
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"abc"))
        consumer.tells(Reply(1, b"xyz"))
        requester.is_told(Delivered(7), Reply(7, b"xyz"))

    def test_delivered_is_said_once(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"abc"))
        consumer.tells(Delivered(1), Delivered(1), Reply(1, b"x"), Delivered(1), Reply(1, b"x"))
        requester.is_told(Delivered(7), Reply(7, b"x"))

    def test_replies_may_come_in_any_order(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(*[Request(number, b"q", b"%d" % number) for number in (0, 1, 2)])
        consumer.tells(Reply(3, b"c"), Reply(1, b"a"), Reply(2, b"b"))
        requester.is_told(
            *(Delivered(2), Reply(2, b"c"), Delivered(0)),
            *(Reply(0, b"a"), Delivered(1), Reply(1, b"b")),
        )

    @pytest.mark.parametrize("number", [0, 0x7FFF, 0x8000, 0x12345, 0x80000000, 0xFFFFFFFF])
    def test_a_requesters_id_comes_back_as_it_was(self, listener: Listener, number: int) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(number, b"q", b"a"))
        consumer.tells(Delivered(1), Reply(1, b"b"))
        requester.is_told(Delivered(number), Reply(number, b"b"))

    def test_two_requests_of_one_id_are_two(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"a"), Request(7, b"q", b"b"))
        consumer.is_told(Task(1, 1, b"a"), Task(2, 1, b"b"))
        consumer.tells(Reply(1, b"A"), Reply(2, b"B"))
        requester.is_told(Delivered(7), Reply(7, b"A"), Delivered(7), Reply(7, b"B"))

    def test_a_queue_may_be_named_by_its_id(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"", b"a", queue_id=1))
        consumer.is_told(Task(1, 1, b"a"))

    def test_the_name_beats_the_id(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.says(b"\x01\x80\0\0\0\x07\x60\0\x63\xa0\x01q\xe0\0\0\0\x01a\x0a")
        consumer.is_told(Task(1, 1, b"a"))
        assert requester.hears() == b""

    def test_it_waits_for_a_consumer_and_comes_after_consuming(self, listener: Listener) -> None:
        requester, consumer = listener.connect(), listener.connect()
        requester.tells(Request(1, b"q", b"a"), Request(2, b"q", b"b"))
        assert requester.hears() == b""
        consumer.tells(Consume(b"q"))
        consumer.is_told(Consuming(1, b"q"), Task(1, 1, b"a"), Task(2, 1, b"b"))

    def test_an_empty_reply_has_an_empty_payload(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"a"))
        consumer.says(bytes.fromhex("01 8000000001 0b"))
        assert requester.hears() == bytes.fromhex("01 8000000007 0d 01 8000000007 e000000000 0b")

    def test_one_node_may_ask_itself(self, listener: Listener) -> None:
        node = listener.consumer()
        node.tells(Request(7, b"q", b"a"))
        node.is_told(Task(1, 1, b"a"))
        node.tells(Delivered(1), Reply(1, b"b"))
        node.is_told(Delivered(7), Reply(7, b"b"))

    @pytest.mark.parametrize(
        "wrong",
        [
            Request(7, b"", b"a", queue_id=99),
            Request(7, b"", b"a", queue_id=2),  # the topic that broadcasts go through
            Request(7, b"a\0b", b"a"),
            Request(7, b"q", b""),
        ],
        ids=["unknown-id", "no-queues-id", "name-with-nul", "empty"],
    )
    def test_what_cannot_be_delivered_is_undelivered(
        self, listener: Listener, wrong: Request
    ) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(wrong)
        requester.is_told(Undelivered(7))
        requester.says(b"\x01\x80\0\0\0\x08\xe0\0\0\0\x01a\x0a")  # no queue at all
        requester.is_told(Undelivered(8))
        assert consumer.hears() == b""
        assert requester.transport.connected

    def test_empty_payloads_are_an_option(self) -> None:
        listener = Listener(emptyPayloads=True)
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b""))
        consumer.is_told(Task(1, 1, b""))

    def test_a_full_queue_is_undelivered(self) -> None:
        listener = Listener(maxMessages=1)
        requester = listener.connect()
        requester.tells(Request(1, b"q", b"a"), Request(2, b"q", b"b"))
        requester.is_told(Undelivered(2))

    def test_large_payloads_pass(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"a" * 200_000))
        consumer.is_told(Task(1, 1, b"a" * 200_000))
        consumer.tells(Reply(1, b"b" * 150_000))
        requester.is_told(Delivered(7), Reply(7, b"b" * 150_000))


class TestNoReply:
    def test_it_is_delivered_when_it_is_accepted(self, listener: Listener) -> None:
        requester = listener.connect()
        requester.tells(Request(7, b"q", b"a", noreply=True))
        requester.is_told(Delivered(7))

    def test_but_not_before_it_is_on_disk(self) -> None:
        writer = HeldWriter()
        listener = Listener(World(DurableMemory(), writer.run))
        requester = listener.connect()
        requester.tells(Request(7, b"q", b"a", noreply=True))
        listener.clock.advance(0)
        assert requester.hears() == b""
        while writer.jobs:
            writer.write()
        requester.is_told(Delivered(7))

    def test_the_consumers_delivered_ends_it(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(maximum=1), listener.connect()
        requester.tells(*[Request(n, b"q", b"%d" % n, noreply=True) for n in (1, 2)])
        requester.is_told(Delivered(1), Delivered(2))
        consumer.is_told(Task(1, 1, b"1", noreply=True))
        consumer.tells(Delivered(1))
        consumer.is_told(Task(2, 1, b"2", noreply=True))
        consumer.tells(Delivered(2))
        assert requester.hears() == b""
        assert listener.broker.info("queue:q").outstanding == 0

    def test_a_reply_to_it_goes_nowhere(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"a", noreply=True))
        requester.hears()
        consumer.tells(Reply(1, b"b"), Reply(1, b"b"))
        assert requester.hears() == b""
        assert listener.broker.info("queue:q").outstanding == 0

    def test_it_outlives_its_requester(self, listener: Listener) -> None:
        requester = listener.connect()
        requester.tells(Request(7, b"q", b"a", noreply=True))
        requester.hangs_up()
        consumer = listener.connect()
        consumer.tells(Consume(b"q"))
        consumer.is_told(Consuming(1, b"q"), Task(1, 1, b"a", noreply=True))


class TestConsume:
    def test_max_bounds_what_is_unanswered(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(maximum=2), listener.connect()
        requester.tells(*[Request(n, b"q", b"%d" % n) for n in range(4)])
        consumer.is_told(Task(1, 1, b"0"), Task(2, 1, b"1"))
        consumer.tells(Delivered(1))  # which frees nothing
        assert consumer.hears() == b""
        consumer.tells(Reply(1, b""))
        consumer.is_told(Task(3, 1, b"2"))

    def test_the_highest_priority_is_served_first_and_equals_in_turn(
        self, listener: Listener
    ) -> None:
        low = listener.consumer(priority=10)
        high = [listener.consumer(priority=30, maximum=2) for _ in range(2)]
        requester = listener.connect()
        requester.tells(*[Request(n, b"q", b"%d" % n) for n in range(5)])
        high[0].is_told(Task(1, 1, b"0"), Task(2, 1, b"2"))
        high[1].is_told(Task(1, 1, b"1"), Task(2, 1, b"3"))
        low.is_told(Task(1, 1, b"4"))

    def test_priority_none_hears_broadcasts_only(self, listener: Listener) -> None:
        consumer, other = listener.consumer(priority=0), listener.connect()
        other.tells(Request(7, b"q", b"a"), Broadcast(b"q", b"news"))
        consumer.is_told(Announcement(1, b"news"))

    def test_to_consume_again_changes_the_numbers_and_is_answered(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(maximum=1, priority=10), listener.connect()
        requester.tells(*[Request(n, b"q", b"%d" % n) for n in range(4)])
        consumer.is_told(Task(1, 1, b"0"))
        consumer.tells(Consume(b"q", 3, 30))
        consumer.is_told(Consuming(1, b"q"), Task(2, 1, b"1"), Task(3, 1, b"2"))
        rival = listener.connect()
        rival.tells(Consume(b"q"))
        rival.is_told(Consuming(1, b"q"), Task(1, 1, b"3"))
        consumer.tells(Reply(1, b"x"))
        requester.tells(Request(9, b"q", b"9"))
        consumer.is_told(Task(4, 1, b"9"))

    def test_ids_of_queues_stay(self, listener: Listener) -> None:
        listener.consumer(b"first").hangs_up()
        second = listener.connect()
        second.tells(Consume(b"second"))
        assert second.hears() != bytes_of(Consuming(1, b"second"))
        listener.consumer(b"first")

    def test_a_later_queue_of_a_connection_goes_by_its_name(self, listener: Listener) -> None:
        """librq dies of the id of any queue but its first."""
        consumer, requester = listener.consumer(b"q"), listener.connect()
        consumer.tells(Consume(b"r"))
        consumer.is_told(Consuming(listener.broker.info("queue:r").number, b"r"))
        requester.tells(Request(1, b"r", b"a"), Request(2, b"q", b"b"))
        consumer.is_told(Task(1, 0, b"a", queue=b"r"), Task(2, 1, b"b"))

    def test_nothing_comes_while_an_earlier_consume_is_not_answered(
        self, listener: Listener
    ) -> None:
        """librq aborts."""
        holder = listener.consumer(b"q", exclusive=True)
        consumer, requester = listener.connect(), listener.connect()
        consumer.tells(Consume(b"q"), Consume(b"r"))
        consumer.is_told(Consuming(listener.broker.info("queue:r").number, b"r"))
        requester.tells(Request(1, b"r", b"a"))
        assert consumer.hears() == b""
        holder.hangs_up()
        consumer.is_told(Consuming(1, b"q"), Task(1, 0, b"a", queue=b"r"))

    def test_delivery_ids_stay_in_15_bits_and_skip_those_in_flight(
        self, listener: Listener
    ) -> None:
        consumer, requester = listener.consumer(maximum=2), listener.connect()
        requester.tells(Request(0, b"q", b"stays"))
        consumer.hears()
        for number in range(2, 0x8000):
            requester.tells(Request(1, b"q", b"a"))
            assert consumer.hears()[-6:] == b"\x80" + number.to_bytes(4, "big") + b"\x0a"
            consumer.tells(Reply(number, b"b"))
        requester.tells(Request(1, b"q", b"a"))
        consumer.is_told(Task(2, 1, b"a"))

    def test_a_consumer_never_has_more_than_there_are_ids(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        for _ in range(33):
            requester.tells(*[Request(0, b"q", b"a")] * 1000)
        assert consumer.hears().count(b"\x0a") >= 0x7FFF
        assert listener.broker.info("queue:q")[3:5] == (33_000 - 0x7FFF, 0x7FFF)
        consumer.tells(Reply(5, b"x"))
        consumer.is_told(Task(5, 1, b"a"))

    def test_a_consumer_that_does_not_read_is_handed_no_more(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        consumer.protocol.outbox.pauseProducing()
        requester.tells(*[Request(0, b"q", b"a")] * 5)
        assert listener.broker.info("queue:q").depth == 5
        consumer.protocol.outbox.resumeProducing()
        assert len(consumer.hears()) == 5 * len(bytes_of(Task(1, 1, b"a")))

    def test_a_long_backlog_does_not_overflow(self, listener: Listener) -> None:
        requester, consumer = listener.connect(), listener.connect()
        requester.tells(*[Request(0, b"q", b"a" * 10_000)] * 500)
        consumer.tells(Consume(b"q"))
        assert consumer.transport.connected
        assert listener.broker.info("queue:q").depth == 0

    def test_names_are_any_bytes(self, listener: Listener) -> None:
        consumer = listener.connect()
        for name in (b"\xff\x01", b"n" * 255, "kolejka żółwi".encode()):
            consumer.tells(Consume(name))
            assert name in consumer.hears()
        assert listener.broker.info("queue:%FF%01").consumers == 1


class TestExclusive:
    def test_whoever_comes_later_waits_in_silence_and_in_line(self, listener: Listener) -> None:
        holder = listener.consumer(exclusive=True)
        second, third = listener.connect(), listener.connect()
        second.tells(Consume(b"q", exclusive=True))
        third.tells(Consume(b"q"))
        requester = listener.connect()
        requester.tells(Request(7, b"q", b"a"), Broadcast(b"q", b"news"))
        holder.is_told(Task(1, 1, b"a"), Announcement(1, b"news"))
        assert second.hears() == third.hears() == b""
        holder.hangs_up()
        second.is_told(Consuming(1, b"q"), Task(1, 1, b"a"))
        assert third.hears() == b""
        second.tells(Reply(1, b"b"), Cancel(b"q"))
        third.is_told(Consuming(1, b"q"))

    def test_over_shared_consumers_it_waits_until_they_leave(self, listener: Listener) -> None:
        shared, exclusive, late = listener.consumer(), listener.connect(), listener.connect()
        exclusive.tells(Consume(b"q", exclusive=True))
        late.tells(Consume(b"q"))
        assert exclusive.hears() == late.hears() == b""
        shared.says(CLOSING)
        exclusive.is_told(Consuming(1, b"q"))
        assert late.hears() == b""

    def test_after_an_exclusive_one_all_shared_ones_come_in(self, listener: Listener) -> None:
        holder = listener.consumer(exclusive=True)
        waiting = [listener.connect() for _ in range(3)]
        for node in waiting:
            node.tells(Consume(b"q"))
        holder.hangs_up()
        for node in waiting:
            node.is_told(Consuming(1, b"q"))

    def test_a_waiter_that_cancels_is_out_of_the_line(self, listener: Listener) -> None:
        holder, waiter = listener.consumer(exclusive=True), listener.connect()
        waiter.tells(Consume(b"q"), Cancel(b"q"))
        holder.hangs_up()
        assert waiter.hears() == b""


class TestCancel:
    @pytest.mark.parametrize("cancel", [Cancel(b"q"), Cancel(queue_id=1)])
    def test_what_is_in_flight_may_still_be_answered(
        self, listener: Listener, cancel: Cancel
    ) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(1, b"q", b"a"))
        consumer.tells(cancel)
        requester.tells(Request(2, b"q", b"b"), Broadcast(b"q", b"news"))
        consumer.is_told(Task(1, 1, b"a"))
        consumer.tells(Delivered(1), Reply(1, b"A"))
        requester.is_told(Delivered(1), Reply(1, b"A"))
        consumer.tells(Consume(b"q"))
        consumer.is_told(Consuming(1, b"q"), Task(2, 0, b"b", queue=b"q"))

    def test_an_unknown_queue_is_ignored(self, listener: Listener) -> None:
        node = listener.connect()
        node.tells(Cancel(b"nobody"), Cancel(queue_id=77), Cancel(b"a\0b"))
        assert node.hears() == b""
        assert node.transport.connected


class TestGoneConsumer:
    def test_what_was_not_delivered_is_offered_again_at_the_head(self, listener: Listener) -> None:
        first, requester = listener.consumer(maximum=1), listener.connect()
        requester.tells(Request(1, b"q", b"a"), Request(2, b"q", b"b"))
        first.hangs_up()
        second = listener.connect()
        second.tells(Consume(b"q"))
        second.is_told(Consuming(1, b"q"), Task(1, 1, b"a"), Task(2, 1, b"b"))
        assert requester.hears() == b""
        listener.clock.advance(0)
        counts = [r.deliveries for r in listener.world.records if r.kind == DELIVERED]
        assert counts == [1, 2, 1]

    def test_what_was_delivered_is_undelivered(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"a"))
        consumer.tells(Delivered(1))
        consumer.hangs_up()
        requester.is_told(Delivered(7), Undelivered(7))
        assert listener.broker.info("queue:q").depth == 0
        assert listener.dropped() == ["consumer left"]

    def test_while_retries_remain_it_is_delivered_again(self, listener: Listener) -> None:
        requester = listener.connect()
        requester.tells(Request(7, b"q", b"a", retries=2))
        for _ in range(3):
            consumer = listener.connect()
            consumer.tells(Consume(b"q"))
            consumer.is_told(Consuming(1, b"q"), Task(1, 1, b"a"))
            consumer.tells(Delivered(1))
            consumer.hangs_up()
        requester.is_told(Delivered(7), Undelivered(7))

    def test_delivered_is_not_said_again(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"a", retries=1))
        consumer.tells(Delivered(1))
        consumer.hangs_up()
        second = listener.connect()
        second.tells(Consume(b"q"), Delivered(1), Reply(1, b"b"))
        second.tells(Delivered(1), Reply(1, b"b"))
        requester.is_told(Delivered(7), Reply(7, b"b"))

    def test_a_noreply_that_was_not_delivered_is_offered_again(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"a", noreply=True))
        consumer.hangs_up()
        assert listener.broker.info("queue:q").depth == 1


class TestRefusedByTheConsumer:
    def test_another_consumer_is_offered_it(self, listener: Listener) -> None:
        first, second, requester = listener.consumer(), listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"a"))
        first.is_told(Task(1, 1, b"a"))
        first.tells(Undelivered(1))
        second.is_told(Task(1, 1, b"a"))
        second.tells(Undelivered(1))
        requester.is_told(Undelivered(7))
        assert first.hears() == b""

    def test_alone_it_makes_the_request_undelivered_and_has_room_again(
        self, listener: Listener
    ) -> None:
        consumer, requester = listener.consumer(maximum=1), listener.connect()
        requester.tells(Request(7, b"q", b"a"), Request(8, b"q", b"b"))
        consumer.hears()
        consumer.tells(Undelivered(1))
        requester.is_told(Undelivered(7))
        consumer.is_told(Task(2, 1, b"b"))
        assert listener.dropped() == ["refused"]


class TestGoneRequester:
    def test_its_queued_requests_are_dropped_and_counted(self, listener: Listener) -> None:
        requester = listener.connect()
        requester.tells(Request(1, b"q", b"a"), Request(2, b"q", b"b"))
        requester.hangs_up()
        assert listener.broker.info("queue:q").depth == 0
        assert listener.broker.counts[DROPPED, "rq", "requester gone"] == 2
        listener.consumer()

    def test_late_answers_are_swallowed_and_free_the_slot(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(maximum=1), listener.connect()
        requester.tells(Request(7, b"q", b"a"))
        requester.hangs_up()
        consumer.is_told(Task(1, 1, b"a"))
        other = listener.connect()
        other.tells(Request(7, b"q", b"b"))
        consumer.tells(Delivered(1), Reply(1, b"x"))
        consumer.is_told(Task(2, 1, b"b"))
        assert other.hears() == b""

    def test_nobody_else_is_offered_what_it_asked(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"a", retries=9))
        requester.hangs_up()
        consumer.hangs_up()
        assert listener.broker.info("queue:q").depth == 0
        assert listener.dropped() == ["requester gone"]


class TestTimeout:
    def test_a_request_that_waits_too_long_is_undelivered(self, listener: Listener) -> None:
        requester = listener.connect()
        requester.tells(Request(7, b"q", b"a", timeout=10), Request(8, b"q", b"b"))
        listener.clock.advance(9.9)
        assert requester.hears() == b""
        listener.clock.advance(0.1)
        requester.is_told(Undelivered(7))
        consumer = listener.connect()
        consumer.tells(Consume(b"q"))
        consumer.is_told(Consuming(1, b"q"), Task(1, 1, b"b"))

    def test_a_late_answer_is_swallowed(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(maximum=1), listener.connect()
        requester.tells(Request(7, b"q", b"a", timeout=10), Request(8, b"q", b"b"))
        consumer.tells(Delivered(1))
        listener.clock.advance(10)
        requester.is_told(Delivered(7), Undelivered(7))
        consumer.tells(Reply(1, b"late"))
        assert requester.hears() == b""
        consumer.is_told(Task(1, 1, b"a"), Task(2, 1, b"b"))

    def test_an_answer_in_time_stops_the_clock(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"a", timeout=10))
        consumer.tells(Reply(1, b"b"))
        requester.hears()
        listener.clock.advance(14)
        assert requester.hears() == b""

    def test_a_noreply_goes_without_a_word(self, listener: Listener) -> None:
        requester = listener.connect()
        requester.tells(Request(7, b"q", b"a", noreply=True, timeout=10))
        requester.is_told(Delivered(7))
        listener.clock.advance(10)
        assert requester.hears() == b""
        assert listener.broker.info("queue:q").depth == 0


class TestBroadcast:
    def test_all_consumers_hear_it_and_nobody_else(self, listener: Listener) -> None:
        busy, free, other = listener.consumer(maximum=1), listener.consumer(), listener.connect()
        other.tells(Request(1, b"q", b"a"))
        assert busy.hears()
        other.says(bytes.fromhex("01 8000000000 a00171 e000000003616263 21 0e"))
        for node in (busy, free):
            assert node.hears() == bytes.fromhex("01 600001 e000000003616263 0e")
        assert other.hears() == b""

    def test_a_sender_that_consumes_hears_itself(self, listener: Listener) -> None:
        node = listener.consumer()
        node.tells(Broadcast(b"", b"me", 1))
        node.is_told(Announcement(1, b"me"))

    def test_nothing_is_kept(self, listener: Listener) -> None:
        node = listener.connect()
        node.tells(Broadcast(b"q", b"news"))
        late = listener.connect()
        late.tells(Consume(b"q"))
        late.is_told(Consuming(listener.broker.info("queue:q").number, b"q"))

    def test_it_is_in_the_log_and_other_protocols_may_hear_it(self, listener: Listener) -> None:
        listener.consumer()
        heard: list[Message] = []
        listener.broker.subscribe("topic:q", heard.append)
        listener.connect().tells(Broadcast(b"q", b"news"))
        assert [message.body for message in heard] == [b"news"]
        assert listener.about_messages() == [ACCEPTED, DELIVERED]

    def test_an_unknown_id_is_ignored(self, listener: Listener) -> None:
        node = listener.connect()
        node.tells(Broadcast(b"", b"x", 5))
        assert node.hears() == b""


class TestSilence:
    def test_ping_after_15_seconds_idle_after_30_and_revived_by_a_byte(
        self, listener: Listener
    ) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        listener.clock.advance(14.9)
        assert consumer.hears() == b""
        listener.clock.advance(0.1)
        assert consumer.hears() == PING
        requester.tells(Request(1, b"q", b"a"))
        consumer.is_told(Task(1, 1, b"a"))
        listener.clock.advance(15)
        requester.tells(Request(2, b"q", b"b"), Broadcast(b"q", b"news"))
        listener.clock.advance(1000)
        assert consumer.hears() == b""
        assert consumer.transport.connected
        consumer.says(b"\x06")
        consumer.is_told(Task(2, 1, b"b"))

    def test_whoever_answers_is_asked_again(self, listener: Listener) -> None:
        consumer = listener.consumer()
        for _ in range(3):
            listener.clock.advance(15)
            assert consumer.hears() == PING
            consumer.says(PONG)
        assert consumer.hears() == b""

    def test_an_idle_consumers_work_goes_to_others(self, listener: Listener) -> None:
        idle = listener.consumer(priority=30)
        listener.clock.advance(15)
        listener.clock.advance(15)
        idle.hears()
        other, requester = listener.consumer(), listener.connect()
        requester.tells(Request(1, b"q", b"a"))
        other.is_told(Task(1, 1, b"a"))

    def test_a_ping_is_answered_also_in_the_middle_of_a_sentence(self, listener: Listener) -> None:
        node = listener.connect()
        node.says(b"\x01\x80\0\0\0\x07\x05\xa0\x01q")
        assert node.hears() == PONG
        node.says(b"\xe0\0\0\0\x01a\x21\x0a")
        node.is_told(Delivered(7))

    def test_pong_is_never_said_by_itself(self, listener: Listener) -> None:
        """librq aborts."""
        node = listener.connect()
        node.says(PONG)
        assert node.hears() == b""


class TestClosing:
    def test_an_idle_node_is_closed_at_once(self, listener: Listener) -> None:
        node = listener.consumer()
        node.says(CLOSING)
        assert node.transport.is_closed

    def test_a_consumer_finishes_what_it_has_and_gets_no_more(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(1, b"q", b"a"))
        consumer.says(CLOSING)
        requester.tells(Request(2, b"q", b"b"))
        consumer.is_told(Task(1, 1, b"a"))
        assert not consumer.transport.is_closed
        consumer.tells(Delivered(1), Reply(1, b"A"))
        requester.is_told(Delivered(1), Reply(1, b"A"))
        assert consumer.transport.is_closed

    def test_a_requester_waits_for_its_replies(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(1, b"q", b"a"))
        requester.says(CLOSING)
        assert not requester.transport.is_closed
        consumer.tells(Reply(1, b"A"))
        requester.is_told(Delivered(1), Reply(1, b"A"))
        assert requester.transport.is_closed

    def test_a_request_after_it_is_undelivered(self, listener: Listener) -> None:
        listener.consumer()
        requester = listener.connect()
        requester.tells(Request(1, b"q", b"a"))
        requester.says(CLOSING + bytes_of(Request(2, b"q", b"b"), Consume(b"q")) + CLOSING)
        requester.is_told(Undelivered(2))

    def test_a_noreply_sender_is_closed_when_all_is_safe(self) -> None:
        writer = HeldWriter()
        listener = Listener(World(DurableMemory(), writer.run))
        requester = listener.connect()
        requester.says(bytes_of(Request(7, b"q", b"a", noreply=True)) + CLOSING)
        listener.clock.advance(0)
        assert not requester.transport.is_closed
        while writer.jobs:
            writer.write()
        requester.is_told(Delivered(7))
        assert requester.transport.is_closed

    def test_the_gateways_end_is_told_once_and_pending_work_finished(
        self, listener: Listener
    ) -> None:
        consumer, requester, idle = listener.consumer(), listener.connect(), listener.connect()
        requester.tells(Request(1, b"q", b"a"), Request(2, b"nobody", b"b"))
        consumer.hears()
        done: list[None] = []
        finishing = listener.factory.finish()
        assert finishing is not None
        finishing.addCallback(done.append)
        assert idle.hears() == b"\x01\x16"
        assert idle.transport.is_closed
        requester.is_told(wire.Shutdown(), Undelivered(2))
        consumer.is_told(wire.Shutdown())
        assert done == []
        consumer.tells(Delivered(1), Reply(1, b"A"))
        requester.is_told(Delivered(1), Reply(1, b"A"))
        assert consumer.transport.is_closed
        assert requester.transport.is_closed
        assert done == [None]

    def test_a_node_that_leaves_at_the_end_is_not_waited_for(self, listener: Listener) -> None:
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(1, b"q", b"a"))
        done: list[None] = []
        finishing = listener.factory.finish()
        assert finishing is not None
        finishing.addCallback(done.append)
        requester.hangs_up()
        consumer.hangs_up()
        assert done == [None]

    def test_without_work_in_flight_the_end_waits_for_nobody(self, listener: Listener) -> None:
        listener.consumer()
        assert listener.factory.finish() is None


class TestFull:
    @pytest.mark.parametrize(("librq", "words"), [(False, b"\x17"), (True, b"")])
    def test_one_too_many_is_told_so_unless_it_may_be_librq(
        self, librq: bool, words: bytes
    ) -> None:
        listener = Listener(librq=librq)
        limit = ConnectionLimit(listener.factory, 0, listener.broker, "rq")
        node = Wired(limit.buildProtocol(None))
        assert node.hears() == words
        assert not node.transport.connected


class TestLibrq:
    def test_it_hears_no_broadcast(self) -> None:
        listener = Listener(librq=True)
        consumer, other = listener.consumer(), listener.connect()
        other.tells(Broadcast(b"q", b"news"))
        assert consumer.hears() == b""

    def test_it_is_handed_no_empty_payload(self) -> None:
        listener = Listener(librq=True)
        consumer = listener.consumer()
        listener.broker.push(Message("queue:q", b"", "", "test"))
        assert consumer.hears() == b""
        assert listener.dropped() == ["refused"]
        listener.broker.push(Message("queue:q", b"a", "", "test"))
        consumer.is_told(Task(1, 1, b"a", noreply=True))

    def test_an_empty_reply_becomes_undelivered(self) -> None:
        listener = Listener(librq=True)
        consumer, requester = listener.consumer(), listener.connect()
        requester.tells(Request(7, b"q", b"a"))
        consumer.tells(Reply(1, b""))
        requester.is_told(Delivered(7), Undelivered(7))


class TestNonsense:
    """Nothing of this is answered, breaks anything, or ends the connection."""

    @pytest.mark.parametrize(
        "data",
        [
            b"\x01\x14",
            b"\x01\xa0\x00\x14",
            b"\x01\xa0\x03a\0b\x14",
            b"\x01\x60\0\x01\x14",
            b"\x01\x0a",
            b"\x01\xa0\x01q\xe0\0\0\0\x01a\x0a",
            b"\x01\x0b\x0d\x10\x0e\x15",
            bytes_of(Delivered(5), Reply(5, b"x"), Undelivered(5)),
            bytes_of(Delivered(0xFFFF8000)),
            b"\x18\x17\x01\x18",
            b"\0\x02\x1f" * 100,
            b"\xb0\x00\xd0\0\0\xf0\0\0\0\0",
        ],
    )
    def test_it_is_ignored(self, listener: Listener, data: bytes) -> None:
        node = listener.connect()
        node.says(data)
        assert node.hears() == b""
        node.says(b"\x01")
        node.tells(Request(7, b"q", b"a", noreply=True))
        node.is_told(Delivered(7))

    def test_a_payload_over_the_limit_ends_it_at_its_length(self) -> None:
        listener = Listener(maxPayload=100)
        node = listener.connect()
        node.says(b"\x01\x80\0\0\0\x07\xa0\x01q\xe0\0\0\0\x65")
        assert node.transport.is_closed

    def test_names_without_end_are_refused(self, listener: Listener) -> None:
        for number in range(0x7FFE):
            listener.broker.declare(f"queue:{number}")
        node = listener.connect()
        node.tells(Request(1, b"last", b"a", noreply=True), Request(2, b"more", b"a"))
        node.tells(Consume(b"more"), Request(3, b"42", b"a", noreply=True), Broadcast(b"z", b"z"))
        node.is_told(Delivered(1), Undelivered(2), Delivered(3))
        assert listener.broker.declare("queue:more")

    def test_an_unfinished_sentence_is_not_waited_for_for_ever(self, listener: Listener) -> None:
        node = listener.connect()
        node.says(b"\x01\xe0\0\1\0\0")
        listener.clock.advance(300)
        assert not node.transport.connected


class TestDisk:
    def world(self) -> tuple[Listener, HeldWriter]:
        writer = HeldWriter()
        return Listener(World(DurableMemory(), writer.run)), writer

    def settle(self, listener: Listener, writer: HeldWriter) -> None:
        listener.clock.advance(0)
        while writer.jobs:
            writer.write()

    def test_what_is_handed_out_is_not_taken_back_with_an_answer(self) -> None:
        """A task that followed a reply in one read waited for the barrier, and was lost with it."""
        listener, writer = self.world()
        consumer, requester = listener.connect(), listener.connect()
        consumer.tells(Consume(b"q", 1))
        self.settle(listener, writer)
        consumer.is_told(Consuming(1, b"q"))
        requester.tells(Request(1, b"q", b"a"), Request(2, b"q", b"b"))
        self.settle(listener, writer)
        consumer.is_told(Task(1, 1, b"a"))
        consumer.tells(Reply(1, b"A"))
        consumer.is_told(Task(2, 1, b"b"))
        requester.is_told(Delivered(1), Reply(1, b"A"))

    def test_a_request_that_could_not_be_written_is_undelivered(self) -> None:
        listener, writer = self.world()
        requester = listener.connect()
        requester.tells(Request(1, b"q", b"a"), Request(2, b"q", b"b", noreply=True))
        listener.clock.advance(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gateway.journal._may_pass", lambda failure: True)
            patch.setattr("gateway.journal.log.error", lambda *_, **__: None)
            writer.fail(OSError("full"))
        requester.is_told(Undelivered(1), Undelivered(2))
        requester.tells(Request(3, b"q", b"a"))
        requester.is_told(Undelivered(3))
        assert listener.broker.info("queue:q").depth == 0

    def test_a_consume_that_is_refused_leaves_nothing_behind(self) -> None:
        """The topic of its broadcasts could not be declared, after the queue had let it in."""
        listener, _ = self.world()
        listener.broker.declare("queue:q")
        listener.world.journal.failing = "full"
        node = listener.connect()
        node.tells(Consume(b"q"))
        assert node.hears() == b""
        assert listener.broker.info("queue:q").consumers == 0


class TestRestart:
    def test_queue_ids_and_noreply_requests_stay_and_reply_requests_go(
        self, tmp_path: Path
    ) -> None:
        """Their requesters are gone; they are dropped when their turn comes."""
        listener = Listener(World(SqliteStore(tmp_path / "data", "OFF", Retention())))
        first = listener.connect()
        first.tells(Consume(b"other"), Consume(b"q"), Cancel(b"q"))
        number = listener.broker.info("queue:q").number
        first.tells(
            Request(1, b"q", b"reply", retries=3),
            Request(2, b"q", b"kept", noreply=True),
        )
        listener.world.clock.advance(0)
        listener.broker.stopService()
        again = Listener(World(SqliteStore(tmp_path / "data", "OFF", Retention()), later=60))
        requester = again.connect()
        requester.tells(Request(9, b"", b"new", queue_id=number))
        consumer = again.connect()
        consumer.tells(Consume(b"q"))
        again.world.clock.advance(0)
        heard = consumer.hears()
        assert heard == bytes_of(
            Consuming(number, b"q"),
            Task(1, number, b"kept", noreply=True),
            Task(2, number, b"new"),
        )
        assert again.dropped() == ["requester gone"]
        again.broker.stopService()


class TestCrossing:
    """RQ and qlite on one Broker."""

    @pytest.fixture
    def both(self, listener: Listener) -> tuple[Listener, qlite.Listener]:
        other = qlite.Listener(listener.world, queue="q")
        assert isinstance(other.factory, QliteFactory)
        return listener, other

    def test_a_push_is_a_noreply_request(self, both: Any) -> None:
        listener, other = both
        publisher, consumer = other.publisher(), listener.consumer(maximum=1)
        publisher.says(qlite.push(b"a") + qlite.push(b"b"))
        consumer.is_told(Task(1, 1, b"a", noreply=True))
        consumer.tells(Delivered(1))
        consumer.is_told(Task(2, 1, b"b", noreply=True))

    def test_the_queues_limit_is_still_qlites(self, both: Any) -> None:
        listener, _ = both
        listener.consumer(priority=0)
        assert listener.broker.info("queue:q").options["limit"] == 100

    @pytest.mark.parametrize("pop", [qlite.SPOP, qlite.LPOP])
    def test_a_request_may_be_popped(self, both: Any, pop: bytes) -> None:
        listener, other = both
        requester, subscriber = listener.connect(), other.subscriber()
        if pop == qlite.LPOP:
            subscriber.says(pop)
        requester.tells(Request(7, b"q", b"a"))
        if pop == qlite.SPOP:
            subscriber.says(pop)
        assert subscriber.hears() == qlite.passed(b"a")
        requester.is_told(Delivered(7))
        requester.hangs_up()

    def test_two_listeners_share_requests(self, listener: Listener) -> None:
        other = Listener(listener.world, librq=True)
        consumer, requester = listener.consumer(), other.connect()
        requester.tells(Request(7, b"q", b"a"))
        consumer.tells(Delivered(1), Reply(1, b"b"))
        requester.is_told(Delivered(7), Reply(7, b"b"))
