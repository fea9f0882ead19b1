"""Tests for gateway.broker: addresses, topics, mailboxes, the log, and what a restart keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.interfaces import Expired, Message, NoSuchAddress, Overloaded, Peer
from gateway.journal import at_once
from gateway.record import ACCEPTED, DECLARED, DELIVERED, EXPIRED, REFUSED, Record, row
from gateway.store import Retention, SqliteStore
from tests.support import DurableMemory, HeldWriter, World

ANN = Peer("test", "ann")


@pytest.fixture
def world() -> World:
    return World()


def on_disk(path: Path, later: float = 0.0) -> World:
    """A world that remembers, written at once."""
    return World(SqliteStore(path, "NORMAL", Retention()), at_once, later)


class TestAddresses:
    def test_declaring_tells_whether_it_is_new(self, world: World) -> None:
        assert world.broker.declare("queue:a") is True
        assert world.broker.declare("queue:a") is False
        assert world.kinds() == [DECLARED]

    def test_options_can_change_and_are_recorded_when_they_do(self, world: World) -> None:
        world.broker.declare("queue:a", limit=3)
        assert world.broker.declare("queue:a", limit=5) is False
        assert world.broker.info("queue:a").options["limit"] == 5
        assert world.kinds() == [DECLARED, DECLARED]

    def test_each_has_a_number_for_life(self, world: World) -> None:
        for name in ("queue:a", "topic:b", "user:c", "queue:a"):
            world.broker.declare(name)
        numbers = [world.broker.info(name).number for name in ("queue:a", "topic:b", "user:c")]
        assert numbers == [1, 2, 3]

    def test_each_is_found_by_its_number(self, world: World) -> None:
        world.broker.declare("queue:a")
        world.broker.declare("topic:b")
        assert world.broker.find(2) == "topic:b"
        with pytest.raises(NoSuchAddress):
            world.broker.find(3)

    @pytest.mark.parametrize("address", ["", "queue", "queue:", "tube:x", ":x"])
    def test_what_is_no_address_is_our_own_mistake(self, world: World, address: str) -> None:
        with pytest.raises(ValueError, match="no address"):
            world.broker.declare(address)


class TestTopics:
    @pytest.fixture
    def heard(self, world: World) -> list[bytes]:
        world.broker.declare("topic:news")
        heard: list[bytes] = []
        world.broker.subscribe("topic:news", lambda message: heard.append(message.body))
        return heard

    def publish(self, world: World, body: bytes, **about: Any) -> int:
        return world.broker.publish(Message("topic:news", body, "bob", "test", **about))

    def test_every_subscriber_present_gets_a_message(
        self, world: World, heard: list[bytes]
    ) -> None:
        world.broker.subscribe("topic:news", lambda message: heard.append(b"too"))
        assert self.publish(world, b"a") == 2
        assert heard == [b"a", b"too"]
        assert world.kinds()[-2:] == [ACCEPTED, DELIVERED]
        assert world.records[-1].deliveries == 2

    def test_one_that_has_left_hears_nothing(self, world: World) -> None:
        world.broker.declare("topic:news")
        subscription = world.broker.subscribe("topic:news", lambda _: pytest.fail("heard"))
        subscription.cancel()
        assert self.publish(world, b"a") == 0

    def test_one_that_leaves_another_in_the_middle_is_obeyed(self, world: World) -> None:
        world.broker.declare("topic:news")
        heard: list[bytes] = []
        world.broker.subscribe("topic:news", lambda _: second.cancel())
        second = world.broker.subscribe("topic:news", lambda message: heard.append(message.body))
        self.publish(world, b"a")
        assert heard == []

    def test_a_message_is_retained_until_it_is_due(self, world: World, heard: list[bytes]) -> None:
        now = world.broker.now()
        for body, due in ((b"a", now + 5), (b"b", now + 2), (b"c", None), (b"d", now + 9)):
            self.publish(world, body, due=due)
        kept = [message.body for message in world.broker.retained("topic:news")]
        assert kept == [b"a", b"b", b"d"]
        world.clock.advance(2)
        kept = [message.body for message in world.broker.retained("topic:news")]
        assert kept == [b"a", b"d"]
        world.clock.advance(10)
        assert world.broker.retained("topic:news") == []
        assert world.kinds().count(EXPIRED) == 3

    def test_a_late_alarm_does_not_show_what_is_over(
        self, world: World, heard: list[bytes]
    ) -> None:
        self.publish(world, b"a", due=world.broker.now() + 5)
        world.clock.rightNow += 5  # the reactor has not come round yet
        assert world.broker.retained("topic:news") == []

    def test_one_that_is_due_already_is_refused(self, world: World, heard: list[bytes]) -> None:
        with pytest.raises(Expired):
            self.publish(world, b"a", due=world.broker.now())
        assert heard == []

    def test_expiry_costs_one_timer_however_many_wait(
        self, world: World, heard: list[bytes]
    ) -> None:
        for seconds in (9, 3, 7, 5):
            self.publish(world, b"x", due=world.broker.now() + seconds)
        world.clock.advance(0)
        assert len(world.clock.getDelayedCalls()) == 1

    def test_a_missing_topic_is_refused(self, world: World) -> None:
        with pytest.raises(NoSuchAddress):
            self.publish(world, b"a")
        with pytest.raises(NoSuchAddress):
            world.broker.subscribe("topic:news", lambda _: None)
        with pytest.raises(NoSuchAddress):
            world.broker.retained("topic:news")


def test_a_mailbox_keeps_messages_in_order_until_they_are_acknowledged(world: World) -> None:
    world.broker.declare("user:fish")
    for body in (b"a", b"b"):
        world.broker.push(Message("user:fish", body))
    got: list[Message] = []
    reader = world.broker.consume("user:fish", lambda message, _: got.append(message), 1, peer=ANN)
    assert [message.body for message in got] == [b"a"]
    reader.settle(got[0])
    reader.grant(1)
    assert [message.body for message in got] == [b"a", b"b"]
    reader.cancel()  # b was not acknowledged
    assert world.broker.info("user:fish").depth == 1


def test_what_passes_through_a_hub_is_recorded_and_not_kept(world: World) -> None:
    world.broker.declare("hub:room")
    heard: list[bytes] = []
    world.broker.subscribe("hub:room", lambda message: heard.append(message.body))
    world.broker.publish(Message("hub:room", b"hi", "0003", "test"))
    assert heard == [b"hi"]
    assert world.broker.retained("hub:room") == []
    assert world.kinds() == [DECLARED, ACCEPTED, DELIVERED]


def test_a_reply_is_a_row_with_its_body(world: World) -> None:
    world.broker.declare("queue:a")
    message = Message("queue:a", b"question", "bob", "test")
    world.broker.push(message)
    world.clock.advance(3)
    world.broker.replied(message, b"answer", ANN)
    world.kinds()
    shown = row(world.records[-1])
    assert (shown["event"], shown["body"], shown["size"]) == ("replied", b"answer", 6)
    assert (shown["message"], shown["receiver"], shown["latency"]) == (2, "ann", 3.0)


class TestLog:
    def test_sequences_are_dense_and_watchers_see_each_once(self, world: World) -> None:
        world.broker.declare("queue:a")
        for _ in range(5):
            world.broker.push(Message("queue:a", b"x"))
            world.broker.take("queue:a", ANN)
        world.kinds()
        assert [record.sequence for record in world.records] == list(range(1, 12))

    def test_a_watcher_sees_only_what_comes_after_it(self, world: World) -> None:
        world.broker.declare("queue:a")
        seen: list[Record] = []
        stop = world.broker.watch(seen.extend)
        world.broker.push(Message("queue:a", b"x"))
        world.clock.advance(0)
        stop()
        world.broker.push(Message("queue:a", b"y"))
        world.clock.advance(0)
        assert [record.body for record in seen] == [b"x"]

    def test_a_watcher_that_breaks_does_not_stop_the_others(self, world: World) -> None:
        world.broker.declare("queue:a")
        world.broker.watch(lambda records: 1 // 0)
        seen: list[Record] = []
        world.broker.watch(seen.extend)
        world.broker.push(Message("queue:a", b"x"))
        world.clock.advance(0)
        assert len(seen) == 1

    def test_a_watcher_sees_nothing_that_is_not_safe(self) -> None:
        writer = HeldWriter()
        world = World(DurableMemory(), writer.run)
        world.broker.declare("queue:a")
        assert world.kinds() == []
        writer.write()
        assert world.kinds() == [DECLARED]

    def test_a_refusal_is_counted_and_recorded(self, world: World) -> None:
        world.broker.note(REFUSED, ANN, reason="too many", detail="127.0.0.1:5")
        world.kinds()
        assert world.broker.counts["refused", "test", "too many"] == 1
        assert world.records[0].headers == {"detail": "127.0.0.1:5"}

    def test_while_the_disk_fails_notes_are_counted_and_not_collected(self) -> None:
        writer = HeldWriter()
        world = World(DurableMemory(), writer.run)
        world.broker.declare("queue:a")
        world.clock.advance(0)
        writer.fail(OSError("full"))
        for _ in range(100):
            world.broker.note(REFUSED, ANN, reason="x")
        assert world.broker.counts["unrecorded", REFUSED] == 100
        with pytest.raises(Overloaded):
            world.broker.push(Message("queue:a", b"x"))


class TestRestart:
    def restart(self, world: World, path: Path, after: float = 0.0) -> World:
        """Stop it, and start another on the same data so many seconds later."""
        world.clock.advance(0)
        world.broker.stopService()
        return on_disk(path, after)

    def test_what_waits_comes_back_in_order_and_what_is_done_does_not(self, tmp_path: Path) -> None:
        world = on_disk(tmp_path)
        world.broker.declare("queue:a", limit=7)
        for body in (b"1", b"2", b"3"):
            world.broker.push(Message("queue:a", body, "bob", "test", headers={"k": "v"}))
        world.broker.take("queue:a", ANN)
        again = self.restart(world, tmp_path)
        assert again.broker.info("queue:a").options["limit"] == 7
        back = [again.broker.take("queue:a", ANN) for _ in range(2)]
        assert [message.body for message in back] == [b"2", b"3"]
        assert (back[0].sender, back[0].headers) == ("bob", {"k": "v"})

    def test_what_was_handed_out_and_not_settled_comes_back_with_its_count(
        self, tmp_path: Path
    ) -> None:
        world = on_disk(tmp_path)
        world.broker.declare("queue:a")
        world.broker.push(Message("queue:a", b"1"))
        world.broker.consume("queue:a", lambda *_: None, 1, peer=ANN)
        again = self.restart(world, tmp_path)
        counts: list[int] = []
        again.broker.consume("queue:a", lambda _, count: counts.append(count), 1, peer=ANN)
        assert counts == [2]

    def test_topics_keep_what_is_not_due_and_count_what_expired_meanwhile(
        self, tmp_path: Path
    ) -> None:
        world = on_disk(tmp_path)
        world.broker.declare("topic:t")
        now = world.broker.now()
        world.broker.publish(Message("topic:t", b"early", due=now + 5))
        world.broker.publish(Message("topic:t", b"late", due=now + 50))
        world.broker.publish(Message("topic:t", b"at once"))
        again = self.restart(world, tmp_path, after=10)
        assert [message.body for message in again.broker.retained("topic:t")] == [b"late"]
        assert again.broker.counts["expired", "", "expired"] == 1
        again.clock.advance(40)
        assert again.broker.retained("topic:t") == []
        third = self.restart(again, tmp_path, after=60)
        assert third.broker.counts["expired", "", "expired"] == 0

    def test_numbers_and_sequences_go_on(self, tmp_path: Path) -> None:
        world = on_disk(tmp_path)
        world.broker.declare("queue:a")
        world.broker.declare("queue:b")
        again = self.restart(world, tmp_path)
        again.broker.declare("queue:c")
        assert again.broker.info("queue:b").number == 2
        assert again.broker.info("queue:c").number == 3
        again.kinds()
        assert [record.sequence for record in again.records] == [3]

    def test_a_stopped_broker_accepts_nothing(self, tmp_path: Path) -> None:
        world = on_disk(tmp_path)
        world.broker.declare("queue:a")
        world.broker.stopService()
        with pytest.raises(Overloaded, match="shutting down"):
            world.broker.push(Message("queue:a", b"x"))
