"""Packed rows of the log as Arrow, column by column: what a reading task spends its time on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from gateway.record import ACCEPTED, REPLIED, Record, unpack

_BODIES = frozenset([ACCEPTED, REPLIED])
_TIME = pa.timestamp("us", tz="UTC")
_to_json = msgspec.json.Encoder().encode

# What Spark makes of spark.schema.SCHEMA; a batch of another is refused.
ARROW_SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("time", _TIME),
        ("event", pa.string()),
        ("protocol", pa.string()),
        ("address_kind", pa.string()),
        ("address", pa.string()),
        ("sender", pa.string()),
        ("receiver", pa.string()),
        ("message", pa.int64()),
        ("deliveries", pa.int32()),
        ("latency", pa.float64()),
        ("size", pa.int64()),
        ("reason", pa.string()),
        ("due", _TIME),
        ("headers", pa.string()),
        ("body", pa.binary()),
    ]
)


def records_of(rows: Iterable[memoryview], start: int, end: int) -> list[Record]:
    """The records [start, end) of packed rows."""
    records: list[Record] = []
    for row in rows:
        records += unpack(row)
    if records and (records[0].sequence < start or records[-1].sequence >= end):
        records = [record for record in records if start <= record.sequence < end]
    return records


def to_arrow(records: list[Record], with_bodies: bool = True) -> pa.RecordBatch:
    """As gateway.record.row has them."""
    addresses = {address: address.partition(":") for address in {r.address for r in records}}
    parts = [addresses[r.address] for r in records]
    kinds = [r.kind for r in records]
    bodies = pa.array(
        [r.body if kind in _BODIES else None for r, kind in zip(records, kinds, strict=True)],
        pa.binary(),
    )
    columns: list[Any] = [
        pa.array([r.sequence for r in records], pa.int64()),
        _times([r.time for r in records]),
        pa.array(kinds, pa.string()),
        pa.array([r.protocol for r in records], pa.string()),
        pa.array([part[0] for part in parts], pa.string()),
        pa.array([part[2] for part in parts], pa.string()),
        pa.array([r.sender for r in records], pa.string()),
        pa.array([r.receiver for r in records], pa.string()),
        pa.array(
            [r.sequence if r.kind == ACCEPTED else r.message or None for r in records], pa.int64()
        ),
        pa.array([r.deliveries for r in records], pa.int32()),
        pa.array([r.latency for r in records], pa.float64()),
        pc.binary_length(bodies).cast(pa.int64()),
        pa.array([r.reason for r in records], pa.string()),
        _times([r.due for r in records]),
        pa.array(
            [None if r.headers is None else _to_json(r.headers).decode() for r in records],
            pa.string(),
        ),
        bodies if with_bodies else pa.nulls(len(records), pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _times(seconds: list[Any]) -> Any:
    micros = pc.round(pc.multiply(pa.array(seconds, pa.float64()), 1_000_000.0))
    return micros.cast(pa.int64()).cast(_TIME)
