"""Tests for protocols.rq.client, against our own server and against scripted bytes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.test.iosim import FakeTransport
from twisted.test.iosim import connect as join

from protocols.rq import wire
from protocols.rq.client import MOST_WAITING, Node
from protocols.rq.link import NotDelivered
from protocols.rq.wire import (
    Announcement,
    Broadcast,
    Cancel,
    Consume,
    Consuming,
    Delivered,
    Ping,
    Pong,
    Reply,
    Request,
    ServerFull,
    Shutdown,
    Task,
    Undelivered,
)
from tests.protocols.rq.test_server import Listener, bytes_of
from tests.support import Wired


def outcome(deferred: Deferred[Any]) -> Any:
    """What the Deferred has; an error itself, not its failure."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert found, "no answer yet"
    return found[0].value if isinstance(found[0], Failure) else found[0]


class Joined(FakeTransport):
    """One that has no half-close; to close is near enough."""

    def loseWriteConnection(self) -> None:
        self.loseConnection()


class Ours:
    """An endpoint that leads to our own server, in memory."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.pumps: list[Any] = []

    def connect(self, factory: Any) -> Deferred[Any]:
        client = factory.buildProtocol(None)
        server = self.listener.factory.buildProtocol(None)
        ends = Joined(server, isServer=True), Joined(client, isServer=False)
        self.pumps.append(join(server, ends[0], client, ends[1]))
        connected: Deferred[Any] = Deferred()
        connected.callback(client)
        return connected

    def flush(self) -> None:
        while any(pump.pump() for pump in self.pumps):
            pass


class TestAgainstOurServer:
    @pytest.fixture
    def endpoint(self) -> Ours:
        return Ours(Listener())

    def node(self, endpoint: Ours) -> Node:
        node = Node(endpoint.listener.clock, [endpoint], Random(1))
        node.start()
        return node

    def test_a_request_is_done_by_another_node(self, endpoint: Ours) -> None:
        worker, asker = self.node(endpoint), self.node(endpoint)
        worker.consume(b"upper", bytes.upper)
        asked = [asker.request(b"upper", b"abc"), asker.request(b"upper", b"def")]
        endpoint.flush()
        assert [outcome(each) for each in asked] == [b"ABC", b"DEF"]

    def test_a_handler_may_take_its_time(self, endpoint: Ours) -> None:
        worker, asker = self.node(endpoint), self.node(endpoint)
        later: list[Deferred[bytes]] = [Deferred(), Deferred()]
        worker.consume(b"q", lambda payload: later[int(payload)])
        asked = [asker.request(b"q", b"0"), asker.request(b"q", b"1")]
        endpoint.flush()
        later[1].callback(b"second")
        later[0].callback(b"")
        endpoint.flush()
        assert [outcome(each) for each in asked] == [b"", b"second"]

    def test_send_wants_no_reply(self, endpoint: Ours) -> None:
        worker, asker = self.node(endpoint), self.node(endpoint)
        done: list[bytes] = []
        sent = asker.send(b"q", b"abc")
        endpoint.flush()
        assert outcome(sent) == b""
        worker.consume(b"q", done.append)
        endpoint.flush()
        assert done == [b"abc"]
        assert endpoint.listener.broker.info("queue:q").outstanding == 0

    def test_a_broadcast_is_heard_by_all(self, endpoint: Ours) -> None:
        heard: list[bytes] = []
        for _ in range(3):
            self.node(endpoint).consume(b"q", bytes.upper, heard=heard.append)
        endpoint.flush()
        asker = self.node(endpoint)
        assert asker.broadcast(b"q", b"news")
        endpoint.flush()
        assert heard == [b"news"] * 3

    def test_a_queue_that_is_cancelled_gives_no_more(self, endpoint: Ours) -> None:
        worker, asker = self.node(endpoint), self.node(endpoint)
        worker.consume(b"q", bytes.upper)
        worker.cancel(b"q")
        asked = asker.request(b"q", b"abc", timeout=5)
        endpoint.flush()
        endpoint.listener.clock.advance(5)
        endpoint.flush()
        assert isinstance(outcome(asked), NotDelivered)

    def test_a_worker_that_wants_so_many_leaves_the_rest_to_others(self, endpoint: Ours) -> None:
        asker, worker, other = (self.node(endpoint) for _ in range(3))
        for payload in (b"1", b"2", b"3"):
            asker.send(b"q", payload)
        endpoint.flush()
        done: list[bytes] = []
        worker.consume(b"q", done.append, most=2)
        endpoint.flush()
        assert done == [b"1", b"2"]
        assert endpoint.listener.broker.info("queue:q").depth == 1
        other.consume(b"q", done.append)
        endpoint.flush()
        assert done == [b"1", b"2", b"3"]

    def test_a_second_queue_goes_by_its_name(self, endpoint: Ours) -> None:
        worker, asker = self.node(endpoint), self.node(endpoint)
        worker.consume(b"upper", bytes.upper)
        worker.consume(b"lower", bytes.lower)
        asked = [asker.request(b"lower", b"Abc"), asker.request(b"upper", b"Abc")]
        endpoint.flush()
        assert [outcome(each) for each in asked] == [b"abc", b"ABC"]

    def test_to_stop_waits_for_what_is_under_way(self, endpoint: Ours) -> None:
        worker, asker = self.node(endpoint), self.node(endpoint)
        later: Deferred[bytes] = Deferred()
        worker.consume(b"q", lambda payload: later)
        asked = asker.request(b"q", b"abc")
        endpoint.flush()
        stopping = [asker.stop(), worker.stop()]
        endpoint.flush()
        assert [each.called for each in stopping] == [False, False]
        later.callback(b"done")
        for _ in range(3):
            endpoint.flush()
            endpoint.listener.clock.advance(3)
        assert outcome(asked) == b"done"
        assert [each.called for each in stopping] == [True, True]


class Controller:
    """An endpoint whose other end says what the test says."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.tried = 0
        self.peers: list[Wired] = []

    def connect(self, factory: Any) -> Deferred[Any]:
        self.tried += 1
        connected: Deferred[Any] = Deferred()
        if self.refuses:
            connected.errback(ConnectError())
        else:
            self.peers.append(Wired(factory.buildProtocol(None)))
            connected.callback(self.peers[-1].protocol)
        return connected

    @property
    def peer(self) -> Wired:
        return self.peers[-1]

    def says(self, *events: Any) -> None:
        self.peer.says(bytes_of(*events))

    def hears(self, *events: Any) -> None:
        assert self.peer.hears() == bytes_of(*events)


