"""The store: what is committed comes back, whole, once and in order; what is over does not."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway import rows as rows_module
from gateway import store as store_module
from gateway.memory import MemoryStore
from gateway.record import (
    ACCEPTED,
    CONNECTED,
    DECLARED,
    DELIVERED,
    DROPPED,
    FINAL,
    RETURNED,
    SETTLED,
    TAKEN,
    Record,
)
from gateway.store import JournalRefused, Restored, Retention, SqliteStore
from tests.support import NOW

EVERYTHING = 1 << 30  # more records than any test has


class Writer:
    """Makes records with dense sequences, a second apart, and commits them."""

    def __init__(self, store: SqliteStore | MemoryStore) -> None:
        self.store = store
        self.restored = store.open()
        self.sequence = self.restored.next_sequence
        self.log: list[Record] = []
        self._group: list[Record] = []

    def add(self, kind: str = ACCEPTED, **fields: Any) -> Record:
        fields.setdefault("address", "queue:jobs")
        fields.setdefault("time", NOW + self.sequence)
        record = Record(kind=kind, sequence=self.sequence, **fields)
        self.sequence += 1
        self._group.append(record)
        return record

    def accept(self, body: bytes = b"body", **fields: Any) -> Record:
        return self.add(body=body, stored=True, **fields)

    def tell(self, kind: str, message: Record, deliveries: int = 0) -> Record:
        return self.add(kind, message=message.sequence, deliveries=deliveries)

    def commit(self) -> None:
        group, self._group = self._group, []
        self.store.commit(group)
        self.log += group

    def read_all(self) -> list[Record]:
        return self.store.read(self.store.oldest(), EVERYTHING)


DAY = Retention()


def make(directory: Path, retention: Retention = DAY) -> SqliteStore:
    return SqliteStore(directory / "data", "OFF", retention)  # power cuts have their own test


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = Writer(make(tmp_path))
    yield writer
    writer.store.close()


def reopen(writer: Writer) -> Restored:
    writer.store.close()
    return writer.store.open()


def restart_with(writer: Writer, retention: Retention) -> None:
    writer.store.close()
    writer.store = make(writer.store._directory.parent, retention)
    writer.store.open()


def rows(store: SqliteStore, query: str) -> list[tuple[Any, ...]]:
    return store._database.execute(query).fetchall()


def waiting(restored: Restored) -> list[tuple[bytes, int]]:
    return [(message.body, deliveries) for message, deliveries in restored.messages]


# What comes back.


def test_every_field_of_a_record_comes_back(writer: Writer) -> None:
    """A record is read and restored as it was committed, field by field."""
    record = writer.add(
        body=bytes(range(256)),
        sender="ann",
        protocol="qlite",
        message=7,
        due=NOW + 60.5,
        deliveries=3,
        latency=0.125,
        reason="übel",
        headers={"detail": "x", "nested": [1, 2.5, None, b"\0", {"a": True}]},
        stored=True,
        receiver="bob",
    )
    plain = Record()
    unset = [name for name in Record.__struct_fields__ if name != "kind"]
    assert [name for name in unset if getattr(record, name) == getattr(plain, name)] == []
    writer.commit()
    restored = reopen(writer)
    assert restored.messages == [(record, 0)]
    assert writer.store.read(1, 1) == [record]


def test_an_empty_journal_begins_with_one(tmp_path: Path) -> None:
    """A new directory, with its parents, is made; nothing is in it and the first sequence is 1."""
    store = make(tmp_path / "a" / "b")
    assert store.open() == Restored(1, {}, [], {})
    assert (store.oldest(), store.read(1, 10)) == (1, [])
    store.close()


def test_messages_come_back_in_order_of_acceptance(writer: Writer) -> None:
    """Whatever commit they were in and however often they were handed out."""
    first = [writer.accept(b"%d" % number) for number in range(3)]
    writer.commit()
    writer.tell(DELIVERED, first[1], 1)
    writer.accept(b"3")
    writer.commit()
    assert waiting(reopen(writer)) == [(b"0", 0), (b"1", 1), (b"2", 0), (b"3", 0)]


@pytest.mark.parametrize("together", [True, False], ids=["in one commit", "in a later commit"])
def test_delivery_counts_outlive_a_crash(writer: Writer, together: bool) -> None:
    """Handed out and not settled: it comes back with its count, returned or not."""
    held, returned = writer.accept(b"held"), writer.accept(b"returned")
    if not together:
        writer.commit()
    writer.tell(DELIVERED, held, 1)
    writer.tell(DELIVERED, returned, 1)
    writer.tell(RETURNED, returned, 1)
    writer.tell(DELIVERED, returned, 2)
    writer.tell(RETURNED, returned, 2)
    writer.commit()
    assert waiting(reopen(writer)) == [(b"held", 1), (b"returned", 2)]


def test_a_delivery_count_is_kept_up_to_254(writer: Writer) -> None:
    """A mark is one byte."""
    message = writer.accept()
    writer.tell(DELIVERED, message, 254)
    writer.commit()
    assert waiting(reopen(writer)) == [(b"body", 254)]
    writer.sequence = 3
    writer.tell(DELIVERED, message, 300)
    writer.commit()
    assert waiting(reopen(writer)) == [(b"body", 254)]


@pytest.mark.parametrize("together", [True, False], ids=["in one commit", "in a later commit"])
@pytest.mark.parametrize("kind", sorted(FINAL))
def test_what_is_over_does_not_come_back(writer: Writer, kind: str, together: bool) -> None:
    """After a FINAL record a message waits no more; its neighbours do."""
    messages = [writer.accept(b"%d" % number) for number in range(3)]
    writer.tell(DELIVERED, messages[1], 1)
    if not together:
        writer.commit()
    writer.tell(kind, messages[1])
    writer.commit()
    assert waiting(reopen(writer)) == [(b"0", 0), (b"2", 0)]


@pytest.mark.parametrize("together", [True, False], ids=["in one commit", "in a later commit"])
def test_what_was_never_stored_does_not_come_back(writer: Writer, together: bool) -> None:
    """A topic's message without a due time is delivered to those present, and that is all.

    A delivery used to mark it as waiting, and a restart retained it for ever.
    """
    writer.accept(b"stored")
    live = writer.add(body=b"live", address="topic:news")
    if not together:
        writer.commit()
    writer.tell(DELIVERED, live, 2)
    writer.commit()
    assert waiting(reopen(writer)) == [(b"stored", 0)]


def test_what_is_about_no_message_in_the_store_changes_nothing(writer: Writer) -> None:
    """Records about messages that are long gone, or about none, are only read again."""
    gone = writer.accept(b"gone")
    writer.tell(TAKEN, gone)
    writer.commit()
    kept = writer.accept(b"kept")
    writer.commit()
    writer.tell(DELIVERED, gone, 1)
    writer.add(DROPPED)
    writer.add(CONNECTED, address="")
    writer.commit()
    assert waiting(reopen(writer)) == [(kept.body, 0)]
    assert writer.read_all() == writer.log


def test_addresses_come_back_in_order_of_declaration(writer: Writer) -> None:
    """With their newest options; to declare again is not to come later."""
    writer.add(DECLARED, address="topic:b", headers={"number": 1, "limit": 5})
    writer.add(DECLARED, address="queue:a", headers={"number": 2})
    writer.commit()
    writer.add(DECLARED, address="topic:b", headers={"number": 1})
    writer.add(DECLARED, address="user:c", headers={"number": 3, "of": ["x", {"y": 1}]})
    writer.commit()
    assert list(reopen(writer).addresses.items()) == [
        ("topic:b", {"number": 1}),
        ("queue:a", {"number": 2}),
        ("user:c", {"number": 3, "of": ["x", {"y": 1}]}),
    ]


def test_the_sequence_goes_on_after_a_restart(writer: Writer) -> None:
    """Also when everything is settled and the log is trimmed."""
    restart_with(writer, Retention(seconds=1))
    for _ in range(5):
        writer.tell(TAKEN, writer.accept())
        writer.commit()
    restored = reopen(writer)
    assert (restored.next_sequence, restored.messages) == (11, [])


# How it lies on disk.


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        ({}, [9]),
        ({"ROW_RECORDS": 4}, [4, 4, 1]),
        ({"ROW_BYTES": 10}, [2, 7]),  # bodies of 5 bytes; what has none fits in
        ({"ROW_BYTES": 1}, [1, 1, 1, 1, 5]),
        ({"ROW_RECORDS": 2, "ROW_BYTES": 1}, [1, 1, 1, 1, 2, 2, 1]),
    ],
)
def test_a_commit_is_divided_into_rows(
    writer: Writer, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], sizes: list[int]
) -> None:
    """Neither longer nor bigger than the limits; what comes back is the same."""
    for name, value in limits.items():
        monkeypatch.setattr(rows_module, name, value)
    messages = [writer.accept(b"body%d" % number) for number in range(4)]
    writer.tell(DELIVERED, messages[0], 1)
    writer.tell(TAKEN, messages[1])
    writer.tell(DELIVERED, messages[2], 1)
    writer.tell(RETURNED, messages[2], 1)
    writer.tell(DELIVERED, messages[2], 2)
    writer.commit()
    assert [count for (count,) in rows(writer.store, "SELECT count FROM log")] == sizes
    assert waiting(reopen(writer)) == [(b"body0", 1), (b"body2", 2), (b"body3", 0)]
    assert writer.read_all() == writer.log


def test_a_body_is_on_disk_once(tmp_path: Path) -> None:
    """In the log; what waits only points at it, and handing out does not write it again."""
    writer = Writer(make(tmp_path))
    message = writer.accept(b"only once on this disk")
    writer.commit()
    writer.tell(DELIVERED, message, 1)
    writer.commit()
    writer.store._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    files = [path.read_bytes() for path in (tmp_path / "data").iterdir()]
    assert sum(content.count(message.body) for content in files) == 1
    writer.store.close()


def test_nobody_else_can_read_the_files(tmp_path: Path) -> None:
    """Whatever the umask, every file in the directory is for the owner alone."""
    before = os.umask(0)
    try:
        writer = Writer(make(tmp_path))
        writer.accept()
        writer.commit()
        modes = {
            path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").iterdir()
        }
        writer.store.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(
        ["lock", "journal.sqlite3", "journal.sqlite3-wal", "journal.sqlite3-shm"], 0o600
    )


def test_the_way_to_a_new_directory_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each directory that had to be made is safe in its parent; SQLite sees to what is inside."""
    synced = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink())
    )
    for _ in range(2):
        store = make(tmp_path / "a")
        store.open()
        store.close()
    assert synced == [tmp_path, tmp_path / "a"]


