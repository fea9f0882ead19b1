"""Taking in batches of messages whole, each once: the way back from Spark.

Spark runs a batch again when it cannot know whether it was done.  So the batch and the mark that it
was done are written in one transaction: a record of the log that names the query and the batch.
"""

from __future__ import annotations

import re
from collections import Counter

from gateway.broker import TOPIC_KINDS, Broker
from gateway.interfaces import BrokerError, Expired, Message, NoSuchAddress, QueueFull
from gateway.journal import Journal
from gateway.record import DROPPED, PUBLISHED, Record
from gateway.routes import LINES
from gateway.store import MOST_QUERIES

PROTOCOL = "spark"  # what the messages came by, as their records have it

# They are accepted in one turn of the reactor, for all others wait: about half a second.
MOST_MESSAGES = 100_000
MOST_BYTES = 64 << 20  # of all batches that are on their way in: they wait in memory
MESSAGE_BYTES = 200  # what a message takes there, beside its body and its address

_ADDRESS = re.compile(r"(queue|user|topic|hub):.+", re.DOTALL)


class Batch:
    """Messages that were sent and not yet accepted."""

    def __init__(self, query: str, number: int, sender: str, create: bool) -> None:
        """`query` "": it will not come again.  `create`: make addresses that are not there."""
        self.query = query
        self.number = number
        self.create = create
        self.size = 0
        self.messages: list[Message] = []
        self._sender = sender

    def add(self, address: str, body: bytes, due: float | None) -> None:
        self.messages.append(Message(address, body, self._sender, PROTOCOL, due=due))
        self.size += len(body) + len(address) + MESSAGE_BYTES


class Publishing:
    """Accepts batches, all of one or nothing."""

    def __init__(self, broker: Broker, journal: Journal) -> None:
        self._broker = broker
        self._journal = journal

    def is_known(self, batch: Batch) -> bool:
        """Whether that batch, or a later one, of its query has been accepted."""
        return batch.number <= self._journal.published.get(batch.query, -1)

    async def accept(self, batch: Batch) -> tuple[int, int]:
        """How many were accepted, and how many were due before they came; when that is safe.

        (0, 0) if the batch was accepted before.  NoSuchAddress, QueueFull, Overloaded: of the whole
        batch, nothing is accepted.
        """
        published = self._journal.published
        accepted = late = 0
        mark: Record | None = None
        before = published.get(batch.query)
        if not self.is_known(batch):
            # No await from the check to the mark: it is one turn, hence one transaction.
            late = self._check(batch)
            accepted = sum(map(self._accept, batch.messages))
            late += len(batch.messages) - accepted
            if batch.query:
                mark = self._mark(batch, accepted)
                remember(published, batch.query, batch.number)
        safe = self._broker.durable()
        if safe is not None:
            try:
                await safe
            except BrokerError as error:
                if mark is not None:
                    # The messages were taken back, and the batch may come again.
                    mark.kind, mark.reason, mark.headers = DROPPED, str(error), None
                    _take_back(published, batch, before)
                raise
        return accepted, late

    def _check(self, batch: Batch) -> int:
        """Refuse the batch, or make it so that none of it will be refused; how many are late."""
        now = self._broker.now()
        messages = [
            message for message in batch.messages if message.due is None or message.due > now
        ]
        late = len(batch.messages) - len(messages)
        batch.messages = messages
        wanted = Counter(message.address for message in messages)
        new = []
        for address in wanted:
            if _ADDRESS.fullmatch(address) is None:
                raise NoSuchAddress(f"{address!r} is no address, such as queue:jobs or topic:news")
            if not self._broker.exists(address):
                if not batch.create:
                    raise NoSuchAddress(f"there is no {address}")
                new.append(address)
        self._check_room(wanted)
        self._broker.refuse_if_failing()
        for address in new:
            self._broker.declare(address)
        return late

    def _check_room(self, wanted: Counter[str]) -> None:
        """Routes copy and move messages, so what comes to lie in a queue may not be for it.

        Only where a message would be refused there must be room: a copy is merely not made.
        """
        coming: Counter[str] = Counter()
        must: set[str] = set()
        for address, count in wanted.items():
            for place, must_fit in self._broker.places(address):
                coming[place] += count
                if must_fit:
                    must.add(place)
        for place in must:
            if place.partition(":")[0] not in LINES or not self._broker.exists(place):
                continue  # a topic forgets its oldest, and what is new has no limit
            info = self._broker.info(place)
            limit = info.options.get("limit")
            room = None if limit is None else max(limit - info.depth - info.outstanding, 0)
            if room is not None and coming[place] > room:
                raise QueueFull(f"{place} has room for {room} messages, not for {coming[place]}")

    def _accept(self, message: Message) -> bool:
        """False if it has become late since the batch was checked: a big one takes its time."""
        try:
            if message.address.partition(":")[0] in TOPIC_KINDS:
                self._broker.publish(message)
            else:
                self._broker.push(message)
        except Expired:
            return False
        return True

    def _mark(self, batch: Batch, accepted: int) -> Record:
        about = {"query": batch.query, "batch": batch.number, "messages": accepted}
        mark = Record(kind=PUBLISHED, time=self._broker.now(), protocol=PROTOCOL, headers=about)
        self._journal.append(mark)
        return mark


def remember(published: dict[str, int], query: str, number: int) -> None:
    """The last batch of a query; those that are silent longest are forgotten."""
    published.pop(query, None)  # so that it comes last
    published[query] = number
    if len(published) > MOST_QUERIES:
        del published[next(iter(published))]


def _take_back(published: dict[str, int], batch: Batch, before: int | None) -> None:
    """A later batch that came in with it is taken back too."""
    if published.get(batch.query, -1) < batch.number:
        return
    if before is None:
        del published[batch.query]
    else:
        published[batch.query] = before
