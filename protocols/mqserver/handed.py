"""Messages that a client has been handed and has not acknowledged, and those that it has sent and
wants to hear of again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.interfaces import Consumer, Message
from protocols.mqserver.events import Ack

if TYPE_CHECKING:
    from protocols.mqserver.session import Session

WINDOW = 100  # messages that are pushed to a client before it acknowledges the first


class Window:
    """One client's consumer at a queue of the Broker.

    It lets so many messages come as `most` says, less what is not acknowledged, and none while the
    client does not read.
    """

    consumer: Consumer

    def __init__(self, server: Session, most: int, address: str) -> None:
        self._server = server
        self.address = address
        self.most = most
        self.in_flight = 0
        self._is_open = True

    def adjust(self) -> None:
        """Let as much come as the client may have now."""
        is_open = self._is_open and not self._server.outbox.blocked
        more = max(self.most - self.in_flight, 0) * is_open - self.consumer.credit
        if more:
            self.consumer.grant(more)

    def hold(self) -> None:
        """Let nothing come until it is adjusted."""
        self.consumer.grant(-self.consumer.credit)

    @property
    def is_over(self) -> bool:
        return not self._is_open and not self.in_flight

    def retire(self) -> None:
        """Let no more come; what was handed out may still be acknowledged."""
        self._is_open = False
        self.consumer.retire()

    def cancel(self) -> None:
        """The client is gone: what it did not acknowledge goes back to the head."""
        self._is_open = False
        self.consumer.cancel()


class Handed:
    """One message that waits for the client's ACK."""

    __slots__ = ("message", "settled", "window")

    def __init__(
        self, window: Window, message: Message, settled: Callable[[], None] | None = None
    ) -> None:
        self.window = window
        self.message = message
        self.settled = settled
        window.in_flight += 1

    def settle(self) -> None:
        window = self.window
        window.in_flight -= 1
        window.consumer.settle(self.message)
        if self.settled is not None:
            self.settled()
        else:
            window.adjust()


class Processing:
    """interfaces.Tracker: a message whose sender wants to know that it has been processed."""

    def __init__(self, server: Session, mid: int, done: str) -> None:
        """`done` is the text of the ACK."""
        self.mid = mid
        self.is_taken = False
        self._done = done
        self._server: Session | None = server
        server.processing[self] = None

    def abandon(self) -> None:
        """Its sender has gone, or has been answered otherwise."""
        if self._server is not None:
            self._server.processing.pop(self, None)
            self._server = None

    def taken(self, message: Message) -> None:
        self.is_taken = True

    def settled(self, message: Message) -> None:
        self._answer(self._done)

    def undelivered(self, message: Message, reason: str) -> None:
        self._answer("0")

    def _answer(self, text: str) -> None:
        server = self._server
        self.abandon()
        if server is not None:
            server.send(Ack(self.mid, text))
