"""Clients that are refused: the wrong password, the wrong port, a second master."""

from __future__ import annotations

from itertools import cycle

from twisted.internet.defer import ensureDeferred
from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Factory, Protocol

from demo.stage import Stage, Traffic
from protocols.awcs.client import connect_master
from protocols.qlite.client import PUBLISHER, QliteFailure, connect

BROWSER = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"  # which no protocol of ours begins with


class Browser(Protocol):
    """Somebody who has mistaken the port."""

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(BROWSER)
        self.transport.loseConnection()


class Mistakes(Traffic):
    """One after the other, about one a second; what they are told is what is heard."""

    kind = "mistakes"
    protocol = "qlite"
    beats = 1.0

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._next = cycle([self._wrong_password, self._wrong_port, self._second_master])

    async def start(self) -> None:
        """Nobody stays connected."""

    def beat(self) -> None:
        self.sent()
        ensureDeferred(next(self._next)()).addErrback(self.failed)

    async def _wrong_password(self) -> None:
        try:
            await connect(self.stage.reactor, self.endpoint, "pub", "wrong", PUBLISHER)
        except QliteFailure:
            self.heard()

    async def _wrong_port(self) -> None:
        factory = Factory.forProtocol(Browser)
        factory.noisy = False
        await self.stage.endpoint("sk2mq").connect(factory)

    async def _second_master(self) -> None:
        try:
            await connect_master(self.stage.reactor, self.stage.endpoint("awcs"), lambda _: None)
        except ConnectionDone:
            self.heard()

    async def stop(self) -> None:
        """Nobody is connected."""
