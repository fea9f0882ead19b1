"""The vocabulary between protocols and the Broker: every noun and verb, and nothing that runs.

An address is a kind and a name, `queue:jobs`; there is one namespace for all protocols:

- `queue:`  each message goes to exactly one consumer, and waits for one
- `user:`   a mailbox: a queue whose consumer is that user
- `topic:`  each message goes to every subscriber present, and is kept until it is due
- `hub:`    a room that is live only: a topic whose messages are recorded and not kept
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from twisted.internet.defer import Deferred

from gateway.record import Record

# A message is the record of its own acceptance: `sequence` is its identity, 0 until accepted.
Message = Record

# Does a job in a thread and tells its result.
Run = Callable[[Callable[[], Any]], "Deferred[Any]"]

# Headers that mean the same to all protocols; any other belongs to the protocol that wrote it.
TOPIC = "topic"  # the word by which a reader may choose messages
ROUTE = "route"  # the addresses that a message has passed on its way here

Deliver = Callable[[Message, int], None]  # the message, and how often it has been handed out now
Accept = Callable[[Message], bool]  # whether this one will do


class Peer(NamedTuple):
    """Who does something: a user, by way of a protocol."""

    protocol: str
    user: str


class BrokerError(Exception):
    """A fair request that is refused.  Each protocol has its own words; str() is for a log."""


class NoSuchAddress(BrokerError):
    """Nothing of that name has been declared."""


class QueueFull(BrokerError):
    """The queue holds its maximum of messages."""


class Empty(BrokerError):
    """No message is waiting."""


class Expired(BrokerError):
    """The message was due before it came."""


class Denied(BrokerError):
    """This user may not do that."""


class Overloaded(BrokerError):
    """The gateway cannot take this now; the reason says why.  The same request may work later."""


class Info(NamedTuple):
    """What is known of one address."""

    address: str
    number: int  # given once, in order of declaration, for the life of the journal
    options: dict[str, Any]
    depth: int  # messages waiting, those handed out not counted
    outstanding: int  # handed out and not settled
    consumers: int  # or subscribers


class Overview(NamedTuple):
    """What is known of all addresses together."""

    addresses: int
    waiting: int  # messages, in all of them
    outstanding: int
    deepest: list[Info]  # where most messages wait, the deepest first


class Setting(NamedTuple):
    """One thing that the configuration may tell a listener.  Its default has its type."""

    default: bool | int | float | str
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()  # of a text, if not every one will do
    unique: bool = False  # no two listeners of a protocol may have the same


class Tracker(Protocol):
    """Whoever pushed a message and wants to know what becomes of it."""

    def taken(self, message: Message) -> None:
        """A consumer has it (again, after it came back)."""

    def settled(self, message: Message) -> None:
        """It is done."""

    def undelivered(self, message: Message, reason: str) -> None:
        """It is given up: expired or dropped."""


class Consumer(Protocol):
    """One competing reader of a queue.  Cancel it when its connection goes."""

    credit: int
    priority: int  # may be set while there is no credit

    def grant(self, credit: int) -> None:
        """Let that many more messages come, or fewer."""

    def pull(self, accept: Accept | None = None) -> tuple[Message, int] | None:
        """The next message and its delivery count, now or never, whatever the credit.

        With `accept`, the first that it likes; only the oldest are shown to it.
        """

    def settle(self, message: Message) -> bool:
        """The message is done.  False if this consumer does not hold it (any more)."""

    def reject(self, message: Message, reason: str = "rejected") -> bool:
        """Give the message back, to the head of the queue."""

    def drop(self, message: Message, reason: str) -> bool:
        """Give the message up: nobody is offered it again."""

    def lease(self, message: Message, seconds: float, expired: Callable[[], None]) -> None:
        """Give the message back by itself, and say so, unless it is settled within that time."""

    def retire(self) -> None:
        """Leave; what is not settled may still be."""

    def cancel(self) -> None:
        """Leave; what is not settled goes back to the head of the queue."""


class Subscription(Protocol):
    """One reader of a topic."""

    def cancel(self) -> None: ...


class Rights(NamedTuple):
    """Which addresses somebody may use, as patterns such as `queue:jobs*`; None: every one."""

    publish: tuple[str, ...] | None = None
    consume: tuple[str, ...] | None = None
    create: tuple[str, ...] | None = None  # or change, or delete


class User(NamedTuple):
    """One account, for all protocols.  What proves it stays with the Accounts."""

    name: str
    publisher: bool
    subscriber: bool
    rights: Rights = Rights()


class Accounts(Protocol):
    """Who may log in."""

    def find(self, name: str) -> User | None: ...

    def check(self, user: User, proof: Callable[[bytes], bool]) -> Deferred[bool]:
        """Whether `proof` is true of the user's password, found out in a thread."""

    def broker_for(self, user: User | None, broker: Broker) -> Broker:
        """The Broker as this user may use it, or as who has not logged in may: what goes beyond
        the rights is Denied."""


