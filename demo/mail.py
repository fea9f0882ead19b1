"""MQServer: three people who write to each other, and go home now and then."""

from __future__ import annotations

from functools import partial
from typing import Any

from twisted.internet.defer import ensureDeferred
from twisted.internet.error import ConnectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from demo.stage import Stage, Traffic
from protocols.mqserver.client import MqClient, MqFailure, connect
from protocols.mqserver.events import REQUIREACK, FromClient, FromQueue

PEOPLE = ["anna", "bob", "carla"]
STRANGER = "nobody"  # who has no account
LETTERS, GAMES = 1, 2  # applications; everybody has the first, nobody the second
NEWS = "news"  # a BROADCAST queue here: what sk2mq and RQ say in the topic of that name
SELDOM = 40  # one letter of so many is for a stranger, or for an application that is not there
ONE_LEAVES = 4.0  # seconds between two that go home, on average
AWAY = 3.0  # seconds in which what comes for one who left is stored
REFUSED = ("ENOUSER", "ENOAPP", "EFULL")  # what belongs to the play


class Mail(Traffic):
    """Who is away finds his letters when he comes back, before he is told who is there."""

    kind = "mail"
    protocol = "mqserver"
    share = 0.15

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._here: dict[str, MqClient] = {}

    async def start(self) -> None:
        for name in PEOPLE:
            await self._come(name)
            others = [f"+{other}" for other in PEOPLE if other != name]
            await self._here[name].notify(*others)

    async def _come(self, name: str) -> None:
        def said(message: Any) -> None:
            if isinstance(message, FromClient | FromQueue):
                self.heard()
                if message.flags & REQUIREACK:
                    client.ack(message)

        password = self.stage.places.passwords[name]
        client = await connect(self.stage.reactor, self.endpoint, name, password, said)
        client.add_cleanup(partial(self._left, name))
        await client.join(NEWS)
        await client.appear(LETTERS)
        self._here[name] = client

    def _left(self, name: str) -> None:
        if name in self._here and not self.stage.is_ending:
            self.failed(Failure(ConnectionDone(f"the gateway has dropped {name}")))

    def beat(self) -> None:
        random = self.stage.random
        sender = random.choice([*self._here])
        receiver = random.choice([name for name in PEOPLE if name != sender])
        chosen = random.randrange(SELDOM)
        if chosen == 0:
            receiver = STRANGER
        letter = b"%s, have you heard? %d" % (receiver.encode(), self.stage.sent[self.kind])
        application = GAMES if chosen == 1 else LETTERS
        written = self._here[sender].send_to_client(receiver, application, letter)
        self.sent()
        written.addErrback(_unless_refused).addErrback(self._unless_left, sender)
        if len(self._here) > 1 and random.random() < 1 / (ONE_LEAVES * self.rate):
            ensureDeferred(self._go_home(random.choice([*self._here]))).addErrback(self.failed)

    async def _go_home(self, name: str) -> None:
        self._here.pop(name).disconnect()
        await deferLater(self.stage.reactor, AWAY)
        if not self.stage.is_ending:
            await self._come(name)

    def _unless_left(self, failure: Failure, name: str) -> None:
        """Who goes home does not wait for answers."""
        if name in self._here:
            self.failed(failure)

    async def stop(self) -> None:
        for client in self._here.values():
            client.disconnect()


def _unless_refused(failure: Failure) -> None:
    """Let the refusals pass that belong to the play."""
    error = failure.value
    if not isinstance(error, MqFailure) or error.id not in REFUSED:
        failure.raiseException()
