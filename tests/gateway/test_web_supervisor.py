"""Spark beside the gateway: a real process, started, restarted and ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import globalLogPublisher

from gateway import supervisor
from gateway.config import SparkSettings
from gateway.supervisor import Supervisor, command, missing

CHILD = """
import os, signal, sys, time
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), os.environ["A_TOKEN"], os.environ["ANOTHER"], flush=True)
if sys.argv[1] == "long":
    print("x" * 100_000, "the end", sep="\\n", flush=True)
time.sleep(600)
"""


class Beside:
    """A supervisor of a small process, and what is in the log of it."""

    def __init__(self, kind: str = "") -> None:
        from twisted.internet import reactor

        self.lines: list[str] = []
        self.reactor: Any = reactor
        self.supervisor = Supervisor(
            reactor,
            lambda: [sys.executable, "-c", CHILD, kind or "plain"],
            lambda: {"A_TOKEN": "secret", "ANOTHER": "hidden"},
            lambda: "",
        )

    def observe(self, event: Any) -> None:
        if event.get("line"):  # procmon ends its output with an empty one
            self.lines.append(event["line"])

    async def until(self, condition: Callable[[], Any]) -> None:
        end = self.reactor.seconds() + 60
        while not condition():
            assert self.reactor.seconds() < end, self.lines
            await deferLater(self.reactor, 0.05)

    async def __aenter__(self) -> Beside:
        globalLogPublisher.addObserver(self.observe)
        self.supervisor.startService()
        return self

    async def __aexit__(self, *_: object) -> None:
        await maybeDeferred(self.supervisor.stopService)
        globalLogPublisher.removeObserver(self.observe)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest_twisted.ensureDeferred
async def test_it_runs_with_the_tokens_and_ends_with_the_gateway() -> None:
    """What it prints is in the log; tokens are in its environment, not on its command line."""
    async with Beside() as beside:
        await beside.until(lambda: beside.lines)
        pid, *tokens = beside.lines[0].split()
        assert tokens == ["secret", "hidden"]
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"secret" not in command_line
        assert b"hidden" not in command_line
        assert beside.supervisor.state() == {"state": "running", "reason": "", "restarts": 0}
    assert not is_running(int(pid))


@pytest_twisted.ensureDeferred
async def test_a_line_without_an_end_is_logged_in_pieces() -> None:
    """Such as a bar of progress, or an error with a plan in it."""
    async with Beside("long") as beside:
        await beside.until(lambda: len(beside.lines) > 1 and beside.lines[-1] == "the end")
        assert "".join(beside.lines[1:-1]) == "x" * 100_000


@pytest_twisted.ensureDeferred
async def test_one_that_dies_is_started_again() -> None:
    """The page is told that it died, and how."""
    async with Beside() as beside:
        await beside.until(lambda: beside.lines)
        os.kill(int(beside.lines[0].split()[0]), signal.SIGKILL)
        await beside.until(lambda: len(beside.lines) == 2)
        state = beside.supervisor.state()
        assert (state["state"], state["restarts"]) == ("running", 1)
        assert "ended and is started again" in state["reason"]
        assert "signal 9" in state["reason"]


@pytest_twisted.ensureDeferred
async def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervisor, "killTime", 0.1)
    async with Beside("deaf") as beside:
        await beside.until(lambda: beside.lines)
    assert not is_running(int(beside.lines[0].split()[0]))


def test_without_java_nothing_is_started_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One sentence, in the log and for the page; the gateway runs on."""
    from twisted.internet import reactor

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    beside = Supervisor(reactor, lambda: pytest.fail("asked"), lambda: pytest.fail("asked"))
    beside.startService()
    state = beside.state()
    assert state["state"] == "missing"
    assert "Java is missing" in state["reason"]
    assert beside.stopService() is None


def test_without_pyspark_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor.shutil, "which", lambda *_, **__: "/usr/bin/java")
    monkeypatch.setattr(supervisor, "find_spec", lambda name: None)
    assert "pyspark is missing" in missing()


def test_the_command_has_no_token_and_ends_with_us() -> None:
    settings = SparkSettings("local[2]", ["rates", "archive"], Path("data/spark"), Path("old"))
    line = command(settings, "127.0.0.1:7001", "127.0.0.1:8000")
    assert line[1:] == [
        *("-m", "spark", "run", "--gateway", "tcp:127.0.0.1:7001"),
        *("--web", "http://127.0.0.1:8000", "--master", "local[2]", "--jobs", "rates,archive"),
        *("--checkpoint", "data/spark", "--with-parent", str(os.getpid())),
        *("--nice", "15", "--archive", "old"),
    ]
