"""rates: messages in and out of each address, and their bytes, in windows of five seconds."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import coalesce, col, concat_ws, count_if, lit, window
from pyspark.sql.functions import sum as sum_

from gateway.record import ACCEPTED, DELIVERED, TAKEN
from spark.jobs.description import LATENESS, WINDOW, Job

EVENTS = (ACCEPTED, DELIVERED, TAKEN)


def full_address() -> Column:
    """An address as people write it, `queue:jobs`."""
    return concat_ws(":", col("address_kind"), col("address"))


def rates(rows: DataFrame) -> DataFrame:
    event = col("event")
    return (
        rows.where(event.isin(*EVENTS))
        .withWatermark("time", LATENESS)
        .groupBy(window("time", WINDOW), "protocol", full_address().alias("address"))
        .agg(
            count_if(event == ACCEPTED).alias("accepted"),
            count_if(event != ACCEPTED).alias("delivered"),
            # Only an accepted row has a size here; where none was, nothing came in.
            coalesce(sum_("size"), lit(0)).alias("bytes"),
        )
        .select(
            col("window.start").alias("window_start"),
            "protocol",
            "address",
            "accepted",
            "delivered",
            "bytes",
        )
    )


JOB = Job(
    name="rates",
    about="messages in and out, and bytes, by address in windows of five seconds",
    function=rates,
    events=EVENTS,
    bodies=False,
    keys=("window_start", "protocol", "address"),
    order="window_start",
    seconds=1.0,
)
