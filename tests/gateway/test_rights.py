"""Tests for gateway.rights: a user may do what the configuration allows, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import succeed

from gateway.accounts import PasswordAccounts
from gateway.interfaces import Denied, Message, Peer, Rights, User
from protocols.awcs.server import AwcsFactory
from protocols.rq import wire
from protocols.rq.server import RqFactory
from protocols.sk2mq.server import Sk2mqFactory
from tests.support import Wired, World

ANN = Peer("test", "ann")


def accounts(guest: Rights) -> PasswordAccounts:
    return PasswordAccounts([], lambda job: succeed(job()), guest)


@pytest.fixture
def world() -> World:
    world = World()
    for address in ("queue:jobs", "queue:jobs2", "queue:other", "topic:news"):
        world.broker.declare(address)
    return world


def test_who_has_every_right_has_the_broker_itself(world: World) -> None:
    users = accounts(Rights())
    assert users.broker_for(User("ann", True, True), world.broker) is world.broker


Deed = Callable[[Any, str], Any]
DEEDS: dict[str, tuple[str, Deed]] = {
    "push": ("publish", lambda broker, name: broker.push(Message(f"queue:{name}", b"x"))),
    "take": ("consume", lambda broker, name: broker.consume(f"queue:{name}", print, peer=ANN)),
    "declare": ("create", lambda broker, name: broker.declare(f"queue:{name}", limit=3)),
    "delete": ("create", lambda broker, name: broker.delete(f"queue:{name}")),
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_right_is_for_the_addresses_that_it_names(world: World, deed: str) -> None:
    right, do = DEEDS[deed]
    user = User("ann", True, True, Rights()._replace(**{right: ("queue:jobs*",)}))
    broker = accounts(Rights()).broker_for(user, world.broker)
    do(broker, "jobs")
    do(broker, "jobs2")
    for _ in range(2):  # also when the answer is remembered
        with pytest.raises(Denied):
            do(broker, "other")


@pytest.mark.parametrize("deed", DEEDS)
def test_an_empty_list_allows_nothing(world: World, deed: str) -> None:
    right, do = DEEDS[deed]
    user = User("ann", True, True, Rights()._replace(**{right: ()}))
    with pytest.raises(Denied):
        do(accounts(Rights()).broker_for(user, world.broker), "jobs")


def test_topics_are_restricted_too(world: World) -> None:
    user = User("ann", True, True, Rights(publish=(), consume=()))
    broker = accounts(Rights()).broker_for(user, world.broker)
    for deed in (
        lambda: broker.publish(Message("topic:news", b"x")),
        lambda: broker.subscribe("topic:news", print),
        lambda: broker.retained("topic:news"),
    ):
        with pytest.raises(Denied):
            deed()


def test_what_needs_no_right_is_as_it_was(world: World) -> None:
    rights = Rights(publish=(), consume=(), create=())
    broker = accounts(rights).broker_for(None, world.broker)
    assert broker.info("queue:jobs").depth == 0
    assert broker.accepted == world.broker.accepted
    broker.count("something")
    assert world.broker.counts[("something",)] == 1


class TestListeners:
    """What clients of protocols without a login hear when the listener's guests may do little."""

    def test_sk2mq_says_badclient(self, world: World) -> None:
        factory = Sk2mqFactory(world.broker, accounts(Rights(create=())), world.clock)
        peer = Wired(factory.buildProtocol(None))
        peer.transport.clear()
        peer.says(bytes.fromhex("01 00000006 02 00000001") + b"t")
        assert peer.transport.value() == bytes.fromhex("02 00000001 29")

    def test_rq_says_undelivered(self, world: World) -> None:
        factory = RqFactory(world.broker, accounts(Rights(publish=("queue:ok",))), world.clock)
        peer = Wired(factory.buildProtocol(None))
        request = wire.Request(id=5, queue=b"jobs", payload=b"x", noreply=True)
        peer.says(wire.encode(request))
        assert peer.transport.value() == wire.encode(wire.Undelivered(5))
        assert world.broker.info("queue:jobs").depth == 0

    def test_a_room_opens_and_nothing_said_in_it_is_passed_on(self, world: World) -> None:
        factory = AwcsFactory(world.broker, accounts(Rights(publish=(), create=())), world.clock)
        factory.started()
        master, client = (Wired(factory.buildProtocol(None)) for _ in range(2))
        master.says(b"6 \0")
        client.says(b"aWCS\0")
        master.transport.clear()
        client.says(b"hello\0")
        world.clock.advance(0)
        assert master.transport.value() == b""
        assert world.broker.counts["refused", "awcs", "Denied"] == 1
