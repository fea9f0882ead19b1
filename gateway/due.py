"""When messages are due: one alarm for all of them."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from gateway.interfaces import Message


class DueTimes:
    """Calls `expire` with each message that was added, once, when it is due."""

    def __init__(self, clock: IReactorTime, expire: Callable[[Message], None]) -> None:
        self._clock = clock
        self._expire = expire
        self._heap: list[tuple[float, int, Message]] = []
        self._alarm: IDelayedCall | None = None  # set for the first of them

    def add(self, message: Message) -> None:
        assert message.due is not None
        heappush(self._heap, (message.due, message.sequence, message))
        if self._heap[0][2] is message:
            self._set_alarm()

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self) -> None:
        self.stop()
        if self._heap:
            wait = max(0.0, self._heap[0][0] - self._clock.seconds())
            self._alarm = self._clock.callLater(wait, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock.seconds()
        while self._heap and self._heap[0][0] <= now:
            self._expire(heappop(self._heap)[2])
        self._set_alarm()
