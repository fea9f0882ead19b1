"""The queues that nodes name, as RQ and as the Broker know them."""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway.interfaces import Broker, BrokerError, NoSuchAddress
from protocols.names import to_name, to_raw
from protocols.rq.wire import LARGEST_ID


class Refusal(BrokerError):
    """A refusal of RQ's own; the text is for a log."""


class Place(NamedTuple):
    """A queue."""

    name: bytes
    number: int  # its id
    address: str


def address_of(name: bytes) -> str:
    return f"queue:{to_name(name)}"


class Places:
    """Finds queues by name or id, and makes those that are not there."""

    def __init__(self, broker: Broker, most_messages: int) -> None:
        self._broker = broker
        self._most_messages = most_messages  # in a queue that we make
        self._places: dict[bytes, Place] = {}  # by name; at most as many as there are ids
        self._topics: dict[bytes, str] = {}
        self._no_more = False  # all ids are taken
        self._deleted = broker.deleted

    def get(self, name: bytes) -> Place:
        """The queue of that name, made if need be; Refusal."""
        if self._deleted != self._broker.deleted:
            self._forget()
        place = self._places.get(name)
        if place is None:
            address = address_of(name)
            place = Place(name, self._number(name, address, limit=self._most_messages), address)
            if place.number > LARGEST_ID:
                raise Refusal("all ids of queues are taken")
            self._places[name] = place
        return place

    def find(self, number: int) -> Place:
        """The queue that CONSUMING gave that id, in this life of the gateway or an earlier one."""
        address = self._broker.find(number)
        kind, _, name = address.partition(":")
        if kind != "queue" or number > LARGEST_ID:
            raise NoSuchAddress(f"no queue has the id {number}")
        return Place(to_raw(name), number, address)

    def topic(self, name: bytes) -> str:
        """Where what is broadcast to a queue is published; Refusal."""
        if self._deleted != self._broker.deleted:
            self._forget()
        topic = self._topics.get(name)
        if topic is None:
            topic = f"topic:{to_name(name)}"
            self._number(name, topic)
            self._topics[name] = topic
        return topic

    def _forget(self) -> None:
        """Somebody has deleted an address: ask the Broker again."""
        self._deleted = self._broker.deleted
        self._places.clear()
        self._topics.clear()
        self._no_more = False

    def _number(self, name: bytes, address: str, **options: Any) -> int:
        """The number of an address, which is declared if nobody has done so."""
        if b"\0" in name:
            raise Refusal("a name with a NUL")  # rqd would cut it off there
        try:
            return self._broker.info(address).number
        except NoSuchAddress:
            # Else names without end would fill the memory.  Whoever consumes must hear broadcasts.
            if self._no_more and name not in self._places:
                raise Refusal("all ids of queues are taken") from None
        self._broker.declare(address, **options)
        number = self._broker.info(address).number
        self._no_more = number >= LARGEST_ID
        return number
