"""The journal: numbers, groups, barriers and watchers; and a disk that is full, or broken."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from gateway import journal as journal_module
from gateway.interfaces import Empty, Message, Overloaded, Peer
from gateway.journal import RETRY, Journal, at_once
from gateway.memory import MemoryStore
from gateway.record import ACCEPTED, CONNECTED, DECLARED, DROPPED, TAKEN, Record
from gateway.store import Retention, SqliteStore
from tests.support import DurableMemory, HeldWriter, World

EVERYTHING = 1 << 30
JOBS = "queue:jobs"
SOMEBODY = Peer("test", "ann")


def disk(directory: Path) -> SqliteStore:
    return SqliteStore(directory / "data", "OFF", Retention())


class Bench:
    """A journal on a Clock, whose writer waits for the test."""

    def __init__(self, store: Any = None) -> None:
        self.clock = Clock()
        self.writer = HeldWriter()
        self.store = store or DurableMemory()
        self.journal = Journal(self.clock, self.store, self.writer.run)
        self.journal.open()
        self.told: list[str] = []  # in the order in which it was

    def append(self, *bodies: bytes) -> None:
        for body in bodies:
            self.journal.append(Record(JOBS, body))

    def turn(self) -> None:
        """The reactor's turn ends."""
        self.clock.advance(0)

    def ask(self, name: str) -> None:
        """Ask for a barrier, which must be there, and note when it fires."""
        barrier = self.journal.durable()
        assert barrier is not None
        barrier.addCallbacks(
            lambda _: self.told.append(name), lambda failure: self.told.append(f"no {name}")
        )

    def committed(self) -> list[bytes]:
        return [record.body for record in self.store.read(1, EVERYTHING)]


# Numbers.


def test_sequence_numbers_are_dense_over_restarts(tmp_path: Path) -> None:
    """From 1, whatever the kind, and in every life of the gateway on from the last."""
    for life in range(3):
        world = World(disk(tmp_path))
        world.broker.declare(JOBS, limit=life + 1)
        world.broker.note(CONNECTED, SOMEBODY)
        world.broker.push(Message(JOBS, b"x"))
        world.broker.take(JOBS, SOMEBODY)
        world.clock.advance(0)
        records = world.journal.store.read(1, EVERYTHING)
        assert [record.sequence for record in records] == [*range(1, 4 * life + 5)]
        assert [record.kind for record in records[-4:]] == [DECLARED, CONNECTED, ACCEPTED, TAKEN]
        world.broker.stopService()


# Groups.


def test_what_one_turn_appends_is_one_commit() -> None:
    """Nothing is given to the writer before the end of the reactor's turn."""
    bench = Bench()
    bench.append(b"a", b"b")
    assert bench.writer.jobs == []
    bench.turn()
    assert len(bench.writer.jobs) == 1
    bench.writer.write()
    assert bench.committed() == [b"a", b"b"]


def test_what_is_appended_while_the_writer_is_busy_is_one_commit() -> None:
    """However many turns that takes; and it begins as soon as the writer is free."""
    bench = Bench()
    bench.append(b"a")
    bench.turn()
    for body in (b"b", b"c", b"d"):
        bench.append(body)
        bench.turn()
    assert len(bench.writer.jobs) == 1
    bench.writer.write()
    assert (bench.committed(), len(bench.writer.jobs)) == ([b"a"], 1)
    bench.writer.write()
    assert (bench.committed(), bench.writer.jobs) == ([b"a", b"b", b"c", b"d"], [])
    bench.turn()
    assert bench.writer.jobs == []


# Barriers.


def test_nothing_pending_is_safe_already() -> None:
    """There is no barrier before anything is appended, and none when all of it is committed."""
    bench = Bench()
    assert bench.journal.durable() is None
    bench.append(b"a")
    bench.turn()
    bench.writer.write()
    assert bench.journal.durable() is None


