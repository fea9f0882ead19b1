"""How each query is, told to the gateway whenever Spark says something about it."""

from __future__ import annotations

import json
import math
import re
import time
from functools import cached_property
from typing import Any

from pyspark import SparkContext
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from spark.results import Web

LONGEST_ERROR = 300  # characters of a line that a person reads


class Reports:
    """Hears Spark's events in Java's place.

    pyspark's own way asks Java for each number by itself, some hundred calls for a batch, which is
    more than many a batch costs; this way a report comes in one piece.
    """

    def __init__(self, listener: StreamingQueryListener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:
        self._listener.onQueryStarted(QueryStartedEvent.fromJObject(event))

    def onQueryProgress(self, event: Any) -> None:
        self._listener.onQueryProgress(
            QueryProgressEvent(StreamingQueryProgress.fromJson(json.loads(event.progress().json())))
        )

    def onQueryIdle(self, event: Any) -> None:
        self._listener.onQueryIdle(QueryIdleEvent.fromJObject(event))

    def onQueryTerminated(self, event: Any) -> None:
        self._listener.onQueryTerminated(QueryTerminatedEvent.fromJObject(event))

    class Java:
        implements = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]


class Health(StreamingQueryListener):
    """Posts what a query does; that it has ended is told by whoever ended it or saw it fail.

    Queries have the names of their jobs.
    """

    def __init__(self, web: Web | None) -> None:
        self._web = web
        self._jobs: dict[str, str] = {}  # by the run of the query
        self._last: dict[str, dict[str, Any]] = {}  # what was told of a job last
        self.settled: set[str] = set()  # jobs that have done a batch, or have nothing to do

    @cached_property
    def _jlistener(self) -> Any:
        """What pyspark registers."""
        java: Any = SparkContext._jvm
        return java.PythonStreamingQueryListenerWrapper(Reports(self))

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._jobs[str(event.runId)] = event.name or ""
        self.tell(event.name or "", "running")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        self.settled.add(progress.name or "")
        self.tell(
            progress.name or "",
            "running",
            batch=progress.batchId,
            rows=progress.numInputRows,
            rows_per_second=_number(progress.inputRowsPerSecond),
            batch_seconds=progress.batchDuration / 1000,
            newest=newest(progress.sources[0].endOffset) if progress.sources else None,
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        job = self._jobs.get(str(event.runId))
        if job is not None:
            self.settled.add(job)
            self.tell(job, "running", rows=0, rows_per_second=0.0, batch_seconds=0.0)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._jobs.pop(str(event.runId), None)

    def tell(self, job: str, state: str, error: str | None = None, **about: Any) -> None:
        """Post how a job's query is; what is not said is as it was."""
        known = {"batch": 0, "rows": 0, "rows_per_second": 0.0, "batch_seconds": 0.0, "newest": 0}
        said = {key: value for key, value in about.items() if value is not None}
        now = {**known, **self._last.get(job, {}), **said}
        self._last[job] = now
        if self._web is not None:
            content = {"job": job, "state": state, **now, "error": error, "time": time.time()}
            self._web.post("/api/queries", content, last=state != "running")


def newest(offset: str | None) -> int | None:
    """The last sequence read: the source's offset, in JSON, is the one after it."""
    try:
        content = json.loads(offset or "")
        return int(content["sequence"]) - 1
    except (ValueError, TypeError, KeyError):
        return None


def one_line(error: object) -> str:
    """The first line of an error that says something, without the JVM's stack."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):
        del lines[0]  # what py4j says before what Java says
    errors = [
        line for line in lines if re.match(r"[\w.]*(Error|Exception|Lost|Refused)\b.*: ", line)
    ]
    text = errors[-1] if errors else lines[0] if lines else type(error).__name__
    return text[:LONGEST_ERROR]


def _number(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else 0.0
