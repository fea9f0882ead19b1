"""The escape encoder of DATA, sqlite's of 2004: what it gives has neither a NUL nor a quote.

The first byte is an offset that was taken from all others; of the values that result, 0, 1 and the
quote are written as two bytes.  Nothing here looks at the bytes one by one.
"""

from __future__ import annotations

from collections import Counter

from protocols.framing import WireError

EMPTY = b"x"  # what no bytes at all become
QUOTE = 0x27

_ALL = bytes(range(256)) * 2
_ADDED = [_ALL[k : k + 256] for k in range(256)]  # tables for `translate`: one for each offset
_TAKEN = [_ALL[256 - k : 512 - k] for k in range(256)]
_OFFSETS = [bytes([k]) for k in range(256)]
# An offset, and the three bytes that would have to be escaped with it.
_CANDIDATES = [(k, k, (k + 1) & 255, (k + QUOTE) & 255) for k in range(1, 256) if k != QUOTE]


class Malformed(WireError):
    """No encoder writes these bytes."""


def encode(plain: bytes) -> bytes:
    """With the lowest of the offsets that make it shortest."""
    if 1 not in plain and 2 not in plain and 0x28 not in plain:  # most text: offset 1
        return b"\1" + plain.translate(_TAKEN[1]) if plain else EMPTY
    for offset, zero, one, quote in _CANDIDATES:
        if zero not in plain and one not in plain and quote not in plain:
            return _OFFSETS[offset] + plain.translate(_TAKEN[offset])
    offset = _cheapest(plain)
    shifted = plain.translate(_TAKEN[offset])
    return _OFFSETS[offset] + (
        shifted.replace(b"\1", b"\1\2").replace(b"\0", b"\1\1").replace(b"'", b"\1\3")
    )


def _cheapest(plain: bytes) -> int:
    """The first offset with the fewest escapes."""
    count = Counter(plain)
    return min(_CANDIDATES, key=lambda found: count[found[1]] + count[found[2]] + count[found[3]])[
        0
    ]


def decode(encoded: bytes) -> bytes:
    """Of any encoder, whichever offset it took.  Malformed."""
    if not encoded:
        return b""
    offset = encoded[0]
    if not offset:
        raise Malformed("an offset of 0")
    shifted = encoded[1:]
    if 1 in shifted:
        # A 1 begins a pair unless it ends one, so that pairs of them are found from the left; what
        # is left of the ones then begins another pair, or is wrong.
        shifted = shifted.replace(b"\1\1", b"\0").replace(b"\1\3", b"'")
        if shifted.count(b"\1") != shifted.count(b"\1\2"):
            raise Malformed("an escape that is none")
        shifted = shifted.replace(b"\1\2", b"\1")
    return shifted.translate(_ADDED[offset])
