"""Does a message cost the same when much is stored and when many are connected?"""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import NamedTuple

from bench.measure import Clients, Progress, Result, Row, Sample, Subject, rounds
from bench.server import Lab

FEW, MANY = 1_000, 1_000_000  # messages stored
CONNECTED = 500
ACTIVE = 8
AIM = 1.3  # times the cost, and times the time, of few
MEMORY_AIM = 500  # bytes for a stored message of 100


class Plan(NamedTuple):
    """How long to measure."""

    rounds: int
    seconds: float


class Flatness(NamedTuple):
    """The same load on few and on many."""

    mode: str
    few: Result
    many: Result


class Memory(NamedTuple):
    """What stored messages take."""

    mode: str
    messages: int
    bytes: int

    @property
    def each(self) -> float:
        return self.bytes / self.messages


def _load(name: str, active: int, window: int) -> Row:
    def run(clients: Clients, seconds: float) -> Sample:
        return clients.push(seconds, active, window)

    return Row(name, {}, run)


def stored(
    lab: Lab, subject: Subject, mode: str, plan: Plan, progress: Progress
) -> tuple[list[Flatness], Memory]:
    """Two gateways, one with little stored and one with much, in turn."""
    with ExitStack() as context:
        few, many = (
            context.enter_context(
                closing(
                    subject.connect(
                        lab.gateway(context, mode, subject.LISTENER, subject.USERS), ACTIVE
                    )
                )
            )
            for _ in range(2)
        )
        progress(f"{mode}: storing {MANY:,} messages")
        few.fill(FEW)
        many.fill(FEW)
        # Before any other load: what that would free, stored messages would take unseen.
        before = many.server.rss()
        many.fill(MANY - FEW)
        memory = Memory(mode, MANY - FEW, many.server.rss() - before)
        for clients in (few, many):
            clients.push(plan.seconds, ACTIVE, 64)  # to warm up
        found = []
        for name, window in [("ping-pong", 1), ("window 64", 64)]:
            little, much = (
                _load(f"{name} on {ACTIVE}, {count:,} stored", ACTIVE, window)
                for count in (FEW, MANY)
            )
            found.append(_compare(little, much, few, many, plan, progress))
    return found, memory


def connected(
    lab: Lab, subject: Subject, mode: str, plan: Plan, progress: Progress
) -> list[Flatness]:
    """Three servers, with one, with eight and with many connections.

    All loads are ping-pong, so that every message is one read and one write of the server: first
    the same load beside idle connections, then a load on all of them.
    """
    with ExitStack() as context:

        def open_with(publishers: int) -> Clients:
            progress(f"{mode}: connecting {publishers} publishers")
            if mode == "bare":
                server = lab.bare(context, subject.NAME)
            else:
                server = lab.gateway(context, mode, subject.LISTENER, subject.USERS)
            return context.enter_context(closing(subject.connect(server, publishers)))

        def compare(few: Clients, active: int, now_active: int) -> Flatness:
            little = _load(f"ping-pong, {active} active of {active} connected", active, 1)
            much = _load(f"ping-pong, {now_active} active of {CONNECTED} connected", now_active, 1)
            return _compare(little, much, few, many, plan, progress)

        one, eight, many = open_with(1), open_with(ACTIVE), open_with(CONNECTED)
        return [
            compare(eight, ACTIVE, ACTIVE),
            compare(eight, ACTIVE, CONNECTED),
            compare(one, 1, CONNECTED),
        ]


def _compare(
    little: Row, much: Row, few: Clients, many: Clients, plan: Plan, progress: Progress
) -> Flatness:
    one, other = rounds([(little, few), (much, many)], plan.rounds, plan.seconds, progress)
    return Flatness(few.server.mode, one, other)
