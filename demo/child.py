"""The gateway of the demo: a process of its own, started, watched and ended by its id."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from twisted.internet.task import deferLater

START = 60.0  # seconds until it must listen; a busy machine takes ten
STOP = 30.0  # seconds in which it may write what is left, and end Spark, before it is killed
MOMENT = 1.0  # seconds in which one that has dropped its clients must be gone, if it is dying
LOOK = 0.1  # seconds between two looks at it
IS_UP = "the dashboard is at "  # in its log, when everything listens


class GatewayEnded(Exception):
    """It did not start, or is gone; the text is a sentence."""


class Child:
    """A `twistd mqgateway` in a directory, where its log and its data are, too."""

    def __init__(self, reactor: Any, config: Path, directory: Path) -> None:
        self._reactor = reactor
        self._log = directory / "gateway.log"
        twistd = str(Path(sys.executable).with_name("twistd"))
        with self._log.open("wb") as log:
            # Its own session: Ctrl-C is for us, and we end it when its clients have left.
            self._process = subprocess.Popen(  # noqa: S603  it is our own
                [
                    *(twistd, "--nodaemon", "--pidfile=", "--reactor=uvloop"),
                    *("mqgateway", "--config", str(config.resolve())),
                ],
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def is_up(self) -> None:
        """Wait until it listens, or GatewayEnded."""
        until = self._reactor.seconds() + START
        while IS_UP not in self._log.read_text(errors="replace"):
            self.check()
            if self._reactor.seconds() > until:
                raise GatewayEnded(f"the gateway does not listen after {START:.0f} seconds")
            await deferLater(self._reactor, LOOK)

    def check(self) -> None:
        """GatewayEnded if it has."""
        status = self._process.poll()
        if status is None:
            return
        lines = self._log.read_text(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "it says nothing")
        if "Address already in use" in last:
            last += " Does another demo run?"
        raise GatewayEnded(f"the gateway has ended with status {status}: {last}")

    async def check_for_a_moment(self) -> None:
        """The same; a process that ends closes its connections a little before it is gone."""
        until = self._reactor.seconds() + MOMENT
        while self._reactor.seconds() < until:
            self.check()
            await deferLater(self._reactor, LOOK)

    async def stop(self) -> int:
        """Ask it to end, then make it; its status."""
        if self._process.poll() is None:
            self._process.terminate()
        until = self._reactor.seconds() + STOP
        while self._process.poll() is None:
            if self._reactor.seconds() > until:
                self.kill()
            await deferLater(self._reactor, LOOK)
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()
