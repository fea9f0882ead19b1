"""Tests for gateway.publishing: batches come in whole or not at all, and each once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from gateway import publishing, replay
from gateway.interfaces import Peer
from gateway.record import ACCEPTED, PUBLISHED
from gateway.routes import Route
from tests.gateway.replaying import JOBS, NEWS, Make, Replay, frame
from tests.support import NOW, HeldWriter

BOB = Peer("test", "bob")


@pytest.fixture
def make(make_bare: Make) -> Make:
    return make_bare


@pytest.fixture
def made(make: Make) -> Replay:
    """A gateway with a queue and a topic."""
    made = make()
    made.broker.declare(JOBS)
    made.broker.declare(NEWS)
    made.turn()
    return made


def bodies(made: Replay, address: str) -> list[bytes]:
    """All that waits there; then it does not."""
    return [made.broker.take(address, BOB).body for _ in range(made.depth(address))]


def kinds(made: Replay) -> list[str]:
    return made.world.kinds()


class TestABatch:
    def test_it_reaches_queues_topics_mailboxes_and_hubs(self, made: Replay) -> None:
        """In order, from the sender that was named, by the protocol spark."""
        heard: list[Any] = []
        made.broker.declare("user:ann")
        made.broker.declare("hub:chat")
        for address in (NEWS, "hub:chat"):
            made.broker.subscribe(address, heard.append)
        rows = [(JOBS, b"1"), (NEWS, b"2"), ("user:ann", b"3"), ("hub:chat", b"4"), (JOBS, b"\0")]
        assert made.publish(rows) == ["published", 5, 0]
        assert bodies(made, JOBS) == [b"1", b"\0"]
        assert bodies(made, "user:ann") == [b"3"]
        assert [message.body for message in heard] == [b"2", b"4"]
        assert {(message.sender, message.protocol) for message in heard} == {("spark", "spark")}

    def test_it_may_come_in_many_frames(self, made: Replay) -> None:
        reader = made.connect()
        reader.asks("publish", "q", 0, "spark", False)
        for number in range(3):
            assert reader.asks("messages", [[JOBS, b"%d" % number, None]]) == [["done"]]
        assert made.depth(JOBS) == 0
        assert made.sink.waiting > 0
        reader.says(frame("commit"))
        made.turn()
        assert reader.tells() == [["published", 3, 0]]
        assert (bodies(made, JOBS), made.sink.waiting) == ([b"0", b"1", b"2"], 0)

    def test_it_is_answered_when_it_is_on_disk(self, make: Make) -> None:
        writer = HeldWriter()
        made = make(run=writer.run)
        made.broker.declare(JOBS)
        reader = made.connect()
        reader.asks("publish", "q", 0, "spark", False)
        reader.asks("messages", [[JOBS, b"x", None]])
        assert reader.asks("commit") == []
        made.turn()
        assert reader.tells() == []
        writer.write()
        assert reader.tells() == [["published", 1, 0]]

    def test_the_messages_and_the_mark_are_one_row_of_the_log(self, made: Replay) -> None:
        """Hence one transaction: a crash leaves both or neither."""
        made.publish([(JOBS, b"1"), (JOBS, b"2")], query="q", batch=7)
        (answer, _) = made.connect().asks("read", 3, 6)
        assert len(answer[2]) == 1
        assert kinds(made)[-3:] == [ACCEPTED, ACCEPTED, PUBLISHED]
        assert made.world.records[-1].headers == {"query": "q", "batch": 7, "messages": 2}

    def test_an_empty_one_is_done_too(self, made: Replay) -> None:
        reader = made.connect()
        reader.asks("publish", "q", 0, "spark", False)
        reader.says(frame("commit"))
        made.turn()
        assert reader.tells() == [["published", 0, 0]]
        assert made.world.journal.published == {"q": 0}

    def test_a_new_one_takes_the_place_of_one_that_was_begun(self, made: Replay) -> None:
        reader = made.connect()
        reader.asks("publish", "q", 0, "spark", False)
        reader.asks("messages", [[JOBS, b"never", None]])
        reader.asks("publish", "q", 0, "spark", False)
        assert made.sink.waiting == 0
        reader.says(frame("commit"))
        made.turn()
        assert reader.tells() == [["published", 0, 0]]
        assert made.depth(JOBS) == 0

    def test_one_whose_sender_goes_in_the_middle_leaves_nothing(self, made: Replay) -> None:
        reader = made.connect()
        reader.asks("publish", "q", 0, "spark", False)
        reader.asks("messages", [[JOBS, b"x", None]])
        reader.says(frame("messages", [[JOBS, b"x", None]])[:9])
        reader.hangs_up()
        assert (made.sink.waiting, made.depth(JOBS)) == (0, 0)
        assert made.world.journal.published == {}
        assert made.clock.getDelayedCalls() == []

    def test_one_whose_sender_goes_before_the_answer_is_in(self, make: Make) -> None:
        """When it comes again, it is known."""
        writer = HeldWriter()
        made = make(run=writer.run)
        made.broker.declare(JOBS)
        reader = made.connect()
        reader.asks("publish", "q", 0, "spark", False)
        reader.asks("messages", [[JOBS, b"x", None]])
        reader.says(frame("commit"))
        reader.hangs_up()
        made.turn()
        again = made.connect()
        assert again.asks("publish", "q", 0, "spark", False) == []  # it is not on disk yet
        writer.write()
        assert again.tells() == [["published", 0, 0]]
        assert bodies(made, JOBS) == [b"x"]


class TestOnce:
    def test_a_batch_that_comes_again_is_known(self, made: Replay) -> None:
        assert made.publish([(JOBS, b"1")]) == ["published", 1, 0]
        assert made.publish([(JOBS, b"1")]) == ["published", 0, 0]
        assert made.depth(JOBS) == 1

    def test_it_is_known_after_a_restart(self, made: Replay, make: Make) -> None:
        made.publish([(JOBS, b"1")], batch=3)
        again = make(later=10)
        assert again.publish([(JOBS, b"1")], batch=3) == ["published", 0, 0]
        assert again.publish([(JOBS, b"2")], batch=4) == ["published", 1, 0]
        assert make(later=20).publish([(JOBS, b"2")], batch=4) == ["published", 0, 0]

    def test_an_older_batch_is_known_and_another_query_is_not(self, made: Replay) -> None:
        made.publish([(JOBS, b"1")], query="a", batch=5)
        assert made.publish([(JOBS, b"1")], query="a", batch=4) == ["published", 0, 0]
        assert made.publish([(JOBS, b"1")], query="b", batch=4) == ["published", 1, 0]

    def test_without_a_query_nothing_is_known(self, made: Replay) -> None:
        for _ in range(2):
            assert made.publish([(JOBS, b"1")], query="") == ["published", 1, 0]
        assert PUBLISHED not in kinds(made)

    def test_two_that_send_the_same_batch_at_once(self, made: Replay) -> None:
        """The second is told so when it ends, though it was not when it began."""
        readers = [made.connect(), made.connect()]
        for reader in readers:
            assert reader.asks("publish", "q", 0, "spark", False) == [["done"]]
            reader.asks("messages", [[JOBS, b"x", None]])
        for reader in readers:
            reader.says(frame("commit"))
        made.turn()
        assert [reader.tells() for reader in readers] == [
            [["published", 1, 0]],
            [["published", 0, 0]],
        ]
        assert made.depth(JOBS) == 1

    def test_the_queries_that_are_silent_longest_are_forgotten(
        self, made: Replay, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """At once as after a restart."""
        monkeypatch.setattr(publishing, "MOST_QUERIES", 2)
        monkeypatch.setattr("gateway.store.MOST_QUERIES", 2)
        for batch, query in enumerate("abac"):
            made.clock.advance(1)
            made.publish([(JOBS, b"1")], query, batch)
        assert made.world.journal.published == {"a": 2, "c": 3}
        assert make(later=10).world.journal.published == {"a": 2, "c": 3}


class TestAFullDisk:
    def test_what_could_not_be_written_is_taken_back_and_may_come_again(self, make: Make) -> None:
        """Both of two batches of a query that were to be written together."""
        writer = HeldWriter()
        made = make(run=writer.run)
        made.broker.declare(JOBS)
        made.turn()
        writer.write()
        readers = [made.connect(), made.connect()]
        for batch, reader in enumerate(readers):
            reader.asks("publish", "q", batch, "spark", False)
            reader.asks("messages", [[JOBS, b"%d" % batch, None]])
            reader.says(frame("commit"))
        assert made.world.journal.published == {"q": 1}
        made.turn()
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        writer.fail(error)
        for reader in readers:
            (answer,) = reader.tells()
            assert answer[:2] == ["error", "overloaded"]
        assert made.world.journal.published == {}
        assert made.depth(JOBS) == 0
        assert made.publish([(JOBS, b"0")])[:2] == ["error", "overloaded"]
        made.clock.advance(1)
        writer.write()
        again = made.connect()
        assert again.asks("publish", "q", 0, "spark", False) == [["done"]]
        again.asks("messages", [[JOBS, b"0", None]])
        again.says(frame("commit"))
        made.turn()
        writer.write()
        assert again.tells() == [["published", 1, 0]]
        assert bodies(made, JOBS) == [b"0"]
        assert made.world.journal.published == {"q": 0}


class TestRefusals:
    @pytest.mark.parametrize("address", ["jobs", "tube:jobs", "queue:", ":jobs", "queue"])
    def test_what_is_no_address_is_named(self, made: Replay, address: str) -> None:
        answer = made.publish([(JOBS, b"1"), (address, b"2")], create=True)
        text = f"{address!r} is no address, such as queue:jobs or topic:news"
        assert answer == ["error", "refused", text]
        assert made.depth(JOBS) == 0

    def test_an_address_that_is_not_there_refuses_the_batch(self, made: Replay) -> None:
        """The connection is kept, and the batch may come again when it is there."""
        rows = [(JOBS, b"1"), ("queue:new", b"2")]
        assert made.publish(rows) == ["error", "refused", "there is no queue:new"]
        assert made.depth(JOBS) == 0
        assert made.refusals() == ["NoSuchAddress"]
        made.broker.declare("queue:new")
        assert made.publish(rows) == ["published", 2, 0]

    def test_if_it_is_asked_to_it_makes_addresses(self, made: Replay, make: Make) -> None:
        """Only if the batch is not refused for something else."""
        made.broker.declare("queue:small", limit=1)
        rows = [("queue:new", b"1"), ("topic:new", b"2"), ("queue:small", b"3")]
        assert made.publish([*rows, rows[2]], create=True)[:2] == ["error", "refused"]
        assert not made.broker.exists("queue:new")
        assert made.publish(rows, create=True) == ["published", 3, 0]
        assert bodies(make(later=1), "queue:new") == [b"1"]

    def test_a_queue_without_room_for_all_gets_nothing(self, made: Replay) -> None:
        """Neither does any other; what is handed out and not settled takes room."""
        made.broker.declare("queue:small", limit=3)
        made.push(b"before", address="queue:small")
        consumer = made.broker.consume("queue:small", lambda *_: None, peer=BOB)
        held, _ = consumer.pull() or (None, 0)
        rows = [(JOBS, b"1"), *[("queue:small", b"%d" % number) for number in range(3)]]
        text = "queue:small has room for 2 messages, not for 3"
        assert made.publish(rows) == ["error", "refused", text]
        assert (made.depth(JOBS), made.depth("queue:small")) == (0, 0)
        assert held is not None
        consumer.settle(held)
        assert made.publish(rows) == ["published", 4, 0]

    def test_one_of_too_many_messages_is_not_kept(
        self, made: Replay, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(replay, "MOST_MESSAGES", 2)
        reader = made.connect()
        reader.asks("publish", "q", 0, "spark", False)
        two = [[JOBS, b"x", None]] * 2
        assert reader.asks("messages", two) == [["done"]]
        text = "a batch has at most 2 messages"
        assert reader.asks("messages", two) == [["error", "refused", text]]
        assert made.sink.waiting == 0
        assert reader.asks_one("publish", "q", 0, "spark", False) == ["done"]

    def test_one_of_too_many_bytes_is_not_kept(
        self, made: Replay, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A message without a body takes memory too."""
        monkeypatch.setattr(replay, "MOST_BYTES", 1000)
        text = "a batch has at most 1000 bytes"
        assert made.publish([(JOBS, b"x" * 1000)]) == ["error", "refused", text]
        assert made.publish([(JOBS, b"")] * 10) == ["error", "refused", text]
        assert made.sink.waiting == 0

    def test_many_that_wait_are_too_much_together(
        self, made: Replay, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last one is refused for now, the others are not harmed."""
        monkeypatch.setattr(replay, "MOST_BYTES", 1000)
        first, second = made.connect(), made.connect()
        for query, reader in (("a", first), ("b", second)):
            reader.asks("publish", query, 0, "spark", False)
        assert first.asks("messages", [[JOBS, b"x" * 500, None]]) == [["done"]]
        text = "too many batches are on their way in"
        assert second.asks("messages", [[JOBS, b"x" * 500, None]]) == [
            ["error", "overloaded", text]
        ]
        first.says(frame("commit"))
        made.turn()
        assert first.tells() == [["published", 1, 0]]
        assert made.sink.waiting == 0

    def test_when_the_gateway_ends_it_is_refused_for_now(self, made: Replay) -> None:
        made.stop()
        answer = made.publish([(JOBS, b"1")])
        assert answer == ["error", "overloaded", "the gateway is shutting down"]


class TestDueTimes:
    def test_what_was_due_before_it_came_is_late_and_the_rest_is_accepted(
        self, made: Replay
    ) -> None:
        """It needs no room and no address either."""
        rows = [
            (JOBS, b"late", NOW - 1),
            (JOBS, b"now", NOW),
            ("queue:none", b"late", 1),
            (JOBS, b"in time", NOW + 9),
            (JOBS, b"whenever", None),
        ]
        assert made.publish(rows) == ["published", 2, 3]
        assert bodies(made, JOBS) == [b"in time", b"whenever"]

    def test_it_expires_when_it_is_due(self, made: Replay) -> None:
        made.publish([(JOBS, b"1", NOW + 9)])
        made.clock.advance(9)
        assert made.depth(JOBS) == 0
        assert kinds(made)[-1] == "expired"

    def test_what_becomes_late_while_the_batch_is_taken_in_is_late(self, made: Replay) -> None:
        """A big batch takes half a second; here a subscriber takes two."""
        made.broker.subscribe(NEWS, lambda _: made.clock.advance(2))
        rows = [(NEWS, b"slow"), (JOBS, b"too late", NOW + 1), (JOBS, b"in time", NOW + 9)]
        assert made.publish(rows) == ["published", 2, 1]
        assert bodies(made, JOBS) == [b"in time"]
        made.turn()
        assert made.publish(rows) == ["published", 0, 0]


class TestRoutes:
    @pytest.fixture
    def full(self, make: Make) -> Callable[..., Replay]:
        """Makes a gateway with routes, whose queue:full has room for one message."""

        def start(*routes: Route) -> Replay:
            made = make(routes=routes)
            made.broker.declare("queue:full", limit=1)
            for address in (JOBS, "queue:way"):
                made.broker.declare(address)
            return made

        return start

    ROWS = [("queue:jobs", b"1"), ("queue:jobs", b"2")]

    def test_moved_to_a_full_queue_it_is_refused_whole(self, full: Callable[..., Replay]) -> None:
        made = full(Route(JOBS, "queue:full", moves=True))
        text = "queue:full has room for 1 messages, not for 2"
        assert made.publish(self.ROWS) == ["error", "refused", text]
        assert (made.depth("queue:full"), ACCEPTED in kinds(made)) == (0, False)
        assert made.publish(self.ROWS[:1]) == ["published", 1, 0]
        assert bodies(made, "queue:full") == [b"1"]

    def test_moved_over_two_routes_it_is_refused_whole(self, full: Callable[..., Replay]) -> None:
        """However full the queue on the way is, where it does not stay."""
        made = full(
            Route(JOBS, "queue:way", moves=True), Route("queue:way", "queue:full", moves=True)
        )
        made.broker.declare("queue:way", limit=0)
        assert made.publish(self.ROWS)[:2] == ["error", "refused"]
        assert ACCEPTED not in kinds(made)
        assert made.publish(self.ROWS[:1]) == ["published", 1, 0]
        assert bodies(made, "queue:full") == [b"1"]

    def test_copied_to_a_full_queue_it_is_accepted_whole(self, full: Callable[..., Replay]) -> None:
        """The copies that find no room are noted."""
        made = full(Route(JOBS, "queue:full"))
        assert made.publish(self.ROWS) == ["published", 2, 0]
        assert bodies(made, JOBS) == [b"1", b"2"]
        assert bodies(made, "queue:full") == [b"1"]
        assert made.refusals() == ["route: QueueFull"]

    def test_copied_from_where_it_was_moved_to_it_is_accepted_whole(
        self, full: Callable[..., Replay]
    ) -> None:
        made = full(Route(JOBS, "queue:way", moves=True), Route("queue:way", "queue:full"))
        assert made.publish(self.ROWS) == ["published", 2, 0]
        assert bodies(made, "queue:way") == [b"1", b"2"]

    def test_what_is_copied_to_a_queue_takes_room_from_what_is_for_it(
        self, full: Callable[..., Replay]
    ) -> None:
        made = full(Route(NEWS, "queue:full"))
        made.broker.declare(NEWS)
        rows = [(NEWS, b"1"), ("queue:full", b"2")]
        assert made.publish(rows)[:2] == ["error", "refused"]
        assert made.publish(rows[:1]) == ["published", 1, 0]

    def test_the_limit_of_a_topic_is_no_refusal(self, make: Make) -> None:
        """It keeps the newest, also when messages are moved there."""
        made = make(routes=(Route(JOBS, NEWS, moves=True),))
        made.broker.declare(NEWS, limit=1, keep=True)
        made.broker.declare(JOBS)
        rows = [(NEWS, b"1"), (NEWS, b"2"), (JOBS, b"3")]
        assert made.publish(rows) == ["published", 3, 0]
        assert [message.body for message in made.broker.retained(NEWS)] == [b"3"]
