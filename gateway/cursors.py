"""Named readers of the log: how far each has read, and what must be kept for it."""

from __future__ import annotations

from gateway.interfaces import Overloaded

MOST_CURSORS = 64  # all are looked at before anything is trimmed; nobody has so many readers
# A reader that stands still may make the log so many times as big as its retention; then the disk
# is worth more than the reader, which is told what it has missed.
MOST_HELD = 2


class Cursors:
    """Positions by name.  One that was not moved for `seconds` holds nothing any more."""

    def __init__(self, seconds: float) -> None:
        """`seconds`: the retention, because nobody was promised to find older rows."""
        self._seconds = seconds
        self._all: dict[str, tuple[int, float]] = {}  # the next sequence to read, and when moved

    def put(self, name: str, position: int, time: float) -> None:
        self._all[name] = position, time

    def check(self, name: str, now: float) -> list[str]:
        """Whether there is room for that name, or Overloaded; those that are no longer live."""
        over = [other for other, (_, time) in self._all.items() if time + self._seconds < now]
        for other in over:
            del self._all[other]
        if name not in self._all and len(self._all) >= MOST_CURSORS:
            raise Overloaded(f"there are {MOST_CURSORS} cursors already")
        return over

    def holds(self, sequence: int, now: float) -> bool:
        """Whether a live cursor has not yet read that sequence."""
        return any(
            position <= sequence and now <= time + self._seconds
            for position, time in self._all.values()
        )
