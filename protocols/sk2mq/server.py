"""sk2mq's meaning: which broker verb each request is, and which code a refusal has."""

from __future__ import annotations

from math import ceil
from secrets import token_hex
from typing import Any

from gateway.interfaces import (
    BrokerError,
    Denied,
    Expired,
    Message,
    NoSuchAddress,
    Peer,
    Setting,
    Subscription,
)
from protocols.backlog import Backlog
from protocols.base import WireFactory, WireProtocol
from protocols.framing import WireError
from protocols.names import to_name, to_raw
from protocols.sk2mq import wire
from protocols.sk2mq.wire import DIALECTS, SEED, Response

NAMELESS = "topic:%20"  # the empty name; no other has this text, as a space needs no escape
NEVER = (1 << 32) - 1  # the latest due time

OK, FOUND, BADPACKET = (Response(code) for code in (wire.OK, wire.FOUND, wire.BADPACKET))


class BadClient(BrokerError):
    """A message in another client's name."""


REFUSALS: dict[type[BrokerError], Response] = {
    BadClient: Response(wire.BADCLIENT),
    Denied: Response(wire.BADCLIENT),
    Expired: Response(wire.INPAST),
    NoSuchAddress: Response(wire.NOTFOUND),
}
SERVERERROR = Response(wire.SERVERERROR)


class Sk2mqServer(WireProtocol):
    """One client of an sk2mq listener."""

    wire: Any = SEED  # an instance has its listener's
    name = "sk2mq"
    factory: Sk2mqFactory

    def started(self) -> None:
        factory = self.factory
        self._client = factory.new_name()
        self._raw_client = self._client.encode()
        self.peer = Peer(self.name, self._client)
        self._joined: dict[str, Subscription] = {}
        self._backlog = Backlog(self)
        self.add_cleanup(self._leave)
        self.send(wire.Hello(self._raw_client))

    def _leave(self) -> None:
        while self._joined:
            self._joined.popitem()[1].cancel()
        self._backlog.clear()

    # Topics.

    def on_Create(self, create: wire.Create) -> None:
        address = self.factory.address(create.topic)
        try:
            self.broker.info(address)  # `declare` would change one that another protocol made
        except NoSuchAddress:
            self.broker.declare(address)
            self.send(OK)
        else:
            self.send(FOUND)
        self.factory.topic(address)

    def on_Join(self, join: wire.Join) -> None:
        address = self.factory.address(join.topic)
        if address in self._joined:
            self.send(OK)
            return
        deliver = self._deliver if self.factory.echoes else self._deliver_of_others
        self._joined[address] = self.broker.subscribe(address, deliver)
        self.send(OK)
        self._backlog.show(self.factory.backlog(address), self.factory.packet)

    def on_Quit(self, leave: wire.Quit) -> None:
        address = self.factory.address(leave.topic)
        subscription = self._joined.pop(address, None)
        if subscription is None:
            self.broker.info(address)  # NoSuchAddress
        else:
            subscription.cancel()
            self._backlog.forget(address)
        self.send(OK)

    # Messages.

    def on_Send(self, send: wire.Send) -> None:
        factory = self.factory
        address = factory.address(send.topic)
        if send.client != self._raw_client:
            if factory.looks_for_topic_first:
                self.broker.info(address)  # NoSuchAddress
            raise BadClient(f"{self._client} sends as {to_name(send.client[:64])}")
        self.broker.publish(Message(address, send.message, self._client, "sk2mq", due=send.due))
        self.send(OK)

    def _deliver(self, message: Message) -> None:
        """The hot path: one call for each member and message."""
        factory = self.factory
        if self._backlog.waiting:
            self._backlog.add(message, factory.packet)
            return
        self.send_bytes(
            factory.newest_data if message is factory.newest else factory.encode(message)
        )

    def _deliver_of_others(self, message: Message) -> None:
        if message.sender != self._client and (message.body or self.factory.sends_empty):
            self._deliver(message)

    def has_room(self) -> None:
        if self._backlog.waiting:
            self._backlog.send()

    def overflow(self) -> None:
        self._leave()  # the connection may take a moment to go
        super().overflow()

    # Refusals.

    def refuse(self, event: Any, error: BrokerError) -> None:
        response = REFUSALS.get(type(error), SERVERERROR)
        if response.code == wire.INPAST and not self.factory.says_all:
            response = OK  # the public server drops such a message without a word
        self.send(response)

    def wire_error(self, error: WireError) -> None:
        if self.factory.says_all:
            self.send(BADPACKET)


