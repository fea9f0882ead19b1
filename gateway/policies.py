"""Limits around any factory, added by wrapping it."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from zope.interface import implementer

from gateway.interfaces import Broker, Peer
from gateway.record import REFUSED

log = Logger()


@implementer(IHalfCloseableProtocol)
class LimitedProtocol(ProtocolWrapper):
    """A wrapper that passes on what Twisted's forgets: that one side has closed."""

    def readConnectionLost(self) -> None:
        if IHalfCloseableProtocol.providedBy(self.wrappedProtocol):
            self.wrappedProtocol.readConnectionLost()
        else:
            self.loseConnection()

    def writeConnectionLost(self) -> None:
        if IHalfCloseableProtocol.providedBy(self.wrappedProtocol):
            self.wrappedProtocol.writeConnectionLost()


class Farewell(Protocol):
    """Says one thing and hangs up."""

    def __init__(self, words: bytes) -> None:
        self._words = words

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self._words)
        self.transport.loseConnection()


class ConnectionLimit(WrappingFactory):
    """At most so many connections; one more is told the factory's farewell."""

    protocol = LimitedProtocol
    noisy = False

    def __init__(self, factory: Any, most: int, broker: Broker, name: str) -> None:
        super().__init__(factory)
        self._most = most
        self._broker = broker
        self._name = name
        self._full = False

    def buildProtocol(self, addr: Any) -> Any:
        if len(self.protocols) < self._most:
            return super().buildProtocol(addr)
        reason = "too many connections"
        if self._full:
            self._broker.count("refused", self._name, reason)
        else:  # told once, until there is room again
            self._full = True
            log.warn("{name}: all {most} connections are taken", name=self._name, most=self._most)
            self._broker.note(REFUSED, Peer(self._name, ""), reason=reason)
        return Farewell(self.wrappedFactory.farewell())

    def unregisterProtocol(self, protocol: Any) -> None:
        super().unregisterProtocol(protocol)
        self._full = False
