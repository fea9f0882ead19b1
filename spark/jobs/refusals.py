"""refusals: what was refused, dropped or expired, and why.

Reasons come from a small set, and what is different each time is in the headers.  So that one which
breaks that rule does not make a group for each time, numbers and what is in quotes are left out of
a reason, and the rest of a long one.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, count, regexp_replace, substring

from gateway.record import DROPPED, EXPIRED, REFUSED
from spark.jobs.description import Job

EVENTS = (REFUSED, DROPPED, EXPIRED)
LONGEST_REASON = 80  # characters; ours have fewer than half of that


def short_reason() -> Column:
    reason = regexp_replace(col("reason"), "'[^']*'|\"[^\"]*\"", "...")
    return substring(regexp_replace(reason, "[0-9]+", "#"), 1, LONGEST_REASON)


def refusals(rows: DataFrame) -> DataFrame:
    return (
        rows.where(col("event").isin(*EVENTS))
        .groupBy("event", "protocol", short_reason().alias("reason"))
        .agg(count("*").alias("count"))
    )


JOB = Job(
    name="refusals",
    about="what was refused, dropped or expired, by protocol and reason",
    function=refusals,
    events=EVENTS,
    bodies=False,
    keys=("event", "protocol", "reason"),
    replace=True,
    mode="complete",
)
