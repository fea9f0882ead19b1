"""`format("mqgateway")`: the gateway's log as a table that grows, and the way back into its queues.

    spark.readStream.format("mqgateway").option("endpoint", "tcp:127.0.0.1:7001").load()

An offset is {"sequence": n}, the next row to be read.  The same range always has the same rows,
so that a query that goes on from its checkpoint sees each row once, whichever side crashed.

| option | |
|---|---|
| host, port; or endpoint | the replay sink: tcp:host:port or tls:host:port; 127.0.0.1, 7001 |
| startingOffsets | earliest (the default), latest or a sequence; for a query without a checkpoint |
| maxRowsPerBatch | rows of a micro-batch at most, 250000 |
| rowsPerPartition, or partitions | how a range is divided among tasks: 25000 rows each |
| events | only rows of these, such as accepted,replied; what is left out never gets into Spark |
| bodies | true; false: the column body is null, which is cheaper if they are long |
| cursor | a name: rows are kept in the gateway until the query has committed them |
| failOnDataLoss | true: end if rows are missing that the query should have read; false: skip them |
| tls, caFile, serverName | whether to speak TLS, who vouches for the gateway, and its name |
| token, tokenFile | what the gateway has as sink.token, or a file with it |
| retrySeconds | how long a gateway that cannot be reached is tried again, 60 |

spark/writer.py has the options for writing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from gateway.record import KINDS
from spark.client import Client, GatewayError, Place, is_true, number, place_of
from spark.schema import SCHEMA

if TYPE_CHECKING:
    from pyarrow import RecordBatch

ROWS_PER_BATCH = 250_000  # a first batch over a day's log would be too much for a small driver
ROWS_PER_PARTITION = 25_000  # below that, a task costs more to start than to run
LONGEST_CURSOR = 200  # characters, as the gateway has it

_KNOWN = """host port endpoint startingOffsets maxRowsPerBatch rowsPerPartition partitions events
bodies cursor failOnDataLoss tls caFile serverName token tokenFile retrySeconds
path""".lower().split()


class Reading(NamedTuple):
    """How a query wants to read.  Goes to the tasks, so it is plain values."""

    place: Place
    start: str
    most: int
    rows_per_partition: int
    partitions: int  # 0: as many as it takes
    events: frozenset[str]  # none: all of them
    bodies: bool
    cursor: str
    fail: bool


def reading_of(options: Mapping[str, str]) -> Reading:
    """From the options of a query; ValueError says which of them is wrong."""
    unknown = [name for name in options if name.lower() not in _KNOWN]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no such option of mqgateway")
    start = options.get("startingOffsets", "earliest").lower()
    if start not in ("earliest", "latest") and not start.isdecimal():
        raise ValueError(f"startingOffsets must be earliest, latest or a number, not {start!r}")
    if "partitions" in options and "rowsPerPartition" in options:
        raise ValueError("give either partitions or rowsPerPartition")
    events = frozenset(filter(None, options.get("events", "").split(",")))
    strange = sorted(events - KINDS)
    if strange:
        raise ValueError(f"events: {', '.join(strange)} is none of {', '.join(sorted(KINDS))}")
    cursor = options.get("cursor", "")
    if len(cursor) > LONGEST_CURSOR:
        raise ValueError(f"cursor must have at most {LONGEST_CURSOR} characters")
    return Reading(
        place_of(options),
        start,
        number(options, "maxRowsPerBatch", ROWS_PER_BATCH, 1),
        number(options, "rowsPerPartition", ROWS_PER_PARTITION, 1),
        number(options, "partitions", 1, 1) if "partitions" in options else 0,
        events,
        is_true(options, "bodies", True),
        cursor,
        is_true(options, "failOnDataLoss", True),
    )


class Range(InputPartition):
    """The rows [start, end)."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__((start, end))
        self.start = start
        self.end = end


