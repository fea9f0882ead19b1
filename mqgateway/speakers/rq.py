"""RQ: a node that asks for something without a reply, or that works on a queue."""

from __future__ import annotations

from random import SystemRandom
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.python.failure import Failure
from zope.interface import implementer

from mqgateway.speakers.base import Access, Heard, Part, Refused, Speaker, split
from protocols.names import to_raw
from protocols.rq.client import Node
from protocols.rq.link import NotDelivered


@implementer(IStreamClientEndpoint)
class Once:
    """An endpoint that connects once, and tells how that ended: a node would try for ever."""

    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint
        self.connected: Deferred[None] = Deferred()
        self.again: Deferred[None] = Deferred()  # fires when the node has lost its controller

    def connect(self, factory: Any) -> Deferred[Any]:
        if self.connected.called:
            if not self.again.called:
                self.again.callback(None)
            return fail(ConnectionDone("once is enough"))
        connecting: Deferred[Any] = self._endpoint.connect(factory)

        def told(result: Any) -> Any:
            if isinstance(result, Failure):
                self.connected.errback(result)
            else:
                self.connected.callback(None)
            return result

        return connecting.addBoth(told)


class RqSpeaker(Speaker):
    """`jobs` is a queue, `topic:jobs` what is broadcast to it."""

    protocol = "rq"
    port = 13700
    names = "a queue, or topic:NAME for a broadcast"

    def __init__(
        self, reactor: Any, endpoint: IStreamClientEndpoint, access: Access, part: Part
    ) -> None:
        super().__init__(reactor, endpoint, access, part)
        self._once = Once(endpoint)
        self._once.again.addCallback(self.gone)
        self.node = Node(reactor, [self._once], SystemRandom())

    async def open(self) -> None:
        self.node.start()
        try:
            await self._once.connected
        except Exception:
            await self.node.stop()
            raise

    def send(self, name: str, body: bytes) -> Deferred[str]:
        kind, queue = split(name, "queue")
        if kind == "topic":
            if not self.node.broadcast(to_raw(queue), body):
                return fail(ConnectionDone("not connected"))
            return succeed("written")

        def refused(failure: Failure) -> Failure:
            failure.trap(NotDelivered)
            reason = "an RQ request is not empty" if not body else "UNDELIVERED"
            return Failure(Refused(reason))

        sent = self.node.send(to_raw(queue), body)
        return sent.addCallbacks(lambda _: "DELIVERED", refused)

    async def receive(self, name: str, heard: Heard, most: int | None = None) -> None:
        kind, queue = split(name, "queue")

        def work(body: bytes) -> bytes:
            heard("", body)
            return b""

        def told(body: bytes) -> None:
            heard("", body)

        if kind == "topic":
            self.node.consume(to_raw(queue), work, priority=0, heard=told)
        else:
            self.node.consume(to_raw(queue), work, maximum=1, most=most)

    def hang_up(self) -> None:
        self.node.stop().addCallback(self.gone)
