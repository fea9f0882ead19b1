"""qlite's meaning: which broker verb each request is, and how a refusal reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any
from uuid import uuid4

from twisted.internet.defer import Deferred

from gateway.interfaces import (
    BrokerError,
    Consumer,
    Denied,
    Empty,
    Message,
    QueueFull,
    Setting,
    User,
)
from protocols.base import WireFactory, WireProtocol
from protocols.conversation import OutOfTurn
from protocols.framing import FrameTooLong, WireError
from protocols.qlite import legacy, wire
from protocols.qlite.proof import is_plausible, is_proved
from protocols.qlite.wire import Pass, number
from protocols.strangers import Strangers

OUT_OF_TURN: dict[type, str] = {
    wire.Push: "subscribers cannot push to the queue",
    wire.ShortPop: "publishers cannot pop from the queue",
    wire.LongPop: "publishers cannot pop from the queue",
    wire.Hide: "publishers cannot hide messages on the queue",
    wire.Poll: "publishers cannot poll the queue",
    wire.Delete: "publishers cannot delete hidden messages",
}
TOO_LATE = "error: no data could be dequeued in the specified time period"
TOO_LONG = "provided hidden duration is longer then the max viable time"
NO_SUCH_UID = (
    "the key you provided does not correlate to any value being processed, "
    "expiration time may have been exceeded"
)


class Refusal(BrokerError):
    """A refusal of qlite's own; the text is the answer."""


class QliteServer(WireProtocol):
    """One client of a qlite listener."""

    wire = wire
    name = "qlite"
    factory: QliteFactory

    def started(self) -> None:
        factory = self.factory
        self.frame_timeout = factory.maxIoTimeSeconds
        stranger = factory.strangers.admit(self, 3 * factory.maxIoTimeSeconds)
        if stranger is None:
            self.send(wire.Fail("error: too many logins are under way"))
            self.close()
            return
        self._stranger = stranger
        self._challenge = factory.new_challenge()
        self.send(wire.Greeting(self._challenge))

    # Login.

    async def on_PublisherLogin(self, login: wire.PublisherLogin) -> None:
        user = await self._check(login, "publisher", lambda user: user.publisher)
        self._admit(user, self.factory.publishers)

    async def on_SubscriberLogin(self, login: wire.SubscriberLogin) -> None:
        user = await self._check(login, "subscriber", lambda user: user.subscriber)
        self._admit(user, self.factory.subscribers)

    async def _check(
        self,
        login: wire.PublisherLogin | wire.SubscriberLogin,
        role: str,
        has_role: Callable[[User], bool],
    ) -> User:
        """The user who logs in, or Denied, in the order in which qlite always found out."""
        self._stranger.is_checked()
        accounts, proof = self.factory.accounts, login.proof
        user = accounts.find(login.name.decode("ascii", "replace"))
        if user is None:
            raise Denied("error: user is not registered for this server")
        if not has_role(user):
            raise Denied(f"error: user does not have the {role} role")
        if not is_plausible(proof) or not await accounts.check(
            user, lambda password: is_proved(password, self._challenge, proof)
        ):
            raise Denied("error: password is invalid")
        return user

    def _admit(self, user: User, role: Places) -> None:
        if not role.enter():
            raise Denied(f"error: the max amount of {role.name} have already been connected")
        self.add_cleanup(role.leave)
        self._stranger.no_more()
        self.log_in(user)
        self.send(Pass())

    # Publishers.

    def on_Push(self, push: wire.Push) -> None:
        factory, body = self.factory, push.body
        if not body:
            raise Refusal("cannot push empty message")
        if len(body) > factory.maxMessageSize and not factory.is_full():
            raise Refusal("message is too large")
        message = Message(factory.address, body, self.peer.user, "qlite")
        self.send(Pass(number(self.broker.push(message))))

    def on_Length(self, _: wire.Length) -> None:
        self.send(Pass(number(self.broker.info(self.factory.address).depth)))

    # Subscribers.

    def on_ShortPop(self, _: wire.ShortPop) -> None:
        message = self.broker.take(self.factory.address, self.peer)
        self.send(Pass(message.body))

    async def on_LongPop(self, _: wire.LongPop) -> None:
        message = await self._wait_for_message(self._popper)
        self.send(Pass(message.body))

    def on_Hide(self, hide: wire.Hide) -> None:
        self._check_hiding_time(hide.seconds)
        taken = self._hider.pull()
        if taken is None:
            raise Refusal("queue is empty")
        self._hide(taken[0], hide.seconds)

    async def on_Poll(self, poll: wire.Poll) -> None:
        self._check_hiding_time(poll.seconds)
        self._hide(await self._wait_for_message(self._hider), poll.seconds)

    def on_Delete(self, delete: wire.Delete) -> None:
        hidden = self.factory.hidden.pop(delete.uid, None)
        if hidden is None:
            raise Refusal(NO_SUCH_UID)
        consumer, message = hidden
        consumer.settle(message)
        self.send(Pass(delete.uid))

    @cached_property
    def _popper(self) -> Consumer:
        return self._consumer(final=True)

    @cached_property
    def _hider(self) -> Consumer:
        self.add_cleanup(lambda: self.factory.forget_hidden_by(self._hider))
        return self._consumer(final=False)

    def _consumer(self, final: bool) -> Consumer:
        """One that gets a message when `_wait_for_message` asks for it."""
        consumer = self.broker.consume(
            self.factory.address,
            lambda message, _: self._arrived.callback(message),
            peer=self.peer,
            final=final,
        )
        self.add_cleanup(consumer.cancel)
        return consumer

    def _wait_for_message(self, consumer: Consumer) -> Deferred[Message]:
        """The next message, when it is this client's turn, or a Refusal when its patience is over.
        To cancel is to leave the line."""

        def too_late(result: Any, _: float) -> Any:
            raise Refusal(TOO_LATE)

        self._arrived: Deferred[Message] = Deferred(lambda _: consumer.grant(-1))
        arrived = self._arrived
        consumer.grant(1)
        if not arrived.called:
            arrived.addTimeout(self.factory.maxPollingTimeSeconds, self.clock, too_late)
        return arrived

    def _check_hiding_time(self, seconds: int) -> None:
        if seconds > self.factory.maxHiddenTimeSeconds:
            raise Refusal(TOO_LONG)

    def _hide(self, message: Message, seconds: int) -> None:
        uid, hidden = uuid4().bytes, self.factory.hidden
        hidden[uid] = self._hider, message

        def come_back() -> None:
            del hidden[uid]

        self._hider.lease(message, seconds, come_back)
        self.send(Pass(uid + b";" + message.body))

    # Refusals.

    def refuse(self, event: Any, error: BrokerError) -> None:
        match error, event:
            case ((Refusal() | Denied()), _):
                text = str(error)
            case QueueFull(), _:
                text = "queue is full"
            case Empty(), _:
                text = "cannot pop from empty slice"
            case _:
                text = f"error: {error}"
        self.send(wire.Fail(text))
        if isinstance(event, (wire.PublisherLogin, wire.SubscriberLogin)):
            self.close()

    def wire_error(self, error: WireError) -> None:
        match error:
            case FrameTooLong():
                text = wire.TOO_LONG
            case OutOfTurn(event=event) if type(event) in OUT_OF_TURN:
                text = OUT_OF_TURN[type(event)]
            case _:
                text = str(error)
        self.send(wire.Fail(text))
        if isinstance(error, wire.BadLogin):
            self.close()


