"""latency: how long messages take until a consumer has them, and until it is done with them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import approx_percentile, array, col, count, explode, lit, when, window

from gateway.record import DELIVERED, SETTLED, TAKEN
from spark.jobs.description import LATENESS, WINDOW, Job

EVENTS = (DELIVERED, TAKEN, SETTLED)
ACCURACY = 1000  # percentiles are right to a thousandth of the rows; the state stays small


def latency(rows: DataFrame) -> DataFrame:
    event = col("event")
    until = (  # what is taken is delivered and settled in one step
        when(event == TAKEN, array(lit("delivered"), lit("settled")))
        .when(event == DELIVERED, array(lit("delivered")))
        .otherwise(array(lit("settled")))
    )
    percentiles = approx_percentile("latency", [0.5, 0.95, 0.99], ACCURACY)
    return (
        rows.where(event.isin(*EVENTS) & col("latency").isNotNull())
        .withWatermark("time", LATENESS)
        .select("time", "protocol", explode(until).alias("until"), "latency")
        .groupBy(window("time", WINDOW), "protocol", "until")
        .agg(count("*").alias("count"), percentiles.alias("percentiles"))
        .select(
            col("window.start").alias("window_start"),
            "protocol",
            "until",
            "count",
            col("percentiles")[0].alias("p50"),
            col("percentiles")[1].alias("p95"),
            col("percentiles")[2].alias("p99"),
        )
    )


JOB = Job(
    name="latency",
    about="seconds until messages are delivered and settled: median, 95th and 99th percentile",
    function=latency,
    events=EVENTS,
    bodies=False,
    keys=("window_start", "protocol", "until"),
    order="window_start",
    seconds=2.0,
)
