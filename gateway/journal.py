"""What makes the broker's records safe: it numbers them, commits them in groups, and tells when.

The reactor's half: records are collected while the writer is busy, then written in one commit, so
that a commit costs the same for one message and for a thousand.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.interfaces import Overloaded, Run
from gateway.record import Record
from gateway.store import Restored, Store

log = Logger()

RETRY = 1.0  # seconds until a full disk is tried again
MEMORY_GROUP = 1024  # records; without disk and without watchers nobody waits for them
MEMORY_BODY = 1 << 16  # bytes; one as big as that does not wait for a group, which may be long
CLOSING = "the gateway is shutting down"

at_once: Run = maybeDeferred  # for a store that takes no time


class Journal:
    """Append records; ask `durable()` when they are safe; be told of each when it is."""

    def __init__(self, clock: IReactorTime, store: Store, run: Run) -> None:
        """`run` does a job in the one writer thread and tells its result."""
        self._clock = clock
        self.store = store
        self._run = run
        self._next = 1
        self.newest = 0  # the last sequence that is safe
        self.published: dict[str, int] = {}  # by query, its last batch that was taken in
        self._pending: list[Record] = []  # not yet given to the writer
        self._barriers: list[Deferred[None]] = []  # who waits for what is pending
        self._writing: Deferred[Any] | None = None
        self._told_next: list[Deferred[None]] = []  # who waits for what is being written
        self._timer: IDelayedCall | None = None  # for the next flush; never while writing
        self._closing = False
        self._watchers: dict[Callable[[list[Record]], None], None] = {}
        self._grouped = store.durable  # else records are safe as they come
        self._prompt = store.durable  # somebody waits for records to be written, or watches
        self.failing = ""  # why nothing can be written now, or ""
        # The broker's: what to do with records that could not be written, and when all is lost.
        self.on_failure: Callable[[list[Record], str], None] = lambda records, reason: None
        self.on_fatal: Callable[[str], None] = lambda reason: None

    def open(self) -> Restored:
        restored = self.store.open()
        self._next = restored.next_sequence
        self.newest = self._next - 1
        self.published = restored.published
        return restored

    def append(self, record: Record) -> None:
        """Give the record its number; it will be written."""
        record.sequence = self._next
        self._next += 1
        self._pending.append(record)
        if self._timer is None and (
            self._prompt or len(self._pending) >= MEMORY_GROUP or len(record.body) >= MEMORY_BODY
        ):
            self._flush_soon()

    def _flush_soon(self) -> None:
        # At the end of the reactor's turn, so that all connections read in it share a commit.
        if self._writing is None and not self.failing:  # else `_written` sees to it
            self._timer = self._clock.callLater(0, self._flush)

    def watch(self, observe: Callable[[list[Record]], None]) -> Callable[[], None]:
        """Show each record that is safe from now on."""
        if not self._grouped:
            self._flush()  # what came before is not for the newcomer
        self._watchers[observe] = None
        self._prompt = True

        def stop() -> None:
            self._watchers.pop(observe, None)
            self._prompt = self._grouped or bool(self._watchers)

        return stop

    def durable(self) -> Deferred[None] | None:
        """None if all is written; else fires when what has been appended so far is."""
        if not self._grouped or (not self._pending and self._writing is None):
            return None
        barrier: Deferred[None] = Deferred()
        (self._barriers if self._pending else self._told_next).append(barrier)
        return barrier

    def range(self) -> tuple[int, int]:
        """The first sequence that can be read, and the one behind the last."""
        if not self._grouped:
            self._flush()
        return self.store.oldest(), self.newest + 1

    def move(self, name: str, position: int) -> Deferred[Any]:
        """Remember how far a reader has read; fires when that is safe, or fails Overloaded."""
        if self.failing:
            return fail(Overloaded(self.failing))
        now = self._clock.seconds()

        def not_moved(failure: Failure) -> Failure:
            return Failure(Overloaded(_reason(failure))) if _may_pass(failure) else failure

        return self._run(lambda: self.store.move(name, position, now)).addErrback(not_moved)

    def _flush(self) -> None:
        """Give what is pending to the writer, unless it is busy."""
        self._stop_timer()
        if self._writing is not None or not self._pending:
            return
        records, self._pending = self._pending, []
        self._told_next, self._barriers = self._barriers, []
        self._writing = writing = self._run(self.store.prepare(records))
        writing.addCallbacks(
            lambda _: self._written(records), lambda failure: self._not_written(records, failure)
        )
        writing.addErrback(lambda failure: log.failure("the journal broke", failure))

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _written(self, records: list[Record]) -> None:
        self._writing = None
        self.newest = records[-1].sequence
        barriers, self._told_next = self._told_next, []
        if self.failing and not self._closing:
            log.info("the journal can be written again")
            self.failing = ""
        self._flush()  # the writer works on while we tell
        for barrier in barriers:
            barrier.callback(None)
        for observe in [*self._watchers]:
            try:
                observe(records)
            except Exception:  # theirs, and no reason to stop
                log.failure("a watcher of the journal broke")

    def _not_written(self, records: list[Record], failure: Failure) -> None:
        """Nothing of the group is on disk.  Whoever waits hears it, and new messages are refused
        until a later try succeeds; anything worse than a full disk is the end."""
        self._writing = None
        reason = _reason(failure)
        if self.failing in ("", CLOSING):
            log.error("{reason}", reason=reason)
        self.failing = reason
        self._pending = records + self._pending
        barriers = self._told_next + self._barriers
        self._told_next, self._barriers = [], []
        self.on_failure(self._pending, reason)
        for barrier in barriers:
            barrier.errback(Overloaded(reason))
        if not _may_pass(failure):
            self.on_fatal(reason)
        elif not self._closing:
            self._timer = self._clock.callLater(RETRY, self._flush)

    def close(self) -> Deferred[None]:
        """Accept no more, write what is left, if it can be written, and close the store."""
        finished: Deferred[None] = Deferred()
        self._closing = True
        self._stop_timer()
        self.failing = self.failing or CLOSING

        def close_when_idle(_: object = None) -> None:
            if self._writing is not None:
                self._writing.addCallback(close_when_idle)
            elif self._pending and self.failing == CLOSING:
                self._flush()
                close_when_idle()
            else:
                self._run(self.store.close).chainDeferred(finished)

        close_when_idle()
        return finished


def _reason(failure: Failure) -> str:
    return f"the journal cannot be written: {failure.getErrorMessage()}"


def _may_pass(failure: Failure) -> bool:
    """A full disk may be emptied, a lock let go of.  After any other error (a failed fsync, a
    damaged file) we cannot know what is on the disk, and to go on would be to promise what may not
    be kept."""
    code = getattr(failure.value, "sqlite_errorcode", None)
    return failure.check(sqlite3.Error) is not None and code in _PASSING


_PASSING = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)
