"""MQServer's meaning: which broker verb each request is, and which ERROR a refusal."""

from __future__ import annotations

from typing import Any, ClassVar

from gateway.interfaces import TOPIC, BrokerError, Message, Overloaded, Setting
from protocols.mqserver import events
from protocols.mqserver.events import REQUIREACK, REQUIREACKPROCESS, Ack
from protocols.mqserver.handed import WINDOW, Handed, Window
from protocols.mqserver.ids import ID, NAME
from protocols.mqserver.login import LoginFactory
from protocols.mqserver.mail import Correspondent
from protocols.mqserver.queues import (
    KINDS,
    ROUND_ROBIN,
    Definition,
    Member,
    Queue,
    Refusal,
    checked_flags,
)
from protocols.mqserver.topics import Accepts, compiled, topic_of

MOST_PULLED = 1000  # messages that a client may have been handed and not have acknowledged
PULLED_BYTES = 1 << 20  # of one GETFROMQUEUE: more would wait in memory for the client to read


class MqServer(Correspondent):
    """One client of an MQServer listener."""

    factory: MqServerFactory

    # Queues.

    def on_CreateQueue(self, create: events.CreateQueue) -> None:
        definition = Definition(
            checked_flags(create.flags),
            self.peer.user,
            create.max_messages,
            create.ttl,
            create.info,
        )
        self._create(create.queue, definition)
        self.send(Ack(create.mid, "1"))

    def _create(self, name: str, definition: Definition) -> Queue:
        common = self.common
        queue = common.queues.create(name, definition, self.factory.maxMessages, self.broker)
        common.people.tell(f"#{name}", (f"#{name}", ()))
        return queue

    def on_FindQueue(self, find: events.FindQueue) -> None:
        missing = []
        for name in find.queues:
            try:
                queue = self.common.queues.find(name)
            except Refusal:
                missing.append(name)
            else:
                self._send_info(queue, find.mid)
        if missing:
            raise Refusal("ENOQUEUE", " ".join(missing))

    def _send_info(self, queue: Queue, mid: int) -> None:
        definition, depth = queue.definition, self.broker.info(queue.address).depth
        self.send(
            events.QueueInfo(
                mid,
                queue.name,
                definition.flags,
                definition.owner,
                len(queue.members),
                depth,
                definition.info,
            )
        )

    def on_AlterQueue(self, alter: events.AlterQueue) -> None:
        queue = self.common.queues.find(alter.queue)
        old = queue.definition
        if queue.is_foreign or old.owner != self.peer.user:
            raise Refusal("EPERM", "only its owner may alter a queue")
        flags = old.flags if alter.flags is None else checked_flags(alter.flags)
        if (flags ^ old.flags) & KINDS:
            raise Refusal("EPERM", "a queue stays BROADCAST, PULL or round robin")
        added = [change[1:] for change in alter.allow if change[0] == "+"]
        unknown = [user for user in [*added, alter.owner] if user and not self._is_known(user)]
        if unknown:
            raise Refusal("ENOUSER", " ".join(unknown))
        allow = dict.fromkeys(old.allow)
        for change in alter.allow:
            if change[0] == "+":
                allow[change[1:]] = None
            else:
                allow.pop(change[1:], None)
        definition = Definition(
            flags,
            old.owner if alter.owner is None else alter.owner,
            old.max_messages if alter.max_messages is None else alter.max_messages,
            old.ttl if alter.ttl is None else alter.ttl,
            old.info if alter.info is None else alter.info,
            tuple(allow),
        )
        self.common.queues.alter(queue, definition, self.factory.maxMessages, self.broker)
        for server in [*queue.members]:
            server.hear_altered(alter)
        self.send(Ack(alter.mid, "1"))

    def on_JoinQueue(self, join: events.JoinQueue) -> None:
        self.must_be("subscriber")
        accepts, queue = _filter(join.filter), self._find_or_create(join.queue)
        definition = queue.definition
        if definition.has(events.PRIVATE) and self.peer.user not in (
            definition.owner,
            *definition.allow,
        ):
            raise Refusal("EPERM", f"{join.queue} is private")
        if definition.has(ROUND_ROBIN) and accepts is not None:
            raise Refusal("ESYNTAX", "a round robin queue takes no filter")
        member, kept = queue.members.get(self), []
        if member is None:
            member = Member(self, None)
            if definition.has(events.BROADCAST):
                kept = self.broker.retained(queue.address)
            else:
                member.window = self._window(queue)
            self.common.queues.join(queue, member)
            self.joined[queue.name] = queue
        member.update(join.flags, accepts)
        self._send_info(queue, join.mid)
        if member.window is not None and definition.has(ROUND_ROBIN):
            member.window.most = 0 if member.is_deaf else WINDOW
            member.window.adjust()
        self._show_kept(queue, member, kept)

    def _find_or_create(self, name: str) -> Queue:
        queues = self.common.queues
        if self.factory.auto_create and not queues.has(name):
            return self._create(name, Definition(events.BROADCAST, self.peer.user))
        return queues.find(name)

    def on_PartQueue(self, part: events.PartQueue) -> None:
        queue = self.common.queues.find(part.queue)
        self._part(queue)
        self.send(Ack(part.mid, "1"))

    def _part(self, queue: Queue) -> None:
        member = queue.members.get(self)
        if member is None:
            raise Refusal("ENOTMEMBER", queue.name)
        if member.window is not None:
            member.window.retire()
            if not member.window.in_flight:
                del self.windows[member.window]
        self.expelled(queue)
        self.common.queues.leave(queue, self)

    def _show_kept(self, queue: Queue, member: Member, kept: list[Message]) -> None:
        user, silent = self.peer.user, queue.definition.has(events.NOECHO)
        shown = []
        for message in kept:
            is_own = message.protocol == NAME and message.sender == user
            if not (is_own and silent) and member.wants(topic_of(message), is_own):
                shown.append(message)
        self.backlog.show(shown, self.encode_for(queue))

    # Messages of queues.

    def on_SendToQueue(self, send: events.SendToQueue) -> None:
        self.must_be("publisher")
        queue = self.common.queues.find(send.queue)
        definition = queue.definition
        member = queue.members.get(self)
        if member is None and definition.has(events.MEMBERSEND):
            raise Refusal("EPERM", f"only members may send to {send.queue}")
        number = queue.ids.next()
        headers: dict[str, Any] = {ID: number}
        if send.topic:
            headers[TOPIC] = send.topic
        message = Message(queue.address, send.payload, self.peer.user, NAME, headers=headers)
        is_kept = definition.has(events.STORE) or not definition.has(events.BROADCAST)
        if definition.ttl and is_kept:
            message.due = self.broker.now() + definition.ttl
        if not definition.has(events.BROADCAST):
            if member is not None and member.window is not None:
                self.hold(member.window)
            self.push(message, send, f"1 {number} 1", f"1 {number}")
            return
        receivers = queue.publish(message, self.broker)
        if send.flags & REQUIREACKPROCESS:
            self.send(Ack(send.mid, f"1 {number} {receivers}"))
        elif send.flags & REQUIREACK:
            self.send(Ack(send.mid, f"1 {number}"))

    def on_GetFromQueue(self, get: events.GetFromQueue) -> None:
        self.must_be("subscriber")
        accepts, queue = _filter(get.filter), self.common.queues.find(get.queue)
        member = queue.members.get(self)
        if member is None:
            raise Refusal("ENOTMEMBER", get.queue)
        window, pulled = member.window, []
        if window is not None and queue.definition.has(events.PULL):
            room = MOST_PULLED - len(self.handed)
            if room <= 0:
                raise Refusal("EBUSY", "acknowledge what you have")
            pulled = _pull(window, min(get.count, room), accepts)
        self.send(Ack(get.mid, str(len(pulled))))
        for message in pulled:
            self._hand(queue, window, message)

    def _window(self, queue: Queue) -> Window:
        """Its place at a queue of the Broker, from which nothing comes by itself yet."""
        window = Window(self, 0, queue.address)
        window.consumer = self.broker.consume(
            queue.address,
            lambda message, _: self._hand(queue, window, message),
            peer=self.peer,
        )
        self.windows[window] = None
        return window

    def _hand(self, queue: Queue, window: Window | None, message: Message) -> None:
        assert window is not None
        mid = self.next_mid()
        self.handed[mid] = Handed(window, message)
        self.send(queue.event(message, mid, REQUIREACK))

    def refuse(self, event: Any, error: BrokerError) -> None:
        """A member that cannot be told so is none."""
        if isinstance(event, events.JoinQueue) and isinstance(error, Overloaded):
            queue = self.joined.get(event.queue)
            if queue is not None:
                self._part(queue)
        super().refuse(event, error)