class Broker(Protocol):
    """What a protocol may ask.  All calls return at once; what waits calls back."""

    accepted: int  # counts what an answer may promise; see `durable`
    deleted: int  # counts deletions: what was remembered of addresses before may be wrong
    shared: dict[str, Any]  # what the listeners of one protocol have in common, by its name

    def now(self) -> float:
        """The time, as records have it."""

    def declare(self, address: str, **options: Any) -> bool:
        """Make sure it exists, with these options (None: the default).  True if it is new.

        `limit`: how many messages a queue holds, and then refuses; how many a topic keeps, and then
        forgets the oldest.  `keep`: a topic keeps what has no due time, too.
        """

    def delete(self, address: str, reason: str = "deleted") -> None:
        """Make it no more: what waits is dropped, its consumers and subscribers hear no more."""

    def info(self, address: str) -> Info:
        """What is known of it, or NoSuchAddress."""

    def find(self, number: int) -> str:
        """The address that was given this number, or NoSuchAddress."""

    def push(self, message: Message, tracker: Tracker | None = None) -> int:
        """To a queue or mailbox, for exactly one consumer.  Its position in the line, from 1.

        NoSuchAddress, QueueFull, Expired, Overloaded.
        """

    def take(self, address: str, peer: Peer) -> Message:
        """The oldest waiting message, for good; or Empty, now."""

    def withdraw(self, message: Message, reason: str) -> bool:
        """Drop a message that nobody has been given yet.  False if it is too late for that."""

    def consume(
        self,
        address: str,
        deliver: Deliver,
        credit: int = 0,
        *,
        peer: Peer,
        priority: int = 0,
        exclusive: bool = False,
        final: bool = False,
        started: Callable[[], None] | None = None,
    ) -> Consumer:
        """Compete for the messages of a queue: highest priority first, in turn among equals.

        `final`: being handed out settles a message.  `exclusive`: alone or not at all; it and
        whoever comes after it wait in line, and `started` is called when the wait is over
        (at once if there is none), before the first delivery.
        """

    def publish(self, message: Message) -> int:
        """To a topic: every subscriber present gets it, and it is retained until `due`.

        How many got it; NoSuchAddress, Expired, Overloaded.
        """

    def subscribe(self, address: str, deliver: Callable[[Message], None]) -> Subscription:
        """Hear what is published from now on.  Answer your client, then ask for `retained`."""

    def retained(self, address: str) -> list[Message]:
        """What is kept of a topic and not yet due, in order of arrival."""

    def replied(self, message: Message, body: bytes, peer: Peer) -> None:
        """Put a consumer's answer to a message into the log; the protocol carries it back."""

    def note(
        self, kind: str, peer: Peer, *, address: str = "", reason: str = "", detail: str = ""
    ) -> None:
        """Put an event that is about no message into the log; a refusal is counted too.

        `reason` comes from a small set; what is different each time is the `detail`.
        """

    def count(self, what: str, *labels: str) -> None:
        """Count something for the operator; labels must come from a small set."""

    def watch(self, observe: Callable[[list[Record]], None]) -> Callable[[], None]:
        """See every record once, in order, when it is safe.  Call the result to stop."""

    def durable(self) -> Deferred[None] | None:
        """None: everything accepted so far is safe.  Else fires when it is, or fails Overloaded.

        Whoever answers a request that made `accepted` grow holds the answer until then.
        """
