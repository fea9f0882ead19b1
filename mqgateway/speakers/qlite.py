"""qlite: a publisher or a subscriber of the listener's one queue."""

from __future__ import annotations

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.python.failure import Failure

from mqgateway.speakers.base import Heard, Refused, Speaker
from protocols.qlite.client import PUBLISHER, SUBSCRIBER, QliteClient, QliteFailure, connect

# Seconds in which a message that was shown must be deleted, or another gets it: long for us, and
# not more than a gateway allows by itself.
HIDDEN = 20
NOTHING_YET = "no data could be dequeued"  # what the answer to a POLL has when nothing came


class QliteSpeaker(Speaker):
    """Pushes, or takes each message only when it has been heard."""

    protocol = "qlite"
    port = 8080
    asks_who = True
    _client: QliteClient
    _taking: Deferred[None] | None = None

    async def open(self) -> None:
        role = SUBSCRIBER if self.part.receives else PUBLISHER
        try:
            self._client = await connect(self.reactor, self.endpoint, *self.access, role)
        except QliteFailure as refusal:
            raise Refused(str(refusal).removeprefix("error: ")) from None
        self._client.add_cleanup(self.gone)

    def send(self, name: str, body: bytes) -> Deferred[str]:
        def refused(failure: Failure) -> Failure:
            failure.trap(QliteFailure)
            return Failure(Refused(str(failure.value).removeprefix("error: ")))

        pushed = self._client.push(body)
        return pushed.addCallbacks(lambda position: f"position {position}", refused)

    async def receive(self, name: str, heard: Heard, most: int | None = None) -> None:
        self._taking = ensureDeferred(self._take(heard, most))
        self._taking.addErrback(lambda failure: failure.trap(ConnectionDone, ConnectionLost))

    async def _take(self, heard: Heard, most: int | None) -> None:
        taken = 0
        while most is None or taken < most:
            try:
                uid, body = await self._client.hide(HIDDEN, wait=True)
            except QliteFailure as refusal:
                if NOTHING_YET not in str(refusal):
                    raise
                continue
            heard("", body)
            await self._client.delete(uid)
            taken += 1

    def hang_up(self) -> None:
        self._client.disconnect()
