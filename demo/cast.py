"""All kinds of traffic of the demo, and starting and ending them together."""

from __future__ import annotations

from twisted.python.failure import Failure

from demo.chat import Chat
from demo.jobs import Jobs
from demo.mail import Mail
from demo.mistakes import Mistakes
from demo.requests import Requests
from demo.room import Room
from demo.stage import Pace, Stage, Traffic

TRAFFIC: list[type[Traffic]] = [Requests, Chat, Mail, Room, Jobs, Mistakes]


class Cast:
    """Everybody who takes part."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._traffic = [kind(stage) for kind in TRAFFIC]
        self._paces: list[Pace] = []

    async def start(self) -> None:
        for number, traffic in enumerate(self._traffic):
            await traffic.start()
            phase = number / len(self._traffic)
            pace = Pace(self._stage.reactor, traffic.rate, phase, traffic.beat)
            self._paces.append(pace)
            pace.start().addErrback(traffic.failed)

    async def stop(self) -> None:
        """Leave; what goes wrong with that is trouble, too, but everybody else leaves as well."""
        self._stage.is_ending = True
        for pace in self._paces:
            pace.stop()
        for traffic in self._traffic[: len(self._paces)]:
            try:
                await traffic.stop()
            except Exception:
                traffic.failed(Failure())

    def summary(self) -> list[str]:
        """What moved, a line for each kind."""
        sent, heard = self._stage.sent, self._stage.heard
        return [
            f"{each.kind:9}{each.protocol if each.share else '':9}"
            f"{sent[each.kind]:7} sent  {heard[each.kind]:7} heard"
            for each in self._traffic
        ]

    def silent(self) -> list[str]:
        """The kinds of which nothing was heard."""
        return [each.kind for each in self._traffic if not self._stage.heard[each.kind]]
