"""qlite: jobs, and a worker that is too slow for them."""

from __future__ import annotations

from twisted.internet.defer import ensureDeferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from demo.stage import Stage, Traffic
from protocols.qlite.client import PUBLISHER, SUBSCRIBER, QliteClient, QliteFailure, connect

FULL = "queue is full"  # in the refusal of a job that has no room
NOTHING_YET = "no data could be dequeued"  # in the answer to a POLL when nothing came
SLOWNESS = 0.7  # of the jobs that come, what one worker can do
HIDDEN = 2  # seconds that a worker has for a job before another gets it
GIVEN_UP = 0.02  # of the jobs, those that a worker does not finish
NEARLY_NONE = 10  # jobs that wait, with which one worker can be left alone


class Jobs(Traffic):
    """The queue grows until it is full; then a second worker helps until it is nearly empty."""

    kind = "jobs"
    protocol = "qlite"
    share = 0.15

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._takes = 1 / (SLOWNESS * self.rate)  # seconds for a job
        self._clients: list[QliteClient] = []
        self._has_help = False

    async def start(self) -> None:
        self._publisher = await self._connect("pub", PUBLISHER)
        worker = await self._connect("sub", SUBSCRIBER)
        ensureDeferred(self._work(worker)).addErrback(self.failed)

    async def _connect(self, user: str, role: type) -> QliteClient:
        password = self.stage.places.passwords[user]
        client = await connect(self.stage.reactor, self.endpoint, user, password, role)
        self._clients.append(client)
        return client

    def beat(self) -> None:
        self.sent()
        pushed = self._publisher.push(b"job %d" % self.stage.sent[self.kind])
        pushed.addCallbacks(self._pushed, self._refused).addErrback(self.failed)

    def _pushed(self, position: int) -> None:
        if position <= NEARLY_NONE:
            self._has_help = False

    def _refused(self, failure: Failure) -> None:
        failure.trap(QliteFailure)
        if FULL not in str(failure.value):
            failure.raiseException()
        if not self._has_help:
            self._has_help = True
            ensureDeferred(self._help()).addErrback(self.failed)

    async def _help(self) -> None:
        """A second worker, while there is too much for one."""
        helper = await self._connect("sub", SUBSCRIBER)
        await self._work(helper, is_help=True)
        self._clients.remove(helper)
        helper.disconnect()

    async def _work(self, worker: QliteClient, is_help: bool = False) -> None:
        while self._has_help or not is_help:
            try:
                uid, _ = await worker.hide(HIDDEN, wait=True)
            except QliteFailure as failure:
                if NOTHING_YET not in str(failure):
                    raise
                continue
            await deferLater(self.stage.reactor, self._takes)
            if self.stage.random.random() >= GIVEN_UP:
                await worker.delete(uid)
                self.heard()

    async def stop(self) -> None:
        for client in self._clients:
            client.disconnect()
