"""`python -m demo`, or `make demo`: run it, end everything that it started, and say how it went."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.internet.defer import Deferred, DeferredList, FirstError
from twisted.internet.task import LoopingCall

from demo.cast import Cast
from demo.child import Child, GatewayEnded
from demo.places import BadPlaces, Places
from demo.stage import Stage
from demo.telling import Teller

CONFIG = Path(__file__).parent.parent / "etc" / "demo.yaml"
RATE = 300.0  # messages a second that a small machine does beside Spark
MOST = 20_000.0  # a second; one process of clients does not do more
LAST_LINE = 5.0  # seconds without which the summary would be of no use: it is no time to move all


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="A gateway with lively traffic of all kinds of clients, until Ctrl-C.",
        epilog="exit codes: 0 it went well, also until Ctrl-C   1 it did not   2 usage",
        allow_abbrev=False,
    )
    parser.add_argument("--seconds", type=_above_0, help="end after so long")
    parser.add_argument(
        "--rate", type=_above_0, default=RATE, help=f"messages a second, else {RATE:.0f}"
    )
    parser.add_argument("--config", type=Path, default=CONFIG, help="else etc/demo.yaml")
    parser.add_argument(
        "--keep", type=Path, metavar="DIRECTORY", help="keep the data and the log there"
    )
    return parser.parse_args()


def _above_0(text: str) -> float:
    number = float(text)
    if not 0 < number <= MOST:
        raise argparse.ArgumentTypeError(f"must be above 0, and {MOST:.0f} at most")
    return number


def say(text: str) -> None:
    print(text, flush=True)


class Demo:
    """One demo, from the start of its gateway to its end."""

    def __init__(self, reactor: Any, chosen: argparse.Namespace, directory: Path) -> None:
        self._reactor = reactor
        self._seconds: float | None = chosen.seconds
        self._places = Places(chosen.config)
        self._stage = Stage(reactor, self._places, chosen.rate)
        self._cast = Cast(self._stage)
        self._child = Child(reactor, chosen.config, directory)
        self._enough: Deferred[None] = Deferred()
        self._asked = 0  # how often somebody wanted it to end
        self._told_of_spark = False

    def end(self) -> None:
        """Enough; the second time, at once."""
        self._asked += 1
        if self._asked > 1:
            self._child.kill()
            self._reactor.stop()
        elif not self._enough.called:
            self._enough.callback(None)

    async def run(self) -> int:
        code = 1
        try:
            await self._until(Deferred.fromCoroutine(self._child.is_up()))
            if not self._enough.called:
                say(f"the dashboard is at {self._places.dashboard}")
                await self._play()
            code = 0
        except Exception as error:
            kind = f"{error.__notes__[0]}: " if hasattr(error, "__notes__") else ""
            name = "" if isinstance(error, GatewayEnded) else f"{type(error).__name__}: "
            print(f"demo: {kind}{name}{error}", file=sys.stderr)
        status = await self._child.stop()
        if status and not code:
            print(f"demo: the gateway ended with status {status}", file=sys.stderr)
        return code or int(status != 0)

    async def _until(self, what: Deferred[None]) -> None:
        """Until that happens, or it is enough."""
        waiting = DeferredList(
            [what, self._enough], fireOnOneCallback=True, fireOnOneErrback=True, consumeErrors=True
        )
        try:
            await waiting
        except FirstError as error:
            error.subFailure.raiseException()

    async def _play(self) -> None:
        teller = Teller(self._reactor, self._places.dashboard)
        telling = LoopingCall(lambda: Deferred.fromCoroutine(self._tell(teller)))
        telling.clock = self._reactor
        started = self._reactor.seconds()
        try:
            await self._cast.start()
            telling.start(1, now=False).addErrback(self._stage.failed, "the dashboard")
            if self._seconds is not None:
                self._reactor.callLater(self._seconds, self._time_is_over)
            await self._until(self._stage.trouble)
        except Exception:
            # That it is gone says more than that its clients were dropped.
            await self._child.check_for_a_moment()
            raise
        finally:
            if telling.running:
                telling.stop()
            await self._cast.stop()
            for line in self._cast.summary():
                say(line)
        silent = self._cast.silent()
        if silent and self._reactor.seconds() - started > LAST_LINE:
            raise GatewayEnded(f"nothing was heard of: {', '.join(silent)}")

    def _time_is_over(self) -> None:
        if not self._enough.called:
            self._enough.callback(None)

    async def _tell(self, teller: Teller) -> None:
        self._child.check()
        line = await teller.line()
        if teller.spark.get("state") == "missing" and not self._told_of_spark:
            self._told_of_spark = True
            say(teller.spark["reason"])
        if not self._stage.is_ending:
            say(line)


def main() -> int:
    chosen = options()
    from twisted.internet import reactor as installed

    reactor: Any = installed
    codes: list[int] = []
    with ExitStack() as context:
        if chosen.keep is None:
            made = TemporaryDirectory(prefix="mqgateway-demo-", ignore_cleanup_errors=True)
            directory = Path(context.enter_context(made))
        else:
            directory = chosen.keep
            directory.mkdir(parents=True, exist_ok=True)
        try:
            demo = Demo(reactor, chosen, directory)
        except (BadPlaces, KeyError) as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1

        def start() -> None:
            # Not before: the reactor sets its own when it starts.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: reactor.callFromThread(demo.end))
            ended = Deferred.fromCoroutine(demo.run())
            ended.addCallback(codes.append).addBoth(lambda _: reactor.running and reactor.stop())

        reactor.callWhenRunning(start)
        reactor.run()
    return codes[0] if codes else 1


if __name__ == "__main__":
    sys.exit(main())
