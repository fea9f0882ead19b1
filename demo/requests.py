"""RQ: two workers that answer requests, and a node that asks them."""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from demo.stage import Stage, Traffic
from protocols.rq.client import Node
from protocols.rq.link import NotDelivered

WORKS = {b"upper": bytes.upper, b"reverse": lambda payload: payload[::-1]}
NOBODY = b"nobody"  # a queue without a worker
SECRETS = b"secrets"  # a queue that the configuration allows nobody
LONGEST_WORK = 0.05  # seconds that a request may take
TIMEOUT = 2  # seconds that a request may wait for a worker
MOST_UNDER_WAY = 1000  # requests; a person would stop asking before
SELDOM = 40  # one request of so many is for somebody else


class Requests(Traffic):
    """Most requests are answered.  Some are jobs for qlite's worker, without a reply, some are told
    to whoever listens to the topic of the news, and some find nobody, or are not allowed."""

    kind = "requests"
    protocol = "rq"
    share = 0.3

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._nodes = [self._node() for _ in range(3)]
        self._asking = self._nodes[0]
        self._under_way = 0

    def _node(self) -> Node:
        return Node(self.stage.reactor, [self.endpoint], self.stage.random)

    async def start(self) -> None:
        for node in self._nodes[1:]:
            for queue in WORKS:
                node.consume(queue, partial(self._work, queue))
        for node in self._nodes:
            node.start()

    def _work(self, queue: bytes, payload: bytes) -> Deferred[bytes]:
        takes = self.stage.random.uniform(0, LONGEST_WORK)
        return deferLater(self.stage.reactor, takes, WORKS[queue], payload)

    def beat(self) -> None:
        if self._under_way >= MOST_UNDER_WAY:
            return
        self.sent()
        chosen = self.stage.random.randrange(SELDOM)
        payload = b"request %d" % self.stage.sent[self.kind]
        if chosen == 0:
            self._count(self._asking.send(b"jobs", payload))
        elif chosen == 1:
            self._asking.broadcast(b"news", payload)
        else:
            queue = {2: NOBODY, 3: SECRETS}.get(chosen) or self.stage.random.choice([*WORKS])
            self._count(self._asking.request(queue, payload, timeout=TIMEOUT))

    def _count(self, asked: Deferred[bytes]) -> None:
        self._under_way += 1

        def answered(_: bytes) -> None:
            self._under_way -= 1
            self.heard()

        def not_answered(failure: Failure) -> None:
            self._under_way -= 1
            failure.trap(NotDelivered)

        asked.addCallbacks(answered, not_answered).addErrback(self.failed)

    async def stop(self) -> None:
        for node in self._nodes:
            await node.stop()
