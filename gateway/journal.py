"""What makes the broker's records safe: it numbers them, commits them in groups, and tells when.

The reactor's half: records are collected while the writer is busy, then written in one commit, so
that a commit costs the same for one message and for a thousand.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.interfaces import Overloaded
from gateway.record import Record
from gateway.store import Restored, Store

log = Logger()

RETRY = 1.0  # seconds until a full disk is tried again
MEMORY_GROUP = 1024  # records; without disk and without watchers nobody waits for them

Run = Callable[[Callable[[], Any]], "Deferred[Any]"]


at_once: Run = maybeDeferred  # for a store that takes no time


class Journal:
    """Append records; ask `durable()` when they are safe; be told of each when it is."""

    def __init__(self, clock: IReactorTime, store: Store, run: Run) -> None:
        """`run` does a job in the one writer thread and tells its result."""
        self._clock = clock
        self.store = store
        self._run = run
        self._next = 1
        self._pending: list[Record] = []  # not yet given to the writer
        self._barriers: list[Deferred[None]] = []  # who waits for what is pending
        self._writing: Deferred[Any] | None = None
        self._scheduled = False
        self._watchers: dict[Callable[[list[Record]], None], None] = {}
        self._grouped = store.durable  # else records are safe as they come
        self.failing = ""  # why nothing can be written now, or ""
        # The broker's: what to do with records that could not be written, and when all is lost.
        self.on_failure: Callable[[list[Record], str], None] = lambda records, reason: None
        self.on_fatal: Callable[[str], None] = lambda reason: None

    def open(self) -> Restored:
        restored = self.store.open()
        self._next = restored.next_sequence
        return restored

    def append(self, record: Record) -> None:
        """Give the record its number; it will be written."""
        record.sequence = self._next
        self._next += 1
        self._pending.append(record)
        if not self._scheduled and (
            self._grouped or self._watchers or len(self._pending) >= MEMORY_GROUP
        ):
            self._schedule()

    def watch(self, observe: Callable[[list[Record]], None]) -> Callable[[], None]:
        """Show each record that is safe from now on."""
        if not self._grouped:
            self._flush()  # what came before is not for the newcomer
        self._watchers[observe] = None

        def stop() -> None:
            self._watchers.pop(observe, None)

        return stop

    def durable(self) -> Deferred[None] | None:
        """None if all is written; else fires when what has been appended so far is."""
        if not self._grouped or (not self._pending and self._writing is None):
            return None
        barrier: Deferred[None] = Deferred()
        self._barriers.append(barrier)
        if not self._pending:  # all of it is with the writer; the next group may be empty
            self._schedule()
        return barrier

    def _schedule(self) -> None:
        # At the end of the reactor's turn, so that all connections read in it share a commit.
        if not self._scheduled and not self.failing:
            self._scheduled = True
            self._clock.callLater(0, self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._writing is not None:
            return  # `_written` comes back here
        records, self._pending = self._pending, []
        barriers, self._barriers = self._barriers, []
        if not records:
            for barrier in barriers:
                barrier.callback(None)
            return
        self._writing = writing = self._run(lambda: self.store.commit(records))
        writing.addCallbacks(
            lambda _: self._written(records, barriers),
            lambda failure: self._not_written(records, barriers, failure),
        )
        writing.addErrback(lambda failure: log.failure("the journal broke", failure))

    def _written(self, records: list[Record], barriers: list[Deferred[None]]) -> None:
        self._writing = None
        if self.failing:
            log.info("the journal can be written again")
            self.failing = ""
        if self._pending or self._barriers:
            self._flush()  # the writer works on while we tell
        for barrier in barriers:
            barrier.callback(None)
        for observe in [*self._watchers]:
            observe(records)

    def _not_written(
        self, records: list[Record], barriers: list[Deferred[None]], failure: Failure
    ) -> None:
        """Nothing of the group is on disk.  Whoever waits hears it, and new messages are refused
        until a later try succeeds; anything worse than a full disk is the end."""
        self._writing = None
        reason = f"the journal cannot be written: {failure.getErrorMessage()}"
        if not self.failing:
            log.error("{reason}", reason=reason)
        self.failing = reason
        self._pending = records + self._pending
        barriers, self._barriers = barriers + self._barriers, []
        self.on_failure(self._pending, reason)
        for barrier in barriers:
            barrier.errback(Overloaded(reason))
        if _may_pass(failure):
            self._scheduled = True
            self._clock.callLater(RETRY, self._flush)
        else:
            self.on_fatal(reason)

    def close(self) -> Deferred[None]:
        """Write what is left, if it can be written, and close the store."""
        finished: Deferred[None] = Deferred()

        def close_when_idle(_: object = None) -> None:
            if self._writing is not None:
                self._writing.addCallback(close_when_idle)
            elif self._pending and not self.failing:
                self._flush()
                close_when_idle()
            else:
                self.failing = self.failing or "the gateway is shutting down"
                self._run(self.store.close).chainDeferred(finished)

        close_when_idle()
        return finished


def _may_pass(failure: Failure) -> bool:
    """A full disk may be emptied.  After any other error of the disk (a failed fsync, a damaged
    file) we cannot know what is on it, and to go on would be to promise what may not be kept."""
    code = getattr(failure.value, "sqlite_errorcode", None)
    return failure.check(sqlite3.Error) is not None and code == sqlite3.SQLITE_FULL
