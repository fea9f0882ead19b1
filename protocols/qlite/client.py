"""A qlite client: connect to an endpoint, then push or pop; every call returns a Deferred.

client = await connect(reactor, endpoint, "sub", "secret", SUBSCRIBER)
message = await client.pop(wait=True)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from protocols.base import WireProtocol
from protocols.framing import WireError
from protocols.qlite import wire
from protocols.qlite.proof import prove

PUBLISHER = wire.PublisherLogin
SUBSCRIBER = wire.SubscriberLogin

Role = type[wire.PublisherLogin] | type[wire.SubscriberLogin]
InThread = Callable[[Callable[[], Any]], "Deferred[Any]"]


class QliteFailure(Exception):
    """The server said FAIL; the text is its own."""


class QliteClient(WireProtocol):
    """One connection, logged in as a publisher or a subscriber.

    Calls may be made without waiting for each other: the answers come in their order.
    """

    wire = wire
    name = "qlite"
    talks_to = "server"

    def __init__(
        self, clock: IReactorTime, name: str, password: str, role: Role, in_thread: InThread
    ) -> None:
        self.clock = clock
        self._name = name.encode("ascii")
        self._password = password.encode()
        self._role = role
        self._in_thread = in_thread
        self._asked: deque[Deferred[bytes]] = deque()
        self.logged_in: Deferred[QliteClient] = Deferred(lambda _: self.transport.abortConnection())

    # What a user of the client calls.

    def push(self, body: bytes) -> Deferred[int]:
        """The position of the message in the queue, from 1; QliteFailure."""
        return self._ask(wire.Push(body)).addCallback(_number)

    def pop(self, wait: bool = False) -> Deferred[bytes]:
        """The oldest message, at once or when there is one; QliteFailure when there is none."""
        return self._ask(wire.LongPop() if wait else wire.ShortPop())

    def length(self) -> Deferred[int]:
        """How many messages wait."""
        return self._ask(wire.Length()).addCallback(_number)

    def hide(self, seconds: int, wait: bool = False) -> Deferred[tuple[bytes, bytes]]:
        """The oldest message, hidden from others for that time: its uid and its body."""
        asked = self._ask(wire.Poll(seconds) if wait else wire.Hide(seconds))
        return asked.addCallback(lambda answer: (answer[:16], answer[17:]))

    def delete(self, uid: bytes) -> Deferred[bytes]:
        """Remove a hidden message for good; its uid again."""
        return self._ask(wire.Delete(uid))

    def disconnect(self) -> None:
        self.transport.loseConnection()

    def _ask(self, request: Any) -> Deferred[bytes]:
        if self._closing:
            return fail(ConnectionDone("not connected"))
        self.send(request)  # raises if the role may not ask that
        answered: Deferred[bytes] = Deferred()
        self._asked.append(answered)
        return answered

    # What the server says.

    async def on_Greeting(self, greeting: wire.Greeting) -> None:
        proof = await self._in_thread(lambda: prove(self._password, greeting.challenge))
        self._asked.append(Deferred())
        self._asked[0].addCallback(lambda _: self).chainDeferred(self.logged_in)
        self.send(self._role(self._name, proof))

    def on_Pass(self, answer: wire.Pass) -> None:
        self._answered().callback(answer.value)

    def on_Fail(self, answer: wire.Fail) -> None:
        self._answered().errback(QliteFailure(answer.text))

    def _answered(self) -> Deferred[Any]:
        if self._asked:
            return self._asked.popleft()
        if not self.logged_in.called:
            return self.logged_in  # refused before it could ask
        raise WireError("an answer to nothing")

    def wire_error(self, error: WireError) -> None:
        self._give_up(Failure(error))
        self.abort("broke the spec", str(error))

    def ended(self) -> None:
        self._give_up(Failure(ConnectionDone("the connection is gone")))

    def _give_up(self, failure: Failure) -> None:
        """Nobody waits for an answer that cannot come."""
        while self._asked:
            self._asked.popleft().errback(failure)
        if not self.logged_in.called:
            self.logged_in.errback(failure)


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
    factory = Factory.forProtocol(lambda: QliteClient(clock, name, password, role, in_thread))
    factory.noisy = False
    connecting: Deferred[Any] = endpoint.connect(factory)
    return connecting.addCallback(lambda client: client.logged_in)


def _number(value: bytes) -> int:
    return int.from_bytes(value, "little")
