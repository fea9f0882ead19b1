"""How Spark's queries are doing, as far as they have told us."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from gateway.web.tables import MOST_JOBS, Name, Refused

SILENT = 15.0  # seconds; a query tells of itself after each batch and every few seconds between
LONGEST_ERROR = 500  # characters of a reason: Spark's can be pages


class Query(Struct):
    """What a query posts."""

    job: Name
    state: Literal["running", "stopped", "failed"]
    batch: int | None = None
    rows: int | None = None
    rows_per_second: float | None = None
    batch_seconds: float | None = None
    newest: int | None = None  # the last sequence that it has read
    error: str | None = None
    time: float = 0.0


class Queries:
    """The last word of each query, and when we heard it by our own clock."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, Query]] = {}

    def post(self, query: Query, now: float) -> None:
        if query.job not in self._heard and len(self._heard) >= MOST_JOBS:
            raise Refused(f"there are {MOST_JOBS} queries already, and no room for {query.job}")
        if query.error is not None:
            query.error = " ".join(query.error[: 4 * LONGEST_ERROR].split())[:LONGEST_ERROR]
        self._heard[query.job] = (now, query)

    def shown(self, now: float, newest: int) -> list[dict[str, Any]]:
        """All of them, with how far they are behind the newest record."""
        return [_shown(query, now - heard, newest) for heard, query in self._heard.values()]

    def one(self, job: str, now: float, newest: int) -> dict[str, Any]:
        heard, query = self._heard[job]
        return _shown(query, now - heard, newest)


def _shown(query: Query, age: float, newest: int) -> dict[str, Any]:
    state = "silent" if query.state == "running" and age > SILENT else query.state
    return {
        "job": query.job,
        "state": state,
        "batch": query.batch,
        "rows": query.rows,
        "rows_per_second": query.rows_per_second,
        "batch_seconds": query.batch_seconds,
        "newest": query.newest,
        # It may have read what was committed since we last looked.
        "lag": None if query.newest is None else max(0, newest - query.newest),
        "error": query.error,
        "age": age,
    }