def made(*controllers: Controller) -> tuple[Node, Clock]:
    clock = Clock()
    node = Node(clock, controllers, Random(1))  # type: ignore[arg-type]
    node.start()
    return node, clock


class TestScripted:
    def test_it_speaks_as_librq_does(self) -> None:
        controller = Controller()
        node, _ = made(controller)
        node.consume(b"q", lambda payload: b"re:" + payload, maximum=5)
        assert controller.peer.hears() == bytes.fromhex("01 a00171 620005 4014 14")
        controller.peer.says(bytes.fromhex("01 600001 a00171 18"))
        controller.peer.says(bytes.fromhex("01 600001 e000000003616263 8000000000 0a"))
        assert controller.peer.hears() == bytes.fromhex(
            "01 8000000000 0d  01 8000000000 e00000000672653a616263 0b"
        )
        node.request(b"q", b"abc")
        assert controller.peer.hears() == bytes.fromhex("01 8000000000 a00171 e000000003616263 0a")
        controller.peer.says(PING)
        assert controller.peer.hears() == PONG

    def test_undelivered_fails_the_request(self) -> None:
        controller = Controller()
        node, _ = made(controller)
        asked = node.request(b"q", b"a", retries=2, timeout=9)
        controller.hears(Request(0, b"q", b"a", retries=2, timeout=9))
        controller.says(Delivered(0), Undelivered(0))
        assert isinstance(outcome(asked), NotDelivered)

    def test_answers_to_nothing_are_ignored(self) -> None:
        controller = Controller()
        node, _ = made(controller)
        controller.says(Delivered(3), Reply(3, b"x"), Undelivered(3), Announcement(9, b"x"))
        controller.peer.says(b"\x01\x18\x01\x0b\x14")
        asked = node.request(b"q", b"a")
        controller.says(Reply(0, b"A"), Reply(0, b"B"))
        assert outcome(asked) == b"A"

    def test_a_request_for_what_it_does_not_consume_is_refused(self) -> None:
        controller = Controller()
        made(controller)
        controller.says(Task(4, 9, b"a"))
        controller.hears(Undelivered(4))

    def test_a_handler_that_breaks_refuses(self) -> None:
        controller = Controller()
        node, _ = made(controller)
        node.consume(b"q", lambda payload: 1 / 0)
        controller.peer.hears()
        controller.says(Consuming(1, b"q"), Task(4, 1, b"a"))
        controller.hears(Delivered(4), Undelivered(4))

    def test_a_cancelled_request_is_forgotten_when_it_is_answered(self) -> None:
        controller = Controller()
        node, _ = made(controller)
        asked = node.request(b"q", b"a")
        asked.cancel()
        assert isinstance(outcome(asked), CancelledError)
        controller.says(Delivered(0), Reply(0, b"late"))

    def test_ids_in_use_are_skipped(self) -> None:
        controller = Controller()
        node, _ = made(controller)
        first = node.request(b"q", b"stays")
        controller.peer.hears()
        for _ in range(0x7FFF):
            node.send(b"q", b"a")
            number = int.from_bytes(controller.peer.hears()[2:6], "big")
            controller.says(Delivered(number))
            assert 1 <= number <= 0x7FFF
        node.send(b"q", b"a")
        controller.hears(Request(1, b"q", b"a", noreply=True))
        controller.says(Reply(0, b"x"))
        assert outcome(first) == b"x"

    def test_a_lost_connection_fails_what_was_asked(self) -> None:
        controller = Controller()
        node, _ = made(controller)
        asked = node.request(b"q", b"a")
        controller.peer.hangs_up()
        assert isinstance(outcome(asked), NotDelivered)

    def test_requests_wait_for_a_controller_up_to_a_limit(self) -> None:
        controller = Controller(refuses=True)
        node, clock = made(controller)
        waiting = [node.request(b"q", b"a") for _ in range(MOST_WAITING)]
        assert isinstance(outcome(node.request(b"q", b"b")), NotDelivered)
        assert not node.broadcast(b"q", b"x")
        waiting[0].addErrback(lambda _: None).cancel()
        controller.refuses = False
        clock.advance(1)
        assert controller.peer.hears().count(b"\xa0\x01q") == MOST_WAITING - 1

    def test_to_stop_fails_what_waits_and_hangs_up(self) -> None:
        controller = Controller(refuses=True)
        node, clock = made(controller)
        asked = node.request(b"q", b"a")
        assert outcome(node.stop()) is None
        assert isinstance(outcome(asked), NotDelivered)
        clock.advance(100)
        assert controller.tried == 1
        assert clock.getDelayedCalls() == []

    def test_a_controller_that_does_not_let_go_is_left(self) -> None:
        controller = Controller()
        node, clock = made(controller)
        node.request(b"q", b"a").addErrback(lambda _: None)
        controller.peer.hears()
        stopped = node.stop()
        assert controller.peer.hears() == b"\x16"
        clock.advance(30)
        assert outcome(stopped) is None
        assert not controller.peer.transport.connected


