"""What the page shows: the gateway's own pulse and what Spark tells, put together and told on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.web.http import Request

from gateway.web.pulse import Pulse
from gateway.web.queries import Queries, Query
from gateway.web.readers import Readers, event
from gateway.web.tables import Results, Tables

log = Logger()

TICK = 1.0  # seconds between two looks at the gateway itself
GATHER = 0.25  # seconds between two times that browsers are told what jobs post


class Board:
    """Everything that is known now, and whoever follows it."""

    def __init__(
        self,
        clock: IReactorTime,
        pulse: Pulse,
        count: Callable[..., None],
        spark: Callable[[], dict[str, Any]],
    ) -> None:
        """`spark` tells of the process that runs beside the gateway, if there is one."""
        self._clock = clock
        self.pulse = pulse
        self._spark = spark
        self._tables = Tables()
        self._queries = Queries()
        self.readers = Readers(clock.seconds, count)
        self._gathering: IDelayedCall | None = None
        self._ticking = LoopingCall(self._tick)
        self._ticking.clock = clock
        self.has_charts = True  # whether the page can have plotly

    def start(self) -> None:
        self.pulse.start()
        self._ticking.start(TICK, now=False).addErrback(
            lambda failure: log.failure("the dashboard's clock broke", failure)
        )

    def stop(self) -> None:
        if self._ticking.running:
            self._ticking.stop()
        if self._gathering is not None and self._gathering.active():
            self._gathering.cancel()
        self.pulse.stop()
        self.readers.end()

    def results(self, results: Results) -> None:
        """Rows from a job, or Refused."""
        self._tables.post(results)
        if self._gathering is None:
            self._tell_changes()

    def query(self, query: Query) -> None:
        """Health of a query, or Refused."""
        now = self._clock.seconds()
        self._queries.post(query, now)
        self.readers.tell(event("query", self._queries.one(query.job, now, self.pulse.newest)))

    def state(self) -> dict[str, Any]:
        """All that is known."""
        return {
            "gateway": self._gateway(),
            "tables": self._tables.whole(),
            "history": [*self.pulse.history],
            "charts": self.has_charts,
        }

    def follow(self, request: Request) -> None:
        """Tell this browser all that is known, and then what happens."""
        self.readers.add(request, b"retry: 2000\n" + event("state", self.state()))

    def _gateway(self) -> dict[str, Any]:
        now = self._clock.seconds()
        return {
            **self.pulse.look(),
            "queries": self._queries.shown(now, self.pulse.newest),
            "spark": self._spark(),
            "readers": len(self.readers),
        }

    def _tick(self) -> None:
        self.pulse.tick()
        self.readers.drop_stuck()
        if self.readers:
            self.readers.tell(event("gateway", self._gateway()))

    def _tell_changes(self) -> None:
        """Tell what is new at once; what comes soon after, together."""
        self._gathering = None
        changes = self._tables.changes()
        if not changes:
            return
        self._gathering = self._clock.callLater(GATHER, self._tell_changes)
        if self.readers:
            for change in changes:
                self.readers.tell(event("result", change))
