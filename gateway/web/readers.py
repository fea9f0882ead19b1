"""Those who follow the server-sent events: all are told the same, none can make us wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from twisted.web.http import Request
from zope.interface import implementer

log = Logger()

MOST_READERS = 32  # browsers; each second costs a few kilobytes for each
MOST_WAITING = 4 << 20  # bytes for one that does not read: four times the biggest state
PATIENCE = 30.0  # seconds in which one must have read something

_encode = msgspec.json.Encoder().encode


def event(name: str, data: Any) -> bytes:
    """One server-sent event.  JSON has no line break, so the data is one line."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), _encode(data))


@implementer(IPushProducer)
class EventReader:
    """One browser.  While its connection is full, what it should hear waits; not for ever."""

    def __init__(self, request: Request, readers: Readers) -> None:
        self.request = request
        self._readers = readers
        self._waiting: list[bytes] = []
        self._size = 0
        self.blocked_since: float | None = None
        request.registerProducer(self, True)

    def tell(self, data: bytes) -> None:
        if self.blocked_since is None:
            self.request.write(data)
            return
        self._waiting.append(data)
        self._size += len(data)
        if self._size > MOST_WAITING:
            self._readers.drop(self)

    def pauseProducing(self) -> None:
        if self.blocked_since is None:
            self.blocked_since = self._readers.now()

    def resumeProducing(self) -> None:
        self.blocked_since = None
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting:
            self.request.write(b"".join(waiting))

    def stopProducing(self) -> None:
        """The connection is going."""


class Readers:
    """All browsers that follow."""

    def __init__(self, now: Callable[[], float], count: Callable[..., None]) -> None:
        """`count` counts one that is dropped, for the operator."""
        self.now = now
        self._count = count
        self._readers: dict[EventReader, None] = {}

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def is_full(self) -> bool:
        return len(self._readers) >= MOST_READERS

    def add(self, request: Request, first: bytes) -> None:
        """Tell this one too, and `first` before all else."""
        reader = EventReader(request, self)
        self._readers[reader] = None
        request.notifyFinish().addBoth(lambda _: self._readers.pop(reader, None))
        reader.tell(first)

    def tell(self, data: bytes) -> None:
        for reader in [*self._readers]:
            reader.tell(data)

    def drop_stuck(self) -> None:
        """Drop those that have read nothing for too long: a full connection that is paused would
        not notice that its browser has gone."""
        for reader in [*self._readers]:
            since = reader.blocked_since
            if since is not None and self.now() - since > PATIENCE:
                self.drop(reader)

    def drop(self, reader: EventReader) -> None:
        if self._readers.pop(reader, self) is self:
            return
        self._count("web-dropped", "does not read")
        log.warn("a browser is dropped: it does not read")
        channel: Any = reader.request.channel
        channel.transport.abortConnection()

    def end(self) -> None:
        """The gateway ends: hang up, and let each browser see it at once."""
        for reader in [*self._readers]:
            reader.request.unregisterProducer()
            reader.request.finish()
