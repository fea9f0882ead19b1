"""Tests for spark.schema: the line sink, read by Spark's own socket source."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from gateway.record import Record, lines
from spark.schema import DDL, SCHEMA, parse_lines
from tests.integration.peers import QlitePeer, gateway
from tests.spark.waiting import wait_for


def parsed(spark: SparkSession, data: bytes) -> list[Any]:
    values = [(line,) for line in data.decode().splitlines()]
    frame = parse_lines(spark.createDataFrame(values, "value string"))
    assert frame.schema == SCHEMA
    return frame.collect()


def test_a_line_becomes_a_row_of_the_schema(spark: SparkSession) -> None:
    """Times are rounded to the microsecond, the body is bytes again, headers stay JSON."""
    record = Record(
        "queue:a:b", b"\0\xff\n", "bob", "qlite", sequence=7, time=1_800_000_000.654321, due=2e9
    )
    record.headers = {"detail": "127.0.0.1:9", "n": [1]}
    (row,) = parsed(spark, lines([record]))
    assert (row.sequence, row.message, row.size) == (7, 7, 3)
    assert (row.address_kind, row.address, row.body) == ("queue", "a:b", b"\0\xff\n")
    assert row.time.astimezone(datetime.UTC) == datetime.datetime(
        2027, 1, 15, 8, 0, 0, 654321, tzinfo=datetime.UTC
    )
    assert row.due.timestamp() == 2e9
    assert json.loads(row.headers) == record.headers


def test_what_a_record_does_not_have_is_null(spark: SparkSession) -> None:
    """And a line that is no JSON is a row of nulls, not the end of a query."""
    settled, broken = parsed(spark, lines([Record(kind="settled", message=3)]) + b"{no json\n")
    assert (settled.event, settled.message) == ("settled", 3)
    assert [settled[name] for name in ("body", "size", "due", "headers", "latency")] == [None] * 5
    assert {*broken} == {None}


def test_the_ddl_says_what_the_schema_says() -> None:
    assert StructType.fromDDL(DDL) == SCHEMA


def test_the_socket_source_of_spark_reads_the_line_sink(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark connects to a real gateway, and what is pushed from then on becomes rows."""
    with gateway(tmp_path) as running:
        source = spark.readStream.format("socket").option("host", "127.0.0.1")
        rows = parse_lines(source.option("port", running.sink).load())
        query = rows.writeStream.format("memory").queryName("lines_of_the_sink").start()
        try:
            publisher = QlitePeer(running.port, "pub")

            def bodies() -> list[Any]:
                # When Spark has connected nobody is told, so push until something is seen.
                assert publisher.ask(b"PUSH;\0\xff")[:5] == b"PASS;"
                query.processAllAvailable()
                return spark.table("lines_of_the_sink").where("event = 'accepted'").collect()

            found = wait_for(bodies)
            publisher.close()
        finally:
            query.stop()
    assert {(row.address, row.sender, bytes(row.body)) for row in found} == {
        ("qlite", "pub", b"\0\xff")
    }
