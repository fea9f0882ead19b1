"""Every row once, whoever is killed: the gateway's log, as the job archive wrote it."""

from __future__ import annotations

import contextlib
import datetime
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.integration.ledger import Publisher, answered, asked
from tests.integration.peers import gateway
from tests.spark.waiting import wait_for
from tests.support import ROOT, Process

# Such as that of a socket which nobody closed.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")

JOB = "tests.integration.archive_job"
PUSHES = 60  # at a time; a login between them keeps the log small enough for a test


class Job:
    """The driver of tests/integration/archive_job.py, in a process group of its own."""

    def __init__(self, port: int, directory: Path, *words: str) -> None:
        self._commits = directory / "checkpoint" / "archive" / "commits"
        self._log = directory / "job.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", JOB, str(port), str(directory), *words],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,
            )

    def batches(self) -> int:
        return len([*self._commits.glob("[0-9]*")]) if self._commits.is_dir() else 0

    def wait_for_batches(self, more: int) -> None:
        before = self.batches()

        def have_come() -> bool:
            assert self.process.poll() is None, self._log.read_text()[-3000:]
            return self.batches() >= before + more

        wait_for(have_come)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def finish(self) -> None:
        assert self.process.wait(180) == 0, self._log.read_text()[-3000:]


@contextlib.contextmanager
def job(port: int, directory: Path, *words: str) -> Iterator[Job]:
    started = Job(port, directory, *words)
    try:
        yield started
    finally:
        started.kill()


@contextlib.contextmanager
def traffic(publishers: list[Publisher], port: int) -> Iterator[None]:
    """Publishers that go on whatever happens to the gateway."""
    over = Event()

    def publish(publisher: Publisher) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError, AssertionError, IndexError):
                publisher.log_in(port)
                publisher.push(most=PUSHES)
            over.wait(0.05)

    threads = [Thread(target=publish, args=(publisher,)) for publisher in publishers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_the_archive_has_every_row_once_though_both_sides_are_killed(tmp_path: Path) -> None:
    """Traffic flows all the time.  The driver is killed twice, and the gateway twice, once under a
    running job and once while there is none; under a job it is also stopped and started.  Then the
    archive is the whole log: dense, no row twice, each with its day and protocol, and with every
    message that a publisher was told is accepted, once."""
    publishers = [Publisher("ann"), Publisher("bob")]
    with contextlib.ExitStack() as context:
        running = context.enter_context(gateway(tmp_path))
        port, server = running.replay, running.process

        def start_again() -> Process:
            after = Process(running.config)
            context.callback(after.stop)
            after.wait_for(port)
            return after

        with traffic(publishers, running.port):
            with job(port, tmp_path) as first:
                first.wait_for_batches(3)
            server.kill()
            server = start_again()
            with job(port, tmp_path) as second:
                second.wait_for_batches(2)
                server.kill()
                server = start_again()
                second.wait_for_batches(3)
                assert server.stop() == 0
                start_again()
                second.wait_for_batches(2)
        with job(port, tmp_path, "finish") as last:
            last.finish()
    found = json.loads((tmp_path / "rows.json").read_text())
    rows = [row[:5] for row in found["archive"]]
    assert rows == found["log"]
    assert [sequence for sequence, *_ in rows] == [*range(1, len(rows) + 1)]
    assert {protocol for _, _, protocol, *_ in rows} >= {"qlite"}
    for *_, micros, day in found["archive"]:
        assert day == str(datetime.datetime.fromtimestamp(micros // 10**6, datetime.UTC).date())
    messages = [number_in(body) for _, event, _, body, _ in rows if event == "accepted"]
    print(f"{len(rows)} rows, {len(messages)} messages, {len(answered(publishers))} answered")
    assert len(messages) == len(set(messages))
    assert answered(publishers) <= set(messages) <= asked(publishers)
    assert answered(publishers)
    gc.collect()  # so that a socket which nobody closed is found here


def number_in(body: str) -> tuple[str, int]:
    name, number, _ = body.split(" ")
    return name, int(number)
