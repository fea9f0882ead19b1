"""The Broker: takes messages in, makes them safe, and sees that they reach who should have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from gateway.interfaces import (
    Deliver,
    Expired,
    Info,
    Message,
    NoSuchAddress,
    Overloaded,
    Peer,
    QueueFull,
    Tracker,
)
from gateway.journal import Journal
from gateway.queue import Queue, QueueConsumer
from gateway.record import (
    DECLARED,
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
        self.durable = journal.durable
        self.watch = journal.watch
        self.accepted = 0
        self._promise = 1 if journal.store.durable else 0  # in memory, nothing is promised
        self.counts: Counter[tuple[str, ...]] = Counter()
        self._queues: dict[str, Queue] = {}
        self._topics: dict[str, Topic] = {}
        self._options: dict[str, dict[str, Any]] = {}
        self._numbers: dict[int, str] = {}  # addresses, by what `info` says is their number
        self._due: list[tuple[float, int, Message]] = []  # a heap
        self._alarm: IDelayedCall | None = None  # set for the first of them
        journal.on_failure = self._not_written

    def startService(self) -> None:
        """Bring back what the journal has; JournalRefused."""
        restored = self._journal.open()
        for address, options in restored.addresses.items():
            self._make(address, options)
        for message, deliveries in restored.messages:
            if message.due is not None and message.due <= self.now():
                self._over(EXPIRED, message, "expired")
                continue
            if message.address in self._topics:
                self._topics[message.address].keep(message)
            else:
                self._queues[message.address].restore(message, deliveries)
            self._watch_due(message)
        if restored.messages:
            log.info("{count} messages are back from the journal", count=len(restored.messages))
        Service.startService(self)

    def stopService(self) -> Deferred[None]:
        """Write what is left; nothing is accepted from here on."""
        Service.stopService(self)
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        return self._journal.close()

    # Addresses.

    def declare(self, address: str, **options: Any) -> bool:
        known = self._options.get(address)
        wanted = {name: value for name, value in options.items() if value is not None}
        new = known is None
        wanted["number"] = len(self._options) + 1 if known is None else known["number"]
        if wanted != known:
            self._refuse_if_failing()
            self._make(address, wanted)
            self._journal.append(
                Record(kind=DECLARED, address=address, time=self.now(), headers=wanted)
            )
            self.accepted += self._promise
        return new

    def _make(self, address: str, options: dict[str, Any]) -> None:
        self._options[address] = options
        self._numbers[options["number"]] = address
        kind, _, name = address.partition(":")
        if kind in QUEUE_KINDS and name:
            queue = self._queues.setdefault(address, Queue(address, self))
            queue.limit = options.get("limit")
        elif kind in TOPIC_KINDS and name:
            self._topics.setdefault(address, Topic(address))
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

    def find(self, number: int) -> str:
        try:
            return self._numbers[number]
        except KeyError:
            raise NoSuchAddress(f"nothing has the number {number}") from None

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
        limit = queue.limit
        if limit is not None and queue.depth + queue.outstanding >= limit:
            raise QueueFull(f"{message.address} holds its {limit} messages")
        message.stored = True
        self._accept(message)
        return queue.put(message, tracker)

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
        message.stored = message.due is not None
        self._accept(message)
        if message.stored:
            topic.keep(message)
        copies = topic.publish(message)
        if copies:
            self._tell(DELIVERED, message, deliveries=copies)
        return copies

    def subscribe(self, address: str, deliver: Callable[[Message], None]) -> TopicSubscription:
        return TopicSubscription(self._topic(address), deliver)

    def retained(self, address: str) -> list[Message]:
        now = self.now()  # the alarm may be late
        kept = self._topic(address).retained()
        return [message for message in kept if message.due is None or message.due > now]

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

    def _refuse_if_failing(self) -> None:
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
            self._watch_due(message)

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

    def _watch_due(self, message: Message) -> None:
        if message.due is None:
            return
        heappush(self._due, (message.due, message.sequence, message))
        if self._due[0][2] is message:
            self._set_alarm()

    def _set_alarm(self) -> None:
        if self._alarm is not None and self._alarm.active():
            self._alarm.cancel()
        self._alarm = None
        if self._due:
            wait = max(0.0, self._due[0][0] - self.now())
            self._alarm = self._clock.callLater(wait, self._expire)

    def _expire(self) -> None:
        now = self.now()
        while self._due and self._due[0][0] <= now:
            message = heappop(self._due)[2]
            topic = self._topics.get(message.address)
            if topic is not None:
                waited = topic.forget(message)
            else:
                waited = self._queues[message.address].remove(message, "expired")
            if waited:
                self._over(EXPIRED, message, "expired")
        self._set_alarm()

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
