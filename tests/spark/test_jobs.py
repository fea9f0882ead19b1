"""Tests for the jobs: rows in, tables out, as a stream that ends and goes on, and as a table."""

from __future__ import annotations

import datetime
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from spark.client import Client, place_of
from spark.jobs.busiest import KEPT, Busiest
from spark.jobs.description import find
from spark.jobs.sessions import LONGEST, Event, Session, follow
from spark.results import plain_rows
from spark.run import Plan, Runner
from spark.schema import SCHEMA
from spark.session import read_log
from tests.integration.peers import QlitePeer, gateway
from tests.spark.waiting import wait_for

NOON = datetime.datetime(2027, 1, 15, 12, tzinfo=datetime.UTC)


class Log:
    """Rows of a log in files, which Spark streams: what a clock says, the test says."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        (directory / "log").mkdir()
        self._sequence = 0
        self._files = 0

    def write(self, *rows: dict[str, Any], after: datetime.timedelta | None = None) -> None:
        """One batch; every row is so much after noon, unless it has a time."""
        lines = []
        for row in rows:
            self._sequence += 1
            shown = {"sequence": self._sequence, "time": NOON + (after or datetime.timedelta())}
            shown |= {"protocol": "qlite", "sender": "", "address_kind": "queue", "address": "jobs"}
            lines.append(json.dumps({**shown, **row}, default=lambda at: at.isoformat()))
        self._files += 1
        hidden = self._directory / f".{self._files}"
        hidden.write_text("\n".join(lines))
        hidden.rename(self._directory / "log" / f"{self._files:04}.json")

    def stream(self) -> DataFrame:
        reader = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.json(str(self._directory / "log"))

    def table(self) -> DataFrame:
        return self._spark.read.schema(SCHEMA).json(str(self._directory / "log"))

    def batches(self, name: str) -> list[list[dict[str, Any]]]:
        """What the job gives for each batch that it has not seen yet; it goes on where it was."""
        job, found = find(name), []

        def note(batch: DataFrame, _: int) -> None:
            found.append(plain_rows(job.finish(batch) if job.finish else batch, job))

        writer = job.function(self.stream()).writeStream.outputMode(job.mode).foreachBatch(note)
        writer = writer.option("checkpointLocation", str(self._directory / name))
        writer.trigger(availableNow=True).start().awaitTermination()
        return found

    def shown(self, name: str) -> list[dict[str, Any]]:
        job = find(name)
        return plain_rows(job.table(self.table()), job)


def accepted(sender: str, address: str = "jobs", size: int = 10) -> dict[str, Any]:
    return {"event": "accepted", "sender": sender, "address": address, "size": size}


class TestBusiest:
    @given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), max_size=12))
    def test_counts_are_too_high_by_no_more_than_they_say(self, batches: list[list[str]]) -> None:
        """With three names kept of eight: what is kept is in its bounds, what is not came no more
        often than a fourth of all, and it is the same after a restart."""
        busiest, true = Busiest(3), Counter[str]()
        for batch in batches:
            counted = Counter(batch)
            true += counted
            busiest.add((name, count, 10 * count) for name, count in counted.items())
            busiest = Busiest.load(busiest.dump(), 3)
        kept = {count.name: count for count in busiest.first(9)}
        assert len(kept) <= 3
        for name, count in kept.items():
            assert true[name] <= count.messages <= true[name] + count.over
            assert count.over <= true.total() / 4
            assert count.bytes <= 10 * true[name]
        assert all(true[name] <= true.total() / 4 for name in true if name not in kept)

    def test_as_many_names_as_are_kept_are_exact(self) -> None:
        busiest = Busiest(2)
        busiest.add([("a", 1, 5), ("b", 2, 6)])
        busiest.add([("b", 1, 1), ("a", 3, 3)])
        assert busiest.first(1) == [("a", 4, 8, 0)]
        assert busiest.first(9) == [("a", 4, 8, 0), ("b", 3, 7, 0)]


class TestTop:
    def test_it_counts_over_batches_and_restarts(self, spark: SparkSession, tmp_path: Path) -> None:
        """Each batch with messages gives the whole table, and one without gives nothing."""
        log = Log(spark, tmp_path)
        log.write(accepted("ann", "a"), accepted("ann", "b"), accepted("", "b", 1))
        log.write({"event": "settled"})
        first, *others = log.batches("top")
        assert first == [
            {"what": "address", "name": "queue:a", "messages": 1, "bytes": 10, "over": 0},
            {"what": "address", "name": "queue:b", "messages": 2, "bytes": 11, "over": 0},
            {"what": "sender", "name": "ann", "messages": 2, "bytes": 20, "over": 0},
        ]
        assert not any(others)
        log.write(accepted("", "b"))
        (again,) = filter(None, log.batches("top"))
        assert [(row["name"], row["messages"], row["bytes"]) for row in again] == [
            *(("queue:a", 1, 10), ("queue:b", 3, 21), ("ann", 2, 20))
        ]
        assert again == log.shown("top")

    def test_its_state_is_bounded(self, spark: SparkSession, tmp_path: Path) -> None:
        """More names than are kept, and the busy one among them is still first."""
        log = Log(spark, tmp_path)
        for batch in range(3):
            names = [f"{batch}-{number}" for number in range(KEPT)]
            log.write(*[accepted(name) for name in names], *[accepted("busy")] * 50)
        *_, last = log.batches("top")
        senders = [row for row in last if row["what"] == "sender"]
        first = max(senders, key=lambda row: row["messages"])
        assert (first["name"], first["messages"], first["over"]) == ("busy", 150, 0)
        assert len(senders) == 20


class TestSessions:
    def test_one_whose_address_comes_again_is_lost(self) -> None:
        """The gateway was killed: that it was over by then is all that is known."""
        session, changed = follow(
            None, [Event(1, 10, "connected", ""), Event(2, 20, "logged-in", "ann")]
        )
        assert changed == [Session(10, "ann")]
        session, changed = follow(session, [Event(3, 50, "connected", "")])
        assert changed == [Session(10, "ann", 50, lost=True), Session(50, "")]
        assert [(each.state, each.seconds) for each in changed] == [("lost", None), ("open", None)]
        session, changed = follow(session, [Event(4, 2_000_050, "disconnected", "bob")])
        assert session is None
        assert changed == [Session(50, "bob", 2_000_050)]
        assert (changed[0].state, changed[0].seconds) == ("closed", 2.0)

    def test_one_that_nobody_saw_end_is_given_up_as_lost(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """After a week by the log's own time; it has an end by which it was over, and no length."""
        log = Log(spark, tmp_path)

        def connection(event: str, port: int) -> dict[str, Any]:
            return {"event": event, "headers": json.dumps({"detail": f"127.0.0.1:{port}"})}

        log.write(connection("connected", 1), connection("connected", 2))
        log.write(connection("disconnected", 2), after=datetime.timedelta(seconds=3))
        for days in (8, 9, 10):  # a watermark moves behind a batch
            log.write(connection("connected", 3), after=datetime.timedelta(days=days))
        rows = {
            (row["client"], row["started"]): row
            for batch in log.batches("sessions")
            for row in batch
        }
        start = NOON.timestamp()
        lost, closed = rows["127.0.0.1:1", start], rows["127.0.0.1:2", start]
        assert (lost["state"], lost["seconds"]) == ("lost", None)
        assert lost["ended"] == start + LONGEST / 1e6
        assert (closed["state"], closed["seconds"], closed["ended"]) == ("closed", 3.0, start + 3)
        assert rows["127.0.0.1:3", start + 10 * 86400]["state"] == "open"
        assert {row["state"] for row in log.shown("sessions")} == {"open", "closed", "lost"}