def test_a_barrier_fires_after_the_commit_that_has_its_records() -> None:
    """Not after the one before it, which does not."""
    bench = Bench()
    bench.append(b"a")
    bench.ask("a")
    bench.turn()
    bench.append(b"b")
    bench.ask("b")
    bench.turn()
    assert bench.told == []
    bench.writer.write()
    assert bench.told == ["a"]
    bench.writer.write()
    assert bench.told == ["a", "b"]


def test_barriers_fire_in_the_order_in_which_they_were_asked_for() -> None:
    """Also one that was asked for when its records were with the writer.

    That one used to overtake those before it.
    """
    bench = Bench()
    bench.append(b"a")
    bench.ask("first")
    bench.ask("second")
    bench.turn()
    bench.ask("third, with the writer")
    bench.turn()
    assert bench.told == []
    bench.writer.write()
    assert bench.told == ["first", "second", "third, with the writer"]
    assert bench.writer.jobs == []


def test_a_barrier_for_what_is_with_the_writer_waits_for_no_later_commit() -> None:
    """It used to wait for the next, if anything had been appended since."""
    bench = Bench()
    bench.append(b"a")
    bench.turn()
    bench.ask("a")
    bench.append(b"b")
    bench.ask("b")
    bench.writer.write()
    assert bench.told == ["a"]
    bench.writer.write()
    assert bench.told == ["a", "b"]


def test_a_barrier_may_be_asked_for_when_another_fires() -> None:
    """By then, what was committed is safe, and what came since is not."""
    bench = Bench()
    bench.append(b"a")
    barrier = bench.journal.durable()
    assert barrier is not None

    def fired(_: None) -> None:
        bench.told.append(repr(bench.journal.durable()))
        bench.append(b"b")
        bench.ask("b")

    barrier.addCallback(fired)
    bench.turn()
    bench.writer.write()
    assert bench.told == ["None"]
    bench.turn()
    bench.writer.write()
    assert bench.told == ["None", "b"]


# Watchers.


def test_watchers_see_every_record_once_in_order_when_it_is_safe() -> None:
    """Never before, and a watcher that has stopped sees no more."""
    bench = Bench()
    early: list[bytes] = []
    late: list[bytes] = []
    bench.journal.watch(lambda records: early.extend(record.body for record in records))
    bench.append(b"a")
    bench.turn()
    bench.append(b"b", b"c")
    assert early == []
    bench.writer.write()
    assert early == [b"a"]
    stop = bench.journal.watch(lambda records: late.extend(record.body for record in records))
    bench.writer.write()
    assert (early, late) == ([b"a", b"b", b"c"], [b"b", b"c"])
    stop()
    bench.append(b"d")
    bench.turn()
    bench.writer.write()
    assert (early, late) == ([b"a", b"b", b"c", b"d"], [b"b", b"c"])


def test_a_watcher_that_breaks_keeps_nothing_from_the_others() -> None:
    """Nor from itself, next time, nor from whoever waits."""
    bench = Bench()
    seen: list[bytes] = []

    def break_first(records: list[Record]) -> None:
        seen.append(b"broken")
        raise ZeroDivisionError

    bench.journal.watch(break_first)
    bench.journal.watch(lambda records: seen.extend(record.body for record in records))
    for body in (b"a", b"b"):
        bench.append(body)
        bench.ask(body.decode())
        bench.turn()
        bench.writer.write()
    assert seen == [b"broken", b"a", b"broken", b"b"]
    assert bench.told == ["a", "b"]


# A full disk.


def full_error(directory: Path) -> sqlite3.Error:
    """What SQLite itself says when there is no room."""
    store = disk(directory / "full")
    store.open()
    store._database.execute("PRAGMA max_page_count=1")  # as many as there are, for SQLite
    with pytest.raises(sqlite3.OperationalError) as full:
        store.commit([Record(JOBS, b"x" * 100_000, sequence=1)])
    store.close()
    assert full.value.sqlite_errorcode == sqlite3.SQLITE_FULL
    return full.value


