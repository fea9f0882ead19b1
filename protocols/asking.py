"""The client of a protocol whose answers have no ids: they come in the order of the questions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from protocols.base import WireProtocol
from protocols.framing import WireError


class AskingClient(WireProtocol):
    """One connection.  Calls may be made without waiting for each other."""

    talks_to = "server"

    def __init__(self, clock: IReactorTime) -> None:
        self.clock = clock
        self._asked: deque[Deferred[Any]] = deque()
        # Fires with the client itself when it may ask, or fails if it never may.
        self.ready: Deferred[Any] = Deferred(lambda _: self.transport.abortConnection())

    def disconnect(self) -> None:
        self.transport.loseConnection()

    # For the subclass.

    def ask(self, request: Any) -> Deferred[Any]:
        """Send it; fires when `answered` is called for it, or fails when that cannot be."""
        if self._closing:
            return fail(ConnectionDone("not connected"))
        self.send(request)  # raises if the table does not allow it
        waiting: Deferred[Any] = Deferred()
        self._asked.append(waiting)
        return waiting

    def answered(self) -> Deferred[Any]:
        """Who waits for the answer that has come."""
        if not self._asked:
            raise WireError("an answer to nothing")
        return self._asked.popleft()

    # What the base tells.

    def wire_error(self, error: WireError) -> None:
        self._give_up(Failure(error))
        self.abort("broke the spec", str(error))

    def ended(self) -> None:
        self._give_up(Failure(ConnectionDone("the connection is gone")))

    def _give_up(self, failure: Failure) -> None:
        """Nobody waits for an answer that cannot come."""
        while self._asked:
            self._asked.popleft().errback(failure)
        if not self.ready.called:
            self.ready.errback(failure)


def connect(endpoint: IStreamClientEndpoint, make: Callable[[], WireProtocol]) -> Deferred[Any]:
    """The connection that `make` makes, or why it could not be made."""
    factory = Factory.forProtocol(make)
    factory.noisy = False
    return endpoint.connect(factory)


def connect_ready(
    endpoint: IStreamClientEndpoint, make: Callable[[], AskingClient]
) -> Deferred[Any]:
    """The same, when it is ready."""
    return connect(endpoint, make).addCallback(lambda client: client.ready)
