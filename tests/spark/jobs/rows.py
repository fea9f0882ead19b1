"""Rows of the log, made by hand: a test states only what matters to it."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from gateway.record import Record, lines
from spark.jobs.description import Job
from spark.schema import parse_lines

NOON = 1_800_014_400.0  # 2027-01-15 12:00 UTC, where a window of five seconds begins
HOST = "127.0.0.1:"

_sequences = count(1)


def record(kind: str, seconds: float = 0.0, **fields: Any) -> Record:
    """An event so many seconds after noon."""
    fields = {"protocol": "qlite", "address": "queue:jobs", **fields}
    return Record(kind=kind, sequence=next(_sequences), time=NOON + seconds, **fields)


def connection(kind: str, seconds: float, port: int, sender: str = "") -> Record:
    """An event of the client at that port."""
    headers = {"detail": f"{HOST}{port}"}
    return record(kind, seconds, address="", sender=sender, headers=headers)


def frame(spark: SparkSession, *records: Record) -> DataFrame:
    values = [(line,) for line in lines(records).decode().splitlines()]
    return parse_lines(spark.createDataFrame(values, "value string"))


def results(job: Job, spark: SparkSession, *records: Record) -> list[tuple[Any, ...]]:
    """What a job makes of these records, sorted; times are seconds after noon."""
    return sorted(table(job.table(frame(spark, *records))), key=str)


def table(results: DataFrame) -> list[tuple[Any, ...]]:
    times = [field.name for field in results.schema if field.dataType.typeName() == "timestamp"]
    return [
        tuple(
            value.timestamp() - NOON if name in times and value is not None else value
            for name, value in row.asDict().items()
        )
        for row in results.collect()
    ]


class Stream:
    """A job as a streaming query over files: each call of `give` is a batch."""

    def __init__(self, spark: SparkSession, job: Job, place: Path) -> None:
        self._job = job
        self._input = place / "input"
        self._input.mkdir()
        self._batches: list[list[tuple[Any, ...]]] = []
        files = spark.readStream.schema("value string").text(str(self._input))
        self._writer = (
            job.function(parse_lines(files))
            .writeStream.outputMode(job.mode)
            .option("checkpointLocation", str(place / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(self._keep)
        )

    def give(self, *records: Record) -> list[tuple[Any, ...]]:
        """What the job says after these, in a query that goes on from the one before."""
        number = len([*self._input.iterdir()])
        (self._input / f"{number:03}.json").write_bytes(lines(records))
        self._batches = []
        query = self._writer.start()
        query.awaitTermination()
        return sorted([row for batch in self._batches for row in batch], key=str)

    def _keep(self, batch: DataFrame, number: int) -> None:
        finish = self._job.finish or (lambda results: results)
        self._batches.append(table(finish(batch)))
