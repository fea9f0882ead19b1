"""`mqgateway`, or `python -m mqgateway`: run a command, end with its exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from mqgateway.commands import COMMANDS
from mqgateway.ending import DONE, FAILED, INTERRUPTED, TERMINATED, Ending, explain
from mqgateway.options import parse

LAST_WORDS = 5.0  # seconds in which a command that was interrupted may clean up


class Running:
    """One command, from the start of the reactor to its end."""

    def __init__(self, reactor: Any, at: str) -> None:
        self._reactor = reactor
        self._at = at
        self._code: int | None = None
        self._interrupted = 0  # the code, when a signal has come
        self._work: Deferred[int] | None = None

    def run(self, work: Coroutine[Any, Any, int]) -> int:
        self._reactor.callWhenRunning(self._start, work)
        self._reactor.run()
        return FAILED if self._code is None else self._code

    def _start(self, work: Coroutine[Any, Any, int]) -> None:
        # Not before: the reactor sets its own when it starts, after which nobody knows which came.
        for number, code in ((signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)):
            signal.signal(
                number, lambda *_, code=code: self._reactor.callFromThread(self._interrupt, code)
            )
        self._work = Deferred.fromCoroutine(work)
        self._work.addCallbacks(self._ended, self._failed)

    def _interrupt(self, code: int) -> None:
        if self._interrupted or self._work is None:
            self._ended(code)  # the second time, at once
            return
        self._interrupted = code
        self._reactor.callLater(LAST_WORDS, self._ended, code)
        self._work.cancel()

    def _failed(self, failure: Any) -> None:
        error = failure.value
        if self._interrupted or isinstance(error, CancelledError):
            self._ended(self._interrupted or INTERRUPTED)
            return
        if isinstance(error, BrokenPipeError):
            # Who read our output has enough.  Nothing more can be written, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self._ended(DONE)
            return
        code = error.code if isinstance(error, Ending) else FAILED
        sentence = str(error) if isinstance(error, Ending) else explain(error, self._at)
        if sentence:
            print(f"mqgateway: {sentence}", file=sys.stderr)
        self._ended(code)

    def _ended(self, code: int) -> None:
        if self._code is None:
            self._code = code
            self._reactor.stop()


def main() -> None:
    options = parse(sys.argv[1:])
    from twisted.internet import reactor

    work = COMMANDS[options.command](reactor, options)
    sys.exit(Running(reactor, getattr(options, "at", "the gateway")).run(work))


if __name__ == "__main__":
    main()