class Places:
    """How many of a role may be connected, and are."""

    def __init__(self, name: str, most: int) -> None:
        self.name = name
        self._most = most
        self._taken = 0

    def enter(self) -> bool:
        if self._taken >= self._most:
            return False
        self._taken += 1
        return True

    def leave(self) -> None:
        self._taken -= 1


class QliteFactory(WireFactory):
    """One qlite listener, and its queue."""

    protocol = QliteServer
    settings = {
        "queue": Setting("qlite"),
        "maxSubscriberConnections": Setting(1, 1, 65535),
        "maxPublisherConnections": Setting(1, 1, 65535),
        "maxUnauthenticatedConnections": Setting(64, 1, 65535),
        "maxMessages": Setting(100, 1, 2**32 - 1),
        "maxMessageSize": Setting(9 * 1024 * 1024, 1, 10 * 1024 * 1024 - 5),
        "maxIoTimeSeconds": Setting(3.0, 0.001, 3600),
        "maxPollingTimeSeconds": Setting(10.0, 0.001, 86_400),
        "maxHiddenTimeSeconds": Setting(30, 1, 2**32 - 1),
    }
    queue: str
    maxSubscriberConnections: int
    maxPublisherConnections: int
    maxUnauthenticatedConnections: int
    maxMessages: int
    maxMessageSize: int
    maxIoTimeSeconds: float
    maxPollingTimeSeconds: float
    maxHiddenTimeSeconds: int

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.address = f"queue:{self.queue}"
        self.publishers = Places("publishers", self.maxPublisherConnections)
        self.subscribers = Places("subscribers", self.maxSubscriberConnections)
        self.strangers = Strangers(self.maxUnauthenticatedConnections)
        self.hidden: dict[bytes, tuple[Consumer, Message]] = {}  # by uid

    @classmethod
    def read_stanza(cls, stanza: dict[str, Any], read: Callable[[str], Any]) -> dict[str, Any]:
        """Its `config` may name a config.yaml of the original qlite server."""
        return legacy.read_stanza(stanza, read, cls.settings)

    def started(self) -> None:
        self.broker.declare(self.address, limit=self.maxMessages)

    def new_challenge(self) -> bytes:
        return uuid4().bytes

    def is_full(self) -> bool:
        info = self.broker.info(self.address)
        return info.depth + info.outstanding >= self.maxMessages

    def forget_hidden_by(self, consumer: Consumer) -> None:
        mine = [uid for uid, (holder, _) in self.hidden.items() if holder is consumer]
        for uid in mine:
            del self.hidden[uid]
