"""Where committed records lie: in an SQLite file.  Plain calls, no reactor.

The log is kept as it was committed, many records to a row, because a row of SQLite costs the
interpreter's lock twice and a packed record next to nothing.  The body is written once, there.
What still waits is one byte a record beside it, in `waiting`: 0 nothing to do, n handed out n - 1
times.  So a restart reads only rows with waiting messages, and settling a thousand messages
touches a few rows.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from gateway.chunks import Chunk, ChunkReader
from gateway.cursors import MOST_HELD, Cursors
from gateway.record import DELETED, PUBLISHED, Record, pack, unpack
from gateway.rows import Row, rows_of

VERSION = 1
TRIM_ROWS = 8  # trimmed in one commit at most: of 1 MiB each, half of it waiting, that takes 50 ms

MOST_QUERIES = 10_000  # whose last batch is remembered; those that are silent longest go first

_SCHEMA = """
CREATE TABLE log(first INTEGER PRIMARY KEY, count INTEGER, time REAL, bytes INTEGER, data BLOB);
CREATE TABLE waiting(first INTEGER PRIMARY KEY, marks BLOB);
CREATE TABLE addresses(address TEXT PRIMARY KEY, options BLOB);
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;
INSERT INTO meta VALUES ('bytes', 0), ('trimmed', 1);
CREATE VIEW row AS SELECT *, NULL AS marks FROM log;
CREATE TRIGGER add_row INSTEAD OF INSERT ON row BEGIN
    INSERT INTO log VALUES (NEW.first, NEW.count, NEW.time, NEW.bytes, NEW.data);
    INSERT INTO waiting SELECT NEW.first, NEW.marks WHERE NEW.marks IS NOT NULL;
    UPDATE meta SET value = value + NEW.bytes WHERE name = 'bytes';
