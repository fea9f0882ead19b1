"""Rows into the gateway's queues, mailboxes and topics, each batch once.

    frame.writeStream.format("mqgateway").option("endpoint", ...).option("checkpointLocation", ...)

Columns: `address` ("queue:jobs", "topic:news", "user:ann"), `body` (binary, or text as UTF-8) and,
if wanted, `due` (a timestamp: the message is worthless from then on; one that is due already is
skipped).  Options, beside those that say where the gateway is (spark/source.py):

| option | |
|---|---|
| create | true: make addresses that are not there; false: the batch fails |
| sender | whose messages they are, as the log has it: spark |
| query, batch | for `frame.write` in a foreachBatch: by these a batch is known if it comes again |

The rows of all tasks go to the driver, and from there in one batch, which the gateway accepts as a
whole: a queue without room for all of it gets nothing, and the query ends with that reason.  A
batch is at most 100000 rows and 64 MiB, of which each row takes 200 bytes beside its body;
`maxRowsPerBatch` where it is read keeps it smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType, TimestampType

from spark.client import Client, Place, is_true, number, place_of

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_QUERY = "sql.streaming.queryId"  # the property of a streaming task that Spark sets
_KNOWN = """host port endpoint tls caFile serverName token tokenFile retrySeconds path create sender
query batch checkpointLocation""".lower().split()

Row = tuple[str, bytes, float | None]


class Writing(NamedTuple):
    """How a query wants to write.  Goes to the tasks, so it is plain values."""

    place: Place
    create: bool
    sender: str
    query: str
    batch: int
    has_due: bool


def writing_of(options: Mapping[str, str], schema: StructType) -> Writing:
    """From the options and columns of a query; ValueError says what is wrong."""
    unknown = [name for name in options if name.lower() not in _KNOWN]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such option of mqgateway")
    types = {field.name: field.dataType for field in schema}
    wanted = {"address": (StringType,), "body": (BinaryType, StringType), "due": (TimestampType,)}
    for name, kinds in wanted.items():
        if name not in types and name != "due":
            raise ValueError(f"there is no column {name}")
        if name in types and not isinstance(types[name], kinds):
            text = " or ".join(kind.typeName() for kind in kinds)
            raise ValueError(f"column {name} must be {text}, not {types[name].simpleString()}")
    others = [name for name in types if name not in wanted]
    if others:
        raise ValueError(f"columns {', '.join(others)}: only address, body and due are written")
    if ("query" in options) != ("batch" in options):
        raise ValueError("query and batch go together")
    return Writing(
        place_of(options),
        is_true(options, "create", False),
        options.get("sender", "spark"),
        options.get("query", ""),
        number(options, "batch", 0, 0),
        "due" in types,
    )


class Staged(WriterCommitMessage):
    """What one task has to publish."""

    def __init__(self, query: str, rows: list[Row]) -> None:
        self.query = query
        self.rows = rows


def stage(writing: Writing, batches: Iterator[RecordBatch]) -> Staged:
    import pyarrow as pa

    rows: list[Row] = []
    for batch in batches:
        addresses = batch.column("address").to_pylist()
        bodies = batch.column("body").cast(pa.binary()).to_pylist()
        due: list[Any] = [None] * len(addresses)
        if writing.has_due:
            micros = batch.column("due").cast(pa.int64()).to_pylist()
            due = [None if each is None else each / 1_000_000 for each in micros]
        if None in addresses or None in bodies:
            raise ValueError("address and body must not be null")
        rows += zip(addresses, bodies, due, strict=True)
    context = TaskContext.get()
    query = context.getLocalProperty(_QUERY) if context is not None else None
    return Staged(query or "", rows)


def publish(writing: Writing, query: str, batch: int, staged: list[Any]) -> None:
    rows = [row for part in staged if part is not None for row in part.rows]
    if rows:
        with Client(writing.place) as client:
            client.publish(query, batch, rows, writing.sender, writing.create)


class StreamWriter(DataSourceStreamArrowWriter):
    """Each micro-batch once, known by the id of its query and its number."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        return stage(self._writing, iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        queries = {part.query for part in messages if part is not None}
        if len(queries) > 1 or "" in queries:
            raise RuntimeError(f"Spark does not say of which query batch {batchId} is")
        for query in queries:
            publish(self._writing, query, batchId, messages)


class BatchWriter(DataSourceArrowWriter):
    """Rows of one `frame.write`; once, if it says of which query and batch they are."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[RecordBatch]) -> Staged:
        return stage(self._writing, iterator)

    def commit(self, messages: list[Any]) -> None:
        publish(self._writing, self._writing.query, self._writing.batch, messages)
