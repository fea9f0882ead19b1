"""Tests for gateway.cursors: what a reader has not read is kept for it, within bounds."""

from __future__ import annotations

import sqlite3

import pytest

from gateway import cursors
from gateway.store import Retention, SqliteStore
from tests.gateway.replaying import JOBS, Make, Replay, frame, records_in
from tests.support import HeldWriter

LONG = 4000  # seconds, and nobody is promised more than 3600
SMALL = Retention(3600, 10_000)


def take_all(made: Replay) -> None:
    """Nothing waits any more, so that only cursors hold the log."""
    while made.depth(JOBS):
        made.broker.take(JOBS)
    made.turn()


def oldest(made: Replay) -> int:
    """When the log has grown by three rows, and could have been trimmed."""
    for _ in range(3):
        made.push(b"more")
        take_all(made)
    return int(made.connect().asks_one("range")[1])


class TestHolding:
    def test_without_a_cursor_what_is_old_is_trimmed(self, make: Make) -> None:
        made = make()
        made.push(b"a", b"b")
        made.clock.advance(LONG)
        assert oldest(made) > 3

    def test_rows_that_a_cursor_has_not_read_are_kept(self, make: Make) -> None:
        """Also the row in whose middle it stands; when it has moved on, they are trimmed."""
        made = make()
        made.push(b"a", b"b", b"c")  # 2 to 4
        made.push(b"d")
        take_all(made)
        made.clock.advance(LONG / 2)
        reader = made.connect()
        assert reader.asks("move", "mine", 3) == [["done"]]
        made.clock.advance(LONG / 2)
        assert oldest(made) == 2
        assert records_in(reader.asks("read", 3, 5))[1].body == b"b"
        reader.asks("move", "mine", 5)
        assert oldest(made) == 5
        assert reader.asks_one("read", 4, 6)[:2] == ["error", "missing"]

    def test_the_slowest_cursor_counts(self, make: Make) -> None:
        made = make()
        made.push(b"a")
        made.push(b"b")
        take_all(made)
        made.clock.advance(LONG / 2)
        reader = made.connect()
        reader.asks("move", "slow", 2)
        reader.asks("move", "quick", 4)
        made.clock.advance(LONG / 2)
        assert oldest(made) == 2

    def test_it_holds_over_a_restart(self, make: Make) -> None:
        made = make()
        made.push(b"a")
        take_all(made)
        made.clock.advance(LONG / 2)
        made.connect().asks("move", "mine", 2)
        again = make(later=LONG)
        assert oldest(again) == 2
        again.connect().asks("move", "mine", 3)
        assert oldest(again) == 3

    def test_one_that_is_abandoned_holds_nothing(self, make: Make) -> None:
        """That is, not moved for as long as rows are kept at all."""
        made = make()
        made.push(b"a")
        take_all(made)
        made.connect().asks("move", "mine", 2)
        made.clock.advance(LONG)
        assert oldest(made) > 2

    def test_one_that_was_abandoned_while_the_gateway_was_down_holds_nothing(
        self, make: Make
    ) -> None:
        made = make()
        made.push(b"a")
        take_all(made)
        made.connect().asks("move", "mine", 2)
        assert oldest(make(later=LONG)) > 2

    def test_it_may_make_the_log_twice_as_big_and_no_more(self, make: Make) -> None:
        """Then the disk is worth more than the reader, which hears what it has missed."""
        made = make(retention=SMALL)
        reader = made.connect()
        reader.asks("move", "mine", 1)
        for _ in range(15):
            made.push(b"x" * 1000)
            take_all(made)
        assert reader.asks_one("range")[1] == 1
        for _ in range(20):
            made.push(b"x" * 1000)
            take_all(made)
        assert reader.asks_one("range")[1] > 1
        assert reader.asks_one("read", 1, 3)[:2] == ["error", "missing"]

    def test_it_may_move_back(self, make: Make) -> None:
        """A query that goes on from an older checkpoint reads again."""
        made = make()
        made.push(b"a")
        made.push(b"b")
        take_all(made)
        made.clock.advance(LONG / 2)
        reader = made.connect()
        reader.asks("move", "mine", 4)
        reader.asks("move", "mine", 2)
        made.clock.advance(LONG / 2)
        assert oldest(made) == 2


class TestMoving:
    def test_it_is_answered_when_it_is_on_disk(self, make: Make) -> None:
        writer = HeldWriter()
        made = make(run=writer.run)
        writer.write()
        reader = made.connect()
        assert reader.asks("move", "mine", 2) == []
        writer.write()
        assert reader.tells() == [["done"]]

    def test_there_are_so_many_and_no_more(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Those that are there still move; the abandoned make room."""
        monkeypatch.setattr(cursors, "MOST_CURSORS", 2)
        made = make()
        reader = made.connect()
        assert reader.asks("move", "a", 1) == reader.asks("move", "b", 1) == [["done"]]
        full = ["error", "overloaded", "there are 2 cursors already"]
        assert reader.asks("move", "c", 1) == [full]
        assert reader.asks("move", "a", 2) == [["done"]]
        made.clock.advance(LONG)
        assert reader.asks("move", "c", 2) == [["done"]]

    def test_on_a_full_disk_it_is_refused_for_now(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = make()
        reader = made.connect()

        def full(*_: object) -> None:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "move", full)
            text = "the journal cannot be written: database or disk is full"
            assert reader.asks("move", "mine", 1) == [["error", "overloaded", text]]
        assert reader.asks("move", "mine", 1) == [["done"]]

    def test_when_the_gateway_ends_it_is_refused_for_now(self, make: Make) -> None:
        made = make()
        reader = made.connect()
        made.stop()
        reader.says(frame("move", "mine", 1))
        assert reader.tells() == [["error", "overloaded", "the gateway is shutting down"]]
