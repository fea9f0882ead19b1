"""The requests that wait for an answer, from the requester's side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from gateway.interfaces import Broker, Message
from protocols.rq.wire import Delivered, Reply, Request, Undelivered

REPLY_WANTED = "reply"  # a header of the messages that a requester waits for
RETRIES = "retries"


class Requester(Protocol):
    """The connection that a request came from."""

    takes_empty: bool  # it survives an empty payload

    def send(self, event: Any) -> None: ...

    def answered(self, asked: Asked) -> None:
        """It waits no more for this one."""


class Asked:
    """interfaces.Tracker: one request of the reply type, and what its requester has been told.

    Exactly one DELIVERED, before the REPLY, however often the request is handed out; a requester
    that has gone, or has been told that it waited too long, is told nothing more.
    """

    def __init__(
        self, requester: Requester, request: Request, message: Message, pending: Pending
    ) -> None:
        self.request = request
        self.message = message
        self._requester: Requester | None = requester
        self._pending = pending
        self._told = False
        self._stop_clock: Callable[[], None] | None = None
        self.is_taken = False
        self.redeliveries = 0  # after a consumer had said DELIVERED and was lost

    @property
    def is_awaited(self) -> bool:
        return self._requester is not None

    def time_out(self, clock: Any, seconds: float) -> None:
        """Give up then, if a consumer has it; while it waits, the Broker sees to that."""
        call = clock.callLater(seconds, self._too_late)

        def stop() -> None:
            if call.active():
                call.cancel()

        self._stop_clock = stop

    def tell_delivered(self) -> None:
        if self._requester is not None and not self._told:
            self._told = True
            self._requester.send(Delivered(self.request.id))

    def reply(self, body: bytes) -> None:
        self.tell_delivered()  # a consumer may have forgotten to say it; librq would abort
        takes = body or self._requester is None or self._requester.takes_empty
        self._end(Reply(self.request.id, body) if takes else Undelivered(self.request.id))

    def abandon(self) -> None:
        """Its requester has gone, or has been answered otherwise: swallow what is still to come."""
        self._end(None)

    # What the Broker tells.

    def taken(self, message: Message) -> None:
        self.is_taken = True
        self._pending[message.sequence] = self

    def settled(self, message: Message) -> None:
        """Replied to, or taken for good by another protocol, which has no way to reply."""
        self._pending.pop(message.sequence, None)
        self.tell_delivered()
        self._end(None)

    def undelivered(self, message: Message, reason: str) -> None:
        self._pending.pop(message.sequence, None)
        self._end(Undelivered(self.request.id))

    def _too_late(self) -> None:
        if self.is_taken:
            self._end(Undelivered(self.request.id))

    def _end(self, answer: Any) -> None:
        requester, self._requester = self._requester, None
        if self._stop_clock is not None:
            self._stop_clock()
        if requester is not None:
            if answer is not None:
                requester.send(answer)
            requester.answered(self)


Pending = dict[int, Asked]  # those handed out, by the sequence of the message


def pending_at(broker: Broker) -> Pending:
    """The requests under way at a Broker: a consumer may be on another listener."""
    return cast(Pending, broker.shared.setdefault("rq", {}))