def _filter(pattern: str) -> Accepts | None:
    try:
        return compiled(pattern)
    except ValueError as error:
        raise Refusal("ESYNTAX", f"no filter: {error}") from None


def _pull(window: Window, count: int, accepts: Accepts | None) -> list[Message]:
    """So many messages, oldest first, or fewer if there are no more or they are long."""
    pulled: list[Message] = []
    size = 0
    accept = None if accepts is None else lambda message: bool(accepts(topic_of(message)))
    while len(pulled) < count and size < PULLED_BYTES:
        taken = window.consumer.pull(accept)
        if taken is None:
            break
        pulled.append(taken[0])
        size += len(taken[0].body)
    return pulled


class MqServerFactory(LoginFactory):
    """One MQServer listener; its queues and its people are those of all at the same Broker."""

    protocol = MqServer
    settings: ClassVar[dict[str, Setting]] = {
        **LoginFactory.settings,
        "auto_create": Setting(False),
        "max_notify": Setting(100, 0, 10_000),
        "maxMessages": Setting(100_000, 1, 2**32 - 1),
        "maxMailbox": Setting(1000, 1, 2**32 - 1),
        "maxUnreadBytes": Setting(8 << 20, 1 << 16, 1 << 32),
        "idleSeconds": Setting(0.0, 0, 1 << 20),
    }
    auto_create: bool
    max_notify: int
    maxMessages: int
    maxMailbox: int
    maxUnreadBytes: int
    idleSeconds: float

    def buildProtocol(self, addr: Any) -> Any:
        protocol = super().buildProtocol(addr)
        protocol.output_limit = self.maxUnreadBytes
        return protocol
