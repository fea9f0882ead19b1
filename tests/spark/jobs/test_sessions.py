"""Tests for spark.jobs.sessions."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from spark.jobs.sessions import JOB
from tests.spark.jobs.rows import Stream, connection, record, results


def test_what_connected_is_paired_with_what_disconnected(spark: SparkSession) -> None:
    """By protocol and client; the user is who logged in, or who is named at the end; an end
    without a beginning is no session."""
    strange = connection("connected", 3, 1)
    strange.protocol = "rq"
    assert results(
        JOB,
        spark,
        connection("connected", 1, 1),
        connection("logged-in", 2, 1, "pub"),
        connection("connected", 2.5, 2),
        connection("disconnected", 3.5, 1, "pub"),
        connection("disconnected", 3.75, 2, "late"),
        strange,
        connection("disconnected", 4, 9, "sub"),
        record("accepted"),
    ) == [
        ("qlite", "late", "127.0.0.1:2", 2.5, 3.75, 1.25, "closed"),
        ("qlite", "pub", "127.0.0.1:1", 1.0, 3.5, 2.5, "closed"),
        ("rq", "", "127.0.0.1:1", 3.0, None, None, "open"),
    ]


def test_a_session_is_followed_from_batch_to_batch(spark: SparkSession, tmp_path: Path) -> None:
    """It is told when it opens and when it changes, even by a query that was started again; one
    that was never closed is lost when its client comes again."""
    stream = Stream(spark, JOB, tmp_path)
    assert stream.give(connection("connected", 1, 1), connection("connected", 1, 2)) == [
        ("qlite", "", "127.0.0.1:1", 1.0, None, None, "open"),
        ("qlite", "", "127.0.0.1:2", 1.0, None, None, "open"),
    ]
    assert stream.give(connection("logged-in", 2, 1, "pub")) == [
        ("qlite", "pub", "127.0.0.1:1", 1.0, None, None, "open"),
    ]
    assert stream.give(connection("disconnected", 4, 1, "pub"), connection("connected", 5, 1)) == [
        ("qlite", "", "127.0.0.1:1", 5.0, None, None, "open"),
        ("qlite", "pub", "127.0.0.1:1", 1.0, 4.0, 3.0, "closed"),
    ]
    assert stream.give(connection("connected", 9, 1)) == [
        ("qlite", "", "127.0.0.1:1", 5.0, 9.0, None, "lost"),
        ("qlite", "", "127.0.0.1:1", 9.0, None, None, "open"),
    ]
