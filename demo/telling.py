"""One line a second of what happens, as the gateway itself has counted it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from twisted.internet.defer import Deferred
from twisted.web.client import Agent, readBody

SHOWN = 3  # addresses; more do not fit in a line
COUNTED = ("accepted", "replied", "refused")


class Teller:
    """Asks the dashboard, and says what is new since it was last asked."""

    def __init__(self, reactor: Any, dashboard: str) -> None:
        self._reactor = reactor
        self._agent = Agent(reactor, connectTimeout=5)
        self._url = f"{dashboard}api/state".encode()
        self._before: dict[str, Counter[str]] = {}
        self._asked = self._started = reactor.seconds()
        self.spark: dict[str, Any] = {}  # how it is doing

    async def line(self) -> str:
        response = await self._agent.request(b"GET", self._url)
        body: Deferred[bytes] = readBody(response)
        state = json.loads(await body)["gateway"]
        self.spark = state["spark"]
        now = self._reactor.seconds()
        seconds, self._asked = now - self._asked, now
        new = {name: Counter[str]() for name in COUNTED}
        for protocol, totals in state["totals"].items():
            for name in COUNTED:
                new[name][protocol] = totals.get(name, 0)
        line = self._tell(new, seconds, _depths(state["deepest"]))
        self._before = new
        return line

    def _tell(self, new: dict[str, Counter[str]], seconds: float, depths: str) -> str:
        def rate(name: str, protocol: str | None = None) -> float:
            before = self._before.get(name, Counter())
            now = new[name]
            one = [protocol] if protocol is not None else [*now]
            return sum(now[each] - before[each] for each in one) / seconds if seconds > 0 else 0.0

        rates = [
            f"{each} {rate('accepted', each):4.0f}/s" for each in sorted(new["accepted"]) if each
        ]
        return (
            f"{self._asked - self._started:5.0f} s  {'  '.join(rates)}"
            f" | {rate('replied'):3.0f} replies/s | {rate('refused'):2.0f} refused/s | {depths}"
        )


def _depths(deepest: list[dict[str, Any]]) -> str:
    """Where most messages wait."""
    some = [f"{each['address']} {each['depth']}" for each in deepest if each["depth"]]
    return ", ".join(some[:SHOWN]) or "nothing waits"