END;
"""
# What came later than format 1, and does not keep an older mqgateway from reading the rest.
_ADDED = """
CREATE TABLE IF NOT EXISTS cursors(name TEXT PRIMARY KEY, position INTEGER, time REAL);
CREATE TABLE IF NOT EXISTS published(query TEXT PRIMARY KEY, batch INTEGER, time REAL);
"""
_READ = """
SELECT data FROM log WHERE first >= (SELECT max(first) FROM log WHERE first <= ?) ORDER BY first
"""


class JournalRefused(Exception):
    """The journal cannot be used as it is; the text says why, for the operator."""


class Retention(NamedTuple):
    """How much of the log is kept for readers; what waits is kept in any case."""

    seconds: float = 86_400
    bytes: int = 1 << 30


class Restored(NamedTuple):
    """What a journal had when it was opened."""

    next_sequence: int
    addresses: dict[str, dict[str, Any]]  # with their options, in order of declaration
    messages: list[tuple[Record, int]]  # with their deliveries, in order of acceptance
    published: dict[str, int]  # the last batch of each query that was taken in whole


class Store(Protocol):
    durable: bool  # what is committed outlives the process

    def open(self) -> Restored:
        """Get ready, or JournalRefused."""

    def prepare(self, records: list[Record]) -> Callable[[], None]:
        """To call the result keeps these, all or none; in another thread, if it must be."""

    def commit(self, records: list[Record]) -> None:
        """Keep these now."""

    def oldest(self) -> int:
        """The first sequence that can still be read."""

    def read(self, start: int, limit: int) -> list[Record]:
        """Up to about `limit` records from that sequence on, in order, without gaps."""

    def chunk(self, start: int, end: int) -> Chunk:
        """Packed rows from that sequence on; in a thread of its own, if it must be; or Missing."""

    def move(self, name: str, position: int, now: float) -> None:
        """Remember how far a reader has read, and keep what it has not; or Overloaded."""

    def close(self) -> None: ...


class SqliteStore:
    """One directory: the SQLite file and a lock that keeps a second gateway out."""

    durable = True

    def __init__(self, directory: Path, synchronous: str, retention: Retention) -> None:
        """`synchronous` is SQLite's: FULL survives a power cut, NORMAL a crash of the process."""
        self._directory = directory
        self._synchronous = synchronous
        self._retention = retention
        self._database: Any = None  # an sqlite3.Connection while it is open
        self._lock: int | None = None
        self._bytes = 0
        self._trimmed = 1  # the first sequence that can still be read
        self._trim_from = 0.0  # before that time, nothing is too old
        self._oldest_end = 0  # behind the oldest row, when it was last looked at
        self._cursors = Cursors(retention.seconds)
        self._chunks = ChunkReader(directory / "journal.sqlite3")

    def open(self) -> Restored:
        path = self._directory / "journal.sqlite3"
        try:
            _make_directory(self._directory)
            self._take_lock()
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._prepare(path)
            return self._restore()
        except JournalRefused:
            self.close()
            raise
        except (OSError, sqlite3.Error, msgspec.MsgspecError, LookupError) as error:
            self.close()
            raise JournalRefused(f"{path} cannot be used: {error}") from error

    def _take_lock(self) -> None:
        self._lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise JournalRefused(f"{self._directory} is in use by another mqgateway") from None

    def _prepare(self, path: Path) -> None:
        execute = self._database.execute
        version = execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:  # before anything is changed
            raise JournalRefused(
                f"{path} was written by a newer mqgateway: format {version}, not {VERSION}"
            )
        path.chmod(0o600)  # bodies are nobody else's business
        execute("PRAGMA page_size=8192")  # of a new journal: rows are long, most have many pages
        mode = execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise JournalRefused(f"{path} cannot be used: its disk does not allow WAL mode")
        execute(f"PRAGMA synchronous={self._synchronous}")
        if version == 0:
            self._database.executescript(
                f"BEGIN IMMEDIATE;{_SCHEMA}PRAGMA user_version={VERSION};COMMIT;"
            )
        self._database.executescript(_ADDED)

    def _restore(self) -> Restored:
        execute = self._database.execute
        meta = dict(execute("SELECT name, value FROM meta"))
        self._bytes, self._trimmed = meta["bytes"], meta["trimmed"]
        newest = execute("SELECT first + count FROM log ORDER BY first DESC LIMIT 1").fetchone()
        addresses = {
            address: msgspec.msgpack.decode(options)
            for address, options in execute("SELECT address, options FROM addresses ORDER BY rowid")
        }
        messages = []
        rows = execute(
            "SELECT first, marks, data FROM waiting JOIN log USING (first) ORDER BY first"
        )
        for first, marks, data in rows:
            for record in unpack(data):
                mark = marks[record.sequence - first]
                if mark:
                    messages.append((record, mark - 1))
        for cursor in execute("SELECT name, position, time FROM cursors"):
            self._cursors.put(*cursor)
        published = dict(execute("SELECT query, batch FROM published ORDER BY time"))
        return Restored(newest[0] if newest else 1, addresses, messages, published)

    def commit(self, records: list[Record]) -> None:
        self.prepare(records)()

    def prepare(self, records: list[Record]) -> Callable[[], None]:
        """Pack them here, in the reactor's thread, for it needs the interpreter's lock in any case;
        what is left for the writer's thread needs it only before and after."""
        rows = rows_of(records)
        return lambda: self._write(rows, records[-1].time)

    def _write(self, rows: list[Row], now: float) -> None:
        if len(rows) == 1 and rows[0].is_plain and not self._must_trim(now):
            self._insert(rows[0])  # one statement, and by itself one transaction
            return
        execute = self._database.execute
        before = self._bytes, self._trimmed, self._trim_from
        execute("BEGIN IMMEDIATE")
        try:
            for row in rows:
                self._insert(row)
                for record in row.of_tables:
                    if record.kind == PUBLISHED:
                        self._publish(record)
                    else:
                        self._declare(record)
                if row.older:
                    self._mark(row.older)
            self._trim(now)
            execute("UPDATE meta SET value = ? WHERE name = 'bytes'", (self._bytes,))
            execute("COMMIT")
        except BaseException:
            self._bytes, self._trimmed, self._trim_from = before
            if self._database.in_transaction:
                execute("ROLLBACK")
            raise

    def _insert(self, row: Row) -> None:
        self._database.execute("INSERT INTO row VALUES (?, ?, ?, ?, ?, ?)", row.columns)
        self._bytes += row.size

    def _declare(self, record: Record) -> None:
        if record.kind == DELETED:
            self._database.execute("DELETE FROM addresses WHERE address = ?", (record.address,))
            return
        self._database.execute(
            "INSERT INTO addresses VALUES (?, ?) "
            "ON CONFLICT(address) DO UPDATE SET options = excluded.options",
            (record.address, msgspec.msgpack.encode(record.headers or {})),
        )

    def _publish(self, record: Record) -> None:
        batch = record.headers or {}
        self._database.execute(
            "INSERT OR REPLACE INTO published VALUES (?, ?, ?)",
            (batch["query"], batch["batch"], record.time),
        )
        self._database.execute(
            "DELETE FROM published WHERE query IN "
            "(SELECT query FROM published ORDER BY time DESC LIMIT -1 OFFSET ?)",
            (MOST_QUERIES,),
        )

    def _mark(self, changes: dict[int, int]) -> None:
        """Change marks of messages in rows that are already there."""
        first, marks = 0, bytearray()
        for message in sorted(changes):
            if message >= first + len(marks):
                self._put_marks(first, marks)
                found = self._database.execute(
                    "SELECT first, marks FROM waiting WHERE first <= ? ORDER BY first DESC LIMIT 1",
                    (message,),
                ).fetchone()
                first, marks = (found[0], bytearray(found[1])) if found else (0, bytearray())
            at = message - first
            if at < len(marks) and marks[at]:
                marks[at] = changes[message]
        self._put_marks(first, marks)

    def _put_marks(self, first: int, marks: bytearray) -> None:
        if any(marks):
            self._database.execute("UPDATE waiting SET marks = ? WHERE first = ?", (marks, first))
        elif marks:
            self._database.execute("DELETE FROM waiting WHERE first = ?", (first,))
            if first < self._trimmed:  # it was kept for the sake of these
                self._delete(first)

    def _delete(self, first: int) -> None:
        execute = self._database.execute
        row = execute("SELECT bytes FROM log WHERE first = ?", (first,)).fetchone()
        self._bytes -= row[0]
        execute("DELETE FROM log WHERE first = ?", (first,))

    def _must_trim(self, now: float) -> bool:
        too_much = self._bytes > self._retention.bytes or now >= self._trim_from
        return too_much and not self._is_held(now)

    def _is_held(self, now: float) -> bool:
        """Whether a reader still has to come to the oldest row, and may keep us waiting."""
        return self._bytes <= MOST_HELD * self._retention.bytes and self._cursors.holds(
            max(self._trimmed, self._oldest_end - 1), now
        )

    def _trim(self, now: float) -> None:
        """Take the oldest rows from the readers if they are too old or too many.

        The newest row stays, it has the sequence; of one with waiting messages, only those stay.
        """
        for _ in range(TRIM_ROWS):
            if not self._must_trim(now):
                return
            oldest = self._database.execute(
                "SELECT first, count, time, marks FROM log LEFT JOIN waiting USING (first) "
                "WHERE first >= ? ORDER BY first LIMIT 2",
                (self._trimmed,),
            ).fetchall()
            if len(oldest) < 2:
                return
            first, count, time, marks = oldest[0]
            self._trim_from = time + self._retention.seconds
            self._oldest_end = first + count
            if not self._must_trim(now):
                return
            self._trimmed = first + count
            self._database.execute(
                "UPDATE meta SET value = ? WHERE name = 'trimmed'", (self._trimmed,)
            )
            if marks is None:
                self._delete(first)
            elif not all(marks):
                self._keep_waiting(first, marks)

    def _keep_waiting(self, first: int, marks: bytes) -> None:
        execute = self._database.execute
        data, size = execute("SELECT data, bytes FROM log WHERE first = ?", (first,)).fetchone()
        kept = pack([record for record in unpack(data) if marks[record.sequence - first]])
        self._bytes += len(kept) - size
        execute("UPDATE log SET data = ?, bytes = ? WHERE first = ?", (kept, len(kept), first))

    def oldest(self) -> int:
        return self._trimmed

    def read(self, start: int, limit: int) -> list[Record]:
        start = max(start, self._trimmed)
        found: list[Record] = []
        for (data,) in self._database.execute(_READ, (start,)):
            found += [record for record in unpack(data) if record.sequence >= start]
            if len(found) >= limit:
                break
        return found

    def chunk(self, start: int, end: int) -> Chunk:
        return self._chunks.read(start, end)

    def move(self, name: str, position: int, now: float) -> None:
        over = self._cursors.check(name, now)
        execute = self._database.execute
        execute("BEGIN IMMEDIATE")
        try:
            for other in over:
                execute("DELETE FROM cursors WHERE name = ?", (other,))
            execute("INSERT OR REPLACE INTO cursors VALUES (?, ?, ?)", (name, position, now))
            execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                execute("ROLLBACK")
            raise
        self._cursors.put(name, position, now)

    def close(self) -> None:
        self._chunks.close()
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _make_directory(path: Path) -> None:
    """Make it if it is not there, and the way to it safe: SQLite syncs only what is inside."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    path.mkdir()
    parent = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)
