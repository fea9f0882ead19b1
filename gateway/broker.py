"""The Broker: takes messages in, makes them safe, and sees that they reach who should have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush, nlargest
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from gateway.due import DueTimes
from gateway.interfaces import (
    BrokerError,
    Deliver,
    Expired,
    Info,
    Message,
    NoSuchAddress,
    Overloaded,
    Overview,
    Peer,
    QueueFull,
    Tracker,
)
from gateway.journal import Journal
from gateway.queue import Queue, QueueConsumer
from gateway.record import (
    DECLARED,
    DELETED,
    DELIVERED,
    DROPPED,
    EXPIRED,
    REFUSED,
    REPLIED,
    RETURNED,
    SETTLED,
    TAKEN,
    Record,
)
from gateway.routes import Route, Routes, copy_for, path_of
from gateway.topic import Topic, TopicSubscription

log = Logger()

QUEUE_KINDS = frozenset(["queue", "user"])
TOPIC_KINDS = frozenset(["topic", "hub"])
NOBODY = Peer("", "")


class Broker(Service):
    """interfaces.Broker, on a journal; and the ledger of its queues."""

    def __init__(self, clock: IReactorTime, journal: Journal) -> None:
        self._clock = clock
        self.now = clock.seconds
        self._journal = journal
        self._routes = Routes()
        self.places = self._routes.places
        self.durable = journal.durable
        self.watch = journal.watch
        self.accepted = 0
        self.deleted = 0
        self.shared: dict[str, Any] = {}
        self._promise = 1 if journal.store.durable else 0  # in memory, nothing is promised
        self.counts: Counter[tuple[str, ...]] = Counter()
        self._queues: dict[str, Queue] = {}
        self._topics: dict[str, Topic] = {}
        self._options: dict[str, dict[str, Any]] = {}
        self._numbers: dict[int, str] = {}  # addresses, by what `info` says is their number
        self._free: list[int] = []  # numbers of what was deleted: a heap
        self._due_times = DueTimes(clock, self._expire)
        journal.on_failure = self._not_written

    def startService(self) -> None:
        """Bring back what the journal has; JournalRefused."""
        restored = self._journal.open()
        for address, options in restored.addresses.items():
            self._make(address, options)
        self._free = sorted(set(range(1, max(self._numbers, default=0))) - self._numbers.keys())
        for message, deliveries in restored.messages:
            if message.address not in self._options:  # deleted while somebody still had it
                self._over(DROPPED, message, "deleted")
                continue
            if message.due is not None and message.due <= self.now():
                self._over(EXPIRED, message, "expired")
                continue
            if message.address in self._topics:
                self._topics[message.address].keep(message)
            else:
                self._queues[message.address].restore(message, deliveries)
            if message.due is not None:
                self._due_times.add(message)
        self._declare_targets()
        if restored.messages:
            log.info("{count} messages are back from the journal", count=len(restored.messages))
        Service.startService(self)

    def stopService(self) -> Deferred[None]:
        """Write what is left; nothing is accepted from here on."""
        Service.stopService(self)
        self._due_times.stop()
        return self._journal.close()

    # Addresses.

    def declare(self, address: str, **options: Any) -> bool:
        known = self._options.get(address)
        wanted = {name: value for name, value in options.items() if value is not None}
        new = known is None
        wanted["number"] = self._next_number() if known is None else known["number"]
        if wanted != known:
            self.refuse_if_failing()
            if self._free and self._free[0] == wanted["number"]:
                heappop(self._free)
            self._make(address, wanted)
            self._journal.append(
                Record(kind=DECLARED, address=address, time=self.now(), headers=wanted)
            )
            self.accepted += self._promise
        return new

    def delete(self, address: str, reason: str = "deleted") -> None:
        number = self.info(address).number  # NoSuchAddress
        self.refuse_if_failing()
        topic = self._topics.pop(address, None)
        if topic is None:
            self._queues.pop(address).close(reason)
        else:
            for message in topic.close():
                self._over(DROPPED, message, reason)
        del self._options[address], self._numbers[number]
        heappush(self._free, number)
        self._journal.append(Record(kind=DELETED, address=address, time=self.now(), reason=reason))
        self.deleted += 1
        self.accepted += self._promise

    def _next_number(self) -> int:
        """The lowest that is free, because some protocol may have few."""
        return self._free[0] if self._free else len(self._options) + 1

    def _make(self, address: str, options: dict[str, Any]) -> None:
        self._options[address] = options
        self._numbers[options["number"]] = address
        kind, _, name = address.partition(":")
        if kind in QUEUE_KINDS and name:
            queue = self._queues.setdefault(address, Queue(address, self))
            queue.limit = options.get("limit")
        elif kind in TOPIC_KINDS and name:
            topic = self._topics.setdefault(address, Topic(address))
            topic.keeps, topic.limit = bool(options.get("keep")), options.get("limit")
            for message in topic.forget_oldest():
                self._over(DROPPED, message, "over the limit")
        else:
            raise ValueError(f"no address: {address!r}")

    def info(self, address: str) -> Info:
        options = self._options.get(address)
        if options is None:
            raise NoSuchAddress(f"there is no {address}")
        if address in self._topics:
            topic = self._topics[address]
            depth, outstanding, readers = len(topic), 0, len(topic.subscriptions)
        else:
            queue = self._queues[address]
            depth, outstanding, readers = queue.depth, queue.outstanding, queue.consumers
        return Info(address, options["number"], options, depth, outstanding, readers)

    def exists(self, address: str) -> bool:
        return address in self._options

    def find(self, number: int) -> str:
        try:
            return self._numbers[number]
        except KeyError:
            raise NoSuchAddress(f"nothing has the number {number}") from None

    def overview(self, most: int) -> Overview:
        """All addresses together, and so many of those where messages wait."""
        depths = [(queue.depth, address) for address, queue in self._queues.items() if queue.depth]
        depths += [(len(topic), address) for address, topic in self._topics.items() if len(topic)]
        return Overview(
            len(self._options),
            sum([depth for depth, _ in depths]),
            sum([queue.outstanding for queue in self._queues.values()]),
            [self.info(address) for _, address in nlargest(most, depths)],
        )

    def _queue(self, address: str) -> Queue:
        try:
            return self._queues[address]
        except KeyError:
            raise NoSuchAddress(f"there is no {address}") from None

    def _topic(self, address: str) -> Topic:
        try:
            return self._topics[address]
        except KeyError:
            raise NoSuchAddress(f"there is no {address}") from None

    # Queues and mailboxes.

    def push(self, message: Message, tracker: Tracker | None = None) -> int:
        queue = self._queues.get(message.address)
        if queue is None:
            raise NoSuchAddress(f"there is no {message.address}")
        routes = self._routes.of(message) if self._routes.any else None
        if routes and any(route.moves for route in routes):
            return self._move(message, tracker, routes)
        limit = queue.limit
        if limit is not None and queue.depth + queue.outstanding >= limit:
            raise QueueFull(f"{message.address} holds its {limit} messages")
        message.stored = True
        self._accept(message)
        position = queue.put(message, tracker)
        self._pass_on(message, routes)
        return position

    def take(self, address: str, peer: Peer = NOBODY) -> Message:
        return self._queue(address).take(peer)[0]

    def withdraw(self, message: Message, reason: str) -> bool:
        if not self._queue(message.address).remove(message, reason):
            return False
        self._over(DROPPED, message, reason)
        return True

    def consume(
        self,
        address: str,
        deliver: Deliver,
        credit: int = 0,
        *,
        peer: Peer = NOBODY,
        priority: int = 0,
        exclusive: bool = False,
        final: bool = False,
        started: Callable[[], None] | None = None,
    ) -> QueueConsumer:
        queue = self._queue(address)
        consumer = QueueConsumer(queue, deliver, credit, peer, priority, exclusive, final, started)
        queue.add_consumer(consumer)
        return consumer

    # Topics.

    def publish(self, message: Message) -> int:
        topic = self._topic(message.address)
        message.stored = topic.keeps or message.due is not None
        self._accept(message)
        if message.stored:
            topic.keep(message)
            for oldest in topic.forget_oldest():
                self._over(DROPPED, oldest, "over the limit")
        copies = topic.publish(message)
        if copies:
            self._tell(DELIVERED, message, deliveries=copies)
        if self._routes.any:
            self._pass_on(message, self._routes.of(message))
        return copies

    def subscribe(self, address: str, deliver: Callable[[Message], None]) -> TopicSubscription:
        return TopicSubscription(self._topic(address), deliver)

    def retained(self, address: str) -> list[Message]:
        now = self.now()  # the alarm may be late
        kept = self._topic(address).retained()
        return [message for message in kept if message.due is None or message.due > now]

    # Routes.

    def set_routes(self, routes: list[Route]) -> None:
        """From now on, these and no others."""
        self._routes = Routes(routes)
        self.places = self._routes.places
        if self.running:
            self._declare_targets()

    def _declare_targets(self) -> None:
        for target in self._routes.targets():
            if target not in self._options:
                self.declare(target)

    def _move(self, message: Message, tracker: Tracker | None, routes: list[Route]) -> int:
        """Accept a message that only passes through; there must be room where it goes."""
        for place, must_fit in self.places(message.address, tuple(path_of(message))):
            queue = self._queues.get(place)
            if must_fit and queue is not None and queue.is_full:
                raise QueueFull(f"{place} holds its {queue.limit} messages")
        self._accept(message)
        self._tell(TAKEN, message, 1, reason="routed")
        if tracker is not None:
            tracker.taken(message)
            tracker.settled(message)
        self._pass_on(message, routes)
        return 1

    def _pass_on(self, message: Message, routes: list[Route] | None) -> None:
        """Copy an accepted message to where it goes on.  The copies are in the same commit."""
        if routes is None:
            return
        if not routes:
            self.count("routed", message.address, "been there")
        for route in routes:
            copy = copy_for(route, message)
            try:
                if route.target in self._topics:
                    self.publish(copy)
                else:
                    self.push(copy)
            except BrokerError as error:
                self._not_passed_on(route, copy, error)
            else:
                self.count("routed", route.source, route.target)
                if self._routes.is_news(route, refused=False):
                    log.info("the route {route} works again", route=route)

    def _not_passed_on(self, route: Route, copy: Message, error: BrokerError) -> None:
        self.note(
            REFUSED,
            Peer(copy.protocol, copy.sender),
            address=route.target,
            reason=f"route: {type(error).__name__}",
            detail=route.source,
        )
        if self._routes.is_news(route, refused=True):
            log.warn("the route {route} does not work: {error}", route=route, error=error)

    # Events and counts.

    def replied(self, message: Message, body: bytes, peer: Peer) -> None:
        self._tell(REPLIED, message, peer=peer, body=body)

    def note(
        self, kind: str, peer: Peer, *, address: str = "", reason: str = "", detail: str = ""
    ) -> None:
        if kind == REFUSED:
            self.count("refused", peer.protocol, reason)
        if self._journal.failing:
            self.count("unrecorded", kind)  # else a full disk would fill the memory
            return
        self._journal.append(
            Record(
                kind=kind,
                time=self.now(),
                protocol=peer.protocol,
                sender=peer.user,
                address=address,
                reason=reason,
                headers={"detail": detail} if detail else None,
            )
        )

    def count(self, what: str, *labels: str) -> None:
        self.counts[(what, *labels)] += 1

    # Accepting, and the fate of what was accepted.

    def refuse_if_failing(self) -> None:
        if self._journal.failing:
            raise Overloaded(self._journal.failing)

    def _accept(self, message: Message) -> None:
        journal = self._journal
        if journal.failing:
            raise Overloaded(journal.failing)
        message.time = now = self.now()
        due = message.due
        if due is not None and due <= now:
            raise Expired(f"a message for {message.address} was due before it came")
        journal.append(message)
        self.accepted += self._promise
        if due is not None:
            self._due_times.add(message)

    def _tell(
        self,
        kind: str,
        message: Message,
        deliveries: int = 0,
        reason: str = "",
        peer: Peer = NOBODY,
        body: bytes = b"",
    ) -> None:
        """Put what happened to a message into the log."""
        now = self.now()
        self._journal.append(
            Record(
                kind=kind,
                time=now,
                address=message.address,
                body=body,
                sender=message.sender,
                protocol=peer.protocol or message.protocol,
                receiver=peer.user,
                message=message.sequence,
                deliveries=deliveries,
                latency=now - message.time,
                reason=reason,
            )
        )

    def _over(self, kind: str, message: Message, reason: str) -> None:
        self._tell(kind, message, reason=reason)
        self.count(kind, message.protocol, reason)

    def handed_out(self, message: Message, deliveries: int, peer: Peer, final: bool) -> None:
        self._tell(TAKEN if final else DELIVERED, message, deliveries, peer=peer)

    def settled(self, message: Message, peer: Peer) -> None:
        self._tell(SETTLED, message, peer=peer)
        self.accepted += self._promise  # "done" is a promise too: it must not come back

    def dropped(self, message: Message, reason: str) -> None:
        self._over(DROPPED, message, reason)

    def returned(self, message: Message, deliveries: int, reason: str) -> bool:
        if message.due is not None and message.due <= self.now():
            self._over(EXPIRED, message, reason)
            return False
        self._tell(RETURNED, message, deliveries, reason)
        return True

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        delayed = self._clock.callLater(seconds, call)

        def cancel() -> None:
            if delayed.active():
                delayed.cancel()

        return cancel

    def _expire(self, message: Message) -> None:
        topic = self._topics.get(message.address)
        if topic is not None:
            waited = topic.forget(message)
        else:
            queue = self._queues.get(message.address)
            waited = queue is not None and queue.remove(message, "expired")
        if waited:
            self._over(EXPIRED, message, "expired")

    def _not_written(self, records: list[Record], reason: str) -> None:
        """Take back what was accepted and not written; the answer will be a refusal."""
        first = records[0].sequence
        taken_back: list[Message] = []
        for queue in self._queues.values():
            taken_back += queue.remove_newest(first)
        for topic in self._topics.values():
            taken_back += topic.forget_since(first)
        for message in taken_back:
            # Its place in the log stays, the sequence is dense; but nothing was accepted.
            message.kind, message.message = DROPPED, message.sequence
            message.body, message.stored, message.reason = b"", False, reason
        self.counts["dropped", "", "journal"] += len(taken_back)
