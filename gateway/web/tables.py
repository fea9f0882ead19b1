"""What Spark's jobs have found: one bounded table a job, and what is new in it."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest
from typing import Annotated, Any

from msgspec import Meta, Struct

MOST_JOBS = 32  # there are seven of ours; a user's own jobs find room too
MOST_ROWS = 500  # of a table without order: more bars or lines than a screen shows
MOST_ORDERED = 2000  # of one with: a quarter of an hour in windows of 5 s for eleven series
MOST_COLUMNS = 32
LONGEST_TEXT = 256  # characters; names come from messages, and may be as long as these

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}\Z")]
Value = None | bool | int | float | str
Row = dict[Name, Value]


class Refused(Exception):
    """What was posted is wrong; the text says how."""


class Results(Struct):
    """What a job posts after a batch."""

    job: Name
    rows: list[Row]
    batch: int = 0
    keys: Annotated[list[Name], Meta(max_length=MOST_COLUMNS)] = []
    order: Name | None = None
    replace: bool = False
    time: float = 0.0


class Table:
    """The rows of one job, by their keys, and which of them have changed since they were told."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Any, ...], Row] = {}
        self._changed: dict[tuple[Any, ...], Row] = {}
        self._swapped = False
        self._about: dict[str, Any] = {}

    def post(self, results: Results) -> None:
        """Take the rows in; those over the limit go, the oldest first.  Refused changes nothing."""
        rows = _keyed(results)
        if results.replace:
            self._rows, self._changed, self._swapped = {}, {}, True
        for key, row in rows.items():
            self._rows.pop(key, None)  # so that what came last is last
            self._rows[key] = row
        self._changed.update(rows)
        self._about = {
            "job": results.job,
            "batch": results.batch,
            "keys": results.keys,
            "order": results.order,
            "time": results.time,
        }
        self._trim(results.order)

    def _trim(self, order: str | None) -> None:
        if order is None:
            most, kept = MOST_ROWS, [*self._rows.items()][-MOST_ROWS:]
        else:
            most = MOST_ORDERED
            if len(self._rows) > most:
                kept = nlargest(most, self._rows.items(), lambda item: _place(item[1].get(order)))
        if len(self._rows) > most:
            self._rows = dict(kept)
            self._changed = {key: row for key, row in self._changed.items() if key in self._rows}

    def whole(self) -> dict[str, Any]:
        return {**self._about, "replace": True, "rows": [*self._rows.values()]}

    def changes(self) -> dict[str, Any]:
        """What is new since the last call, in the form of `whole`."""
        told = {**self._about, "replace": self._swapped, "rows": [*self._changed.values()]}
        self._changed, self._swapped = {}, False
        return told


class Tables:
    """The tables of all jobs."""

    def __init__(self) -> None:
        self._tables: dict[str, Table] = {}
        self._news: dict[str, None] = {}

    def post(self, results: Results) -> None:
        table = self._tables.get(results.job)
        if table is None:
            if len(self._tables) >= MOST_JOBS:
                raise Refused(f"there are {MOST_JOBS} jobs already, and no room for {results.job}")
            table = Table()
        table.post(results)
        self._tables[results.job] = table
        self._news[results.job] = None

    def whole(self) -> dict[str, Any]:
        return {job: table.whole() for job, table in self._tables.items()}

    def changes(self) -> list[dict[str, Any]]:
        """What is new in each table that has something new."""
        news, self._news = self._news, {}
        return [self._tables[job].changes() for job in news]


def _keyed(results: Results) -> dict[tuple[Any, ...], Row]:
    """The rows by their keys, with long texts cut; Refused."""
    if not results.keys and not results.replace:
        raise Refused("keys: must name a column, unless replace is true")
    rows: dict[tuple[Any, ...], Row] = {}
    for number, row in enumerate(results.rows):
        if len(row) > MOST_COLUMNS:
            raise Refused(f"rows[{number}]: has more than {MOST_COLUMNS} columns")
        missing = [key for key in _wanted(results) if key not in row]
        if missing:
            raise Refused(f"rows[{number}]: has no {missing[0]}")
        if results.order is not None and isinstance(row[results.order], str):
            raise Refused(f"rows[{number}].{results.order}: must be a number, to be ordered by")
        short = {name: _cut(value) for name, value in row.items()}
        rows[tuple(short[key] for key in results.keys) or (number,)] = short
    return rows


def _wanted(results: Results) -> Iterable[str]:
    return results.keys if results.order is None else [*results.keys, results.order]


def _cut(value: Value) -> Value:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return value[: LONGEST_TEXT - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return value


def _place(value: Any) -> float:
    """Where a value is in the order; what has none is oldest."""
    return float("-inf") if value is None else value
