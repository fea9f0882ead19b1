"""An MQServer listener in memory, and clients that say events and are asked what they heard."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.interfaces import Message
from protocols.conversation import Conversation
from protocols.mqserver import events, wire
from protocols.mqserver.events import Ack, AppId, Auth, ClientCaps, Presence
from protocols.mqserver.proof import prove
from protocols.mqserver.server import MqServerFactory
from tests.support import NOW, Wired, World, accounts

USERS = [
    ("fish", "haha", True, True),
    ("wally", "hoho", True, True),
    ("anna", "hihi", True, True),
    ("reader", "hehe", False, True),
    ("writer", "huhu", True, False),
]
PASSWORDS = {name: password for name, password, _, _ in USERS}


class Client(Wired):
    """A client of one listener; it counts its own MIDs."""

    def __init__(self, protocol: Any) -> None:
        super().__init__(protocol)
        self._talk = Conversation(protocol.wire, "server")
        self._mid = 0

    def tells(self, event: type, *fields: Any, **more: Any) -> int:
        """Say it, under the next MID, which is returned."""
        self._mid += 1
        said = event(self._mid, *fields, **more)
        self.says(self._talk.send(said))
        return self._mid

    def acks(self, mid: int) -> None:
        self.says(wire.encode(Ack(mid)))

    def hears_events(self) -> list[Any]:
        """What it has heard since it was last asked."""
        self._talk.feed(self.hears())
        events = []
        while (event := self._talk.next_event()) is not None:
            events.append(event)
        return events

    def is_told(self, *events: Any) -> None:
        """It has heard exactly this since it was last asked."""
        assert self.hears_events() == [*events]

    def logs_in(self, user: str, password: str | None = None) -> list[Any]:
        """As far as AUTH; what it is answered."""
        (banner,) = self.hears_events()
        self.tells(ClientCaps, 15, "STD")
        self.is_told(events.CapsAccepted(1))
        self.salt = banner.salt
        return self.tries(user, password or PASSWORDS[user])

    def tries(self, user: str, password: str) -> list[Any]:
        self.tells(Auth, user, prove(password.encode(), self.salt))
        return self.hears_events()

    def syncs(self, *app_ids: int) -> None:
        """With nothing stored and nobody there."""
        self.tells(AppId, app_ids)
        self.is_told(Presence(1))


class Listener:
    def __init__(self, world: World | None = None, **settings: Any) -> None:
        self.world = world or World()
        self.clock = self.world.clock
        self.broker = self.world.broker
        self.factory = MqServerFactory(self.broker, accounts(*USERS), self.clock, **settings)
        self.factory.started()

    def connect(self) -> Client:
        return Client(self.factory.buildProtocol(None))

    def client(self, user: str = "fish") -> Client:
        """One that is logged in; its last MID was 2."""
        client = self.connect()
        assert client.logs_in(user) == [events.LoginAccepted(2)]
        return client

    def synced(self, user: str = "fish", *app_ids: int) -> Client:
        client = self.client(user)
        client.syncs(*app_ids)
        return client

    def push(self, address: str, body: bytes, **more: Any) -> None:
        """As another protocol does."""
        self.broker.push(Message(address, body, "other", "qlite", **more))

    def publish(self, address: str, body: bytes, **more: Any) -> None:
        self.broker.publish(Message(address, body, "other", "sk2mq", **more))


def from_queue(mid: int, queue: str, number: int, body: bytes, **more: Any) -> events.FromQueue:
    """MSGFROMQUEUE of a message that fish sent without a topic when the test began."""
    fields = {"topic": "", "time": int(NOW), "sender": "fish", "flags": 0, **more}
    return events.FromQueue(mid, queue, id=number, payload=body, **fields)


@pytest.fixture
def listener() -> Listener:
    return Listener()
