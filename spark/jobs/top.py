"""top: who sends most, and what address is sent most, since the checkpoint begins.

A stream keeps the counts of the thousand busiest of each (spark/jobs/busiest.py), so that its state
stays small however many names there are.  Up to a thousand all is exact.  With more, a count may be
too high, by no more than the column `over` says, and bytes are those since the name was last new.
Over rows that do not stream all is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import array, col, count, explode, lit, row_number, struct, substring
from pyspark.sql.functions import sum as sum_
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from gateway.record import ACCEPTED
from spark.jobs.busiest import LONGEST_NAME, Busiest
from spark.jobs.description import Job
from spark.jobs.rates import full_address

MOST = 20  # of each: what a person reads
KINDS = ("sender", "address")
RESULT = "what string, name string, messages long, bytes long, over long"
STATE = "sender string, address string"


def top(rows: DataFrame) -> DataFrame:
    """The busiest; of rows that do not stream all of them, of which `first` keeps some."""
    accepted = rows.where(col("event") == ACCEPTED).select(
        col("sender"), full_address().alias("address"), "size"
    )
    names = [substring(col(kind), 1, LONGEST_NAME).alias(kind) for kind in KINDS]
    accepted = accepted.select(*names, "size")
    if not rows.isStreaming:
        return _count_all(accepted)
    # One group, so that each batch gives the whole table.
    grouped = accepted.withColumn("all", lit(0)).groupBy("all")
    return grouped.applyInPandasWithState(
        _count_stream, RESULT, STATE, "update", GroupStateTimeout.NoTimeout
    )


def _count_all(accepted: DataFrame) -> DataFrame:
    kinds = [struct(lit(kind).alias("what"), col(kind).alias("name")) for kind in KINDS]
    return (
        accepted.select(explode(array(*kinds)).alias("one"), "size")
        .where(col("one.name") != "")  # who did not log in has no name
        .groupBy(col("one.what").alias("what"), col("one.name").alias("name"))
        .agg(count("*").alias("messages"), sum_("size").alias("bytes"))
        .withColumn("over", lit(0).cast("long"))
    )


def _count_stream(
    _: Any, frames: Iterator[pandas.DataFrame], state: GroupState
) -> Iterator[pandas.DataFrame]:
    before: tuple[str, ...] = state.get if state.exists else ()
    busiest = [Busiest.load(text) for text in before] or [Busiest() for _ in KINDS]
    for frame in frames:
        for kind, kept in zip(KINDS, busiest, strict=True):
            kept.add(_sums(frame, kind))
    state.update(tuple(each.dump() for each in busiest))
    found = [
        (kind, *each)
        for kind, kept in zip(KINDS, busiest, strict=True)
        for each in kept.first(MOST)
    ]
    yield pandas.DataFrame(found, columns=["what", "name", "messages", "bytes", "over"])


def _sums(frame: pandas.DataFrame, kind: str) -> Iterator[tuple[str, int, int]]:
    """Messages and bytes by name; who did not log in has none."""
    sums = frame[frame[kind] != ""].groupby(kind)["size"].agg(["size", "sum"])
    for name, messages, size in sums.itertuples():
        yield name, int(messages), int(size)


def first(counts: DataFrame) -> DataFrame:
    best = Window.partitionBy("what").orderBy(col("messages").desc(), col("name"))
    ranked = counts.withColumn("rank", row_number().over(best))
    return ranked.where(col("rank") <= MOST).drop("rank")


JOB = Job(
    name="top",
    about=f"the {MOST} busiest senders and addresses",
    function=top,
    events=(ACCEPTED,),
    bodies=False,
    finish=first,
    keys=("what", "name"),
    replace=True,
)
