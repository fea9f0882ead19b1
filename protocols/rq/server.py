"""The controller's side of RQ: what each sentence of a node asks of the Broker."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from gateway.interfaces import BrokerError, Message, Setting
from protocols.base import WireFactory, WireProtocol
from protocols.framing import WireError
from protocols.outbox import ENOUGH
from protocols.rq import wire
from protocols.rq.deliveries import MOST, Delivery, Member, headers
from protocols.rq.places import Places, Refusal, address_of
from protocols.rq.requests import Asked, pending_at
from protocols.rq.wire import LARGEST_ID, Delivered, Undelivered
from protocols.timer import Timer

ACTIVE, PINGED, IDLE = range(3)
DRAINING = wire.S.DRAINING


class RqServer(WireProtocol):
    """One node of an RQ listener: requester and consumer, both at once if it likes."""

    wire: Any = wire
    name = "rq"
    factory: RqFactory
    # A consumer is answered nothing; what it is handed instead of these needs no barrier.
    unpromised = frozenset([wire.Delivered, wire.Undelivered, wire.Reply])
    # A node that works may read nothing for long.  We send it no more meanwhile, and do not hang
    # up, as the document says; but what it has not read in an hour it will not read.
    write_timeout = 3600.0

    def started(self) -> None:
        self.frame_timeout = self.factory.sentenceSeconds
        self.takes_empty = not self.factory.librq
        self.pending = pending_at(self.broker)
        self.asked: dict[Asked, None] = {}
        self.members: dict[str, Member] = {}  # by address, in the order of CONSUME
        self.has_left = False  # a queue that it consumed
        self._retired: list[Member] = []  # those left, with something in flight
        self.deliveries: dict[int, Delivery] = {}
        self._last_id = 0
        self.is_ready = False  # requests may be handed to it
        self._attention = ACTIVE
        self._silence = Timer(self.clock, self._silent)
        self._silence.set(self.factory.pingSeconds)
        self.factory.nodes[self] = None

    def ended(self) -> None:
        self.factory.nodes.pop(self, None)
        self._silence.stop()
        self.is_ready = False
        for asked in [*self.asked]:
            asked.abandon()
            self.broker.withdraw(asked.message, "requester gone")
        for delivery in [*self.deliveries.values()]:
            delivery.lost()
        self.deliveries.clear()
        for member in [*self.members.values(), *self._retired]:
            member.cancel()
        self.factory.looks_finished()

    # Requests.

    def on_Request(self, request: wire.Request) -> None:
        if self.talk.state is DRAINING:
            raise Refusal("a request after CLOSING")
        places, payload = self.factory.places, request.payload
        place = places.get(request.queue) if request.queue else places.find(request.queue_id)
        if not payload and not self.factory.emptyPayloads:
            raise Refusal("an empty payload")  # it would kill every librq that consumes
        if place.address in self.members:
            self._hold()
        message = Message(place.address, payload, self.peer.user, "rq")
        if request.timeout:
            message.due = self.broker.now() + request.timeout
        if request.noreply:
            self.broker.push(message)
            self.send(Delivered(request.id))
            return
        message.headers = headers(request.retries)
        asked = Asked(self, request, message, self.pending)
        self.asked[asked] = None
        try:
            self.broker.push(message, asked)
        except BrokerError:
            del self.asked[asked]
            raise
        if request.timeout and asked.is_awaited:
            asked.time_out(self.clock, request.timeout)

    def answered(self, asked: Asked) -> None:
        self.asked.pop(asked, None)
        self._leave_if_done()

    def on_Broadcast(self, broadcast: wire.Broadcast) -> None:
        places = self.factory.places
        name = broadcast.queue or places.find(broadcast.queue_id).name
        self.broker.publish(Message(places.topic(name), broadcast.payload, self.peer.user, "rq"))

    # Places at queues.

    def on_Consume(self, consume: wire.Consume) -> None:
        place = self.factory.places.get(consume.queue)
        self._hold()
        member = self.members.get(place.address)
        if member is None:
            self.members[place.address] = Member(self, place, consume)
        else:
            member.update(consume)

    def on_Cancel(self, cancel: wire.Cancel) -> None:
        if cancel.queue:
            address = address_of(cancel.queue)
        else:
            address = self.factory.places.find(cancel.queue_id).address
        member = self.members.pop(address, None)
        if member is not None:
            self._leave(member)
            self.is_ready = False  # and again: other places may have waited for this one

    def _leave(self, member: Member) -> None:
        self.has_left = True
        member.leave()
        if member.in_flight:
            self._retired.append(member)

    # What is handed to it, and what becomes of that.

    def _hold(self) -> None:
        """Let nothing be handed to it by this handler, whose answers may be taken back if the disk
        fails; `reconsider` follows when all that came has been read."""
        self.is_ready = False
        for member in self.members.values():
            member.hold()

    def reconsider(self) -> None:
        """Let as much be handed to it as it may have now."""
        outbox = self.outbox
        self.is_ready = (
            self._attention is not IDLE
            and not self._closing
            and not outbox.blocked
            and outbox.size <= ENOUGH
            and len(self.deliveries) < MOST
        )
        is_open = True
        for member in [*self.members.values()]:
            # librq dies of a request while it waits for a queue that it asked for before.
            member.is_open = is_open = is_open and member.is_admitted
            member.adjust()

    def new_delivery(self, delivery: Delivery) -> int:
        """The id of what is handed to it now."""
        number = self._last_id % LARGEST_ID + 1
        while number in self.deliveries:
            number = number % LARGEST_ID + 1
        self._last_id = number
        self.deliveries[number] = delivery
        return number

    def hand(self, task: wire.Task) -> None:
        self.send(task)
        if self.outbox.size > ENOUGH or len(self.deliveries) >= MOST:
            self.reconsider()

    def on_Delivered(self, delivered: wire.Delivered) -> None:
        delivery = self._outstanding(delivered)
        if delivery is None:
            return
        delivery.is_delivered = True
        if delivery.asked is not None:
            delivery.asked.tell_delivered()
        else:
            delivery.settle()
            self._done(delivered.id)

    def on_Reply(self, reply: wire.Reply) -> None:
        delivery = self._outstanding(reply)
        if delivery is None:
            return
        asked, payload = delivery.asked, reply.payload
        if asked is not None:
            self.broker.replied(delivery.message, payload, self.peer)
            asked.reply(payload)
        delivery.settle()
        self._done(reply.id)

    def on_Undelivered(self, undelivered: wire.Undelivered) -> None:
        delivery = self._outstanding(undelivered)
        if delivery is not None:
            delivery.refused()
            self._done(undelivered.id)

    def _outstanding(self, event: Any) -> Delivery | None:
        delivery = self.deliveries.get(event.id)
        if delivery is None:
            self.note_refusal("not outstanding", f"{type(event).__name__} of {event.id}")
        return delivery

    def _done(self, number: int) -> None:
        """It has room for another."""
        member = self.deliveries.pop(number).member
        member.freed()
        if member.is_gone and not member.in_flight:
            self._retired.remove(member)
        self._leave_if_done()

    # Whether it listens, and when it leaves.

    @property
    def is_idle(self) -> bool:
        return self._attention is IDLE

    def dataReceived(self, data: bytes) -> None:
        self._attention = ACTIVE
        self._silence.set(self.factory.pingSeconds)
        gathered = self.factory.gathered = {}
        try:
            super().dataReceived(data)
        finally:
            self.factory.gathered = None
            for node in gathered:
                node.write()
        if not self.is_ready:
            self.reconsider()

    def send(self, event: Any) -> None:
        """What one read brings for a node is written once, when all of it has been handled."""
        gathered = self.factory.gathered
        if gathered is None or self._reading:
            super().send(event)
            return
        data, outbox = self.talk.send(event), self.outbox
        outbox.pieces.append(data)
        outbox.size += len(data)
        gathered[self] = None

    def write(self) -> None:
        """Write what was gathered."""
        self._flush()
        if not self.is_ready:
            self.reconsider()

    def _silent(self) -> None:
        """It has said nothing for a while.  It may be at work: no reason to hang up."""
        if self._attention is ACTIVE:
            self._attention = PINGED
            self._silence.set(self.factory.pingSeconds)
            self.send(wire.Ping())
        else:
            self._attention = IDLE
            self.reconsider()

    def _on_blocked(self) -> None:
        super()._on_blocked()
        self.reconsider()

    def _on_free(self) -> None:
        super()._on_free()
        self.reconsider()

    def on_Ping(self, _: wire.Ping) -> None:
        self.send(wire.Pong())

    def on_Pong(self, _: wire.Pong) -> None:
        """That it spoke is all there is to it."""

    def on_Closing(self, _: wire.Closing) -> None:
        for member in self.members.values():
            self._leave(member)
        self.members.clear()
        self._leave_if_done()

    def shut_down(self) -> None:
        """The gateway ends: say so, and finish what is in flight."""
        if self.talk.state is DRAINING:
            return
        self.send(wire.Shutdown())
        for asked in [*self.asked]:
            self.broker.withdraw(asked.message, "controller closing")
        self.on_Closing(wire.Closing())

    def _leave_if_done(self) -> None:
        if self.talk.state is DRAINING and not (self.deliveries or self.asked or self._closing):
            self.close()
        self.factory.looks_finished()

    # Refusals.

    def refuse(self, event: Any, error: BrokerError) -> None:
        """UNDELIVERED for a request; the document has no words for anything else.

        It may come late, when the disk has failed.  A request that a consumer has by then is
        answered by him; a queue's CONSUMING was taken back, and would be missed for ever.
        """
        if isinstance(event, wire.Request):
            for asked in self.asked:
                if asked.request is event:
                    if asked.is_taken:
                        return
                    asked.abandon()
                    break
            self.send(Undelivered(event.id))
        elif isinstance(event, wire.Consume) and address_of(event.queue) in self.members:
            self.abort("a queue could not be kept", str(error))

    def wire_error(self, error: WireError) -> None:
        """Ignored, as nothing can be answered to it; after FramingLost we hang up."""


class RqFactory(WireFactory):
    """One RQ listener: its nodes, and the queues that they have named."""

    protocol = RqServer
    settings = {
        "librq": Setting(False),
        "maxPayload": Setting(wire.MOST_PAYLOAD, 1, 1 << 30),
        "maxMessages": Setting(1_000_000, 1, 2**32 - 1),
        "emptyPayloads": Setting(False),
        "pingSeconds": Setting(15.0, 0.001, 86_400),
        "sentenceSeconds": Setting(300.0, 0.001, 86_400),
    }
    librq: bool
    maxPayload: int
    maxMessages: int
    emptyPayloads: bool
    pingSeconds: float
    sentenceSeconds: float

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._finished: Deferred[None] | None = None
        self.nodes: dict[RqServer, None] = {}
        self.places = Places(self.guests_broker, self.maxMessages)
        self.gathered: dict[RqServer, None] | None = None  # who has something to be written

    def buildProtocol(self, addr: Any) -> WireProtocol:
        protocol = super().buildProtocol(addr)
        protocol.wire = wire.Memory(self.maxPayload)
        return protocol

    def farewell(self) -> bytes:
        return b"" if self.librq else wire.encode(wire.ServerFull())

    def finish(self) -> Deferred[None] | None:
        """Say CLOSING to all; fires when no node has anything in flight."""
        for node in [*self.nodes]:
            node.shut_down()
        if not self._is_busy():
            return None
        self._finished = Deferred()
        return self._finished

    def looks_finished(self) -> None:
        """A node has less to do than before."""
        if self._finished is not None and not self._is_busy():
            finished, self._finished = self._finished, None
            finished.callback(None)

    def _is_busy(self) -> bool:
        return any(node.deliveries or node.asked for node in self.nodes)
