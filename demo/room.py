"""aWCS: a room with a master, guests that come and go, and now and then one that shouts."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import ensureDeferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from demo.stage import Stage, Traffic
from protocols.awcs.client import AwcsClient, AwcsMaster, connect_client, connect_master
from protocols.awcs.wire import Relay

GUESTS = 6
GREETING = b"good evening"  # who says it may talk as much as it likes
SHOUT = b"HEY! " * 1500  # more bytes than the gateway allows a client at once: it is kicked
EVERYBODY = 50  # one answer of so many is for all
ONE_LEAVES = 4.0  # seconds between two that go home, on average
ONE_SHOUTS = 5.0


class Room(Traffic):
    """Guests say something to the master, who answers each."""

    kind = "room"
    protocol = "awcs"
    share = 0.15

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._guests: list[AwcsClient] = []
        self._arriving = 0
        self._answers = 0

    async def start(self) -> None:
        self._master: AwcsMaster = await connect_master(
            self.stage.reactor, self.endpoint, self._said
        )
        self._master.lost.addCallback(self._closed)
        for _ in range(GUESTS):
            await self._arrive()

    def _closed(self, _: None) -> None:
        if not self.stage.is_ending:
            self.failed(Failure(ConnectionDone("the gateway has dropped the master")))

    async def _arrive(self) -> None:
        guest = await connect_client(self.stage.reactor, self.endpoint, self.heard)
        guest.say(GREETING)
        self._guests.append(guest)

    def _said(self, event: Any) -> None:
        """The master hears this."""
        if not isinstance(event, Relay):
            return
        if event.body == GREETING:
            self._master.flood_off(event.client)
        self._answers += 1
        if self._answers % EVERYBODY == 0:
            self._master.broadcast(b"a round for everybody")
        else:
            self._master.multicast([event.client], b"to you: " + event.body)

    def beat(self) -> None:
        self.sent()
        random = self.stage.random
        if len(self._guests) > 1 and random.random() < 1 / (ONE_LEAVES * self.rate):
            self._guests.pop(random.randrange(len(self._guests))).disconnect()
            ensureDeferred(self._arrive()).addErrback(self.failed)
        if random.random() < 1 / (ONE_SHOUTS * self.rate):
            ensureDeferred(self._shout()).addErrback(self.failed)
        random.choice(self._guests).say(b"drink %d" % self.stage.sent[self.kind])

    async def _shout(self) -> None:
        shouting = await connect_client(self.stage.reactor, self.endpoint, lambda _: None)
        shouting.say(SHOUT)

    async def stop(self) -> None:
        for guest in self._guests:
            guest.disconnect()
        self._master.disconnect()
