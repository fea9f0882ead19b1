"""Tests for spark.jobs.rates."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from spark.jobs.rates import JOB
from tests.spark.jobs.rows import Stream, record, results


def test_messages_and_bytes_are_counted_by_window_protocol_and_address(
    spark: SparkSession,
) -> None:
    """A window has its first moment and not its last; other events do not count."""
    assert results(
        JOB,
        spark,
        record("accepted", 0.0, body=b"12345"),
        record("accepted", 4.999, body=b"1"),
        record("delivered", 4.0),
        record("taken", 4.5),
        record("settled", 4.6),
        record("declared", 4.7),
        record("accepted", 5.0, body=b"123"),
        record("accepted", 1.0, protocol="rq", body=b""),
        record("taken", 1.0, address="topic:a:b"),
    ) == [
        (0.0, "qlite", "queue:jobs", 2, 2, 6),
        (0.0, "qlite", "topic:a:b", 0, 1, 0),
        (0.0, "rq", "queue:jobs", 1, 0, 0),
        (5.0, "qlite", "queue:jobs", 1, 0, 3),
    ]


def test_a_window_grows_from_batch_to_batch_until_it_is_too_old(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each batch tells the windows that it changed; what is late by more than half a minute is not
    counted, because its window has been forgotten."""
    stream = Stream(spark, JOB, tmp_path)
    assert stream.give(record("accepted", 1, body=b"1")) == [
        (0.0, "qlite", "queue:jobs", 1, 0, 1),
    ]
    assert stream.give(record("taken", 2), record("accepted", 40, body=b"12")) == [
        (0.0, "qlite", "queue:jobs", 1, 1, 1),
        (40.0, "qlite", "queue:jobs", 1, 0, 2),
    ]
    assert stream.give(record("taken", 3), record("taken", 41)) == [
        (40.0, "qlite", "queue:jobs", 1, 1, 2),
    ]
