"""MQServer: a user who sends to queues and to other users, and reads queues and his own mail."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred, fail
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from mqgateway.speakers.base import Heard, Refused, Speaker, split
from protocols.mqserver.client import MqClient, MqFailure, Sent, connect
from protocols.mqserver.events import BROADCAST, PULL, REQUIREACK, FromClient, FromQueue

AGAIN = 0.1  # seconds until a queue that was empty is asked again: GETFROMQUEUE does not wait
AT_ONCE = 100  # messages that are asked for together
APP_ID = 1  # the application that we send to, and are


class MqServerSpeaker(Speaker):
    """`jobs` is a PULL queue, `topic:jobs` a BROADCAST one, `user:fish` the mailbox of fish.

    Queues that are not there are made.
    """

    protocol = "mqserver"
    port = 1234
    asks_who = True
    names = "a queue, topic:NAME for a broadcast, or user:NAME for a user's mailbox"
    _client: MqClient
    _taking: Deferred[None] | None = None

    async def open(self) -> None:
        self._heard: dict[str, Heard] = {}
        self._made: dict[str, None] = {}
        try:
            self._client = await connect(self.reactor, self.endpoint, *self.access, self._deliver)
        except MqFailure as refusal:
            raise Refused(str(refusal)) from None
        self._client.add_cleanup(self.gone)

    def _deliver(self, message: Any) -> None:
        if isinstance(message, FromClient):
            heard = self._heard.get(f"user:{self.access.user}")
        elif isinstance(message, FromQueue):
            heard = self._heard.get(message.queue)
        else:
            return
        if heard is not None:
            heard(_sender(message), message.payload)
            if message.flags & REQUIREACK:
                self._client.ack(message)

    def send(self, name: str, body: bytes) -> Deferred[str]:
        kind, rest = split(name, "queue")
        if kind == "user":
            sent = self._client.send_to_client(rest, APP_ID, body)
        elif kind in ("queue", "topic"):
            if rest not in self._made:
                self._made[rest] = None
                self._create(kind, rest).addErrback(lambda _: self._made.pop(rest, None))
            sent = self._client.send_to_queue(rest, body)
        else:
            return fail(Refused(f"MQServer has no {kind}"))
        return sent.addCallbacks(_told, _refused)

    def _create(self, kind: str, name: str) -> Deferred[None]:
        """Make sure that the queue is there."""

        def failed(failure: Failure) -> Any:
            error = failure.value
            exists = isinstance(error, MqFailure) and error.id == "EEXIST"
            return None if exists else _refused(failure)

        flags = BROADCAST if kind == "topic" else PULL
        return self._client.create(name, flags).addErrback(failed)

    async def receive(self, name: str, heard: Heard, most: int | None = None) -> None:
        kind, rest = split(name, "queue")
        if kind == "user":
            if rest != self.access.user:
                raise Refused("a mailbox is read by its user")
            self._heard[f"user:{rest}"] = heard
            self._client.appear(APP_ID).addErrback(_ended)
            return
        if kind not in ("queue", "topic"):
            raise Refused(f"MQServer has no {kind}")
        await self._create(kind, rest)
        self._heard[rest] = heard
        info = await self._client.join(rest).addErrback(_refused)
        if info.flags & PULL:
            self._taking = ensureDeferred(self._take(rest, heard, most)).addErrback(_ended)

    async def _take(self, queue: str, heard: Heard, most: int | None) -> None:
        taken = 0
        while most is None or taken < most:
            count = AT_ONCE if most is None else min(AT_ONCE, most - taken)
            messages = await self._client.get(queue, count)
            for message in messages:
                heard(_sender(message), message.payload)
                self._client.ack(message)
            taken += len(messages)
            if not messages:
                await deferLater(self.reactor, AGAIN)

    def hang_up(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
        self._client.disconnect()


def _sender(message: FromQueue | FromClient) -> str:
    """`-` is nobody: no user's name begins so."""
    return "" if message.sender == "-" else message.sender


def _told(sent: Sent) -> str:
    return f"id {sent.id}, stored" if sent.is_stored else f"id {sent.id}"


def _refused(failure: Failure) -> Failure:
    failure.trap(MqFailure)
    return Failure(Refused(str(failure.value)))


def _ended(failure: Failure) -> None:
    failure.trap(ConnectionDone, ConnectionLost, CancelledError)
