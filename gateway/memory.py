"""Where records lie if nothing is to be on disk: in memory, the newest of them only."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from operator import attrgetter

from gateway.chunks import CHUNK_BYTES, Chunk, Missing
from gateway.cursors import MOST_HELD, Cursors
from gateway.record import Record, pack
from gateway.store import Restored, Retention

RECORD_BYTES = 200  # what a record takes in memory, beside its body
_BODY = attrgetter("body")


def _first(row: tuple[int, list[Record]]) -> int:
    return row[1][0].sequence


class MemoryStore:
    """Nothing on disk; the log is kept in memory, its newest part only."""

    durable = False

    def __init__(self, most: int = 1 << 26) -> None:
        """`most`: about so many bytes."""
        self._most = most
        self._rows: deque[tuple[int, list[Record]]] = deque()  # with their bytes
        self._bytes = 0
        self._cursors = Cursors(Retention().seconds)

    def open(self) -> Restored:
        return Restored(1, {}, [], {})

    def prepare(self, records: list[Record]) -> Callable[[], None]:
        return lambda: self.commit(records)

    def commit(self, records: list[Record]) -> None:
        size = sum(map(len, map(_BODY, records))) + RECORD_BYTES * len(records)
        self._rows.append((size, records))
        self._bytes += size
        while self._bytes > self._most and len(self._rows) > 1:
            oldest = self._rows[0][1][-1].sequence
            if self._bytes <= MOST_HELD * self._most and self._cursors.holds(
                oldest, records[-1].time
            ):
                return
            self._bytes -= self._rows.popleft()[0]

    def oldest(self) -> int:
        return self._rows[0][1][0].sequence if self._rows else 1

    def read(self, start: int, limit: int) -> list[Record]:
        found: list[Record] = []
        for _, records in self._rows:
            if records[-1].sequence >= start and len(found) < limit:
                found += [record for record in records if record.sequence >= start]
        return found

    def chunk(self, start: int, end: int) -> Chunk:
        if start < self.oldest():
            raise Missing(start, self.oldest())
        at = bisect_right(self._rows, start, key=_first) - 1
        packed: list[bytes] = []
        size = 0
        while at < len(self._rows) and size < CHUNK_BYTES and _first(self._rows[at]) < end:
            records = self._rows[at][1]
            packed.append(pack(records))
            size += len(packed[-1])
            at += 1
        return Chunk(records[-1].sequence + 1, [*map(len, packed)], b"".join(packed))

    def move(self, name: str, position: int, now: float) -> None:
        self._cursors.check(name, now)
        self._cursors.put(name, position, now)

    def close(self) -> None:
        pass
