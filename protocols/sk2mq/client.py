"""An sk2mq client: connect to an endpoint, then create, join, quit and send; each call returns a
Deferred.  It speaks the dialect of its server.

client = await connect(reactor, endpoint, print)
await client.join(b"djibuti")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint

from protocols.asking import AskingClient, connect_ready
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


class Sk2mqClient(AskingClient):
    """One connection.  What is sent to the topics it has joined goes to `deliver`."""

    wire: Any = wire.SEED  # an instance has its server's
    name = "sk2mq"

    def __init__(self, clock: IReactorTime, deliver: Deliver) -> None:
        super().__init__(clock)
        self.wire = Recognised()
        self._deliver = deliver
        self.client = b""  # our name, when the server has given it

    # What a user of the client calls.

    @property
    def dialect(self) -> str:
        return self.wire.spoken.name

    def create(self, topic: bytes) -> Deferred[None]:
        """Make a topic; Sk2mqFailure, with FOUND if it exists."""
        return self.ask(wire.Create(topic))

    def join(self, topic: bytes) -> Deferred[None]:
        """Have what is kept of a topic delivered, and all that comes."""
        return self.ask(wire.Join(topic))

    def quit(self, topic: bytes) -> Deferred[None]:
        return self.ask(wire.Quit(topic))

    def send_message(self, topic: bytes, message: bytes, due: int) -> Deferred[None]:
        """Send to all members, and to whoever joins before it is due, in seconds since 1970."""
        return self.ask(wire.Send(due, self.client, topic, message))

    # What the server says.

    def on_Hello(self, hello: wire.Hello) -> None:
        self.client = hello.client
        self.ready.callback(self)

    def on_Response(self, response: wire.Response) -> None:
        answered = self.answered()
        if response.code == wire.OK:
            answered.callback(None)
        else:
            answered.errback(Sk2mqFailure(response.code))

    def on_Delivery(self, delivery: Delivery) -> None:
        self._deliver(delivery)


def connect(
    clock: IReactorTime, endpoint: IStreamClientEndpoint, deliver: Deliver = lambda _: None
) -> Deferred[Sk2mqClient]:
    """A client that has been greeted, or why the connection could not be made."""
    return connect_ready(endpoint, lambda: Sk2mqClient(clock, deliver))
