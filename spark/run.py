"""`python -m spark run`: one query for each job, kept going until it is told to end."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.health import Health, one_line
from spark.jobs.description import Job
from spark.results import Results, Web, plain_rows

log = logging.getLogger("spark")

HEAD_START = 10.0  # seconds, at most, that a job has before the next is started
LOOK = 0.5  # seconds between two looks at the queries
RESTARTS = 5  # of a query that fails again and again, with 1, 2, 4, 8 and 16 seconds between
WELL = 120.0  # seconds after which a query that ran is no longer one that fails again and again

PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>


@dataclass(frozen=True)
class Plan:
    """What to run, and where everything is."""

    jobs: list[Job]
    read: Callable[[Job], DataFrame]  # the streaming rows for a job
    checkpoint: Path
    archive: Path | None = None
    once: bool = False


class Runner:
    """The queries of a plan, started, watched, started again and stopped."""

    def __init__(self, session: SparkSession, plan: Plan, web: Web | None) -> None:
        self._session = session
        self._plan = plan
        self._results = None if web is None else Results(web)
        self._health = Health(web)
        self._stop = threading.Event()
        self._queries: dict[str, StreamingQuery] = {}
        self._started: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._again: dict[str, float] = {}  # when a failed job is to be started again

    def stop(self) -> None:
        """Let `run` end soon; may be called from a signal."""
        self._stop.set()

    def run(self) -> int:
        """Run until stopped, or with `once` until all that there is has been read.

        The exit status: 1 if a job failed too often.
        """
        self._session.streams.addListener(self._health)
        try:
            for job in self._plan.jobs:
                if not self._stop.is_set() and not self._start(job):
                    return 1
                self._let_settle(job)
            return self._watch()
        finally:
            self._finish()

    def _let_settle(self, job: Job) -> None:
        """Let it do its first batch alone.  Together they would all wait until all plans and all of
        Java are warm; this way the first has something to show after a third of that time."""
        until = time.monotonic() + HEAD_START
        while job.name not in self._health.settled and time.monotonic() < until:
            query = self._queries.get(job.name)
            if query is None or not query.isActive or self._stop.wait(0.1):
                return

    def _watch(self) -> int:
        while not self._stop.wait(LOOK):
            if not self._queries and not self._again:
                return 0  # only with `once`
            for job in self._plan.jobs:
                if not self._look(job):
                    return 1
            if self._results is not None:
                self._results.resend()
        return 0

    def _look(self, job: Job) -> bool:
        """See to one job.  False: it has failed too often."""
        if job.name in self._again:
            if time.monotonic() >= self._again[job.name]:
                del self._again[job.name]
                return self._start(job)
            return True
        query = self._queries.get(job.name)
        if query is None or query.isActive:
            return True
        del self._queries[job.name]
        error = query.exception()
        if error is None:
            self._health.tell(job.name, "stopped")
            return True
        return self._failed(job, one_line(error))

    def _failed(self, job: Job, error: str) -> bool:
        self._health.tell(job.name, "failed", error)
        if time.monotonic() - self._started[job.name] > WELL:
            self._failures[job.name] = 0
        failures = self._failures.get(job.name, 0)
        if failures >= RESTARTS or self._plan.once:
            log.error("%s failed: %s", job.name, error)
            return False
        self._failures[job.name] = failures + 1
        self._again[job.name] = time.monotonic() + 2**failures
        log.error("%s failed, and starts again in %d s: %s", job.name, 2**failures, error)
        return True

    def _start(self, job: Job) -> bool:
        """Start one job.  False: it has failed too often."""
        self._started[job.name] = time.monotonic()
        # Each job's tasks take turns with those of the others.
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", job.name)
        try:
            self._queries[job.name] = self._writer(job).start()
        except Exception as error:  # a plan that Spark refuses, or a gateway that is away
            return self._failed(job, one_line(error))
        return True

    def _writer(self, job: Job) -> Any:
        results = job.function(self._plan.read(job))
        writer: Any = results.writeStream.queryName(job.name).outputMode(job.mode)
        writer = writer.option("checkpointLocation", str(self._plan.checkpoint / job.name))
        if self._plan.once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{int(job.seconds * 1000)} milliseconds")
        if job.partitions is None:
            return writer.foreachBatch(self._poster(job))
        writer = writer.format("parquet").partitionBy(*job.partitions)
        return writer.option("path", str(self._plan.archive))

    def _poster(self, job: Job) -> Callable[[DataFrame, int], None]:
        def post(batch: DataFrame, number: int) -> None:
            rows = plain_rows(job.finish(batch) if job.finish else batch, job)
            # Nothing is news only of a job that gives its whole table with each batch.
            if self._results is not None and (rows or job.mode == "complete"):
                self._results.show(job, number, rows)

        return post

    def _finish(self) -> None:
        for name, query in self._queries.items():
            try:
                query.stop()
            except Exception as error:  # it is given up; what it did not finish is done again
                log.warning("%s does not stop: %s", name, one_line(error))
        self._session.streams.removeListener(self._health)
        if self._results is not None:
            self._results.resend(last=True)
        for name in self._queries:
            self._health.tell(name, "stopped")


def end_with_parent(parent: int, stop: Callable[[], None]) -> None:
    """Be sent SIGTERM when the process that started this one ends, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it was gone before the call above
        stop()
