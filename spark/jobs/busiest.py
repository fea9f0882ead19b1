"""Counts of the busiest names, in bounded memory.

This is the summary of Misra and Gries, fed with whole batches.  Some names are kept, each with its
count; a name that is not kept may have come `floor` times at most, so a name that is new enters
with that many more than were seen now, and remembers how many that is (`over`).  While there are
no more names than are kept, all counts are exact; then a count is too high by at most
messages / KEPT.  A name that comes a larger part of the time than that is always kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from heapq import nlargest
from typing import NamedTuple

KEPT = 1000  # names; 20 are shown, and counts are right to a thousandth of all messages
LONGEST_NAME = 256  # characters, as much as the gateway shows; it bounds the memory too


class Count(NamedTuple):
    """How often a name came, as far as is known, and by how much that may be too high.

    The bytes are those that came while the name was kept.
    """

    name: str
    messages: int
    bytes: int
    over: int = 0


class Busiest:
    """The names that came most."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._counts: dict[str, Count] = {}
        self._floor = 0  # a name that is not kept came no more often

    def add(self, counts: Iterable[tuple[str, int, int]]) -> None:
        """Names with the messages and bytes of one batch, each name once."""
        known = self._counts
        for name, messages, size in counts:
            before = known.get(name, Count(name, self._floor, 0, self._floor))
            known[name] = before._replace(
                messages=before.messages + messages, bytes=before.bytes + size
            )
        if len(known) > self._kept:
            first = nlargest(self._kept + 1, known.values(), lambda count: count.messages)
            self._floor = first.pop().messages  # what goes came this often at most
            self._counts = {count.name: count for count in first}

    def first(self, most: int) -> list[Count]:
        """Those with most messages; of equals, the names in order."""
        ordered = sorted(self._counts.values(), key=lambda count: (-count.messages, count.name))
        return ordered[:most]

    def dump(self) -> str:
        return json.dumps([self._floor, [*self._counts.values()]])

    @classmethod
    def load(cls, text: str, kept: int = KEPT) -> Busiest:
        made = cls(kept)
        made._floor, counts = json.loads(text)
        made._counts = {count[0]: Count(*count) for count in counts}
        return made
