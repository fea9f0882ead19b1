"""One queue: messages in order, consumers that compete for them, and what is handed out.

It knows no clock, no journal and no wire; the broker gives it a ledger to tell what happens to.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import chain, islice
from typing import Protocol

from gateway.interfaces import Accept, Deliver, Empty, Message, Peer, Tracker

LOOK_AHEAD = 1000  # messages that a choosy consumer looks through: each of its pulls costs that


class Ledger(Protocol):
    """Who is told what happens to messages."""

    def handed_out(self, message: Message, deliveries: int, peer: Peer, final: bool) -> None: ...

    def settled(self, message: Message, peer: Peer) -> None: ...

    def dropped(self, message: Message, reason: str) -> None: ...

    def returned(self, message: Message, deliveries: int, reason: str) -> bool:
        """False if its time is over, and it must not come back."""

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call after that time; the result cancels it, at any time."""


class Queue:
    """Messages wait in order of acceptance; one that comes back goes before all that wait.

    A message is in one place at a time: waiting here, held by a consumer, or gone.
    """

    def __init__(self, address: str, ledger: Ledger) -> None:
        self.address = address
        self.limit: int | None = None  # how many messages it holds at most, handed out or not
        self.depth = 0  # waiting
        self.outstanding = 0  # handed out, not settled
        self._ledger = ledger
        self._line: deque[Message] = deque()
        self._back: list[tuple[int, Message]] = []  # came back: a heap, older than the line
        # The line may be long, and is only touched at its ends.  So what may have to leave from
        # the middle is followed here, and what has left is skipped when its turn comes.
        self._followed: set[int] = set()
        self._gone: set[int] = set()
        self._tries: dict[int, int] = {}  # deliveries so far, of those that came back
        self._trackers: dict[int, Tracker] = {}
        self._consumers = Consumers()
        self._serving = False
        self._is_closed = False

    @property
    def consumers(self) -> int:
        return len(self._consumers.all)

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.depth + self.outstanding >= self.limit

    def put(self, message: Message, tracker: Tracker | None = None) -> int:
        """Add an accepted message and hand it on if somebody waits.  Its position, from 1."""
        self._line.append(message)
        self.depth = position = self.depth + 1
        if tracker is not None:
            self._trackers[message.sequence] = tracker
            self._followed.add(message.sequence)
        elif message.due is not None:
            self._followed.add(message.sequence)
        if self._consumers.ready:
            self.serve()
        return position

    def restore(self, message: Message, deliveries: int) -> None:
        """Add a message found in the journal; they come in order."""
        self._line.append(message)
        self.depth += 1
        if deliveries:
            self._tries[message.sequence] = deliveries
        if message.due is not None:
            self._followed.add(message.sequence)

    def take(
        self, peer: Peer, final: bool = True, accept: Accept | None = None
    ) -> tuple[Message, int]:
        """The next message and its delivery count; for good, or until settled or given back.

        Empty.
        """
        while True:
            if accept is not None:
                message = self._pick(accept)
            elif self._back:
                message = heappop(self._back)[1]
            elif self._line:
                message = self._line.popleft()
            else:
                raise Empty(f"{self.address} is empty")
            sequence = message.sequence
            if not self._gone or sequence not in self._gone:
                break
            self._gone.discard(sequence)
        self.depth -= 1
        deliveries = self._tries.pop(sequence, 0) + 1 if self._tries else 1
        if not final:
            self.outstanding += 1
        self._ledger.handed_out(message, deliveries, peer, final)
        if self._followed:
            self._followed.discard(sequence)
            tracker = self._trackers.get(sequence)
            if tracker is not None:
                tracker.taken(message)
                if final:
                    del self._trackers[sequence]
                    tracker.settled(message)
        return message, deliveries

    def _pick(self, accept: Accept) -> Message:
        """Take the first message that is accepted out of those that wait longest; or Empty."""
        for message in islice(
            chain([item[1] for item in sorted(self._back)], self._line), LOOK_AHEAD
        ):
            if message.sequence not in self._gone and accept(message):
                break
        else:
            raise Empty(f"{self.address} has nothing that was asked for")
        came_back = (message.sequence, message)
        if came_back in self._back:
            self._back.remove(came_back)
            heapify(self._back)
        else:
            self._line.remove(message)  # found near the head
        return message

    def settle(self, message: Message, peer: Peer) -> None:
        """A message that was handed out is done."""
        self.outstanding -= 1
        self._ledger.settled(message, peer)
        tracker = self._trackers.pop(message.sequence, None)
        if tracker is not None:
            tracker.settled(message)

    def give_back(self, message: Message, deliveries: int, reason: str) -> None:
        """A message that was handed out goes to the head, unless its time is over."""
        if self._is_closed:
            self.drop(message, reason)
            return
        self.outstanding -= 1
        if not self._ledger.returned(message, deliveries, reason):
            self.lose(message, "expired")
            return
        self._tries[message.sequence] = deliveries
        heappush(self._back, (message.sequence, message))
        self.depth += 1
        if message.due is not None or message.sequence in self._trackers:
            self._followed.add(message.sequence)

    def drop(self, message: Message, reason: str) -> None:
        """A message that was handed out is given up."""
        self.outstanding -= 1
        self._ledger.dropped(message, reason)
        self.lose(message, reason)

    def remove(self, message: Message, reason: str) -> bool:
        """Take a followed message out of the line.  False if it does not wait there (any more)."""
        if message.sequence not in self._followed:
            return False
        self._followed.discard(message.sequence)
        self._gone.add(message.sequence)
        self.depth -= 1
        self.lose(message, reason)
        return True

    def remove_newest(self, since: int) -> list[Message]:
        """Take out what was accepted from that sequence on and has never been handed out."""
        removed = []
        while self._line and self._line[-1].sequence >= since:
            message = self._line.pop()
            if message.sequence in self._gone:
                self._gone.discard(message.sequence)
            else:
                removed.append(message)
                self.depth -= 1
                self._followed.discard(message.sequence)
                self._trackers.pop(message.sequence, None)  # whoever pushed it is told otherwise
        return removed

    def lose(self, message: Message, reason: str) -> None:
        """Forget what is known beside the message itself, and tell who tracked it."""
        self._tries.pop(message.sequence, None)
        tracker = self._trackers.pop(message.sequence, None)
        if tracker is not None:
            tracker.undelivered(message, reason)

    def close(self, reason: str) -> None:
        """Give up what waits and what is held; who has left and is not done may still settle."""
        self._is_closed = True
        for consumer in [*self._consumers.all, *self._consumers.line]:
            consumer.cancel()
        waiting = [item[1] for item in sorted(self._back)] + list(self._line)
        for message in waiting:
            if message.sequence not in self._gone:
                self.depth -= 1
                self._ledger.dropped(message, reason)
                self.lose(message, reason)
        self._back, self._line = [], deque()
        self._gone.clear()
        self._followed.clear()

    def later(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        return self._ledger.later(seconds, call)

    def serve(self) -> None:
        """Hand out what waits while a consumer has credit."""
        if self._serving:  # a consumer pushes while it is given something: the loop goes on
            return
        self._serving = True
        try:
            while self.depth:
                consumer = self._consumers.next_ready()
                if consumer is None:
                    break
                consumer.hand_out()
        finally:
            self._serving = False

    def add_consumer(self, consumer: QueueConsumer) -> None:
        self._consumers.admit(consumer)
        self.serve()

    def has_credit(self, consumer: QueueConsumer) -> None:
        self._consumers.set_ready(consumer)
        self.serve()

    def leave(self, consumer: QueueConsumer) -> None:
        self._consumers.remove(consumer)
        self.serve()


class Consumers:
    """Who may be given the next message: highest priority first, in turn among equals.

    An exclusive consumer is alone or waits; whoever comes after a waiting one waits behind it.
    """

    def __init__(self) -> None:
        self.all: dict[QueueConsumer, None] = {}  # admitted
        self.line: OrderedDict[QueueConsumer, None] = OrderedDict()  # not yet admitted
        self.ready: dict[int, OrderedDict[QueueConsumer, None]] = {}  # with credit, by priority

    def admit(self, consumer: QueueConsumer) -> None:
        self.line[consumer] = None
        self._promote()

    def remove(self, consumer: QueueConsumer) -> None:
        self.line.pop(consumer, None)
        if consumer in self.all:
            del self.all[consumer]
            self._unready(consumer)
        self._promote()

    def set_ready(self, consumer: QueueConsumer) -> None:
        """Its credit has changed."""
        if consumer.credit <= 0:
            self._unready(consumer)
        elif consumer in self.all:
            self.ready.setdefault(consumer.priority, OrderedDict())[consumer] = None

    def next_ready(self) -> QueueConsumer | None:
        """Whose turn it is; it goes to the end of the line of its equals."""
        if not self.ready:
            return None
        turn = (
            self.ready[max(self.ready)] if len(self.ready) > 1 else next(iter(self.ready.values()))
        )
        consumer = next(iter(turn))
        if consumer.credit > 1:
            turn.move_to_end(consumer)
        else:
            self._unready(consumer)
        return consumer

    def _unready(self, consumer: QueueConsumer) -> None:
        turn = self.ready.get(consumer.priority)
        if turn is not None:
            turn.pop(consumer, None)
            if not turn:
                del self.ready[consumer.priority]

    def _promote(self) -> None:
        while self.line:
            consumer = next(iter(self.line))
            if self.all and (consumer.exclusive or next(iter(self.all)).exclusive):
                return
            del self.line[consumer]
            self.all[consumer] = None
            if consumer.started is not None:
                consumer.started()
            self.set_ready(consumer)


class QueueConsumer:
    """interfaces.Consumer, of one queue."""

    def __init__(
        self,
        queue: Queue,
        deliver: Deliver,
        credit: int,
        peer: Peer,
        priority: int,
        exclusive: bool,
        final: bool,
        started: Callable[[], None] | None,
    ) -> None:
        self._queue = queue
        self._deliver = deliver
        self.credit = credit
        self._peer = peer
        self.priority = priority
        self.exclusive = exclusive
        self.started = started
        self._final = final
        self._held: dict[int, tuple[Message, int]] = {}
        self._leases: dict[int, Callable[[], None]] = {}

    def grant(self, credit: int) -> None:
        self.credit += credit
        self._queue.has_credit(self)

    def hand_out(self) -> None:
        """The queue says: it is your turn."""
        self.credit -= 1
        self._deliver(*self._take())

    def pull(self, accept: Accept | None = None) -> tuple[Message, int] | None:
        if not self._queue.depth:
            return None
        try:
            return self._take(accept)
        except Empty:
            return None

    def _take(self, accept: Accept | None = None) -> tuple[Message, int]:
        taken = self._queue.take(self._peer, self._final, accept)
        if not self._final:
            self._held[taken[0].sequence] = taken
        return taken

    def settle(self, message: Message) -> bool:
        if self._release(message) is None:
            return False
        self._queue.settle(message, self._peer)
        return True

    def reject(self, message: Message, reason: str = "rejected") -> bool:
        held = self._release(message)
        if held is None:
            return False
        self._queue.give_back(*held, reason)
        self._queue.serve()
        return True

    def drop(self, message: Message, reason: str) -> bool:
        if self._release(message) is None:
            return False
        self._queue.drop(message, reason)
        return True

    def lease(self, message: Message, seconds: float, expired: Callable[[], None]) -> None:
        def over() -> None:
            held = self._release(message)
            if held is not None:
                expired()
                self._queue.give_back(*held, "lease over")
                self._queue.serve()

        self._leases[message.sequence] = self._queue.later(seconds, over)

    def retire(self) -> None:
        self.credit = 0
        self._queue.leave(self)

    def cancel(self) -> None:
        self.credit = 0
        for message, deliveries in [*self._held.values()]:
            self._release(message)
            self._queue.give_back(message, deliveries, "consumer left")
        self._queue.leave(self)

    def _release(self, message: Message) -> tuple[Message, int] | None:
        cancel_lease = self._leases.pop(message.sequence, None)
        if cancel_lease is not None:
            cancel_lease()
        return self._held.pop(message.sequence, None)
