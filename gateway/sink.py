"""The line sink: every broker event as one JSON line, live, to whoever connects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.logger import Logger
from zope.interface import implementer

from gateway.interfaces import Broker
from gateway.record import Record, lines

log = Logger()


@implementer(IPushProducer)
class LineReader(Protocol):
    """One reader.  What it sends is not read; when it does not read, it is dropped."""

    factory: LineSink
    transport: Any

    def connectionMade(self) -> None:
        host = self.transport.getPeer()
        self.address = f"{host.host}:{host.port}" if hasattr(host, "port") else str(host)
        self._waiting: list[bytes] = []
        self._size = 0
        self._blocked = False
        self.transport.registerProducer(self, True)
        self.factory.add(self)

    def show(self, data: bytes) -> None:
        if not self._blocked:
            self.transport.write(data)
            return
        self._waiting.append(data)
        self._size += len(data)
        if self._size > self.factory.buffer:
            self.factory.drop(self)

    def pauseProducing(self) -> None:
        self._blocked = True

    def resumeProducing(self) -> None:
        self._blocked = False
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting:
            self.transport.write(b"".join(waiting))

    def stopProducing(self) -> None:
        """The connection is going."""

    def connectionLost(self, reason: Any = None) -> None:
        self._waiting = []
        self.factory.remove(self)


class LineSink(ServerFactory):
    """Encodes what is committed once, for all readers; with none, it does not even look."""

    protocol: Any = LineReader
    noisy = False

    def __init__(self, broker: Broker, buffer: int) -> None:
        """`buffer`: bytes that may wait for a reader before it is dropped."""
        self._broker = broker
        self.buffer = buffer
        self._readers: dict[LineReader, None] = {}
        self._stop: Callable[[], None] | None = None

    def add(self, reader: LineReader) -> None:
        if self._stop is None:
            self._stop = self._broker.watch(self._show)
        self._readers[reader] = None

    def remove(self, reader: LineReader) -> None:
        self._readers.pop(reader, None)
        if not self._readers and self._stop is not None:
            self._stop()
            self._stop = None

    def drop(self, reader: LineReader) -> None:
        self.remove(reader)
        self._broker.count("sink-dropped", "does not read")
        log.warn("the sink drops its reader {address}: it does not read", address=reader.address)
        reader.transport.abortConnection()

    def farewell(self) -> bytes:
        return b""

    def finish(self) -> None:
        """There is always more to show: nothing to wait for."""

    def _show(self, records: list[Record]) -> None:
        data = lines(records)
        for reader in [*self._readers]:
            reader.show(data)
