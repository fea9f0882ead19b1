"""Posting to the gateway's web server: the results of jobs, and how their queries are."""

from __future__ import annotations

import http.client
import json
import logging
import math
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from spark.jobs.description import Job

log = logging.getLogger("spark")

ORDERED = 2000  # rows of an ordered table that the gateway keeps: more would be thrown away there
WHOLE = 500  # and of any other
PIECE = 1000  # rows in one post, so that it stays under the gateway's limit of 1 MiB
WAIT = 2.0  # seconds for an answer: a batch waits for it
TRIES = 2
REST = 5.0  # seconds in which a server that was away is not asked again


class Web:
    """The gateway's web server.  One that is away is tried again a little, then let be for some
    seconds: what is shown must never stop what is counted."""

    def __init__(
        self, address: str, token: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._address = address.rstrip("/")
        self._token = token
        self._clock = clock
        self._lock = threading.Lock()
        self._away_until = 0.0
        self._is_away = False
        self._refused: set[str] = set()  # jobs whose results it does not want
        self.comebacks = 0  # how often it was away, and is back

    def __repr__(self) -> str:
        return f"Web({self._address!r}, ...)"

    def post(self, path: str, content: dict[str, Any], last: bool = False) -> bool:
        """Whether it need not be sent again: the server has it, or never will.

        `last`: it is tried even if the server was away just now.
        """
        if not last and self._clock() < self._away_until:
            return False
        request = urllib.request.Request(  # noqa: S310  the command line takes only http and https
            f"{self._address}{path}",
            json.dumps(content, allow_nan=False).encode(),
            {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        reason = ""
        for _ in range(TRIES):
            try:
                with urllib.request.urlopen(request, timeout=WAIT):  # noqa: S310
                    self._heard()
                    return True
            except urllib.error.HTTPError as error:
                with error:
                    said = error.read(200).decode(errors="replace").strip()
                reason = f"{error.code} {said or error.reason}"
                if error.code in (400, 413):  # nothing is wrong with the server
                    self._unwanted(str(content.get("job", "")), reason)
                    return True
                if error.code < 500:  # it would say the same again
                    break
            except (OSError, http.client.HTTPException) as error:
                reason = str(getattr(error, "reason", error))
        self._missed(path, reason)
        return False

    def _heard(self) -> None:
        with self._lock:
            if self._is_away:
                log.warning("%s takes results again", self._address)
                self.comebacks += 1
            self._is_away = False
            self._away_until = 0.0

    def _unwanted(self, job: str, reason: str) -> None:
        with self._lock:
            if job not in self._refused:  # one line a job
                log.warning("%s does not want what %s posts: %s", self._address, job, reason)
            self._refused.add(job)

    def _missed(self, path: str, reason: str) -> None:
        with self._lock:
            if not self._is_away:  # one line, however long it lasts
                log.warning("%s%s does not take results: %s", self._address, path, reason)
            self._is_away = True
            self._away_until = self._clock() + REST


def plain_rows(results: DataFrame, job: Job, most: int | None = None) -> list[dict[str, Any]]:
    """Results as JSON has them, times in unix seconds; the newest, or as many as are kept.

    All of it is computed, even if not all is kept: a stream whose batch is read in part loses
    what it has counted.
    """
    wanted = most or (ORDERED if job.order else WHOLE)
    if job.order:
        ordered = results.sort(job.order, ascending=False)
    else:
        ordered = results.sort(*(job.keys or results.columns[:1]))
    times = {field.name for field in results.schema if isinstance(field.dataType, TimestampType)}
    return [
        {
            name: value.timestamp() if name in times and value is not None else _plain(value)
            for name, value in row.asDict(recursive=True).items()
        }
        # Times are put in seconds here, and not by Spark: to say so in Java takes longer.
        for row in ordered.limit(wanted).collect()
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such number
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)  # dates and decimals of somebody's own job


class Results:
    """The newest results of each job, until the gateway has them.

    What it could not take is sent again, and so is all that is kept when it was away: it may have
    been started again, and has forgotten.  More than it keeps itself is not kept here.
    """

    def __init__(self, web: Web) -> None:
        self._web = web
        self._tables: dict[str, _Table] = {}

    def show(self, job: Job, batch: int, rows: list[dict[str, Any]]) -> None:
        """The results of one batch.  A batch that is done again gives the same rows again."""
        table = self._tables.setdefault(job.name, _Table(job))
        with table.lock:
            table.put(batch, rows)
            table.send(self._web)

    def resend(self, last: bool = False) -> None:
        """Send what the gateway does not have.  `last`: even if it was away just now."""
        for table in [*self._tables.values()]:
            with table.lock:
                table.send(self._web, last)


class _Table:
    """The newest results of one job, and which of them are still to be sent."""

    def __init__(self, job: Job) -> None:
        self.lock = threading.Lock()  # a batch, and whoever sends again
        self._job = job
        self._batch = 0
        self._time = 0.0
        self._rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._unsent: set[tuple[Any, ...]] | None = None  # keys, or None: all of it
        self._comebacks = 0  # of the gateway, when it had all of this

    def put(self, batch: int, rows: list[dict[str, Any]]) -> None:
        self._batch, self._time = batch, time.time()
        keyed = {self._key(row, number): row for number, row in enumerate(rows)}
        if self._job.replace:
            self._rows, self._unsent = keyed, None
            return
        for key, row in keyed.items():
            self._rows.pop(key, None)  # so that what came last is last
            self._rows[key] = row
        if self._unsent is not None:
            self._unsent |= keyed.keys()
        self._trim()

    def send(self, web: Web, last: bool = False) -> None:
        comebacks = web.comebacks
        if comebacks != self._comebacks:
            self._unsent = None
        if self._unsent is not None and not self._unsent:
            return
        keys = [key for key in self._rows if self._unsent is None or key in self._unsent]
        rows = [self._rows[key] for key in keys]
        piece = len(rows) + 1 if self._job.replace else PIECE
        for start in range(0, len(rows) or 1, piece):
            if not self._post(web, rows[start : start + piece], last):
                return
        self._unsent, self._comebacks = set(), comebacks

    def _post(self, web: Web, rows: list[dict[str, Any]], last: bool) -> bool:
        content = {
            "job": self._job.name,
            "batch": self._batch,
            "keys": [*self._job.keys],
            "order": self._job.order,
            "replace": self._job.replace,
            "time": self._time,
            "rows": rows,
        }
        return web.post("/api/results", content, last)

    def _key(self, row: dict[str, Any], number: int) -> tuple[Any, ...]:
        return tuple(row[name] for name in self._job.keys) or (number,)

    def _trim(self) -> None:
        order = self._job.order
        most = ORDERED if order else WHOLE
        if len(self._rows) <= most:
            return
        kept = [*self._rows.items()]
        if order:
            kept.sort(key=lambda item: (item[1][order] is not None, item[1][order] or 0))
        self._rows = dict(kept[-most:])
        if self._unsent is not None:
            self._unsent &= self._rows.keys()
