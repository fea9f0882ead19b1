"""Tests for routes: what comes to one address goes to another too, once."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from gateway.interfaces import Message, Peer, QueueFull, Rights
from gateway.journal import at_once
from gateway.record import ACCEPTED, REFUSED, TAKEN
from gateway.routes import Route, loops
from gateway.store import Retention, SqliteStore
from tests.gateway.test_config import GOOD, Files, with_listener, with_user
from tests.support import NOW, World

BOB = Peer("test", "bob")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def linked(*routes: Route) -> World:
    """A world with these routes, whose addresses all exist."""
    world = World()
    for address in dict.fromkeys(itertools.chain(*[route[:2] for route in routes])):
        world.broker.declare(address)
    world.broker.set_routes([*routes])
    return world


def send(world: World, address: str, body: bytes, **about: Any) -> None:
    message = Message(address, body, "ann", "test", **about)
    if address.startswith(("queue:", "user:")):
        world.broker.push(message)
    else:
        world.broker.publish(message)


class Reader:
    """Collects what an address of whatever kind hands out."""

    def __init__(self, world: World, address: str) -> None:
        self.got: list[Message] = []
        if address.startswith(("queue:", "user:")):
            world.broker.consume(
                address, lambda message, _: self.got.append(message), 99, peer=BOB, final=True
            )
        else:
            world.broker.subscribe(address, self.got.append)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.got]


KINDS = ["queue:a", "user:a", "topic:a", "hub:a"]


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", ["queue:b", "user:b", "topic:b", "hub:b"])
def test_a_message_goes_from_any_kind_to_any_kind(source: str, target: str) -> None:
    world = linked(Route(source, target))
    here, there = Reader(world, source), Reader(world, target)
    send(world, source, b"a\0b")
    assert (here.bodies, there.bodies) == ([b"a\0b"], [b"a\0b"])
    copy = there.got[0]
    assert (copy.address, copy.sender, copy.protocol) == (target, "ann", "test")
    assert copy.headers == {"route": [source]}
    assert world.broker.counts["routed", source, target] == 1


def test_due_time_and_topic_word_travel_and_what_a_protocol_noted_does_not() -> None:
    world = linked(Route("topic:a", "queue:b"))
    send(world, "topic:a", b"x", due=NOW + 9, headers={"topic": "red", "reply": 1})
    copy = world.broker.take("queue:b", BOB)
    assert (copy.due, copy.headers) == (NOW + 9, {"route": ["topic:a"], "topic": "red"})


def test_two_addresses_linked_both_ways_hear_each_other_once() -> None:
    world = linked(Route("hub:a", "topic:b"), Route("topic:b", "hub:a"))
    room, topic = Reader(world, "hub:a"), Reader(world, "topic:b")
    send(world, "hub:a", b"one")
    send(world, "topic:b", b"two")
    assert room.bodies == topic.bodies == [b"one", b"two"]
    assert world.broker.counts["routed", "topic:b", "been there"] == 1


def test_a_ring_of_any_size_ends() -> None:
    ring = ["topic:a", "queue:b", "hub:c", "user:d"]
    world = linked(*(Route(ring[at - 1], ring[at]) for at in range(4)))
    readers = [Reader(world, address) for address in ring]
    send(world, "hub:c", b"x")
    assert [reader.bodies for reader in readers] == [[b"x"]] * 4


def test_a_queue_keeps_its_message_unless_the_route_moves_it() -> None:
    world = linked(Route("queue:a", "topic:b"), Route("queue:c", "topic:b", moves=True))
    topic = Reader(world, "topic:b")
    send(world, "queue:a", b"kept")
    send(world, "queue:c", b"moved")
    assert topic.bodies == [b"kept", b"moved"]
    assert world.broker.info("queue:a").depth == 1
    assert world.broker.info("queue:c").depth == 0
    world.clock.advance(0)
    moved = [record for record in world.records if record.kind == TAKEN]
    assert [(record.address, record.reason) for record in moved] == [("queue:c", "routed")]


def test_to_move_into_a_full_queue_is_refused_before_it_is_accepted() -> None:
    world = linked(Route("queue:a", "queue:b", moves=True))
    world.broker.declare("queue:b", limit=1)
    send(world, "queue:a", b"one")
    with pytest.raises(QueueFull):
        send(world, "queue:a", b"two")
    assert world.kinds().count(ACCEPTED) == 2  # the first one, there and here


def test_to_move_on_into_a_full_queue_is_refused_where_the_message_came() -> None:
    """It was lost on the way: the queue between is empty, and was all that was asked."""
    world = linked(Route("queue:a", "queue:b", moves=True), Route("queue:b", "queue:c", moves=True))
    world.broker.declare("queue:c", limit=1)
    send(world, "queue:a", b"one")
    for address in ("queue:a", "queue:b"):
        with pytest.raises(QueueFull, match="queue:c holds its 1 messages"):
            send(world, address, b"two")
    assert REFUSED not in world.kinds()


def test_where_a_move_has_been_before_the_message_stays() -> None:
    world = linked(Route("queue:a", "queue:b", True), Route("queue:b", "queue:a", True))
    send(world, "queue:a", b"x")
    assert world.broker.take("queue:b", BOB).body == b"x"


def test_who_asked_for_a_moved_message_hears_that_it_is_done() -> None:
    class Asked:
        told: list[str] = []

        def taken(self, message: Message) -> None:
            self.told.append("taken")

        def settled(self, message: Message) -> None:
            self.told.append("settled")

        def undelivered(self, message: Message, reason: str) -> None:
            self.told.append(reason)

    world = linked(Route("queue:a", "topic:b", moves=True))
    assert world.broker.push(Message("queue:a", b"x"), Asked()) == 1
    assert Asked.told == ["taken", "settled"]


def test_a_copy_that_finds_no_room_is_noted_and_the_original_is_not_harmed() -> None:
    world = linked(Route("topic:a", "queue:b"))
    world.broker.declare("queue:b", limit=1)
    topic = Reader(world, "topic:a")
    for body in (b"one", b"two", b"three"):
        send(world, "topic:a", body)
    assert topic.bodies == [b"one", b"two", b"three"]
    world.clock.advance(0)
    refused = [record for record in world.records if record.kind == REFUSED]
    assert [(record.address, record.reason) for record in refused] == [
        ("queue:b", "route: QueueFull")
    ] * 2
    world.broker.take("queue:b", BOB)
    send(world, "topic:a", b"four")
    assert world.broker.take("queue:b", BOB).body == b"four"


def test_targets_are_made_at_the_start_and_copies_survive_a_restart(tmp_path: Path) -> None:
    def start() -> World:
        world = World(SqliteStore(tmp_path, "NORMAL", Retention()), at_once)
        world.broker.set_routes([Route("topic:a", "queue:b")])
        return world

    world = start()
    world.broker.declare("topic:a")
    send(world, "topic:a", b"x")
    world.broker.stopService()
    assert start().broker.take("queue:b", BOB).body == b"x"


def test_new_routes_replace_the_old_ones() -> None:
    world = linked(Route("topic:a", "queue:b"))
    world.broker.set_routes([Route("topic:a", "queue:c")])
    send(world, "topic:a", b"x")
    assert world.broker.info("queue:b").depth == 0
    assert world.broker.info("queue:c").depth == 1


def test_loops_are_found_once_each() -> None:
    routes = [Route("a", "b"), Route("b", "c"), Route("c", "a"), Route("c", "d"), Route("d", "c")]
    assert loops(routes) == ["a -> b -> c -> a", "c -> d -> c"]
    assert loops(routes[:2]) == []


class TestConfiguration:
    def test_routes_and_rights_are_read(self, files: Files) -> None:
        may = {"publish": ["queue:jobs*"], "create": []}
        config = files.load(
            {
                **with_user(may=may),
                "routes": [
                    {"from": "topic:alerts", "to": "queue:jobs"},
                    {"from": "queue:jobs", "to": "hub:chat", "move": True},
                ],
            }
        )
        assert config.routes == [
            Route("topic:alerts", "queue:jobs"),
            Route("queue:jobs", "hub:chat", True),
        ]
        assert config.accounts[0].user.rights == Rights(("queue:jobs*",), None, ())
        assert config.warnings == []

    def test_what_clients_without_a_login_may_do_is_said_at_their_listener(
        self, files: Files
    ) -> None:
        config = files.load(with_listener(guests={"consume": ["topic:*"]}))
        assert config.listeners[0].guest == Rights(consume=("topic:*",))

    def test_a_loop_draws_a_warning(self, files: Files) -> None:
        two_ways = [{"from": "hub:a", "to": "topic:b"}, {"from": "topic:b", "to": "hub:a"}]
        config = files.load({**GOOD, "routes": two_ways})
        assert config.warnings == [
            "routes: hub:a -> topic:b -> hub:a is a loop; a message passes each address of it once"
        ]

    WRONG: dict[str, tuple[Any, str]] = {
        "no list": ({}, "routes: must be a list, not a mapping"),
        "an unknown kind": (
            [{"from": "tube:x", "to": "queue:y"}],
            "routes[0].from: must be an address: queue:name, user:name, topic:name, hub:name",
        ),
        "no target": (
            [{"from": "queue:x"}],
            "routes[0].to: must be an address: queue:name, user:name, topic:name, hub:name",
        ),
        "to itself": ([{"from": "hub:x", "to": "hub:x"}], "routes[0]: leads to where it begins"),
        "twice": (
            [{"from": "hub:x", "to": "hub:y"}, {"from": "hub:x", "to": "hub:y"}],
            "routes[1]: hub:x -> hub:y is there twice",
        ),
        "moved from a topic": (
            [{"from": "topic:x", "to": "hub:y", "move": True}],
            "routes[0].move: is for queue and user: others keep nothing",
        ),
        "an unknown key": (
            [{"from": "hub:x", "to": "hub:y", "via": "z"}],
            "routes[0].via: unknown; known are from, to, move",
        ),
    }

    @pytest.mark.parametrize("name", WRONG)
    def test_a_wrong_route_is_told_with_its_place(self, files: Files, name: str) -> None:
        routes, problem = self.WRONG[name]
        assert files.problems({**GOOD, "routes": routes}) == [problem]

    def test_wrong_rights_are_told_with_their_place(self, files: Files) -> None:
        assert files.problems(with_user(may={"publish": ["jobs"], "read": []})) == [
            "users[0].may.read: unknown; known are publish, consume, create",
            "users[0].may.publish[0]: must be an address: "
            "queue:name, user:name, topic:name, hub:name",
        ]