class TestControllers:
    def test_a_full_one_goes_to_the_back(self) -> None:
        full, good = Controller(), Controller()
        node, clock = made(full, good)
        full.says(ServerFull())
        full.peer.hangs_up()
        assert node.controllers == [good, full]
        clock.advance(0.5)
        assert good.tried == 1
        clock.advance(1000)
        assert full.tried == 1

    def test_so_does_one_that_cannot_be_reached(self) -> None:
        down, good = Controller(refuses=True), Controller()
        node, clock = made(down, good)
        assert node.controllers == [good, down]
        clock.advance(0.5)
        node.request(b"q", b"a")
        good.hears(Request(0, b"q", b"a"))

    @pytest.mark.parametrize("how", ["refused", "full", "hangs-up"])
    def test_no_storm_is_possible(self, how: str) -> None:
        """librq made 8271 connections in a second here."""
        controller = Controller(refuses=how == "refused")
        _node, clock = made(controller)
        times = []
        for _ in range(3000):
            if controller.peers and controller.peer.transport.connected:
                if how == "full":
                    controller.says(ServerFull())
                controller.peer.hangs_up()
            tried = controller.tried
            clock.advance(0.1)
            if controller.tried > tried:
                times.append(clock.seconds())
        assert controller.tried < 25
        waits = [after - before for before, after in zip(times[-5:], times[-4:], strict=False)]
        assert all(14 <= wait <= 31 for wait in waits)
        assert len({round(wait) for wait in waits}) > 1

    def test_two_nodes_do_not_come_back_in_one_moment(self) -> None:
        waits = set()
        for seed in range(20):
            clock, down = Clock(), Controller(refuses=True)
            Node(clock, [down], Random(seed)).start()  # type: ignore[list-item]
            (call,) = clock.getDelayedCalls()
            waits.add(call.getTime())
        assert len(waits) == 20
        assert all(0.25 <= wait <= 0.5 for wait in waits)

    def test_a_connection_that_lasted_forgives_the_failures_before(self) -> None:
        controller = Controller(refuses=True)
        _node, clock = made(controller)
        clock.pump([1] * 60)
        controller.refuses = False
        clock.pump([1] * 60)
        tried = controller.tried
        controller.peer.hangs_up()
        clock.advance(0.5)
        assert controller.tried == tried + 1

    def test_a_missing_pong_brings_the_next_one_at_once(self) -> None:
        first, second = Controller(), Controller()
        node, clock = made(first, second)
        asked = node.request(b"q", b"a")
        first.peer.hears()
        clock.advance(15)
        first.hears(Ping())
        clock.advance(14.9)
        assert second.tried == 0
        clock.advance(0.1)
        assert second.tried == 1
        assert not first.peer.transport.connected
        assert isinstance(outcome(asked), NotDelivered)
        node.request(b"q", b"b")
        second.hears(Request(0, b"q", b"b"))

    def test_but_one_that_it_consumes_from_is_kept(self) -> None:
        first, second = Controller(), Controller()
        node, clock = made(first, second)
        node.consume(b"q", bytes.upper)
        first.says(Consuming(1, b"q"))
        first.peer.hears()
        clock.advance(15)
        clock.advance(15)
        assert first.peer.transport.connected
        first.hears(Ping())
        second.hears(Consume(b"q"))
        first.says(Task(1, 1, b"late"))
        first.hears(Delivered(1), Reply(1, b"LATE"))
        node.broadcast(b"q", b"x")
        second.hears(Broadcast(b"q", b"x"))
        node.cancel(b"q")
        first.hears(Cancel(b"q"))

    def test_an_answer_keeps_the_controller(self) -> None:
        first, second = Controller(), Controller()
        _node, clock = made(first, second)
        for _ in range(5):
            clock.advance(15)
            first.hears(Ping())
            first.says(Pong())
        assert second.tried == 0

    def test_if_the_next_one_is_down_too_it_goes_on_looking(self) -> None:
        first, second, third = Controller(), Controller(refuses=True), Controller()
        _node, clock = made(first, second, third)
        clock.advance(15)
        clock.advance(15)
        assert first.peer.transport.connected
        clock.advance(0.5)
        assert third.tried == 1
        assert not first.peer.transport.connected

    def test_closing_is_honoured(self) -> None:
        """Work under way is finished there; what is new goes elsewhere."""
        first, second = Controller(), Controller()
        node, clock = made(first, second)
        later: Deferred[bytes] = Deferred()
        node.consume(b"q", lambda payload: later)
        asked = node.request(b"r", b"a")
        first.peer.hears()
        first.says(Consuming(1, b"q"), Task(1, 1, b"x"), Shutdown())
        first.hears(Delivered(1))
        new = node.request(b"r", b"b")
        clock.advance(0.5)
        second.hears(Consume(b"q"), Request(0, b"r", b"b"))
        assert first.peer.transport.connected
        later.callback(b"done")
        first.hears(Reply(1, b"done"))
        first.says(Reply(0, b"A"))
        assert outcome(asked) == b"A"
        first.peer.hangs_up()
        second.says(Reply(0, b"B"))
        assert outcome(new) == b"B"
        assert (first.tried, second.tried) == (1, 1)


PING, PONG = wire.encode(Ping()), wire.encode(Pong())
