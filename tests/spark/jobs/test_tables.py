"""Tests for the jobs that make one table: latency, top, sizes, refusals."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from gateway.record import KINDS
from spark.jobs.description import BUILT_IN, find
from spark.jobs.latency import JOB as LATENCY
from spark.jobs.refusals import JOB as REFUSALS
from spark.jobs.sizes import JOB as SIZES
from spark.jobs.top import JOB as TOP
from tests.spark.jobs.rows import Stream, record, results


def test_what_is_taken_counts_as_delivered_and_as_settled(spark: SparkSession) -> None:
    """Percentiles are of the latency of the window's rows; one without latency does not count."""
    delivered = [record("delivered", 1, latency=n / 100) for n in range(1, 100)]
    assert results(
        LATENCY,
        spark,
        *delivered,
        record("taken", 2, latency=1.0),
        record("settled", 2, latency=3.0),
        record("settled", 2),
        record("accepted", 2),
        record("taken", 6, protocol="rq", latency=0.25),
    ) == [
        (0.0, "qlite", "delivered", 100, 0.5, 0.95, 0.99),
        (0.0, "qlite", "settled", 2, 1.0, 3.0, 3.0),
        (5.0, "rq", "delivered", 1, 0.25, 0.25, 0.25),
        (5.0, "rq", "settled", 1, 0.25, 0.25, 0.25),
    ]


def test_percentiles_are_of_all_batches_of_a_window(spark: SparkSession, tmp_path: Path) -> None:
    """What a query keeps between batches is enough to go on with."""
    stream = Stream(spark, LATENCY, tmp_path)
    assert stream.give(record("delivered", 1, latency=1.0)) == [
        (0.0, "qlite", "delivered", 1, 1.0, 1.0, 1.0)
    ]
    assert stream.give(
        record("delivered", 2, latency=3.0), record("delivered", 3, latency=2.0)
    ) == [(0.0, "qlite", "delivered", 3, 2.0, 3.0, 3.0)]


def test_the_busiest_senders_and_addresses_are_counted_over_all_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Twenty of each, the busiest; those without a name are not counted as one sender."""
    stream = Stream(spark, TOP, tmp_path)
    many = [record("accepted", sender=f"s{n:02}", body=b"12") for n in range(25)]
    stream.give(*many, record("accepted", sender="s24", address="topic:jobs", body=b"123"))
    found = stream.give(
        record("accepted", sender="s24", body=b"1"),
        record("accepted", sender="", body=b""),
        record("taken", sender="s00", receiver="s01"),
    )
    assert found[:2] == [("address", "queue:jobs", 27, 51, 0), ("address", "topic:jobs", 1, 3, 0)]
    assert found[2:-1] == [("sender", f"s{n:02}", 1, 2, 0) for n in range(19)]
    assert found[-1] == ("sender", "s24", 3, 6, 0)


def test_a_size_is_in_the_first_bucket_that_it_fits_into(spark: SparkSession) -> None:
    sizes = [0, 16, 17, 64, 65, 256, 257, 1024]
    records = [record("accepted", body=bytes(size)) for size in sizes]
    found = results(SIZES, spark, *records, record("replied", body=b"an answer"))
    assert found == [(1024, 2), (16, 2), (256, 2), (64, 2)]


def test_refusals_are_counted_by_event_protocol_and_reason(spark: SparkSession) -> None:
    assert results(
        REFUSALS,
        spark,
        record("refused", reason="login"),
        record("refused", reason="login"),
        record("refused", reason="login", protocol="awcs"),
        record("dropped", reason="queue full"),
        record("expired"),
        record("accepted"),
    ) == [
        ("dropped", "qlite", "queue full", 1),
        ("expired", "qlite", "", 1),
        ("refused", "awcs", "login", 1),
        ("refused", "qlite", "login", 2),
    ]


@pytest.mark.parametrize("job", [TOP, SIZES, REFUSALS], ids=lambda job: job.name)
def test_a_table_without_rows_is_empty(spark: SparkSession, job: object) -> None:
    assert results(job, spark, record("connected")) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [name for name in BUILT_IN if find(name).events])
def test_a_job_asks_for_every_event_that_it_counts(spark: SparkSession, name: str) -> None:
    """What the source leaves out for a job would have changed nothing."""
    job = find(name)
    everything = [record(kind, latency=0.5, headers={"detail": "x"}) for kind in sorted(KINDS)]
    wanted = [each for each in everything if each.kind in job.events]
    assert len(wanted) < len(everything)
    assert results(job, spark, *wanted) == results(job, spark, *everything)
