"""Tests for what the Broker does with a whole address: keep all that comes, or make it no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.interfaces import Message, NoSuchAddress, Peer
from gateway.journal import at_once
from gateway.record import DELETED, DROPPED
from gateway.store import Retention, SqliteStore
from tests.support import World

ANN = Peer("test", "ann")


@pytest.fixture
def world() -> World:
    return World()


def on_disk(path: Path) -> World:
    return World(SqliteStore(path, "NORMAL", Retention()), at_once)


def fill(world: World, address: str, *bodies: bytes) -> None:
    send = world.broker.push if address.startswith("queue") else world.broker.publish
    for body in bodies:
        send(Message(address, body, "bob", "test"))


def kept(world: World, address: str) -> list[bytes]:
    return [message.body for message in world.broker.retained(address)]


class TestKeeping:
    def test_a_topic_that_keeps_has_all_that_came_for_later_ones(self, world: World) -> None:
        world.broker.declare("topic:news", keep=True)
        fill(world, "topic:news", b"one", b"two")
        assert kept(world, "topic:news") == [b"one", b"two"]

    def test_over_its_limit_the_oldest_make_way_and_that_is_recorded(self, world: World) -> None:
        world.broker.declare("topic:news", keep=True, limit=2)
        fill(world, "topic:news", b"one", b"two", b"three")
        assert kept(world, "topic:news") == [b"two", b"three"]
        world.clock.advance(0)
        dropped = [record for record in world.records if record.kind == DROPPED]
        assert [(record.message, record.reason) for record in dropped] == [(2, "over the limit")]

    def test_a_lower_limit_counts_at_once(self, world: World) -> None:
        world.broker.declare("topic:news", keep=True)
        fill(world, "topic:news", b"one", b"two", b"three")
        world.broker.declare("topic:news", keep=True, limit=1)
        assert kept(world, "topic:news") == [b"three"]

    def test_what_it_keeps_survives_a_restart(self, tmp_path: Path) -> None:
        world = on_disk(tmp_path)
        world.broker.declare("topic:news", keep=True, limit=2)
        fill(world, "topic:news", b"one", b"two", b"three")
        world.broker.stopService()
        assert kept(on_disk(tmp_path), "topic:news") == [b"two", b"three"]


class TestDeleting:
    def test_what_waits_is_dropped_and_the_address_is_no_more(self, world: World) -> None:
        world.broker.declare("queue:jobs")
        fill(world, "queue:jobs", b"one", b"two")
        world.broker.delete("queue:jobs")
        assert world.kinds()[-3:] == [DROPPED, DROPPED, DELETED]
        with pytest.raises(NoSuchAddress):
            fill(world, "queue:jobs", b"three")
        with pytest.raises(NoSuchAddress):
            world.broker.delete("queue:jobs")

    def test_what_a_consumer_holds_is_dropped_and_cannot_be_settled(self, world: World) -> None:
        world.broker.declare("queue:jobs")
        held: list[Message] = []
        consumer = world.broker.consume("queue:jobs", lambda m, _: held.append(m), 1, peer=ANN)
        fill(world, "queue:jobs", b"one")
        world.broker.delete("queue:jobs")
        assert world.kinds()[-2:] == [DROPPED, DELETED]
        assert consumer.settle(held[0]) is False
        consumer.cancel()
        assert world.kinds()[-1] == DELETED

    def test_who_has_left_may_still_settle_what_he_has(self, world: World) -> None:
        world.broker.declare("queue:jobs")
        held: list[Message] = []
        consumer = world.broker.consume("queue:jobs", lambda m, _: held.append(m), 1, peer=ANN)
        fill(world, "queue:jobs", b"one")
        consumer.retire()
        world.broker.delete("queue:jobs")
        assert consumer.settle(held[0]) is True

    def test_who_has_left_and_gives_back_gives_up(self, world: World) -> None:
        world.broker.declare("queue:jobs")
        consumer = world.broker.consume("queue:jobs", lambda m, _: None, 1, peer=ANN)
        fill(world, "queue:jobs", b"one")
        consumer.retire()
        world.broker.delete("queue:jobs")
        consumer.cancel()
        assert world.kinds()[-1] == DROPPED

    def test_subscribers_hear_nothing_of_a_new_topic_of_that_name(self, world: World) -> None:
        heard: list[Message] = []
        world.broker.declare("topic:news", keep=True)
        fill(world, "topic:news", b"one")
        subscription = world.broker.subscribe("topic:news", heard.append)
        world.broker.delete("topic:news")
        world.broker.declare("topic:news")
        fill(world, "topic:news", b"two")
        subscription.cancel()
        assert (heard, kept(world, "topic:news")) == ([], [])

    def test_it_stays_deleted_after_a_restart_and_its_number_is_free(self, tmp_path: Path) -> None:
        world = on_disk(tmp_path)
        for name in ("queue:a", "queue:b", "queue:c"):
            world.broker.declare(name)
        fill(world, "queue:b", b"one")
        world.broker.delete("queue:b")
        world.broker.stopService()
        again = on_disk(tmp_path).broker
        with pytest.raises(NoSuchAddress):
            again.info("queue:b")
        again.declare("queue:d")
        again.declare("queue:e")
        assert [again.info(f"queue:{name}").number for name in "acde"] == [1, 3, 2, 4]

    def test_what_was_held_when_all_ended_does_not_come_back(self, tmp_path: Path) -> None:
        world = on_disk(tmp_path)
        world.broker.declare("queue:jobs")
        consumer = world.broker.consume("queue:jobs", lambda m, _: None, 1, peer=ANN)
        fill(world, "queue:jobs", b"one")
        consumer.retire()
        world.broker.delete("queue:jobs")
        world.broker.stopService()
        world = on_disk(tmp_path)
        assert world.kinds() == [DROPPED]


def test_a_choosy_pull_leaves_the_others_in_their_places(world: World) -> None:
    world.broker.declare("queue:jobs")
    fill(world, "queue:jobs", b"red 1", b"blue 1", b"red 2", b"blue 2")
    consumer = world.broker.consume("queue:jobs", lambda m, _: None, peer=ANN)
    pulled = consumer.pull(lambda message: message.body.startswith(b"blue"))
    assert pulled is not None
    assert pulled[0].body == b"blue 1"
    consumer.reject(pulled[0])
    again = consumer.pull(lambda message: message.body.startswith(b"blue"))
    assert again is not None
    assert (again[0].body, again[1]) == (b"blue 1", 2)
    assert consumer.pull(lambda message: message.body == b"green") is None
    left = [world.broker.take("queue:jobs", ANN).body for _ in range(3)]
    assert left == [b"red 1", b"red 2", b"blue 2"]
