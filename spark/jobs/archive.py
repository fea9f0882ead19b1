"""archive: every row of the log as it is, in Parquet files by day and protocol."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, to_date

from spark.jobs.description import Job


def archive(rows: DataFrame) -> DataFrame:
    """The rows and their day, in UTC; one file a batch for each day and protocol."""
    return rows.withColumn("day", to_date(col("time"))).coalesce(1)


JOB = Job(
    name="archive",
    about="every row to Parquet files by day and protocol, exactly once (needs --archive)",
    function=archive,
    mode="append",
    seconds=30.0,  # a batch is a file or more: oftener makes many small ones
    partitions=("day", "protocol"),
)
