"""What all traffic of the demo shares: the places, a count of what moved, and a pace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import pi, sin
from random import Random
from typing import Any, ClassVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from demo.places import Places

BEAT = 0.05  # seconds between two looks at what is to be sent
LONGEST_DEBT = 0.5  # seconds of traffic that are made up for after a pause, and not more
SWING = 0.5  # by which part the rate goes up and down, so that charts have something to show
PERIOD = 20.0  # seconds of one such swing


class Stage:
    """Who takes part in a demo has one of these in common."""

    def __init__(self, reactor: Any, places: Places, rate: float) -> None:
        self.reactor = reactor
        self.places = places
        self.rate = rate  # messages a second of all kinds together
        self.random = Random()  # noqa: S311  nothing here is a secret
        self.sent: Counter[str] = Counter()  # by kind of traffic
        self.heard: Counter[str] = Counter()  # messages that reached a client, and replies
        self.is_ending = False
        self.trouble: Deferred[None] = Deferred()  # fails when something happens that should not

    def endpoint(self, protocol: str) -> IStreamClientEndpoint:
        return self.places.endpoint(self.reactor, protocol)

    def failed(self, failure: Failure, kind: str) -> None:
        """The end of the demo, if it has not ended anyway."""
        leaving = failure.check(ConnectionDone, ConnectionLost, CancelledError)
        if not (self.is_ending and leaving) and not self.trouble.called:
            assert failure.value is not None
            failure.value.add_note(kind)  # the sentence about it begins with that
            self.trouble.errback(failure)


class Traffic:
    """One kind of traffic: clients that connect in `start`, say something at every `beat`, and
    leave in `stop`."""

    kind: ClassVar[str]
    protocol: ClassVar[str]
    share: ClassVar[float] = 0.0  # of all messages
    beats: ClassVar[float] = 0.0  # a second, for what does not grow with the rate

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.endpoint = stage.endpoint(self.protocol)

    @property
    def rate(self) -> float:
        return self.beats or self.share * self.stage.rate

    async def start(self) -> None:
        raise NotImplementedError

    def beat(self) -> None:
        """Send one message."""
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    def sent(self) -> None:
        self.stage.sent[self.kind] += 1

    def heard(self, _: Any = None) -> None:
        self.stage.heard[self.kind] += 1

    def failed(self, failure: Failure) -> None:
        self.stage.failed(failure, self.kind)


class Pace:
    """Calls something so many times a second, on average, a few at once."""

    def __init__(self, reactor: Any, rate: float, phase: float, do: Callable[[], None]) -> None:
        """`phase` is where in its swing it begins, from 0 to 1."""
        self._reactor = reactor
        self._rate = rate
        self._phase = phase
        self._do = do
        self._owed = 0.0
        self._loop = LoopingCall(self._beat)
        self._loop.clock = reactor

    def start(self) -> Deferred[Any]:
        """Fails if what it calls does."""
        self._last = self._reactor.seconds()
        return self._loop.start(BEAT, now=False)

    def stop(self) -> None:
        if self._loop.running:
            self._loop.stop()

    def _beat(self) -> None:
        now = self._reactor.seconds()
        elapsed, self._last = min(now - self._last, LONGEST_DEBT), now
        swing = 1 + SWING * sin(2 * pi * (now / PERIOD + self._phase))
        self._owed += self._rate * swing * elapsed
        while self._owed >= 1:
            self._owed -= 1
            self._do()
