"""Spark beside the gateway: a process of its own, started, watched, restarted and ended."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.runner.procmon import ProcessMonitor

from gateway.outlets import SparkSettings

log = Logger()

NAME = "spark"  # before each line of its output in the log
SHORT_LIFE = 30.0  # seconds; Spark itself takes ten to start, and one that ends sooner is no good
FIRST_DELAY = 1.0  # seconds until it is started again, doubled with each short life
LONGEST_DELAY = 60.0
NICE = 15  # how much it gives way: when there is too little time for both, the gateway goes first
KILL_AFTER = 10.0  # seconds that it has to end when asked; it stops its queries first


def missing() -> str:
    """Why Spark cannot run here, in a sentence for people, or nothing."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if found is None:
        return (
            "Spark does not run because Java is missing: install Java 17 or newer, "
            "on Debian with apt-get install openjdk-17-jre-headless, and start the gateway again"
        )
    if find_spec("pyspark") is None:
        return (
            "Spark does not run because pyspark is missing: pip install 'mqgateway[spark]', "
            "and start the gateway again"
        )
    return ""


def no_spark() -> dict[str, Any]:
    """What the page is told if none is wanted."""
    return {"state": "off", "reason": "", "restarts": 0}


def command(settings: SparkSettings, gateway: str, web: str) -> list[str]:
    """What runs all jobs; the tokens are in its environment, where `ps` does not show them.

    It ends with this process, even if that is killed.
    """
    line = [
        *(sys.executable, "-m", "spark", "run"),
        *("--gateway", f"tcp:{gateway}", "--web", f"http://{web}"),
        *("--master", settings.master, "--jobs", ",".join(settings.jobs)),
        *("--checkpoint", str(settings.checkpoint), "--with-parent", str(os.getpid())),
        *("--nice", str(NICE)),
    ]
    if settings.archive is not None:
        line += ["--archive", str(settings.archive)]
    return line


class Supervisor(ProcessMonitor):
    """Keeps one process running while the gateway runs.

    Its output is in the gateway's log, a line each; `state` is for the page.
    """

    threshold = SHORT_LIFE  # type: ignore[assignment]
    killTime = KILL_AFTER  # type: ignore[assignment]
    minRestartDelay = FIRST_DELAY  # type: ignore[assignment]
    maxRestartDelay = LONGEST_DELAY  # type: ignore[assignment]
    log = log

    def __init__(
        self,
        reactor: Any,
        line: Callable[[], list[str]],
        secrets: Callable[[], dict[str, str]],
        missing: Callable[[], str] = missing,
    ) -> None:
        """`line` and `secrets` are asked when the service starts: ports are bound then.

        Secrets are for its environment, by the names of their variables.
        """
        super().__init__(reactor)
        self._line = line
        self._secrets = secrets
        self._missing = missing
        self._reason = ""
        self._restarts = 0
        self._ended: Deferred[None] | None = None

    def state(self) -> dict[str, Any]:
        """How it is doing: running, waiting (to be started again) or missing, and why."""
        if NAME in self.protocols:
            name = "running"
            if self._clock.seconds() - self.timeStarted[NAME] > SHORT_LIFE:
                self._reason = ""  # why it ended before is over
        elif NAME in self._processes:
            name = "waiting"
        else:
            name = "missing"
        return {"state": name, "reason": self._reason, "restarts": self._restarts}

    def startService(self) -> None:
        self._reason = self._missing()
        if self._reason:
            log.warn("{reason}", reason=self._reason)
        else:
            environment = {**os.environ, **self._secrets()}
            self.addProcess(NAME, self._line(), env=environment)
        super().startService()

    def startProcess(self, name: str) -> None:
        """Start it; a line of its output that is too long is logged in pieces.

        procmon would break at one, for it cannot hang up on a process.
        """
        super().startProcess(name)
        started: Any = self.protocols.get(name)
        for output in () if started is None else (started._output, started._error):
            output.lineLengthExceeded = output.lineReceived

    def stopService(self) -> Deferred[None] | None:  # type: ignore[override]
        """Ask it to end, then make it; fires when it has."""
        super().stopService()
        if NAME not in self.protocols:
            return None
        self._ended = Deferred()
        return self._ended

    def _monitoredProcessExited(self, name: str, reason: Failure | None = None) -> None:
        super()._monitoredProcessExited(name, reason)
        if self._ended is not None:
            self._ended.callback(None)
            return
        how = reason.getErrorMessage() if reason is not None else "it ended"
        self._reason = f"Spark ended and is started again: {how}"
        self._restarts += 1
        log.warn("{reason}", reason=self._reason)
