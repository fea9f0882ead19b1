"""What a user may do with which address, held by a Broker that asks before it does."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import translate
from re import compile as compile_pattern
from typing import Any

from gateway.interfaces import (
    Broker,
    Consumer,
    Deliver,
    Denied,
    Message,
    Peer,
    Rights,
    Subscription,
    Tracker,
)

REMEMBERED = 4096  # addresses whose answer is kept; names come from clients, without end


class RestrictedBroker:
    """interfaces.Broker for somebody who has not every right.  What it does not check, such as to
    ask or to count, everybody may."""

    def __init__(self, broker: Broker, rights: Rights) -> None:
        self._broker: Any = broker
        self._may_publish = _Permission("publish to", rights.publish)
        self._may_consume = _Permission("consume from", rights.consume)
        self._may_create = _Permission("create or change", rights.create)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._broker, name)

    def declare(self, address: str, **options: Any) -> bool:
        self._may_create.check(address)
        return self._broker.declare(address, **options)

    def delete(self, address: str, reason: str = "deleted") -> None:
        self._may_create.check(address)
        self._broker.delete(address, reason)

    def push(self, message: Message, tracker: Tracker | None = None) -> int:
        self._may_publish.check(message.address)
        return self._broker.push(message, tracker)

    def publish(self, message: Message) -> int:
        self._may_publish.check(message.address)
        return self._broker.publish(message)

    def take(self, address: str, peer: Peer) -> Message:
        self._may_consume.check(address)
        return self._broker.take(address, peer)

    def consume(self, address: str, deliver: Deliver, credit: int = 0, **how: Any) -> Consumer:
        self._may_consume.check(address)
        return self._broker.consume(address, deliver, credit, **how)

    def subscribe(self, address: str, deliver: Callable[[Message], None]) -> Subscription:
        self._may_consume.check(address)
        return self._broker.subscribe(address, deliver)

    def retained(self, address: str) -> list[Message]:
        self._may_consume.check(address)
        return self._broker.retained(address)


class _Permission:
    """One thing that may be done with some addresses."""

    def __init__(self, what: str, patterns: tuple[str, ...] | None) -> None:
        self._what = what
        self._all = patterns is None
        self._matches = compile_pattern("|".join(map(translate, patterns or ())) or r"(?!)").match
        self._known: dict[str, bool] = {}

    def check(self, address: str) -> None:
        """Denied, unless it is allowed."""
        if self._all:
            return
        allowed = self._known.get(address)
        if allowed is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            allowed = self._known[address] = self._matches(address) is not None
        if not allowed:
            raise Denied(f"this user may not {self._what} {address}")
