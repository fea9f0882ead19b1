"""Tests for protocols.base and protocols.outbox, on a protocol of a few words."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, globalLogPublisher

from gateway.interfaces import BrokerError, Message, Overloaded
from gateway.record import CONNECTED, DISCONNECTED, REFUSED
from protocols.base import LINGER, WireFactory, WireProtocol
from protocols.framing import WireError
from protocols.outbox import ENOUGH
from tests.protocols import toy
from tests.support import DurableMemory, HeldWriter, Wired, World, accounts


class ToyServer(WireProtocol):
    """Does what it is told: push, echo, wait, break, refuse, flood or close."""

    wire = toy
    name = "toy"
    factory: Any
    frame_timeout = 5.0

    def started(self) -> None:
        self.waits: list[Deferred[bytes]] = []
        self.handled: list[bytes] = []

    def on_Hello(self, hello: toy.Hello) -> None:
        self.handled.append(b"hello")

    def on_Say(self, say: toy.Say) -> Any:
        self.handled.append(say.text)
        word, _, rest = say.text.partition(b" ")
        return getattr(self, f"do_{word.decode()}")(rest)

    def do_echo(self, rest: bytes) -> None:
        self.send(toy.Heard(rest))

    def do_push(self, rest: bytes) -> None:
        position = self.broker.push(Message("queue:toy", rest, "", "toy"))
        self.send(toy.Heard(b"pushed %d" % position))

    def do_wait(self, rest: bytes) -> Deferred[None]:
        waiting: Deferred[bytes] = Deferred()
        self.waits.append(waiting)
        return waiting.addCallback(lambda text: self.send(toy.Heard(text)))

    async def do_later(self, rest: bytes) -> None:
        waiting: Deferred[bytes] = Deferred()
        self.waits.append(waiting)
        self.send(toy.Heard(await waiting))

    def do_break(self, rest: bytes) -> None:
        raise ZeroDivisionError("a bug of ours")

    def do_refuse(self, rest: bytes) -> None:
        raise BrokerError("not today")

    def do_flood(self, rest: bytes) -> None:
        for _ in range(3):
            self.send(toy.Heard(b"x" * (ENOUGH // 2)))

    def do_close(self, rest: bytes) -> None:
        self.send(toy.Heard(b"bye"))
        self.close()

    def refuse(self, event: Any, error: BrokerError) -> None:
        self.send(toy.Heard(b"refused: " + str(error).encode()))

    def wire_error(self, error: WireError) -> None:
        self.send(toy.Heard(b"wrong"))


class ToyFactory(WireFactory):
    protocol = ToyServer

    def started(self) -> None:
        self.broker.declare("queue:toy")


class Toy:
    """A world with a toy listener."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.factory = ToyFactory(world.broker, accounts(), world.clock)
        self.factory.started()

    def connect(self, greet: bool = True) -> Wired:
        peer = Wired(self.factory.buildProtocol(None))
        if greet:
            peer.says(b"hello ann\n")
        return peer

    def depth(self) -> int:
        return self.world.broker.info("queue:toy").depth


@pytest.fixture
def toy_world() -> Toy:
    return Toy(World())


@pytest.fixture
def writer() -> HeldWriter:
    return HeldWriter()


@pytest.fixture
def slow_world(writer: HeldWriter) -> Toy:
    """A world whose disk waits for the test."""
    made = Toy(World(DurableMemory(), writer.run))
    made.world.clock.advance(0)
    writer.write()  # the declaration
    return made


@pytest.fixture
def failures() -> Any:
    """What has been logged as a failure."""
    seen: list[Any] = []

    def observe(event: Any) -> None:
        if event["log_level"] >= LogLevel.error:
            seen.append(event)

    globalLogPublisher.addObserver(observe)
    yield seen
    globalLogPublisher.removeObserver(observe)


