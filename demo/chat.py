"""sk2mq: members of a few topics, who talk."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure

from demo.stage import Stage, Traffic
from protocols.sk2mq.client import Sk2mqClient, Sk2mqFailure, connect
from protocols.sk2mq.wire import FOUND, INPAST, NOTFOUND

TOPICS = [b"tea", b"football", b"news"]
LOUNGE = b"lounge"  # what is said in the aWCS room of that name
ALERTS = b"alerts"  # what is said there is a job for qlite's worker, too
NOT_THERE = b"atlantis"  # a topic that nobody makes
MEMBERS = 5
KEPT = 5  # seconds in which who joins later still hears it
SELDOM = 30  # one message of so many is an alert, is late, or goes to a topic that is not there
PHRASES = [b"milk first", b"never", b"and who pays?", b"we won", b"again?", b"so they say"]


class Chat(Traffic):
    """Everybody hears every message of the usual topics; the first member also the lounge."""

    kind = "chat"
    protocol = "sk2mq"
    share = 0.25

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._members: list[Sk2mqClient] = []

    async def start(self) -> None:
        for _ in range(MEMBERS):
            member = await connect(self.stage.reactor, self.endpoint, self.heard)
            member.add_cleanup(self._left)
            self._members.append(member)
            if len(self._members) == 1:
                for topic in [*TOPICS, LOUNGE, ALERTS]:
                    await member.create(topic).addErrback(_unless, FOUND)
                await member.join(LOUNGE)
            for topic in TOPICS:
                await member.join(topic)

    def _left(self) -> None:
        if not self.stage.is_ending:
            self.failed(Failure(ConnectionDone("the gateway has dropped a member")))

    def beat(self) -> None:
        random = self.stage.random
        chosen = random.randrange(SELDOM)
        topic = {0: ALERTS, 1: NOT_THERE}.get(chosen) or random.choice(TOPICS)
        due = int(self.stage.reactor.seconds()) + (-KEPT if chosen == 2 else KEPT)
        said: Deferred[None] = random.choice(self._members).send_message(
            topic, random.choice(PHRASES), due
        )
        self.sent()
        said.addErrback(_unless, NOTFOUND, INPAST).addErrback(self.failed)

    async def stop(self) -> None:
        for member in self._members:
            member.disconnect()


def _unless(failure: Failure, *codes: int) -> None:
    """Let the refusals pass that belong to the play."""
    error = failure.value
    if not isinstance(error, Sk2mqFailure) or error.code not in codes:
        failure.raiseException()
