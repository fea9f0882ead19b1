"""sk2mq: a member of topics."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from mqgateway.speakers.base import Heard, Refused, Speaker
from protocols.names import to_name, to_raw
from protocols.sk2mq.client import Sk2mqClient, Sk2mqFailure, connect
from protocols.sk2mq.wire import FOUND, Delivery

KEPT = 3600  # seconds that a topic keeps a message for who joins later


class Sk2mqSpeaker(Speaker):
    """Creates the topics that it names, and joins those that it listens to."""

    protocol = "sk2mq"
    port = 7654
    names = "a topic"
    _client: Sk2mqClient

    async def open(self) -> None:
        self._heard: dict[bytes, Heard] = {}
        self._made: dict[bytes, None] = {}
        self._client = await connect(self.reactor, self.endpoint, self._deliver)
        self._client.add_cleanup(self.gone)

    @property
    def user(self) -> str:
        """The name that the gateway gave us."""
        return to_name(self._client.client)

    def _deliver(self, delivery: Delivery) -> None:
        heard = self._heard.get(delivery.topic)
        if heard is not None:
            heard(to_name(delivery.client), delivery.message)

    def send(self, name: str, body: bytes) -> Deferred[str]:
        topic = to_raw(name)
        if topic not in self._made:
            self._made[topic] = None
            self._create(topic).addErrback(lambda _: self._made.pop(topic, None))
        sent = self._client.send_message(topic, body, int(self.reactor.seconds()) + KEPT)
        return sent.addCallbacks(lambda _: "OK", _refused)

    def _create(self, topic: bytes) -> Deferred[None]:
        """Make sure that the topic is there."""

        def failed(failure: Failure) -> Any:
            error = failure.value
            exists = isinstance(error, Sk2mqFailure) and error.code == FOUND
            return None if exists else _refused(failure)

        return self._client.create(topic).addErrback(failed)

    async def receive(self, name: str, heard: Heard, most: int | None = None) -> None:
        topic = to_raw(name)
        self._heard[topic] = heard
        await self._create(topic)
        await self._client.join(topic).addErrback(_refused)

    def hang_up(self) -> None:
        self._client.disconnect()


def _refused(failure: Failure) -> Failure:
    failure.trap(Sk2mqFailure)
    return Failure(Refused(str(failure.value)))
