"""The queues that clients name, as MQServer and as the Broker know them.

A BROADCAST queue is a topic of the Broker, a PULL or round robin queue one of its queues.  What
CREATEQUEUE said is among the address's options, and so outlives the gateway; who has joined lives
with the connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.interfaces import Broker, BrokerError, Message, NoSuchAddress, Subscription
from protocols.mqserver import events
from protocols.mqserver.events import BROADCAST, DEAF, NOECHO, NOECHO_JOIN, PULL, STORE
from protocols.mqserver.ids import NAME, Ids, change, ours
from protocols.mqserver.topics import Accepts, topic_of
from protocols.names import to_name

if TYPE_CHECKING:
    from protocols.mqserver.handed import Window
    from protocols.mqserver.session import Session

ROUND_ROBIN = 128  # of a queue: pushed to one member in turn
KINDS = BROADCAST | PULL | ROUND_ROBIN  # which exclude each other


class Refusal(BrokerError):
    """A refusal of MQServer's own: the id of the ERROR, and its text."""

    def __init__(self, error_id: str, text: str = "") -> None:
        super().__init__(f"{error_id} {text}")
        self.id = error_id
        self.text = text


class Definition(NamedTuple):
    """What a queue is, as its owner said."""

    flags: int
    owner: str = ""
    max_messages: int = 0  # 0: as many as the listener allows
    ttl: int = 0  # seconds; 0: for ever
    info: str = ""
    allow: tuple[str, ...] = ()  # who may join, if it is PRIVATE

    @property
    def kind(self) -> str:
        return "topic" if self.flags & BROADCAST else "queue"

    def has(self, flag: int) -> bool:
        return self.flags & flag != 0


def checked_flags(flags: int) -> int:
    """Flags of a queue with its kind among them; Refusal if there are two."""
    kinds = flags & KINDS
    if kinds & (kinds - 1):
        raise Refusal("ESYNTAX", "BROADCAST, PULL and round robin exclude each other")
    return flags if kinds else flags | BROADCAST


class Member:
    """One connection's place at one queue, from JOINQUEUE to PARTQUEUE."""

    def __init__(self, server: Session, window: Window | None) -> None:
        self.server = server
        self.window = window  # what comes from a queue of the Broker
        self.is_deaf = self.hears_itself = False
        self.accepts: Accepts | None = None

    def update(self, flags: int, accepts: Accepts | None) -> None:
        self.is_deaf = flags & DEAF != 0
        self.hears_itself = not flags & NOECHO_JOIN
        self.accepts = accepts

    def wants(self, topic: str, is_own: bool) -> bool:
        return not (
            self.is_deaf
            or (is_own and not self.hears_itself)
            or (self.accepts is not None and not self.accepts(topic))
        )


