"""aWCS: the master of a room, or a client in it."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import deferLater

from mqgateway.speakers.base import Heard, Refused, Speaker
from protocols.awcs.client import AwcsClient, AwcsMaster, connect_client, connect_master
from protocols.awcs.wire import Relay

# Seconds in which a gateway hangs up on a client that it does not let in.  It says nothing else.
DOUBT = 0.3


class AwcsSpeaker(Speaker):
    """As a master it broadcasts and hears its clients; as a client the other way round."""

    protocol = "awcs"
    port = 42420
    _peer: AwcsMaster | AwcsClient
    _listener: Heard | None = None

    async def open(self) -> None:
        if self.part.is_master:
            try:
                self._peer = await connect_master(self.reactor, self.endpoint, self._happened)
            except ConnectionDone:
                raise Refused("the room has a master, or does not want this one") from None
        else:
            self._peer = await connect_client(self.reactor, self.endpoint, self._told)
            gone: list[None] = []
            self._peer.lost.addCallback(gone.append)
            await deferLater(self.reactor, DOUBT)
            if gone:
                raise Refused("the room has no master, and lets no client in")
        self._peer.lost.addCallback(self.gone)

    def _happened(self, event: Any) -> None:
        if isinstance(event, Relay) and self._listener is not None:
            self._listener(f"{event.client:04d}", event.body)

    def _told(self, body: bytes) -> None:
        if self._listener is not None:
            self._listener("", body)

    def send(self, name: str, body: bytes) -> Deferred[str]:
        """A master can ask whether the gateway is alive, which is answered in turn; a client cannot
        ask anything."""
        try:
            if isinstance(self._peer, AwcsMaster):
                self._peer.broadcast(body)
                return self._peer.alive().addCallback(lambda _: "heard")
            self._peer.say(body)
        except ValueError as error:
            return fail(Refused(f"aWCS cannot carry that: {error}"))
        except ConnectionDone as error:
            return fail(error)
        return succeed("written")

    async def receive(self, name: str, heard: Heard, most: int | None = None) -> None:
        self._listener = heard

    def hang_up(self) -> None:
        self._peer.disconnect()
