"""The rows of the event log as Spark has them: one schema for both sinks.

The fields are those of `row` in gateway/record.py.  `format("mqgateway")` gives such rows itself.
The line sink gives JSON, which Spark's own socket source reads:

    lines = spark.readStream.format("socket").option("host", ...).option("port", 7000).load()
    rows = parse_lines(lines)

That is live only: what happened while nobody was connected is not shown, and Spark's socket source
cannot go on from a checkpoint.  For anything that must not miss a row there is the replay sink.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, from_json, get_json_object, timestamp_micros, unbase64
from pyspark.sql.functions import round as round_
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

SCHEMA = StructType(
    [
        StructField("sequence", LongType()),
        StructField("time", TimestampType()),
        StructField("event", StringType()),
        StructField("protocol", StringType()),
        StructField("address_kind", StringType()),
        StructField("address", StringType()),
        StructField("sender", StringType()),
        StructField("receiver", StringType()),
        StructField("message", LongType()),
        StructField("deliveries", IntegerType()),
        StructField("latency", DoubleType()),
        StructField("size", LongType()),
        StructField("reason", StringType()),
        StructField("due", TimestampType()),
        StructField("headers", StringType()),
        StructField("body", BinaryType()),
    ]
)
DDL = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in SCHEMA)

# What a line has in place of them: times in unix seconds, the body in base64.  The headers of a
# line are an object, which a schema cannot describe; they are taken out of the text as they are.
_IN_LINES = {"time": DoubleType(), "due": DoubleType(), "body": StringType()}
_LINE = StructType(
    [
        StructField(field.name, _IN_LINES.get(field.name, field.dataType))
        for field in SCHEMA
        if field.name != "headers"
    ]
)


def parse_lines(lines: DataFrame) -> DataFrame:
    """Rows of SCHEMA from lines of the line sink, which are in the column `value`.

    A line that is no JSON becomes a row of nulls.
    """
    columns = {
        "time": _timestamp("time"),
        "due": _timestamp("due"),
        "body": unbase64(col("line.body")),
        "headers": col("headers"),
    }
    parsed = lines.select(
        from_json(col("value"), _LINE).alias("line"),
        get_json_object(col("value"), "$.headers").alias("headers"),
    )
    return parsed.select(
        [columns.get(field.name, col(f"line.{field.name}")).alias(field.name) for field in SCHEMA]
    )


def _timestamp(name: str) -> Column:
    # Rounded, as the replay sink's rows are: a cast alone cuts off, and is a microsecond out.
    return timestamp_micros(round_(col(f"line.{name}") * 1_000_000).cast("long"))
