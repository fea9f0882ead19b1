"""The requests that a consumer has been handed, and its places at the queues they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.interfaces import Consumer, Message, Subscription
from protocols.rq.places import Place
from protocols.rq.requests import REPLY_WANTED, RETRIES, Asked
from protocols.rq.wire import LARGEST_ID, Announcement, Consume, Consuming, Task

if TYPE_CHECKING:
    from protocols.rq.server import RqServer

MOST = LARGEST_ID  # requests that one connection may have been handed: so many ids there are


class Delivery:
    """One request that a consumer has been handed and is not done with."""

    __slots__ = ("asked", "deliveries", "is_delivered", "member", "message")

    def __init__(
        self, member: Member, message: Message, deliveries: int, asked: Asked | None
    ) -> None:
        self.member = member
        self.message = message
        self.deliveries = deliveries
        self.asked = asked  # None: no reply is wanted
        self.is_delivered = False  # the consumer has said so

    def settle(self) -> None:
        self.member.consumer.settle(self.message)

    def drop(self, reason: str) -> None:
        """Nobody is offered it again; a requester that waits is told."""
        self.member.consumer.drop(self.message, reason)

    def refused(self) -> None:
        """The consumer will not have it: offer it to the others, each once, else give it up."""
        member = self.member
        consumers = member.server.broker.info(member.place.address).consumers
        if self.deliveries < consumers and (self.asked is None or self.asked.is_awaited):
            member.hold()  # or it might be given the same again
            member.consumer.reject(self.message, "refused")
        else:
            self.drop("refused")

    def lost(self) -> None:
        """The consumer is gone.  What is not dropped here goes back when its place is cancelled."""
        asked = self.asked
        if asked is None:
            return
        if not asked.is_awaited:
            self.drop("requester gone")
        elif self.is_delivered:
            if asked.redeliveries >= asked.request.retries:
                self.drop("consumer left")
            asked.redeliveries += 1


class Member:
    """One connection's place at one queue, from CONSUME to CANCEL_QUEUE."""

    consumer: Consumer

    def __init__(self, server: RqServer, place: Place, consume: Consume) -> None:
        self.server = server
        self.place = place
        self.is_admitted = False  # CONSUMING has been said
        self.is_open = False  # and for all queues that the connection asked for before, too
        self.is_gone = False
        self.in_flight = 0
        # librq dies of the id of any queue but its first one.
        self.goes_by_name = bool(server.members) or server.has_left
        # librq would abort at a broadcast.  Declared here, because this may be refused.
        factory = server.factory
        self._topic = "" if factory.librq else factory.places.topic(place.name)
        self._news: Subscription | None = None
        self._read(consume)
        self._joining = True
        self.consumer = server.broker.consume(
            place.address,
            self._deliver,
            peer=server.peer,
            priority=consume.priority,
            exclusive=consume.exclusive,
            started=self._admitted,
        )
        self._joining = False

    def _read(self, consume: Consume) -> None:
        # No priority means broadcasts only.
        most = min(consume.maximum or MOST, MOST)
        self._most = most if consume.priority else 0

    def update(self, consume: Consume) -> None:
        """It asks to consume what it consumes already: the numbers count, the flag does not."""
        self._read(consume)
        self.hold()
        self.consumer.priority = consume.priority
        if self.is_admitted:
            self._say_consuming()

    def adjust(self) -> None:
        """Let as much come as the consumer may have now."""
        wanted = self._most - self.in_flight if self.is_open and self.server.is_ready else 0
        more = max(wanted, 0) - self.consumer.credit
        if more and not self.is_gone:
            self.consumer.grant(more)

    def hold(self) -> None:
        """Let nothing come until it is adjusted."""
        self.consumer.grant(-self.consumer.credit)

    def leave(self) -> None:
        """Take no more; what has been handed out may still be answered."""
        self.is_gone = True
        if self._news is not None:
            self._news.cancel()
        self.consumer.retire()

    def cancel(self) -> None:
        """The connection is gone."""
        self.leave()
        self.consumer.cancel()

    def freed(self) -> None:
        self.in_flight -= 1
        self.adjust()

    # What the Broker tells.

    def _admitted(self) -> None:
        self.is_admitted = True
        self._say_consuming()
        if self._topic:
            self._news = self.server.broker.subscribe(self._topic, self._announce)
        if not self._joining:
            self.server.reconsider()

    def _say_consuming(self) -> None:
        self.server.send(Consuming(self.place.number, self.place.name))

    def _deliver(self, message: Message, deliveries: int) -> None:
        server, asked = self.server, None
        headers = message.headers
        if headers is not None and message.protocol == "rq" and REPLY_WANTED in headers:
            asked = server.pending.get(message.sequence)
            if asked is None or not asked.is_awaited:
                # It was asked before a restart, or its requester left while another had it.
                self.consumer.drop(message, "requester gone")
                self.adjust()
                return
        delivery = Delivery(self, message, deliveries, asked)
        if not message.body and not server.takes_empty:
            delivery.refused()  # librq would abort
            self.adjust()
            return
        self.in_flight += 1
        number = server.new_delivery(delivery)
        if self.goes_by_name:
            server.hand(Task(number, 0, message.body, asked is None, self.place.name))
        else:
            server.hand(Task(number, self.place.number, message.body, asked is None))

    def _announce(self, message: Message) -> None:
        if not self.server.is_idle:
            self.server.send(Announcement(self.place.number, message.body))


def headers(retries: int) -> dict[str, int]:
    """What marks a message as a request that wants a reply."""
    return {REPLY_WANTED: 1, RETRIES: retries}