class Queue:
    """One queue, and who has joined it."""

    def __init__(self, broker: Broker, name: str, definition: Definition, ids: Ids) -> None:
        self._broker = broker
        self.name = name
        self.address = ids.address
        self.definition = definition
        self.ids = ids
        self.is_foreign = False  # another protocol made it
        self.members: dict[Session, Member] = {}
        self.handed = 0  # members that got the newest message
        self._subscription: Subscription | None = None

    def join(self, member: Member) -> None:
        self.members[member.server] = member
        if self._subscription is None and self.definition.has(BROADCAST):
            self._subscription = self._broker.subscribe(self.address, self._deliver)

    def leave(self, server: Session) -> None:
        del self.members[server]
        if not self.members:
            self.forget()

    def forget(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()
            self._subscription = None

    def publish(self, message: Message, broker: Broker) -> int:
        """Give it to everybody present, of whatever protocol; how many they are."""
        self.handed = 0
        others = broker.publish(message) - (self._subscription is not None)
        return self.handed + others

    def _deliver(self, message: Message) -> None:
        """To every member that wants it.  It is encoded once for all that speak alike."""
        topic, sender = topic_of(message), message.sender if message.protocol == NAME else None
        tails: dict[Any, bytes] = {}
        silent = self.definition.has(NOECHO)
        handed = 0
        for server, member in [*self.members.items()]:  # one that does not read may leave
            is_own = sender is not None and server.peer.user == sender
            if (is_own and silent) or not member.wants(topic, is_own):
                continue
            profile = server.wire
            tail = tails.get(profile)
            if tail is None:
                tail = tails[profile] = profile.tail(self.event(message))
            server.hear(self, message, tail)
            handed += 1
        self.handed = handed

    def event(self, message: Message, mid: int = 0, flags: int = 0) -> events.FromQueue:
        """A message as a member gets it."""
        return events.FromQueue(
            mid,
            self.name,
            topic_of(message),
            self.ids.of(message),
            int(message.time),
            sender_of(message),
            message.body,
            flags,
        )


_NO_WORD = str.maketrans(dict.fromkeys([*map(chr, range(0x21)), "|", "\x7f"], "_"))


def sender_of(message: Message) -> str:
    """Who sent it, as one word; other protocols may have others."""
    return message.sender.translate(_NO_WORD)[:63] or "-"


class Queues:
    """Finds queues by name, makes them and ends them; once for all listeners at a Broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._known: dict[str, Queue] = {}
        self._ids: dict[str, Ids] = {}  # by address
        self._deleted = broker.deleted

    def find(self, name: str) -> Queue:
        """The queue of that name, or Refusal.  Of two addresses, the one that MQServer made, else
        the topic."""
        if self._deleted != self._broker.deleted:
            self._deleted = self._broker.deleted
            self._forget_deleted()
        queue = self._known.get(name)
        if queue is not None:
            return queue
        found: list[Queue] = []
        for kind, flags in (("topic", BROADCAST), ("queue", PULL)):
            address = f"{kind}:{to_name(name.encode())}"
            try:
                options = ours(self._broker.info(address).options)
            except NoSuchAddress:
                continue
            queue = Queue(self._broker, name, _definition(options, flags), self.ids(address))
            queue.is_foreign = "flags" not in options
            found.append(queue)
        if not found:
            raise Refusal("ENOQUEUE", name)
        queue = min(found, key=lambda queue: queue.is_foreign)
        if not queue.is_foreign:  # of those, another protocol may yet make a topic of that name
            self._known[name] = queue
        return queue

    def has(self, name: str) -> bool:
        try:
            self.find(name)
        except Refusal:
            return False
        return True

    def ids(self, address: str) -> Ids:
        """The numbers of the messages there, whoever asks."""
        ids = self._ids.get(address)
        if ids is None:
            ids = self._ids[address] = Ids(self._broker, address)
        return ids

    def create(self, name: str, definition: Definition, most: int, broker: Broker) -> Queue:
        """`broker` holds to the rights of whoever asks.  Refusal."""
        if self.has(name):
            raise Refusal("EEXIST", name)
        address = f"{definition.kind}:{to_name(name.encode())}"
        _declare(broker, address, definition, most)
        queue = self._known[name] = Queue(self._broker, name, definition, self.ids(address))
        return queue

    def alter(self, queue: Queue, definition: Definition, most: int, broker: Broker) -> None:
        _declare(broker, queue.address, definition, most)
        queue.definition = definition

    def join(self, queue: Queue, member: Member) -> None:
        self._known[queue.name] = queue
        queue.join(member)

    def leave(self, queue: Queue, server: Session) -> None:
        """One that is AUTODEL goes with its last member."""
        queue.leave(server)
        if queue.members:
            return
        if self._known.get(queue.name) is queue and queue.is_foreign:
            del self._known[queue.name]
        if queue.definition.has(events.AUTODEL):
            try:
                self._broker.delete(queue.address, "last member left")
            except BrokerError:
                return  # it cannot be written now: the queue stays until somebody leaves it again
            self._known.pop(queue.name, None)
            self._ids.pop(queue.address, None)

    def _forget_deleted(self) -> None:
        """Addresses may have been deleted, whoever did it."""
        for name, queue in [*self._known.items()]:
            try:
                self._broker.info(queue.address)
            except NoSuchAddress:
                del self._known[name], self._ids[queue.address]
                queue.forget()
                for server in [*queue.members]:
                    server.expelled(queue)


def _definition(options: dict[str, Any], flags: int) -> Definition:
    if "flags" not in options:
        return Definition(flags)
    values = {field: options[field] for field in Definition._fields}
    return Definition(**{**values, "allow": tuple(values["allow"])})


def _declare(broker: Broker, address: str, definition: Definition, most: int) -> None:
    options = {**definition._asdict(), "allow": list(definition.allow)}
    is_kept = definition.has(STORE) or None
    limit = definition.max_messages or most
    if definition.has(BROADCAST) and not is_kept:
        change(broker, address, options, keep=None, limit=None)
    else:
        change(broker, address, options, keep=is_kept, limit=limit)