class TestOrder:
    def test_answers_come_in_the_order_of_the_requests(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say echo 1\nsay echo 2\nsay echo 3\n")
        assert peer.hears() == b"heard 1\nheard 2\nheard 3\n"

    def test_the_answers_of_one_read_are_written_at_once(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        writes: list[bytes] = []
        peer.transport.write = writes.append  # type: ignore[method-assign]
        peer.says(b"say echo 1\nsay echo 2\nsay echo 3\n")
        assert writes == [b"heard 1\nheard 2\nheard 3\n"]

    @pytest.mark.parametrize("word", [b"wait", b"later"], ids=["Deferred", "coroutine"])
    def test_what_is_asked_while_a_handler_waits_is_answered_after_it(
        self, toy_world: Toy, word: bytes
    ) -> None:
        peer = toy_world.connect()
        peer.says(b"say echo 1\nsay %s\nsay echo 3\n" % word)
        assert peer.hears() == b"heard 1\n"
        peer.says(b"say echo 4\n")
        assert peer.hears() == b""
        peer.protocol.waits[0].callback(b"2")
        assert peer.hears() == b"heard 2\nheard 3\nheard 4\n"

    def test_a_handler_that_waits_may_be_refused(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say wait\nsay echo 2\n")
        peer.protocol.waits[0].errback(BrokerError("too late"))
        assert peer.hears() == b"heard refused: too late\nheard 2\n"

    def test_many_answers_to_one_read_are_not_collected_without_end(self, toy_world: Toy) -> None:
        """The transport is given what there is, says that it has enough, and the rest waits."""
        peer = toy_world.connect()
        transport = peer.transport

        def write(data: bytes) -> None:
            transport.io.write(data)
            transport.producer.pauseProducing()

        transport.write = write  # type: ignore[method-assign]
        peer.says(b"say flood\nsay flood\n")
        assert peer.protocol.handled == [b"hello", b"flood"]
        transport.producer.resumeProducing()
        assert peer.protocol.handled == [b"hello", b"flood", b"flood"]


class TestBarrier:
    """What is promised is on disk first."""

    def test_no_answer_before_the_commit(self, slow_world: Toy, writer: HeldWriter) -> None:
        peer = slow_world.connect()
        peer.says(b"say push a\n")
        slow_world.world.clock.advance(0)
        assert peer.hears() == b""
        writer.write()
        assert peer.hears() == b"heard pushed 1\n"

    def test_answers_behind_a_held_one_keep_their_order(
        self, slow_world: Toy, writer: HeldWriter
    ) -> None:
        peer = slow_world.connect()
        peer.says(b"say echo 1\nsay push a\nsay echo 2\n")
        peer.says(b"say echo 3\n")
        slow_world.world.clock.advance(0)
        assert peer.hears() == b""
        writer.write()
        assert peer.hears() == b"heard 1\nheard pushed 1\nheard 2\nheard 3\n"

    def test_a_push_while_another_is_written_waits_for_its_own_commit(
        self, slow_world: Toy, writer: HeldWriter
    ) -> None:
        peer = slow_world.connect()
        peer.says(b"say push a\n")
        slow_world.world.clock.advance(0)
        peer.says(b"say push b\n")
        writer.write()
        assert peer.hears() == b"heard pushed 1\n"
        slow_world.world.clock.advance(0)
        writer.write()
        assert peer.hears() == b"heard pushed 2\n"

    def test_others_are_answered_meanwhile(self, slow_world: Toy) -> None:
        peer, other = slow_world.connect(), slow_world.connect()
        peer.says(b"say push a\n")
        other.says(b"say echo 1\n")
        assert (peer.hears(), other.hears()) == (b"", b"heard 1\n")

    def test_connections_that_push_in_one_turn_share_a_commit(
        self, slow_world: Toy, writer: HeldWriter
    ) -> None:
        peers = [slow_world.connect() for _ in range(5)]
        for peer in peers:
            peer.says(b"say push a\n")
        slow_world.world.clock.advance(0)
        writer.write()
        assert {peer.hears()[:12] for peer in peers} == {b"heard pushed"}

    def test_a_failed_commit_is_a_refusal_in_its_place(
        self, slow_world: Toy, writer: HeldWriter
    ) -> None:
        """What did not depend on it is answered as before, and the message is taken back."""
        peer = slow_world.connect()
        peer.says(b"say echo 1\nsay push a\nsay echo 2\nsay push b\nsay echo 3\n")
        slow_world.world.clock.advance(0)
        writer.fail(OSError("the disk is on fire"))
        refused = b"heard refused: the journal cannot be written: the disk is on fire\n"
        assert peer.hears() == b"heard 1\n" + refused + b"heard 2\n" + refused + b"heard 3\n"
        assert slow_world.depth() == 0

    def test_an_event_that_is_answered_nothing_holds_nothing_back(
        self, slow_world: Toy, writer: HeldWriter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ToyServer, "unpromised", frozenset([toy.Say]))
        peer = slow_world.connect()
        peer.says(b"say push a\nsay echo 1\n")
        assert peer.hears() == b"heard pushed 1\nheard 1\n"

    def test_a_peer_that_leaves_before_the_commit_leaves_its_message(
        self, slow_world: Toy, writer: HeldWriter, failures: list[Any]
    ) -> None:
        peer = slow_world.connect()
        peer.says(b"say push a\n")
        slow_world.world.clock.advance(0)
        peer.hangs_up()
        writer.write()
        assert slow_world.depth() == 1
        assert failures == []

    def test_a_peer_that_closes_its_side_still_gets_its_answer(
        self, slow_world: Toy, writer: HeldWriter
    ) -> None:
        peer = slow_world.connect()
        peer.says(b"say push a\n")
        slow_world.world.clock.advance(0)
        peer.protocol.readConnectionLost()
        assert not peer.transport.is_closed
        writer.write()
        assert peer.hears() == b"heard pushed 1\n"
        assert peer.transport.is_closed

    def test_a_publisher_cannot_run_ahead_of_the_disk_without_end(
        self, slow_world: Toy, writer: HeldWriter
    ) -> None:
        peer = slow_world.connect()
        push = b"say push " + b"x" * 60_000 + b"\n"
        for _ in range(100):
            if peer.transport.producerState == "paused":
                break
            peer.says(push)
            slow_world.world.clock.advance(0)
        assert peer.transport.producerState == "paused"
        assert slow_world.depth() < 25
        while writer.jobs:
            writer.write()
            slow_world.world.clock.advance(0)
        assert peer.transport.producerState == "producing"


class TestErrors:
    def test_a_bug_aborts_its_connection_and_no_other(
        self, toy_world: Toy, failures: list[Any]
    ) -> None:
        peer, other = toy_world.connect(), toy_world.connect()
        peer.says(b"say break\nsay echo 2\n")
        assert peer.transport.aborted
        assert peer.protocol.handled == [b"hello", b"break"]
        other.says(b"say echo 1\n")
        assert other.hears() == b"heard 1\n"
        assert len(failures) == 1
        assert toy_world.world.broker.counts["bugs", "toy"] == 1

    def test_a_bug_in_a_handler_that_waited_aborts_too(
        self, toy_world: Toy, failures: list[Any]
    ) -> None:
        peer = toy_world.connect()
        peer.says(b"say later\n")
        peer.protocol.waits[0].errback(ZeroDivisionError("a bug of ours"))
        assert peer.transport.aborted
        assert len(failures) == 1

    def test_a_refusal_is_answered_counted_and_recorded_once(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say refuse\n" * 3)
        assert peer.hears() == b"heard refused: not today\n" * 3
        assert toy_world.world.broker.counts["refused", "toy", "BrokerError"] == 3
        assert toy_world.world.kinds().count(REFUSED) == 1

    def test_a_wrong_frame_is_answered_in_the_protocols_words(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"nonsense\nsay echo 2\n")
        assert peer.hears() == b"heard wrong\nheard 2\n"

    def test_an_endless_frame_closes_after_the_answer(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"x" * (toy.LIMIT + 1))
        assert peer.hears() == b"heard wrong\n"
        assert peer.transport.half_closed
        peer.says(b"\nsay echo 2\n")
        assert peer.hears() == b""

    def test_nothing_is_handled_after_a_close(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say close\nsay echo 2\n")
        assert peer.hears() == b"heard bye\n"
        assert peer.protocol.handled == [b"hello", b"close"]


class TestGoing:
    def test_last_words_are_half_closed_and_the_rest_is_cut_off(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say close\n")
        assert peer.transport.half_closed
        assert peer.transport.connected
        toy_world.world.clock.advance(LINGER)
        assert peer.transport.aborted

    def test_a_peer_that_hangs_up_after_our_last_words_is_let_go(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say close\n")
        peer.protocol.readConnectionLost()
        assert not peer.transport.connected
        assert not peer.transport.aborted

    def test_cleanups_are_run_once_the_last_added_first(
        self, toy_world: Toy, failures: list[Any]
    ) -> None:
        peer = toy_world.connect()
        done: list[int] = []
        peer.protocol.add_cleanup(lambda: done.append(1))
        peer.protocol.add_cleanup(lambda: 1 // 0)
        peer.protocol.add_cleanup(lambda: done.append(2))
        peer.hangs_up()
        assert done == [2, 1]
        assert len(failures) == 1

    def test_a_handler_that_waits_is_cancelled_when_the_peer_leaves(
        self, toy_world: Toy, failures: list[Any]
    ) -> None:
        peer = toy_world.connect()
        peer.says(b"say wait\n")
        peer.hangs_up()
        assert peer.protocol.waits[0].called
        assert failures == []

    def test_a_peer_that_closes_its_side_while_it_waits_has_left(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say wait\n")
        peer.protocol.readConnectionLost()
        assert not peer.transport.connected

    def test_coming_and_going_are_recorded(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.hangs_up()
        kinds = toy_world.world.kinds()
        assert [kind for kind in kinds if kind in (CONNECTED, DISCONNECTED)] == [
            CONNECTED,
            DISCONNECTED,
        ]

    def test_nothing_is_left_with_the_clock(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say ech")
        peer.hangs_up()
        toy_world.world.clock.advance(0)
        assert toy_world.world.clock.getDelayedCalls() == []


class TestTime:
    def test_an_unfinished_frame_has_its_time(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say ech")
        toy_world.world.clock.advance(4.9)
        assert not peer.transport.aborted
        toy_world.world.clock.advance(0.1)
        assert peer.transport.aborted

    def test_a_finished_frame_stops_its_time(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say ech")
        toy_world.world.clock.advance(4)
        peer.says(b"o 1\n")
        toy_world.world.clock.advance(60)
        assert peer.hears() == b"heard 1\n"
        assert peer.transport.connected

    def test_silence_between_frames_is_no_unfinished_frame(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        toy_world.world.clock.advance(3600)
        assert peer.transport.connected

    def test_a_frame_behind_one_that_waits_is_not_late(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say wait\nsay ech")
        toy_world.world.clock.advance(60)
        assert peer.transport.connected


class TestOutput:
    def test_a_peer_that_does_not_read_is_dropped_over_the_limit(self, toy_world: Toy) -> None:
        """Messages that it has not asked for do not pile up."""
        peer = toy_world.connect()
        peer.transport.producer.pauseProducing()
        piece = b"x" * 100_000
        sent = 0
        while not peer.transport.aborted:
            peer.protocol.send(toy.Heard(piece))
            sent += len(piece)
        assert sent < ToyServer.output_limit + 2 * len(piece)
        assert toy_world.world.broker.counts["refused", "toy", "does not read"] == 1

    def test_a_peer_that_reads_nothing_for_too_long_is_dropped(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.transport.producer.pauseProducing()
        toy_world.world.clock.advance(ToyServer.write_timeout)
        assert peer.transport.aborted

    def test_a_commit_does_not_give_it_more_time(self, slow_world: Toy, writer: HeldWriter) -> None:
        peer = slow_world.connect()
        peer.says(b"say push a\n")
        slow_world.world.clock.advance(0)
        peer.transport.producer.pauseProducing()
        writer.write()
        slow_world.world.clock.advance(ToyServer.write_timeout)
        assert peer.transport.aborted

    def test_what_waited_for_the_peer_to_read_is_written_when_it_does(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.transport.producer.pauseProducing()
        peer.protocol.send(toy.Heard(b"1"))
        peer.says(b"say echo 2\n")
        assert peer.hears() == b""
        peer.transport.producer.resumeProducing()
        assert peer.hears() == b"heard 1\nheard 2\n"
        toy_world.world.clock.advance(3600)
        assert not peer.transport.aborted

    def test_encoded_bytes_keep_their_place_among_what_is_said(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.transport.producer.pauseProducing()
        rooms: list[bool] = []
        peer.protocol.has_room = lambda: rooms.append(True)
        peer.protocol.send(toy.Heard(b"1"))
        peer.protocol.send_bytes(b"heard 2\n")
        peer.protocol.send(toy.Heard(b"3"))
        peer.transport.producer.resumeProducing()
        assert peer.hears() == b"heard 1\nheard 2\nheard 3\n"
        assert rooms == [True]

    def test_requests_are_held_and_only_a_flood_stops_the_reading(self, toy_world: Toy) -> None:
        peer = toy_world.connect()
        peer.says(b"say wait\nsay echo 2\n")
        assert peer.transport.producerState == "producing"
        peer.says(b"say echo " + b"x" * ENOUGH + b"\n")
        assert peer.transport.producerState == "paused"
        peer.protocol.waits[0].callback(b"1")
        assert peer.transport.producerState == "producing"
        assert peer.hears().startswith(b"heard 1\nheard 2\nheard xxx")


def test_a_failing_journal_refuses_at_once_until_it_can_be_written(
    slow_world: Toy, writer: HeldWriter
) -> None:
    peer = slow_world.connect()
    peer.says(b"say push a\n")
    slow_world.world.clock.advance(0)
    writer.fail(OSError("the disk is full"))
    peer.hears()
    peer.says(b"say push b\n")
    assert peer.hears() == b"heard refused: the journal cannot be written: the disk is full\n"
    assert issubclass(Overloaded, BrokerError)