class Sk2mqFactory(WireFactory):
    """One sk2mq listener.

    It gives its clients names that no other has or had in this journal: the second in which it
    started, a few random digits, because another listener or a quick restart may have that second
    too, and a number.  They begin as those of the public server do, by which a client tells the
    dialects apart.
    """

    protocol = Sk2mqServer
    settings = {
        "dialect": Setting("seed", choices=tuple(DIALECTS)),
        "echo_own": Setting(True),
        "extra_codes": Setting(False),
        "max_body_bytes": Setting(16 * 1024 * 1024, 64, 1 << 30),
        "max_body_seconds": Setting(60.0, 0.001, 3600),
        # Twice the largest body: else two of them in a row would look like a member that is slow.
        "max_unread_bytes": Setting(32 * 1024 * 1024, 1 << 16, 1 << 32),
    }
    dialect: str
    echo_own: bool
    extra_codes: bool
    max_body_bytes: int
    max_body_seconds: float
    max_unread_bytes: int

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.codec = DIALECTS[self.dialect]
        is_seed = self.codec is SEED
        self.echoes = is_seed and self.echo_own
        self.says_all = is_seed or self.extra_codes
        self.looks_for_topic_first = not is_seed
        self._by_due = not is_seed
        self.sends_empty = is_seed  # the public client library takes one for the end
        self._run = f"user-{int(self.clock.seconds())}-{token_hex(3)}"
        self._named = 0
        self._addresses: dict[bytes, str] = {}  # of topics that exist
        self._topics: dict[str, bytes] = {}
        self.newest: Message | None = None  # the one that was encoded last, and its packet:
        self.newest_data = b""

    def buildProtocol(self, addr: Any) -> WireProtocol:
        protocol = super().buildProtocol(addr)
        protocol.wire = self.codec
        protocol.frame_limit = wire.HEADER_SIZE + self.max_body_bytes
        protocol.frame_timeout = self.max_body_seconds
        protocol.output_limit = self.max_unread_bytes
        return protocol

    def new_name(self) -> str:
        self._named += 1
        return f"{self._run}-{self._named}"

    # Addresses.

    def address(self, topic: bytes) -> str:
        return self._addresses.get(topic) or _address(topic)

    def topic(self, address: str) -> bytes:
        """The name of a topic that exists; it is remembered both ways."""
        topic = self._topics.get(address)
        if topic is None:
            topic = b"" if address == NAMELESS else to_raw(address.partition(":")[2])
            self._topics[address] = topic
            self._addresses[topic] = address
        return topic

    # Packets.

    def encode(self, message: Message) -> bytes:
        """A message as all members get it, and remember that for the next of them."""
        self.newest_data = data = self.packet(message)
        self.newest = message
        return data

    def packet(self, message: Message) -> bytes:
        due = NEVER if message.due is None else min(ceil(message.due), NEVER)
        return self.codec.encode_message(
            due, message.sender.encode(), self.topic(message.address), message.body
        )

    def backlog(self, address: str) -> list[Message]:
        """What is kept of a topic, in the order in which the dialect sends it."""
        kept = self.broker.retained(address)
        if not self.sends_empty:
            kept = [message for message in kept if message.body]
        if self._by_due:
            kept.reverse()
            kept.sort(key=_due)  # stable: of equal ones the newest stays first
        return kept


def _address(topic: bytes) -> str:
    return f"topic:{to_name(topic)}" if topic else NAMELESS


def _due(message: Message) -> float:
    return NEVER if message.due is None else message.due