# Reading and trimming.


def test_reading_begins_anywhere_and_has_no_gaps(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least `limit` records, or all that there are."""
    monkeypatch.setattr(rows_module, "ROW_RECORDS", 3)
    for size in (1, 7, 2, 5):
        for _ in range(size):
            writer.accept()
        writer.commit()
    for start in range(1, 18):
        for limit in (1, 4, EVERYTHING):
            found = writer.store.read(start, limit)
            assert found == writer.log[start - 1 :][: len(found)]
            assert len(found) >= min(limit, 16 - start)


def test_reading_the_end_of_a_long_log_does_not_look_at_its_beginning(writer: Writer) -> None:
    """The row to begin with is found by its key."""
    (plan,) = rows(writer.store, f"EXPLAIN QUERY PLAN {store_module._READ.replace('?', '1')}")[:1]
    assert plan[3].startswith("SEARCH log USING INTEGER PRIMARY KEY")


def test_rows_are_trimmed_by_age_oldest_first(writer: Writer) -> None:
    """As soon as a row's last record is as old as the retention, readers have it no more."""
    restart_with(writer, Retention(seconds=10))
    oldest = []
    for _ in range(15):  # two records, two seconds
        writer.tell(TAKEN, writer.accept())
        writer.commit()
        oldest.append(writer.store.oldest())
        assert writer.read_all() == writer.log[writer.store.oldest() - 1 :]
    assert oldest == [1, 1, 1, 1, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21]


def test_rows_are_trimmed_by_bytes_oldest_first(writer: Writer) -> None:
    """What is left is no more than the retention, and as much of it as fits."""
    restart_with(writer, Retention(bytes=5000))
    for _ in range(20):
        writer.tell(TAKEN, writer.accept(b"x" * 1000))
        writer.commit()
    (total,) = rows(writer.store, "SELECT sum(bytes) FROM log")[0]
    (one,) = rows(writer.store, "SELECT max(bytes) FROM log")[0]
    assert 5000 - one < total <= 5000
    assert writer.read_all() == writer.log[writer.store.oldest() - 1 :]
    assert writer.read_all()[-1] == writer.log[-1]


def test_no_more_rows_are_trimmed_at_a_time_than_a_commit_can_bear(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is for the next commits."""
    monkeypatch.setattr(store_module, "TRIM_ROWS", 3)
    for _ in range(10):
        writer.tell(TAKEN, writer.accept())
        writer.commit()
    restart_with(writer, Retention(seconds=1))
    oldest = []
    for _ in range(5):
        writer.add(CONNECTED, time=NOW + 1000)
        writer.commit()
        oldest.append(writer.store.oldest())
    assert oldest == [7, 13, 19, 21, 21]  # the last is not old, and the newest row stays anyway


def test_the_newest_row_is_never_trimmed(writer: Writer) -> None:
    """However old or big it is: it has the sequence."""
    restart_with(writer, Retention(seconds=0, bytes=0))
    for _ in range(3):
        record = writer.add(CONNECTED)
        writer.commit()
        assert writer.read_all() == [record]
    assert reopen(writer).next_sequence == 4
    assert writer.read_all() == [record]


def test_trimming_keeps_waiting_messages_alone(writer: Writer) -> None:
    """They leave the readers with their row, and the disk when the last of them is settled."""
    messages = [writer.accept(b"%d" % number * 100) for number in range(4)]
    writer.tell(TAKEN, messages[0])
    writer.tell(DELIVERED, messages[2], 1)
    writer.commit()
    restart_with(writer, Retention(bytes=0))
    writer.add(CONNECTED)
    writer.commit()
    assert (writer.store.oldest(), writer.read_all()) == (7, writer.log[6:])
    (data,) = rows(writer.store, "SELECT data FROM log WHERE first = 1")[0]
    assert [message.body for message in store_module.unpack(data)] == [
        message.body for message in messages[1:]
    ]
    assert waiting(reopen(writer)) == [
        (messages[1].body, 0),
        (messages[2].body, 1),
        (messages[3].body, 0),
    ]
    for message in messages[1:]:
        assert rows(writer.store, "SELECT first FROM log WHERE first < 7") == [(1,)]
        writer.tell(SETTLED, message)
        writer.commit()
    assert rows(writer.store, "SELECT first FROM log WHERE first < 7") == []
    assert rows(writer.store, "SELECT * FROM waiting") == []
    assert rows(writer.store, "SELECT sum(bytes) FROM log") == [(writer.store._bytes,)]


def test_a_row_of_waiting_messages_only_is_trimmed_without_being_written_again(
    writer: Writer,
) -> None:
    """A backlog bigger than the retention costs nothing more."""
    for number in range(4):
        writer.accept(b"%d" % number * 100)
    writer.commit()
    restart_with(writer, Retention(bytes=0))
    written: list[str] = []
    writer.store._database.set_trace_callback(written.append)
    writer.add(CONNECTED)
    writer.commit()
    assert writer.store.oldest() == 5
    assert [statement for statement in written if statement.startswith("UPDATE log")] == []
    assert len(reopen(writer).messages) == 4


# When something goes wrong.


def fill_up(store: SqliteStore) -> None:
    """No new page can be added, as on a full disk."""
    (pages,) = rows(store, "PRAGMA page_count")[0]
    (free,) = rows(store, "PRAGMA freelist_count")[0]
    assert free == 0
    store._database.execute(f"PRAGMA max_page_count={pages}")


def make_room(store: SqliteStore) -> None:
    store._database.execute("PRAGMA max_page_count=1000000")


def test_a_full_disk_takes_all_or_nothing(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that fails in the middle leaves everything as it was, and can be repeated."""
    monkeypatch.setattr(rows_module, "ROW_RECORDS", 2)
    message = writer.accept(b"before")
    writer.add(DECLARED, address="queue:a", headers={"number": 1})
    writer.commit()
    before = writer.store._bytes, rows(writer.store, "SELECT * FROM log")
    group = [
        writer.tell(TAKEN, message),
        writer.add(DECLARED, address="queue:b", headers={"number": 2}),
        writer.accept(b"small"),
        writer.accept(b"x" * 100_000),
    ]
    fill_up(writer.store)
    with pytest.raises(sqlite3.OperationalError) as full:
        writer.store.commit(group)
    assert full.value.sqlite_errorcode == sqlite3.SQLITE_FULL
    assert (writer.store._bytes, rows(writer.store, "SELECT * FROM log")) == before
    restored = reopen(writer)
    assert (list(restored.addresses), waiting(restored)) == (["queue:a"], [(b"before", 0)])
    fill_up(writer.store)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        writer.store.commit(group)
    make_room(writer.store)
    writer.commit()
    restored = reopen(writer)
    assert list(restored.addresses) == ["queue:a", "queue:b"]
    assert waiting(restored) == [(b"small", 0), (b"x" * 100_000, 0)]
    assert writer.read_all() == writer.log


def test_a_failed_commit_trims_nothing(writer: Writer) -> None:
    """What it would have trimmed is trimmed by the next that succeeds."""
    for _ in range(4):
        writer.add(CONNECTED)
        writer.commit()
    restart_with(writer, Retention(seconds=100))
    late = writer.add(CONNECTED, time=NOW + 102.5)

    def deny_what_comes_after_trimming(action: int, *_: object) -> int:
        return sqlite3.SQLITE_DENY if writer.store.oldest() == 3 else sqlite3.SQLITE_OK

    writer.store._database.set_authorizer(deny_what_comes_after_trimming)
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        writer.store.commit([late])
    writer.store._database.set_authorizer(None)
    assert (writer.store.oldest(), writer.read_all()) == (1, writer.log)
    writer.commit()
    assert (writer.store.oldest(), writer.read_all()) == (3, writer.log[2:])


def test_a_second_gateway_is_kept_out(tmp_path: Path) -> None:
    """While one has the directory open, another is refused, and the first does not notice."""
    writer = Writer(make(tmp_path))
    with pytest.raises(JournalRefused, match="in use by another mqgateway"):
        make(tmp_path).open()
    writer.accept()
    writer.commit()
    writer.store.close()
    second = make(tmp_path)
    assert len(second.open().messages) == 1
    second.close()


def spoil_version(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version=2")
    database.close()


def spoil_header(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1000)


def spoil_tables(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE waiting")
    database.close()


def spoil_meta(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM meta")
    database.close()


def spoil_marks(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE waiting SET marks = x''")
    database.close()


def spoil_records(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("UPDATE log SET data = x'0102'")
    database.close()


def spoil_pages(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def spoil_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (spoil_version, "written by a newer mqgateway: format 2, not 1"),
        (spoil_header, "file is not a database"),
        (spoil_tables, "no such table"),
        (spoil_meta, "cannot be used"),
        (spoil_marks, "cannot be used"),
        (spoil_records, "cannot be used"),
        (spoil_pages, "malformed"),
        (spoil_file, "unable to open"),
    ],
)
def test_a_journal_that_cannot_be_read_is_refused(tmp_path: Path, spoil: Any, reason: str) -> None:
    """In words that name the file, and without keeping the directory locked."""
    writer = Writer(make(tmp_path))
    writer.accept()
    writer.commit()
    writer.store.close()
    path = tmp_path / "data" / "journal.sqlite3"
    spoil(path)
    store = make(tmp_path)
    for _ in range(2):
        with pytest.raises(JournalRefused, match=reason) as refused:
            store.open()
        assert str(path) in str(refused.value)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """There is a file in its way."""
    (tmp_path / "data").write_text("a file")
    with pytest.raises(JournalRefused, match="File exists"):
        make(tmp_path).open()


# Anything, in any order.


class Model:
    """What the store should have, in the simplest way."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.waiting: dict[int, tuple[Record, int]] = {}
        self.addresses: dict[str, dict[str, Any]] = {}

    def commit(self, records: list[Record]) -> None:
        for record in records:
            self.log.append(record)
            if record.kind == ACCEPTED and record.stored:
                self.waiting[record.sequence] = record, 0
            elif record.kind == DELIVERED and record.message in self.waiting:
                self.waiting[record.message] = self.waiting[record.message][0], record.deliveries
            elif record.kind in FINAL:
                self.waiting.pop(record.message, None)
            elif record.kind == DECLARED:
                self.addresses[record.address] = record.headers or {}

    def restored(self) -> Restored:
        return Restored(len(self.log) + 1, self.addresses, list(self.waiting.values()), {})


WHICH = st.integers(0, 40)  # of the messages so far, counted from the newest
STEPS = st.one_of(
    st.tuples(st.just("accept"), st.integers(0, 30), st.booleans()),
    st.tuples(st.just("accept"), st.integers(0, 30), st.just(True)),
    st.tuples(st.sampled_from([DELIVERED, RETURNED, *sorted(FINAL)]), WHICH, st.integers(1, 9)),
    st.tuples(st.sampled_from([SETTLED, TAKEN]), WHICH, st.just(0)),
    st.tuples(st.just(DECLARED), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.sampled_from(["commit", "commit", "full", "crash", "reopen"])),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(STEPS, min_size=20, max_size=100),
    st.sampled_from([1, 2, 3, 4096]),
    st.sampled_from([1, 40, 1 << 20]),
    st.sampled_from([0, 20, EVERYTHING]),
    st.sampled_from([0, 400, 1500, 1 << 30]),
)
def test_any_history_comes_back(
    steps: list[tuple[Any, ...]],
    row_records: int,
    row_bytes: int,
    seconds: int,
    most: int,
) -> None:
    """However it is divided into commits, rows, full disks, crashes and restarts."""
    limits = {"ROW_RECORDS": row_records, "ROW_BYTES": row_bytes}
    with (
        tempfile.TemporaryDirectory() as base,
        mock.patch.multiple(rows_module, **limits),
        mock.patch.object(store_module, "TRIM_ROWS", 2),
    ):
        directories = (Path(base) / str(number) for number in range(EVERYTHING))
        retention = Retention(seconds, most)
        store = make(next(directories), retention)
        model = Model()
        writer = Writer(store)
        messages: list[Record] = []
        for step, *values in [*steps, ("commit",), ("crash",)]:
            if step == "accept":
                size, stored = values
                messages.append(writer.add(body=b"x" * size, stored=stored))
            elif step == DECLARED:
                writer.add(step, address=f"queue:{values[0]}", headers={"limit": values[1]})
            elif step == "commit" or step == "full":
                commit(store, writer, model, full=step == "full")
            elif step == "crash" or step == "reopen":
                # A copy of an open journal is what a crash leaves; what is pending is gone.
                if step == "crash":
                    directory = next(directories)
                    shutil.copytree(store._directory.parent, directory)
                    store.close()
                    store = make(directory, retention)
                else:
                    store.close()
                writer = Writer(store)
                messages = [message for message in messages if message in model.log]
                assert writer.restored == model.restored()
                assert list(writer.restored.addresses) == list(model.addresses)
                check(store, model)
            elif messages:
                which, deliveries = values
                writer.tell(step, messages[-1 - which % len(messages)], deliveries)
        store.close()


def commit(store: SqliteStore, writer: Writer, model: Model, full: bool) -> None:
    """Commit what the writer has, perhaps on a full disk, where it may stay pending."""
    if not writer._group:
        return
    if full:
        store._database.execute("PRAGMA max_page_count=1")  # as many as there are, for SQLite
    try:
        store.commit(writer._group)
    except sqlite3.OperationalError as error:
        if not full or error.sqlite_errorcode != sqlite3.SQLITE_FULL:
            raise
    else:
        model.commit(writer._group)
        writer._group = []
    make_room(store)
    check(store, model)


def check(store: SqliteStore, model: Model) -> None:
    """The tables agree with each other, and with the model."""
    (total,) = rows(store, "SELECT coalesce(sum(bytes), 0) FROM log")[0]
    (data,) = rows(store, "SELECT coalesce(sum(length(data)), 0) FROM log")[0]
    meta = dict(rows(store, "SELECT name, value FROM meta"))
    oldest = store.oldest()
    assert meta == {"bytes": total, "trimmed": oldest}
    assert store._bytes == total == data
    assert store.read(1, EVERYTHING) == model.log[oldest - 1 :]
    assert not model.log or oldest <= len(model.log)
    kept = rows(store, f"SELECT first FROM log WHERE first < {oldest}")
    assert kept == rows(store, f"SELECT first FROM waiting WHERE first < {oldest}")


# Memory.


def test_memory_keeps_the_newest_of_the_log() -> None:
    """About so many bytes of it, and always the last commit; nothing comes back."""
    writer = Writer(MemoryStore(most=1000))
    assert (writer.store.oldest(), writer.store.read(1, 10)) == (1, [])
    for _ in range(10):
        writer.accept(b"x" * 100)
        writer.commit()
    assert (writer.store.oldest(), writer.read_all()) == (8, writer.log[7:])
    assert writer.store.read(9, 1) == writer.log[8:9]
    assert writer.store.read(1, 1) == writer.log[7:8]
    writer.accept(b"x" * 5000)
    writer.commit()
    assert writer.read_all() == writer.log[10:]
    writer.store.close()
    assert writer.store.open() == Restored(1, {}, [], {})
