"""What the gateway itself knows this second: connections, rates, depths, and what is refused."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IReactorTime

from gateway.broker import Broker
from gateway.journal import Journal
from gateway.record import ACCEPTED, DELIVERED, TAKEN, Record

WINDOW = 5  # seconds that a rate is the average of; one second alone flickers
HISTORY = 300  # seconds of rates that a page is shown when it opens
DEEPEST = 20  # addresses shown; what is beyond nobody reads on a screen
MOST_COUNTS = 200  # kinds of refusals shown
MANY = 5_000  # addresses; with more, they are looked at only each
SELDOM = 10.0  # seconds, because a look at 100,000 takes 30 ms of the reactor

Counts = dict[str, dict[str, int]]  # events by protocol and kind


class Pulse:
    """Counts committed records by kind and protocol, between `start` and `stop`.

    A batch of a thousand records costs about a tenth of a millisecond.
    """

    def __init__(
        self,
        clock: IReactorTime,
        broker: Broker,
        journal: Journal,
        connections: Callable[[], dict[str, int]],
    ) -> None:
        self._clock = clock
        self._broker = broker
        self._journal = journal
        self._connections = connections
        self._started = clock.seconds()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._ticks: deque[tuple[float, Counter[tuple[str, str]]]] = deque(maxlen=WINDOW + 1)
        self._rates: dict[str, dict[str, float]] = {}
        self._stop: Callable[[], None] = lambda: None
        self._overview = broker.overview(0)
        self._looked = 0.0
        self.history: deque[dict[str, Any]] = deque(maxlen=HISTORY)

    @property
    def newest(self) -> int:
        """The sequence of the last record that is safe."""
        return self._journal.newest

    def start(self) -> None:
        self._stop = self._broker.watch(self._count)
        self._started = self._clock.seconds()
        self.tick()

    def stop(self) -> None:
        self._stop()

    def _count(self, records: list[Record]) -> None:
        self._counts.update([(record.protocol, record.kind) for record in records])

    def tick(self) -> None:
        """A second is over: work out the rates."""
        now = self._clock.seconds()
        self._ticks.append((now, self._counts.copy()))
        before, counts = self._ticks[0]
        elapsed = now - before
        self._rates = {}
        if elapsed > 0:
            for (protocol, kind), count in self._counts.items():
                name = {ACCEPTED: "accepted", DELIVERED: "delivered", TAKEN: "delivered"}.get(kind)
                if name is not None:
                    rates = self._rates.setdefault(protocol, {"accepted": 0.0, "delivered": 0.0})
                    rates[name] += (count - counts[protocol, kind]) / elapsed
        self.history.append({"time": now, "rates": self._rates})

    def totals(self) -> Counts:
        """Events since the start, by protocol and kind."""
        totals: Counts = {}
        for (protocol, kind), count in sorted(self._counts.items()):
            totals.setdefault(protocol, {})[kind] = count
        return totals

    def look(self) -> dict[str, Any]:
        """All of it, as the page has it."""
        now = self._clock.seconds()
        if self._overview.addresses <= MANY or now - self._looked >= SELDOM:
            self._looked = now
            self._overview = self._broker.overview(DEEPEST)
        overview = self._overview
        return {
            "time": now,
            "uptime": now - self._started,
            "newest": self.newest,
            "failing": self._journal.failing,
            "connections": self._connections(),
            "rates": self._rates,
            "totals": self.totals(),
            "addresses": overview.addresses,
            "waiting": overview.waiting,
            "outstanding": overview.outstanding,
            "deepest": [
                {
                    "address": info.address,
                    "depth": info.depth,
                    "outstanding": info.outstanding,
                    "consumers": info.consumers,
                }
                for info in overview.deepest
            ],
            "counts": [
                {"what": what, "labels": labels, "count": count}
                for (what, *labels), count in self._broker.counts.most_common(MOST_COUNTS)
            ],
        }