class TestRefusals:
    def test_what_is_different_each_time_makes_no_group_of_its_own(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        log = Log(spark, tmp_path)
        reasons = ["no room for 7", "no room for 12", "no 'a b'", "no 'c'", "x" * 500]
        log.write(*[{"event": "dropped", "reason": reason} for reason in reasons])
        (rows,) = filter(None, log.batches("refusals"))
        assert {(row["reason"], row["count"]) for row in rows} == {
            *(("no room for #", 2), ("no ...", 2), ("x" * 80, 1))
        }

    def test_what_a_real_gateway_refuses_and_drops_is_counted_by_reason(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """A full queue, a wrong password and a message whose time is over, each as often as it
        happened."""
        with gateway(tmp_path, maxMessages=3) as running:
            endpoint = f"tcp:127.0.0.1:{running.replay}"
            publisher = QlitePeer(running.port, "pub")
            for answer in (b"PASS;", b"PASS;", b"PASS;", b"FAIL;"):
                assert publisher.ask(b"PUSH;hello").startswith(answer)
            publisher.close()
            for _ in range(2):
                stranger = QlitePeer(running.port)
                assert stranger.ask(b"\x00pub;" + b"\0" * 32).startswith(b"FAIL;")
                stranger.close()
            with Client(place_of({"endpoint": endpoint})) as client:

                def was_in_time() -> int:
                    soon = time.time() + 0.5
                    return client.publish("", 0, [("queue:short", b"x", soon)], "spark", True)[0]

                wait_for(was_in_time)

            def found() -> dict[tuple[str, str, str], int]:
                job = find("refusals")
                rows = plain_rows(job.table(read_log(spark, endpoint, job)), job)
                return {
                    (row["event"], row["protocol"], row["reason"]): row["count"] for row in rows
                }

            wait_for(lambda: any(event == "expired" for event, _, _ in found()))
            counts = found()
        assert counts == {
            ("refused", "qlite", "QueueFull"): 1,
            ("refused", "qlite", "Denied"): 2,
            ("expired", "spark", "expired"): 1,
        }


def test_the_archive_is_parted_by_the_day_in_utc_and_by_protocol(
    spark: SparkSession, tmp_path: Path
) -> None:
    """To the microsecond; an event of no protocol is in Hive's place for nothing.  What is
    archived is what the log has, and a second run adds nothing."""
    log = Log(spark, tmp_path)
    midnight = NOON + datetime.timedelta(hours=12)
    before = midnight - datetime.timedelta(microseconds=1)
    for at, protocol in ((before, "rq"), (midnight, "rq"), (midnight, "qlite"), (before, "")):
        log.write({"event": "accepted", "time": at, "protocol": protocol})
    plan = Plan(
        [find("archive")], lambda _: log.stream(), tmp_path / "checkpoint", tmp_path / "all", True
    )
    for _ in range(2):
        assert Runner(spark, plan, None).run() == 0
    files = Counter(
        str(path.parent.relative_to(tmp_path / "all"))
        for path in (tmp_path / "all").glob("*/*/*.parquet")
    )
    assert files == {
        "day=2027-01-15/protocol=rq": 1,
        "day=2027-01-16/protocol=rq": 1,
        "day=2027-01-16/protocol=qlite": 1,
        "day=2027-01-15/protocol=__HIVE_DEFAULT_PARTITION__": 1,
    }
    rows = spark.read.parquet(str(tmp_path / "all")).orderBy("sequence").collect()
    wanted = log.table().orderBy("sequence").collect()
    assert [(row.sequence, row.time, row.protocol or "") for row in rows] == [
        (row.sequence, row.time, row.protocol) for row in wanted
    ]