class MqgatewaySource(DataSource):
    """What Spark asks for by the name of mqgateway."""

    @classmethod
    def name(cls) -> str:
        return "mqgateway"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return LogReader(reading_of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return LogStreamReader(reading_of(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark.writer import BatchWriter, writing_of

        if overwrite:
            raise ValueError("messages can only be added: use mode append")
        return BatchWriter(writing_of(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from spark.writer import StreamWriter, writing_of

        if overwrite:
            raise ValueError("messages can only be added: use output mode append or update")
        return StreamWriter(writing_of(self.options, schema))


def divide(start: int, end: int, reading: Reading) -> list[InputPartition]:
    """A range in parts of about the same size."""
    rows = end - start
    if rows <= 0:
        return []
    count = reading.partitions or -(-rows // reading.rows_per_partition)
    count = min(count, rows)
    bounds = [start + rows * at // count for at in range(count + 1)]
    return [Range(low, high) for low, high in pairwise(bounds)]


def first_of(reading: Reading, oldest: int, end: int) -> int:
    """Where a query begins that has no checkpoint."""
    if reading.start == "earliest":
        return oldest
    if reading.start == "latest":
        return end
    return int(reading.start)


def read_range(reading: Reading, part: InputPartition) -> Iterator[RecordBatch]:
    """All rows of a part that are wanted, or an error, with a connection of its own."""
    from spark.arrow import records_of, to_arrow  # where it is read, and not where it is planned

    if not isinstance(part, Range):  # an empty log: Spark asks for one part in any case
        return
    at, end = part.start, part.end
    with Client(reading.place) as client:
        while at < end:
            try:
                for until, rows in client.rows(at, end):
                    records = records_of(rows, at, end)
                    if reading.fail and len(records) != min(until, end) - at:
                        lost = f"rows are missing between {at} and {min(until, end)}"
                        raise GatewayError("missing", f"{reading.place}: {lost}")
                    at = until
                    if reading.events:
                        records = [each for each in records if each.kind in reading.events]
                    yield to_arrow(records, reading.bodies)
            except GatewayError as error:
                if reading.fail or error.code != "missing":
                    raise
                at = max(at, client.range()[0])  # trimmed since the range was planned


class LogReader(DataSourceReader):
    """All of the log that is retained, as a table."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        with Client(self._reading.place) as client:
            oldest, end = client.range()
        start = first_of(self._reading, oldest, end)
        if start < oldest:
            if self._reading.fail:
                raise GatewayError("missing", lost(self._reading.place, start, oldest))
            start = oldest
        return divide(start, end, self._reading)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return read_range(self._reading, partition)


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log as it grows.  On the driver it keeps its connection; a task only ever reads."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._last: int | None = None  # of AvailableNow: where it ends
        self._client = Client(reading.place)

    def __reduce__(self) -> tuple[Any, ...]:
        return LogStreamReader, (self._reading,)  # the driver's state stays there

    def initialOffset(self) -> dict[str, int]:
        start = first_of(self._reading, *self._client.range())
        self._move(start)
        return {"sequence": start}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._reading.most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._client.range()[1]

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        oldest, end = self._client.range()
        at = start["sequence"]
        if at > end:
            if self._reading.fail and self._reading.start != str(at):
                raise GatewayError("missing", ahead(self._reading.place, at, end))
            # Begun in the future; or it is another journal, and is read from its beginning.
            return {"sequence": at if self._reading.start == str(at) else end}
        if at < oldest and self._reading.fail:
            raise GatewayError("missing", lost(self._reading.place, at, oldest))
        if self._last is not None:
            end = max(at, min(end, self._last))
        if isinstance(limit, ReadMaxRows):
            end = min(end, max(at, oldest) + limit.max_rows)
        else:
            assert isinstance(limit, ReadAllAvailable), limit
        return {"sequence": end}

    def reportLatestOffset(self) -> dict[str, int]:
        return {"sequence": self._client.range()[1]}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        low, high = start["sequence"], end["sequence"]
        if not self._reading.fail:
            oldest, newest = self._client.range()
            low = oldest if low > high else max(low, oldest)
            high = min(high, newest)  # a batch was planned, and then the journal was another
        return divide(low, high, self._reading)

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        return read_range(self._reading, partition)

    def commit(self, end: dict[str, int]) -> None:
        self._move(end["sequence"])

    def _move(self, position: int) -> None:
        if self._reading.cursor:
            self._client.move(self._reading.cursor, position)

    def stop(self) -> None:
        self._client.close()


def lost(place: Place, at: int, oldest: int) -> str:
    return (
        f"{place}: the rows {at} to {oldest - 1} are trimmed and were not read; "
        "failOnDataLoss=false goes on without them"
    )


def ahead(place: Place, at: int, end: int) -> str:
    return (
        f"{place}: the log ends at {end - 1}, and this query has read up to {at - 1}: it is "
        "another journal; failOnDataLoss=false reads it from its beginning"
    )
