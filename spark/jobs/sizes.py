"""sizes: how many messages are how big, in buckets of powers of four."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, count, lit, when

from gateway.record import ACCEPTED
from spark.jobs.description import Job

BOUNDS = [4**power for power in range(2, 17)]  # 16 bytes to 4 GiB, more than a frame can have


def bucket() -> Column:
    """The smallest bound that the size does not exceed."""
    largest = lit(BOUNDS[-1])
    return reduce(
        lambda above, bound: when(col("size") <= bound, lit(bound)).otherwise(above),
        reversed(BOUNDS[:-1]),
        largest,
    )


def sizes(rows: DataFrame) -> DataFrame:
    return (
        rows.where(col("event") == ACCEPTED)
        .groupBy(bucket().alias("bucket"))
        .agg(count("*").alias("messages"))
    )


JOB = Job(
    name="sizes",
    about="messages by size, in buckets of powers of four",
    function=sizes,
    events=(ACCEPTED,),
    bodies=False,
    keys=("bucket",),
    replace=True,
    mode="complete",
    seconds=10.0,
)
