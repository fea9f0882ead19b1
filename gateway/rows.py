"""Rows of the journal's log: many records to a row, and what they change of earlier rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gateway.record import (
    ACCEPTED,
    DECLARED,
    DELETED,
    DELIVERED,
    FINAL,
    PUBLISHED,
    Record,
    pack,
)

OF_TABLES = frozenset([DECLARED, DELETED, PUBLISHED])  # what has a table of its own

ROW_RECORDS = 4096  # a row's marks are rewritten when one of them changes: keep that small
ROW_BYTES = 1 << 20  # a row is packed and read in one piece: keep that small too


class Row(NamedTuple):
    """A row of the log, ready to be written, and what it changes elsewhere."""

    columns: tuple[int, int, float, int, bytes, bytearray | None]  # in the order of the store's
    size: int  # of the packed records
    older: dict[int, int]  # marks of messages in earlier rows
    of_tables: list[Record]  # what is kept in tables of its own, too

    @property
    def is_plain(self) -> bool:
        return not self.older and not self.of_tables


def rows_of(records: list[Record]) -> list[Row]:
    return [_row_of(chunk) for chunk in _chunks_of(records)]


def _chunks_of(records: list[Record]) -> Iterator[list[Record]]:
    """Divide records into rows that are neither too long nor too big."""
    start = size = 0
    for at, record in enumerate(records):
        if at - start == ROW_RECORDS or (size and size + len(record.body) > ROW_BYTES):
            yield records[start:at]
            start, size = at, 0
        size += len(record.body)
    yield records[start:]


def _row_of(records: list[Record]) -> Row:
    first = records[0].sequence
    marks = bytearray(len(records))
    older: dict[int, int] = {}
    of_tables: list[Record] = []
    for record in records:
        kind = record.kind
        if kind == ACCEPTED:
            if record.stored:
                marks[record.sequence - first] = 1
            continue
        if kind in FINAL:
            mark = 0
        elif kind == DELIVERED:
            mark = min(record.deliveries + 1, 255)
        else:
            if kind in OF_TABLES:
                of_tables.append(record)
            continue
        # A mark that is 0 stays 0: the message was never stored, or is over.
        if record.message < first:
            if older.get(record.message, 1):
                older[record.message] = mark
        elif marks[record.message - first]:
            marks[record.message - first] = mark
    data = pack(records)
    size, waiting = len(data), marks if any(marks) else None
    columns = (first, len(records), records[-1].time, size, data, waiting)
    return Row(columns, size, older, of_tables)
