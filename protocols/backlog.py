"""What somebody who joins a topic is shown of the time before, as fast as it reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from gateway.interfaces import Message
from protocols.base import WireProtocol

CHUNK = 1 << 18  # bytes that are sent before the member has read those before

Encode = Callable[[Message], bytes]  # is asked when the message is sent, and not before


class Backlog:
    """One member's.  While it lasts, what is published waits behind it, so that the order is kept;
    that may be as much as any peer may leave unread."""

    def __init__(self, member: WireProtocol) -> None:
        self._member = member
        # For who publishes to look at: that is asked for every message and member.
        self.waiting: deque[tuple[Message, Encode]] = deque()
        self._behind = 0  # bytes of what was published since

    def show(self, kept: Iterable[Message], encode: Encode) -> None:
        if not self.waiting:
            self._behind = 0
        self.waiting.extend((message, encode) for message in kept)
        self.send()

    def add(self, message: Message, encode: Encode) -> None:
        """One that was published meanwhile."""
        self.waiting.append((message, encode))
        self._behind += len(message.body)
        if self._behind > self._member.output_limit:
            self._member.overflow()

    def forget(self, address: str) -> None:
        """The member has left it."""
        self.waiting = deque(item for item in self.waiting if item[0].address != address)

    def clear(self) -> None:
        self.waiting.clear()

    def send(self) -> None:
        """As much as there is room for; the rest when the member has read that."""
        member, waiting = self._member, self.waiting
        outbox, now = member.outbox, member.broker.now()
        outbox.flush()
        while waiting and not outbox.blocked and not outbox.is_held:
            pieces, size = [], 0
            while waiting and size < CHUNK:
                message, encode = waiting.popleft()
                if message.due is None or message.due > now:  # it may have waited for long
                    pieces.append(encode(message))
                    size += len(pieces[-1])
            member.send_bytes(b"".join(pieces))
            outbox.flush()
