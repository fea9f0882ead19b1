"""A qlite client: connect to an endpoint, then push or pop; every call returns a Deferred.

client = await connect(reactor, endpoint, "sub", "secret", SUBSCRIBER)
message = await client.pop(wait=True)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.threads import deferToThread

from protocols.asking import AskingClient, connect_ready
from protocols.qlite import wire
from protocols.qlite.proof import prove

PUBLISHER = wire.PublisherLogin
SUBSCRIBER = wire.SubscriberLogin

Role = type[wire.PublisherLogin] | type[wire.SubscriberLogin]
InThread = Callable[[Callable[[], Any]], "Deferred[Any]"]


class QliteFailure(Exception):
    """The server said FAIL; the text is its own."""


class QliteClient(AskingClient):
    """One connection, logged in as a publisher or a subscriber."""

    wire = wire
    name = "qlite"

    def __init__(
        self, clock: IReactorTime, name: str, password: str, role: Role, in_thread: InThread
    ) -> None:
        super().__init__(clock)
        self._name = name.encode("ascii")
        self._password = password.encode()
        self._role = role
        self._in_thread = in_thread

    # What a user of the client calls.

    def push(self, body: bytes) -> Deferred[int]:
        """The position of the message in the queue, from 1; QliteFailure."""
        return self.ask(wire.Push(body)).addCallback(_number)

    def pop(self, wait: bool = False) -> Deferred[bytes]:
        """The oldest message, at once or when there is one; QliteFailure when there is none."""
        return self.ask(wire.LongPop() if wait else wire.ShortPop())

    def length(self) -> Deferred[int]:
        """How many messages wait."""
        return self.ask(wire.Length()).addCallback(_number)

    def hide(self, seconds: int, wait: bool = False) -> Deferred[tuple[bytes, bytes]]:
        """The oldest message, hidden from others for that time: its uid and its body."""
        asked = self.ask(wire.Poll(seconds) if wait else wire.Hide(seconds))
        return asked.addCallback(lambda answer: (answer[:16], answer[17:]))

    def delete(self, uid: bytes) -> Deferred[bytes]:
        """Remove a hidden message for good; its uid again."""
        return self.ask(wire.Delete(uid))

    # What the server says.

    async def on_Greeting(self, greeting: wire.Greeting) -> None:
        proof = await self._in_thread(lambda: prove(self._password, greeting.challenge))
        logging_in = self.ask(self._role(self._name, proof))
        logging_in.addCallback(lambda _: self).chainDeferred(self.ready)

    def on_Pass(self, answer: wire.Pass) -> None:
        self._answered().callback(answer.value)

    def on_Fail(self, answer: wire.Fail) -> None:
        self._answered().errback(QliteFailure(answer.text))

    def _answered(self) -> Deferred[Any]:
        if not self._asked and not self.ready.called:
            return self.ready  # refused before it could ask
        return self.answered()


def connect(
    clock: IReactorTime,
    endpoint: IStreamClientEndpoint,
    name: str,
    password: str,
    role: Role,
    in_thread: InThread = deferToThread,
) -> Deferred[QliteClient]:
    """A client that has logged in, or QliteFailure, or why the connection could not be made.

    `in_thread` does the hashing, a tenth of a second of work.
    """
    return connect_ready(endpoint, lambda: QliteClient(clock, name, password, role, in_thread))


def _number(value: bytes) -> int:
    return int.from_bytes(value, "little")
