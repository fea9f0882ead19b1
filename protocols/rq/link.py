"""A node's connection to one controller: sentences out, answers and requests in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from protocols.base import WireProtocol
from protocols.framing import WireError
from protocols.rq import wire
from protocols.rq.wire import LARGEST_ID
from protocols.timer import Timer

SILENCE = 15.0  # seconds, until we PING, and again until that counts as unanswered
MOST_ASKED = 10_000  # requests under way on one connection; there are ids for three times as many

Handler = Callable[[bytes], Any]  # a request's payload; the reply, or a Deferred of it


class NotDelivered(Exception):
    """The controller could not have the request done; or it was done, and the reply is lost."""


class Work:
    """A queue that the node consumes, on every connection that it has."""

    def __init__(
        self,
        consume: wire.Consume,
        handler: Handler,
        heard: Callable[[bytes], Any] | None,
        most: int | None,
    ) -> None:
        self.consume = consume
        self.handler = handler
        self.heard = heard  # for what is broadcast
        self._left = most  # how many requests it takes yet; None: all

    def takes_one(self) -> bool:
        """Whether this is its last one; from then on it only hears broadcasts."""
        if self._left is None:
            return False
        self._left -= 1
        if self._left == 0:
            self.consume = wire.Consume(self.consume.queue, 0, 0, self.consume.exclusive)
        return self._left == 0


class Owner(Protocol):
    """The node, as its connections see it."""

    works: dict[bytes, Work]

    def connected(self, link: Link) -> None: ...

    def is_unanswered(self, link: Link) -> None:
        """The controller does not answer a PING."""

    def is_closing(self, link: Link) -> None:
        """The controller takes nothing new."""

    def has_room(self, link: Link) -> None: ...

    def lost(self, link: Link) -> None: ...


class Ask:
    """A request, and who waits for its answer."""

    __slots__ = ("answered", "request")

    def __init__(self, request: wire.Request) -> None:
        self.request = request  # its id is given by the connection
        self.answered: Deferred[bytes] = Deferred()


class Link(WireProtocol):
    """One connection."""

    wire: Any = wire
    name = "rq"
    talks_to = "server"

    def __init__(self, clock: IReactorTime, owner: Owner) -> None:
        self.clock = clock
        self.wire = wire.Memory()
        self._owner = owner
        self._asked: dict[int, Ask] = {}
        self._last_id = -1
        self._names: dict[int, bytes] = {}  # of queues, by the id that this controller gave them
        self._at_work = 0  # requests of others that wait for a handler
        self._is_pinged = False
        self.is_silent = False  # a PING was not answered
        self.is_draining = False  # one side has said that it leaves

    def started(self) -> None:
        self._silence = Timer(self.clock, self._silent)
        self._silence.set(SILENCE)
        self._owner.connected(self)

    def ended(self) -> None:
        self._silence.stop()
        self.is_draining = True
        asked, self._asked = self._asked, {}
        for ask in asked.values():
            ask.answered.errback(NotDelivered("the connection is gone"))
        self._owner.lost(self)

    # For the node.

    @property
    def is_open(self) -> bool:
        """New things may be said."""
        return not (self.is_draining or self._closing)

    @property
    def is_consuming(self) -> bool:
        """The controller gives it requests."""
        return bool(self._names) and not self._closing

    @property
    def is_done(self) -> bool:
        return not self._asked and not self._at_work

    @property
    def can_ask(self) -> bool:
        return self.is_open and len(self._asked) < MOST_ASKED

    def ask(self, ask: Ask) -> None:
        number = (self._last_id + 1) & LARGEST_ID
        while number in self._asked:
            number = (number + 1) & LARGEST_ID
        self._last_id = number
        self._asked[number] = ask
        given = ask.request
        self.send(
            wire.Request(
                *(number, given.queue, given.payload, given.noreply),
                retries=given.retries,
                timeout=given.timeout,
            )
        )

    def leave(self) -> None:
        """Finish what is under way, and close."""
        if self.is_draining:
            return
        self.is_draining = True
        if self.is_done:
            self.close()
        else:
            self.send(wire.Closing())  # the controller hangs up when all is done

    # What the controller says.

    def dataReceived(self, data: bytes) -> None:
        self._is_pinged = self.is_silent = False
        self._silence.set(SILENCE)
        super().dataReceived(data)

    def _silent(self) -> None:
        if self._is_pinged:
            self.is_silent = True
            self._owner.is_unanswered(self)
        else:
            self._is_pinged = True
            self._silence.set(SILENCE)
            self.send(wire.Ping())

    def on_Ping(self, _: wire.Ping) -> None:
        self.send(wire.Pong())

    def on_Pong(self, _: wire.Pong) -> None:
        """That it spoke is all there is to it."""

    def on_Consuming(self, consuming: wire.Consuming) -> None:
        self._names[consuming.queue_id] = consuming.queue

    def on_Delivered(self, delivered: wire.Delivered) -> None:
        ask = self._asked.get(delivered.id)
        if ask is not None and ask.request.noreply:
            self._forget(delivered.id).callback(b"")

    def on_Reply(self, reply: wire.Reply) -> None:
        if reply.id in self._asked:
            self._forget(reply.id).callback(reply.payload)

    def on_Undelivered(self, undelivered: wire.Undelivered) -> None:
        if undelivered.id in self._asked:
            self._forget(undelivered.id).errback(NotDelivered("UNDELIVERED"))

    def _forget(self, number: int) -> Deferred[bytes]:
        answered = self._asked.pop(number).answered
        self._owner.has_room(self)
        return answered

    def on_Task(self, task: wire.Task) -> None:
        """Say DELIVERED, then do it, then reply: who did not hear DELIVERED may offer it again."""
        work = self._owner.works.get(task.queue or self._names.get(task.queue_id, b""))
        if work is None:
            self.send(wire.Undelivered(task.id))
            return
        if work.takes_one():
            self.send(work.consume)  # before DELIVERED, which would bring the next one
        self.send(wire.Delivered(task.id))
        self._at_work += 1

        def done(result: Any) -> None:
            self._at_work -= 1
            if isinstance(result, Failure):
                self.log.failure("a handler of {name} broke", result, name=self.name)
            if self._lost:
                return
            if not task.noreply:
                failed = isinstance(result, Failure)
                self.send(
                    wire.Undelivered(task.id) if failed else wire.Reply(task.id, result or b"")
                )

        maybeDeferred(work.handler, task.payload).addBoth(done)

    def on_Announcement(self, news: wire.Announcement) -> None:
        work = self._owner.works.get(self._names.get(news.queue_id, b""))
        if work is not None and work.heard is not None:
            maybeDeferred(work.heard, news.payload).addErrback(
                lambda failure: self.log.failure("who hears {name} broke", failure, name=self.name)
            )

    def on_Shutdown(self, _: wire.Shutdown) -> None:
        if not self.is_draining:
            self.is_draining = True
            self._owner.is_closing(self)

    def on_ServerFull(self, _: wire.ServerFull) -> None:
        self.is_draining = True
        self.close()  # lost so soon, it is as if it had not been reached

    def wire_error(self, error: WireError) -> None:
        """Ignored, as a controller does; FramingLost ends it."""
