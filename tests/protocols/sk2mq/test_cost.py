"""What a message costs when many are stored, counted in comparisons of due times, not in seconds.

The public server kept a sorted list: each message walked it, and one that was due after 140,000
others ended the process.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from random import Random

import pytest

from protocols.sk2mq import wire
from protocols.sk2mq.wire import Join, Send
from tests.protocols.sk2mq.test_server import Client, Listener
from tests.support import NOW

MANY = 150_000  # enough to have ended that one; a million shows the same in half a minute
START = int(NOW) + 10

DUES: dict[str, Callable[[int], int]] = {
    "rising": lambda number: START + number,
    "falling": lambda number: START + MANY - 1 - number,
    "random": Random(5).sample(range(START, START + MANY), MANY).__getitem__,
    "equal": lambda number: START,
}


class Due(int):
    """A due time that counts how often it is compared with another."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        Due.compared += 1
        return float(self) < float(other)

    def __gt__(self, other: float) -> bool:
        Due.compared += 1
        return float(self) > float(other)

    def __le__(self, other: float) -> bool:
        Due.compared += 1
        return float(self) <= float(other)

    def __eq__(self, other: object) -> bool:
        Due.compared += 1
        return isinstance(other, int | float) and float(self) == float(other)

    __hash__ = int.__hash__


def count(work: Callable[[], object]) -> int:
    Due.compared = 0
    work()
    return Due.compared


class Stored:
    """A topic in which many messages are stored, and what each of them cost."""

    def __init__(self, dialect: str, due: Callable[[int], int]) -> None:
        self.listener = Listener(dialect).topic()
        self.client = self.listener.connect()
        self.worst = 0
        self.total = 0
        publish = self.client.protocol.on_Send
        for number in range(MANY):
            send = Send(Due(due(number)), self.client.name, b"t", b"x")
            cost = count(lambda send=send: publish(send))  # type: ignore[misc]
            self.worst = max(self.worst, cost)
            self.total += cost
        assert self.client.hears() == self.client.code(wire.OK) * MANY


# The heap asks whether two are equal, then which is less; the Broker asks whether one is due.
STEP = 2
PUBLISH = STEP * log2(MANY) + 8
EXPIRE = 2 * STEP * log2(MANY) + 8


@pytest.mark.parametrize("order", DUES)
def test_each_message_costs_log_n_to_publish_to_join_and_to_expire(order: str) -> None:
    stored = Stored("upstream", DUES[order])
    listener = stored.listener
    assert stored.worst <= PUBLISH
    members: list[Client] = []

    def join() -> None:
        members.append(listener.connect())
        members[0].tells(Join(b"t"))

    assert count(join) <= MANY * (log2(MANY) + 4)
    assert members[0].hears().count(b"user-1") == MANY
    topic = "topic:t"
    if order != "equal":
        cost = count(lambda: listener.clock.advance(START - NOW))
        assert listener.broker.info(topic).depth == MANY - 1
        assert cost <= 2 * EXPIRE  # one message, whatever else is stored
    cost = count(lambda: listener.clock.advance(MANY + 10))
    assert listener.broker.info(topic).depth == 0
    assert cost <= MANY * EXPIRE


def test_a_backlog_in_order_of_arrival_is_not_sorted() -> None:
    stored = Stored("seed", DUES["random"])
    member = stored.listener.connect()
    assert count(lambda: member.tells(Join(b"t"))) <= 4 * MANY
