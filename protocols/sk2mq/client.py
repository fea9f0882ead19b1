"""An sk2mq client: connect to an endpoint, then create, join, quit and send; each call returns a
Deferred.  It speaks the dialect of its server.

client = await connect(reactor, endpoint, print)
await client.join(b"djibuti")
"""

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
from protocols.sk2mq import wire
from protocols.sk2mq.wire import Delivery, Recognised

Deliver = Callable[[Delivery], object]

REASONS = {
    wire.FOUND: "the topic exists",
    wire.BADPACKET: "the server does not understand the packet",
    wire.BADCLIENT: "that is not our name",
    wire.INPAST: "the message was due before it came",
    wire.NOTFOUND: "there is no such topic",
    wire.SERVERERROR: "the server failed",
}


class Sk2mqFailure(Exception):
    """The server's answer was not OK."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{code}: {REASONS[code]}")
        self.code = code


class Sk2mqClient(WireProtocol):
    """One connection.

    Calls may be made without waiting for each other: the answers come in their order.  What is
    sent to the topics it has joined goes to `deliver`.
    """

    wire: Any = wire.SEED  # an instance has its server's
    name = "sk2mq"
    talks_to = "server"

    def __init__(self, clock: IReactorTime, deliver: Deliver) -> None:
        self.clock = clock
        self.wire = Recognised()
        self._deliver = deliver
        self._asked: deque[Deferred[None]] = deque()
        self.client = b""  # our name, when the server has given it
        self.greeted: Deferred[Sk2mqClient] = Deferred(lambda _: self.transport.abortConnection())

    # What a user of the client calls.

    @property
    def dialect(self) -> str:
        return self.wire.spoken.name

    def create(self, topic: bytes) -> Deferred[None]:
        """Make a topic; Sk2mqFailure, with FOUND if it exists."""
        return self._ask(wire.Create(topic))

    def join(self, topic: bytes) -> Deferred[None]:
        """Have what is kept of a topic delivered, and all that comes."""
        return self._ask(wire.Join(topic))

    def quit(self, topic: bytes) -> Deferred[None]:
        return self._ask(wire.Quit(topic))

    def send_message(self, topic: bytes, message: bytes, due: int) -> Deferred[None]:
        """Send to all members, and to whoever joins before it is due, in seconds since 1970."""
        return self._ask(wire.Send(due, self.client, topic, message))

    def disconnect(self) -> None:
        self.transport.loseConnection()

    def _ask(self, request: Any) -> Deferred[None]:
        if self._closing:
            return fail(ConnectionDone("not connected"))
        self.send(request)
        answered: Deferred[None] = Deferred()
        self._asked.append(answered)
        return answered

    # What the server says.

    def on_Hello(self, hello: wire.Hello) -> None:
        self.client = hello.client
        self.greeted.callback(self)

    def on_Response(self, response: wire.Response) -> None:
        if not self._asked:
            raise WireError("a response to nothing")
        answered = self._asked.popleft()
        if response.code == wire.OK:
            answered.callback(None)
        else:
            answered.errback(Sk2mqFailure(response.code))

    def on_Delivery(self, delivery: Delivery) -> None:
        self._deliver(delivery)

    def wire_error(self, error: WireError) -> None:
        self._give_up(Failure(error))
        self.abort("broke the spec", str(error))

    def ended(self) -> None:
        self._give_up(Failure(ConnectionDone("the connection is gone")))

    def _give_up(self, failure: Failure) -> None:
        """Nobody waits for an answer that cannot come."""
        while self._asked:
            self._asked.popleft().errback(failure)
        if not self.greeted.called:
            self.greeted.errback(failure)


def connect(
    clock: IReactorTime, endpoint: IStreamClientEndpoint, deliver: Deliver = lambda _: None
) -> Deferred[Sk2mqClient]:
    """A client that has been greeted, or why the connection could not be made."""
    factory = Factory.forProtocol(lambda: Sk2mqClient(clock, deliver))
    factory.noisy = False
    connecting: Deferred[Any] = endpoint.connect(factory)
    return connecting.addCallback(lambda client: client.greeted)