def io_error(tmp_path: Path) -> sqlite3.Error:
    """What SQLite says when the disk does not work, with the code it has then."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    return error


class FullDisk:
    """A Broker on a journal that has some messages, and a disk that the test fills and empties."""

    def __init__(self, directory: Path) -> None:
        self.store = disk(directory)
        self.world = World(self.store)
        self.broker = self.world.broker
        self.answers: list[str] = []
        self.broker.declare(JOBS)
        self.broker.declare("topic:news")
        for body in (b"old 1", b"old 2", b"old 3"):
            self.push(body)
        self.turn()

    def turn(self) -> None:
        self.world.clock.advance(0)

    def push(self, body: bytes) -> None:
        """As a protocol does: accept, and answer when that is safe."""
        name = body[:5].decode()
        self.broker.push(Message(JOBS, body))
        barrier = self.broker.durable()
        assert barrier is not None
        barrier.addCallbacks(
            lambda _: self.answers.append(f"{name} is safe"),
            lambda failure: self.answers.append(
                f"{name} is refused: {failure.check(Overloaded).__name__}"
            ),
        )

    def fill(self) -> None:
        self.store._database.execute("PRAGMA max_page_count=1")

    def empty(self) -> None:
        self.store._database.execute("PRAGMA max_page_count=1000000")

    def depth(self) -> int:
        return self.broker.info(JOBS).depth


BIG = b"x" * 100_000  # more than there is room for in the pages of the file


def test_a_full_disk_refuses_what_waits_for_it_and_takes_it_back(tmp_path: Path) -> None:
    """The answer is Overloaded, and the queue is as it was; what was answered before stays."""
    disk = FullDisk(tmp_path)
    disk.fill()
    disk.push(b"new 1" + BIG)
    disk.push(b"new 2")
    disk.broker.publish(Message("topic:news", b"news", due=disk.broker.now() + 60))
    assert disk.depth() == 5
    disk.turn()
    assert disk.answers[3:] == ["new 1 is refused: Overloaded", "new 2 is refused: Overloaded"]
    assert disk.depth() == 3
    assert disk.broker.retained("topic:news") == []
    assert [disk.broker.take(JOBS).body for _ in range(3)] == [b"old 1", b"old 2", b"old 3"]
    with pytest.raises(Empty):
        disk.broker.take(JOBS)


def test_while_the_disk_is_full_pushes_are_refused_and_takes_go_on(tmp_path: Path) -> None:
    """At once, without a barrier; and a try that fails again changes nothing."""
    disk = FullDisk(tmp_path)
    disk.fill()
    disk.broker.note(CONNECTED, SOMEBODY, detail="x" * 100_000)
    disk.turn()
    for _ in range(3):
        with pytest.raises(Overloaded, match="database or disk is full"):
            disk.push(b"new 1")
        with pytest.raises(Overloaded, match="database or disk is full"):
            disk.broker.publish(Message("topic:news", b"news"))
        with pytest.raises(Overloaded, match="database or disk is full"):
            disk.broker.declare("queue:new")
        disk.broker.take(JOBS)
        disk.world.clock.advance(RETRY)
    assert disk.depth() == 0


def test_when_there_is_room_again_the_next_try_succeeds(tmp_path: Path) -> None:
    """RETRY seconds later, not before: pushes are accepted, watchers see what they missed."""
    disk = FullDisk(tmp_path)
    disk.fill()
    disk.push(b"new 1" + BIG)
    disk.turn()
    disk.broker.take(JOBS)
    disk.empty()
    seen = len(disk.world.records)
    disk.world.clock.advance(RETRY * 0.9)
    with pytest.raises(Overloaded):
        disk.push(b"new 2")
    assert len(disk.world.records) == seen
    disk.world.clock.advance(RETRY * 0.2)
    disk.push(b"new 2")
    disk.turn()
    assert disk.answers[3:] == ["new 1 is refused: Overloaded", "new 2 is safe"]
    assert disk.world.kinds()[seen:] == [DROPPED, TAKEN, ACCEPTED]


def test_a_full_disk_leaves_a_dense_log_and_nothing_that_was_refused(tmp_path: Path) -> None:
    """A restart finds all that was answered, none of what was refused, and no gap."""
    disk = FullDisk(tmp_path)
    for number in range(3):
        disk.fill()
        disk.push(b"bad %d" % number + BIG)
        disk.push(b"bad again")
        disk.turn()
        disk.world.clock.advance(RETRY)  # still full
        disk.empty()
        disk.world.clock.advance(RETRY)
        disk.push(b"good %d" % number)
        disk.turn()
    seen = [record.sequence for record in disk.world.records]
    disk.broker.stopService()
    world = World(SqliteStore(tmp_path / "data", "OFF", Retention()))
    records = world.journal.store.read(1, EVERYTHING)
    assert [record.sequence for record in records] == [*range(1, len(records) + 1)] == seen
    assert [record.body for record in records if record.body] == [
        *(b"old 1", b"old 2", b"old 3", b"good 0", b"good 1", b"good 2")
    ]
    depth = world.broker.info(JOBS).depth
    assert [world.broker.take(JOBS).body for _ in range(depth)] == [
        *(b"old 1", b"old 2", b"old 3", b"good 0", b"good 1", b"good 2")
    ]


def test_what_is_taken_while_the_disk_is_full_does_not_come_back(tmp_path: Path) -> None:
    """Once there has been room for it."""
    disk = FullDisk(tmp_path)
    disk.fill()
    disk.push(b"new 1" + BIG)
    disk.turn()
    assert disk.broker.take(JOBS).body == b"old 1"
    disk.empty()
    disk.world.clock.advance(RETRY)
    disk.broker.stopService()
    world = World(SqliteStore(tmp_path / "data", "OFF", Retention()))
    assert world.broker.info(JOBS).depth == 2


def test_what_came_while_a_write_failed_is_refused_with_it(tmp_path: Path) -> None:
    """All of it: nothing is accepted behind a gap."""
    writer = HeldWriter()
    world = World(DurableMemory(), writer.run)
    world.broker.declare(JOBS)
    world.clock.advance(0)
    writer.write()
    told: list[str] = []
    for body in (b"with the writer", b"pending"):
        world.broker.push(Message(JOBS, body))
        barrier = world.broker.durable()
        assert barrier is not None
        barrier.addErrback(lambda failure: told.append(failure.check(Overloaded).__name__))
        world.clock.advance(0)
    writer.fail(full_error(tmp_path))
    assert told == ["Overloaded", "Overloaded"]
    assert world.broker.info(JOBS).depth == 0


def test_a_full_disk_is_tried_again_once_every_retry(tmp_path: Path) -> None:
    """Not at once, even if a flush was on its way when the write failed, as it used to be."""
    bench = Bench()
    bench.append(b"a")
    bench.turn()
    bench.append(b"b")
    bench.writer.fail(full_error(tmp_path))
    bench.append(b"c")
    bench.turn()
    assert bench.writer.jobs == []
    for _ in range(3):
        bench.clock.advance(RETRY)
        assert len(bench.writer.jobs) == 1
        bench.writer.fail(full_error(tmp_path))
    assert len(bench.clock.getDelayedCalls()) == 1
    bench.clock.advance(RETRY)
    bench.writer.write()
    assert bench.committed() == [b"a", b"b", b"c"]
    assert bench.journal.failing == ""


# A broken disk.


@pytest.mark.parametrize("make_error", [io_error, lambda _: OSError("no such device")])
def test_a_broken_disk_is_the_end_and_is_told_once(tmp_path: Path, make_error: Any) -> None:
    """What is on it cannot be known: whoever waits is refused, and nothing is tried again.

    A flush that was on its way when the write failed used to try, and could succeed.
    """
    bench = Bench()
    reasons: list[str] = []
    bench.journal.on_fatal = reasons.append
    bench.append(b"a")
    bench.ask("a")
    bench.turn()
    bench.append(b"b")
    error = make_error(tmp_path)
    bench.writer.fail(error)
    assert reasons == [f"the journal cannot be written: {error}"]
    assert bench.told == ["no a"]
    bench.append(b"c")
    bench.clock.advance(10 * RETRY)
    assert (bench.writer.jobs, len(reasons)) == ([], 1)
    assert bench.journal.failing == reasons[0]


def test_a_journal_that_somebody_else_has_locked_is_tried_again(tmp_path: Path) -> None:
    """An operator who looks at it with sqlite3 does not stop the gateway."""
    locker = disk(tmp_path)
    locker.open()
    other = sqlite3.connect(tmp_path / "data" / "journal.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    locker._database.execute("PRAGMA busy_timeout=0")
    with pytest.raises(sqlite3.OperationalError) as locked:
        locker.commit([Record(JOBS, b"a", sequence=1)])
    other.close()
    locker.close()
    bench = Bench()
    bench.journal.on_fatal = lambda reason: pytest.fail(reason)
    bench.append(b"a")
    bench.turn()
    bench.writer.fail(locked.value)
    bench.clock.advance(RETRY)
    bench.writer.write()
    assert bench.journal.failing == ""


# The end.


def closed(journal: Journal) -> list[None]:
    done: list[None] = []
    journal.close().addCallback(done.append)
    return done


def test_closing_writes_what_is_pending(tmp_path: Path) -> None:
    """And closes the store only then."""
    bench = Bench(disk(tmp_path))
    bench.append(b"a")
    done = closed(bench.journal)
    assert done == []
    bench.writer.write()
    assert bench.committed() == [b"a"]
    assert done == []
    bench.writer.write()
    assert done == [None]
    store = disk(tmp_path)
    store.open()
    assert [record.body for record in store.read(1, 10)] == [b"a"]
    store.close()


def test_closing_waits_for_the_write_under_way_and_writes_the_rest(tmp_path: Path) -> None:
    """In order; and whoever waits hears of it."""
    bench = Bench(disk(tmp_path))
    bench.append(b"a")
    bench.turn()
    bench.append(b"b")
    bench.ask("b")
    done = closed(bench.journal)
    for _ in range(3):  # a, b, and to close
        assert done == []
        bench.writer.write()
    assert (done, bench.told, bench.writer.jobs) == ([None], ["b"], [])
    assert bench.clock.getDelayedCalls() == []


def test_nothing_is_accepted_while_the_journal_closes() -> None:
    """Else publishers could keep it from ever being done, as they used to."""
    writer = HeldWriter()
    world = World(DurableMemory(), writer.run)
    world.broker.declare(JOBS)
    world.broker.push(Message(JOBS, b"a"))
    world.clock.advance(0)
    done = world.broker.stopService()
    with pytest.raises(Overloaded, match="shutting down"):
        world.broker.push(Message(JOBS, b"b"))
    writer.write()
    with pytest.raises(Overloaded, match="shutting down"):
        world.broker.push(Message(JOBS, b"c"))
    writer.write()
    assert done.called
    with pytest.raises(Overloaded, match="shutting down"):
        world.broker.push(Message(JOBS, b"d"))


def test_what_is_taken_while_the_journal_closes_is_written() -> None:
    """It was handed over, and should not come back."""
    writer = HeldWriter()
    world = World(DurableMemory(), writer.run)
    world.broker.declare(JOBS)
    world.broker.push(Message(JOBS, b"a"))
    world.clock.advance(0)
    done = world.broker.stopService()
    world.broker.take(JOBS)
    writer.write()
    assert not done.called
    writer.write()
    assert world.kinds() == [DECLARED, ACCEPTED, TAKEN]
    writer.write()
    assert done.called


@pytest.mark.parametrize("make_error", [full_error, io_error])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_journal_that_cannot_be_written_can_be_closed(
    tmp_path: Path, make_error: Any, when: str
) -> None:
    """What is pending is lost, nothing is tried again: a retry used to come after the end."""
    bench = Bench()
    bench.append(b"a")
    bench.turn()
    if when == "before":
        bench.writer.fail(make_error(tmp_path))
        done = closed(bench.journal)
    else:
        done = closed(bench.journal)
        bench.writer.fail(make_error(tmp_path))
    bench.writer.write()
    assert (done, bench.committed()) == ([None], [])
    bench.clock.advance(10 * RETRY)
    assert bench.writer.jobs == []


def test_a_retry_that_is_under_way_when_the_journal_closes_counts(tmp_path: Path) -> None:
    """If it succeeds, all that was pending is written; but nothing new is accepted."""
    bench = Bench()
    bench.append(b"a")
    bench.turn()
    bench.writer.fail(full_error(tmp_path))
    bench.clock.advance(RETRY)
    bench.append(b"b")
    done = closed(bench.journal)
    bench.writer.write()
    bench.writer.write()
    bench.writer.write()
    assert (done, bench.committed()) == ([None], [b"a", b"b"])
    assert bench.journal.failing != ""


# Memory.


def test_in_memory_everything_is_safe_at_once() -> None:
    """There is no barrier, watched or not."""
    world = World(MemoryStore())
    world.broker.declare(JOBS)
    for _ in range(3):
        world.broker.push(Message(JOBS, b"x"))
        assert world.broker.durable() is None
        world.clock.advance(0)
        assert world.broker.durable() is None


def test_in_memory_records_are_not_kept_beyond_the_limit() -> None:
    """Neither by the store nor on the way to it, with nobody watching."""
    clock, store = Clock(), MemoryStore(most=100_000)
    journal = Journal(clock, store, at_once)
    journal.open()
    for _ in range(10 * journal_module.MEMORY_GROUP):
        journal.append(Record(JOBS, b"x" * 100))
        clock.advance(0)
        assert len(journal._pending) < journal_module.MEMORY_GROUP
    kept = store.read(store.oldest(), EVERYTHING)
    assert len(kept) == journal_module.MEMORY_GROUP  # one group, which is more than the limit
    assert kept[-1].sequence == 10 * journal_module.MEMORY_GROUP


def test_in_memory_big_bodies_do_not_wait_for_a_group() -> None:
    """A thousand of them would be gigabytes: they used to be kept, taken or not."""
    clock, store = Clock(), MemoryStore(most=10 << 20)
    journal = Journal(clock, store, at_once)
    journal.open()
    for _ in range(50):
        journal.append(Record(JOBS, bytes(1 << 20)))
        clock.advance(0)
        assert journal._pending == []
    assert len(store.read(1, EVERYTHING)) == 9


def test_in_memory_a_watcher_sees_only_what_comes_after_it() -> None:
    """What was pending when it came is not for it, and it sees the rest in order."""
    clock = Clock()
    journal = Journal(clock, MemoryStore(), at_once)
    journal.open()
    journal.append(Record(JOBS, b"before"))
    seen: list[bytes] = []
    journal.watch(lambda records: seen.extend(record.body for record in records))
    journal.append(Record(JOBS, b"a"))
    journal.append(Record(JOBS, b"b"))
    clock.advance(0)
    assert seen == [b"a", b"b"]


def test_a_real_error_of_the_disk_reaches_whoever_waits(tmp_path: Path) -> None:
    """A damaged file is no full disk."""
    store = disk(tmp_path)
    world = World(store)
    reasons: list[str] = []
    world.journal.on_fatal = reasons.append
    store._database.execute("DROP TABLE waiting")
    world.broker.declare(JOBS)
    world.broker.push(Message(JOBS, b"x"))
    barrier: Deferred[None] | None = world.broker.durable()
    assert barrier is not None
    told: list[str] = []
    barrier.addErrback(lambda failure: told.append(str(failure.value)))
    world.clock.advance(0)
    assert told == reasons == ["the journal cannot be written: no such table: main.waiting"]
    world.broker.stopService()
