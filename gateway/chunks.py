"""Reading the log as it lies: packed, many rows at once, beside the writer and not in its way."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

CHUNK_BYTES = 1 << 20  # of packed records, and one row more: what is held for one reader
CHUNK_ROWS = 1024  # rows that one look takes in; of one record each they are a short chunk

# One statement, hence one state of the log; and one step of SQLite, hence one time that the
# interpreter's lock is given up and taken again: beside a busy reactor each costs milliseconds.
_CHUNK = """
WITH near AS (
    SELECT first, bytes, sum(bytes) OVER (ORDER BY first) AS upto FROM (
        SELECT first, bytes FROM log
        WHERE first >= (SELECT max(first) FROM log WHERE first <= :start) AND first < :end
        ORDER BY first LIMIT :rows
    )
), chosen AS (SELECT min(first) AS low, max(first) AS high FROM near WHERE upto - bytes < :bytes)
SELECT (SELECT value FROM meta WHERE name = 'trimmed'), max(until), group_concat(length(data)),
    CAST(group_concat(data, '') AS BLOB)
FROM (
    SELECT first + count AS until, data FROM chosen JOIN log ON first BETWEEN low AND high
    ORDER BY first
)
"""


class Missing(Exception):
    """Rows that were asked for are trimmed."""

    def __init__(self, start: int, oldest: int) -> None:
        super().__init__(f"the log begins at {oldest}: the rows from {start} on are trimmed")


class Chunk(NamedTuple):
    """Rows of the log, one after the other: lists of records as record.pack makes them."""

    end: int  # the sequence behind the last record
    sizes: list[int]  # in bytes, of each row
    data: bytes


class ChunkReader:
    """A connection to the journal of its own, that can write nothing.  One thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None

    def read(self, start: int, end: int) -> Chunk:
        """The rows with the records from `start` on, as many as are good to hold; Missing.

        There may be records before `start` and behind `end` in them, for rows are not divided.
        """
        if self._database is None:
            self._database = sqlite3.connect(
                f"{self._path.resolve().as_uri()}?mode=ro",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
            )
        wanted = {"start": start, "end": end, "rows": CHUNK_ROWS, "bytes": CHUNK_BYTES}
        oldest, until, sizes, data = self._database.execute(_CHUNK, wanted).fetchone()
        if start < oldest or data is None:
            raise Missing(start, oldest)
        return Chunk(until, [int(size) for size in sizes.split(",")], data)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None
