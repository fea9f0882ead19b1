"""What is measured, and how: short rounds, the servers in turn, the median of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import perf_counter, sleep
from typing import Any, NamedTuple, Protocol

from bench.server import Server


class Sample(NamedTuple):
    """One round on one server."""

    messages: int
    seconds: float
    cpu: float  # seconds of the server's processor time
    latencies: list[float] = []  # seconds, where each message was timed by itself

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cost(self) -> float:
        """Microseconds of the server's processor time for a message."""
        return self.cpu / self.messages * 1e6


class Clients(Protocol):
    """The logged-in connections to one server.  A measurement leaves it as full as it was."""

    server: Server

    def push(self, seconds: float, active: int, window: int) -> Sample:
        """Publish on that many connections."""

    def fill(self, count: int) -> None:
        """Store so many messages more, for good."""

    def close(self) -> None: ...


class Row(NamedTuple):
    """One line of the table: a load, and the ratios to the bare responder that we aim at."""

    name: str
    aims: Mapping[str, float]  # by durability
    run: Callable[[Any, float], Sample]  # clients, seconds
    like: tuple[str, ...] = ()  # rows of another protocol that do the same, one after the other


class Subject(Protocol):
    """What a module that puts a protocol on the bench has, beside its `Responder`."""

    NAME: str  # the module's
    TITLE: str
    LISTENER: dict[str, Any]  # its stanza in the configuration, without the endpoint
    USERS: list[dict[str, Any]]
    ROWS: list[Row]

    def connect(self, server: Server, publishers: int) -> Clients:
        """Log in so many publishers, and whoever else a row needs."""


class Result(NamedTuple):
    """All rounds of one row on one server, and on the first, which the others are compared to."""

    row: Row
    mode: str
    samples: list[Sample]
    reference: list[Sample]

    @property
    def rate(self) -> float:
        return median(sample.rate for sample in self.samples)

    @property
    def cost(self) -> float:
        return median(sample.cost for sample in self.samples)

    @property
    def ratios(self) -> list[float]:
        """To the reference, round by round: what slows the machine slows both."""
        pairs = zip(self.samples, self.reference, strict=True)
        return [mine.rate / its.rate for mine, its in pairs]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def cost_ratio(self) -> float:
        pairs = zip(self.samples, self.reference, strict=True)
        return median(mine.cost / its.cost for mine, its in pairs)


class Finding(NamedTuple):
    """One number that was found otherwise, and what we aim at."""

    name: str
    value: float
    least: float | None = None
    most: float | None = None
    about: str = ""

    @classmethod
    def of(cls, name: str, values: list[float], **aim: float) -> Finding:
        """The median of several."""
        spread = f"{number(min(values))} to {number(max(values))}"
        return cls(name, median(values), **aim, about=spread)

    @property
    def is_missed(self) -> bool:
        return (self.least is not None and self.value < self.least) or (
            self.most is not None and self.value > self.most
        )


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def meter(server: Server, work: Callable[[], int]) -> Sample:
    """Measure work that returns how many messages it moved.

    What the server does afterwards, such as writing to disk what it has already handed out, is
    not in the time but in the cost.
    """
    cpu, start = _quiet_cpu(server), perf_counter()
    messages = work()
    seconds = perf_counter() - start
    return Sample(messages, seconds, _quiet_cpu(server) - cpu)


def _quiet_cpu(server: Server) -> float:
    """The server's processor time once it has nothing left to do, or after five seconds."""
    before = server.cpu()
    for _ in range(250):
        sleep(0.02)
        now = server.cpu()
        if now - before < 0.0005:
            break
        before = now
    return now


def rounds(
    runs: Sequence[tuple[Row, Clients]], count: int, seconds: float, progress: Progress
) -> list[Result]:
    """Take the runs in turn, `count` times; the first of them is the reference of all."""
    progress(", ".join([runs[-1][0].name, *dict.fromkeys(c.server.mode for _, c in runs)]))
    samples: list[list[Sample]] = [[] for _ in runs]
    for number in range(count):
        for at, (row, clients) in enumerate(runs):
            progress.step(f"{row.name}, {clients.server.mode}, round {number + 1} of {count}")
            samples[at].append(row.run(clients, seconds))
    return [
        Result(row, clients.server.mode, mine, samples[0])
        for (row, clients), mine in zip(runs, samples, strict=True)
    ]


class Progress:
    """One line on stderr that says what is going on."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._start = perf_counter()

    def __call__(self, text: str) -> None:
        text = f"{perf_counter() - self._start:4.0f} s  {text}"
        if self._is_terminal:
            print(f"\r\x1b[K{text[:78]}", end="", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def step(self, text: str) -> None:
        """Say it only where it does not add up to a long list."""
        if self._is_terminal:
            self(text)

    def clear(self) -> None:
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
