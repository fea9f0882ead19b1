"""What MQServer keeps among the options of an address, and the numbers of the messages there."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, cast

from gateway.interfaces import ROUTE, Broker, BrokerError, Message, NoSuchAddress

NAME = "mqserver"  # the protocol's, in records; and the option that is its own
ID = "id"  # a header of messages that MQServer sent

BLOCK = 1000  # ids reserved in one record, and skipped at most when the gateway starts again
REMEMBERED = 10_000  # ids of messages that have none in their headers, for each queue


def ours(options: dict[str, Any]) -> dict[str, Any]:
    return cast(dict[str, Any], options.get(NAME, {}))


def change(broker: Broker, address: str, ours_too: dict[str, Any], **options: Any) -> None:
    """Add to an address's options, and make it if need be; those of other protocols stay."""
    try:
        known = broker.info(address).options
    except NoSuchAddress:
        known = {}
    broker.declare(address, **{**known, **options, NAME: {**ours(known), **ours_too}})


class Ids:
    """The numbers of the messages of one address, from 1, and none of them twice.

    What MQServer sent has its number in its headers.  What others sent gets one when it is first
    shown, and keeps it for as long as the gateway runs.
    """

    def __init__(self, broker: Broker, address: str) -> None:
        self._broker = broker
        self.address = address
        self._shown: OrderedDict[int, int] = OrderedDict()
        try:
            self._last = self._reserved = ours(broker.info(address).options).get("ids", 0)
        except NoSuchAddress:
            self._last = self._reserved = 0

    def next(self) -> int:
        """Overloaded, if no more can be reserved."""
        number: int = self._last + 1
        if number > self._reserved:
            reserved = self._last + BLOCK
            change(self._broker, self.address, {"ids": reserved})
            self._reserved = reserved
        self._last = number
        return number

    def of(self, message: Message) -> int:
        headers = message.headers
        if headers is not None and message.protocol == NAME and ROUTE not in headers:
            number = headers.get(ID)
            if number is not None:
                return cast(int, number)
        number = self._shown.get(message.sequence)
        if number is None:
            try:
                number = self.next()
            except BrokerError:  # no reason to withhold a message; we try again with the next
                number = self._last = self._last + 1
            self._shown[message.sequence] = number
            if len(self._shown) > REMEMBERED:
                self._shown.popitem(last=False)
        return cast(int, number)
