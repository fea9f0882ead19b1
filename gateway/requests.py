"""What is said between the replay sink and its readers, and nothing that runs.

A frame is its length (4 bytes, most significant first) and a MessagePack array whose first element
says what it is.  The reader asks, the gateway answers; the next request comes after the answer.

    ["hello", 1, token]                        ["ready", 1]     first of all; token "": none
    ["range"]                                  ["range", oldest, end]   [oldest, end) can be read
    ["read", start, end]                       ["rows", end, sizes, data] ... ["done"]
    ["move", cursor, position]                 ["done"]         when that is on disk
    ["publish", query, batch, sender, create]  ["done"], or ["published", 0, 0]: it is in already
    ["messages", [[address, body, due], ...]]  ["done"]         as often as it takes
    ["commit"]                                 ["published", accepted, late]   when it is on disk

`data` is rows of the journal as they lie there, each a list of records as `record.pack` makes it,
of `sizes` bytes; there may be records outside [start, end) at both ends.  What goes wrong is said
in ["error", code, text]: "missing" (rows are trimmed), "ahead" (rows that are not there yet),
"refused" (a batch, for the reason given), "overloaded" (may work later); then the connection is
kept.  After "token" and "wrong" (a request that makes no sense) it is closed.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any

import msgspec

from gateway.publishing import MOST_MESSAGES

VERSION = 1
LATEST = 253_402_300_800.0  # the year 10000: no due time is later, for Spark and Python know none

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Sequence = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Request(msgspec.Struct, array_like=True, tag=str.lower):
    """What a reader may ask."""


class Hello(Request):
    version: int
    token: str = ""


class Range(Request):
    pass


class Read(Request):
    start: Sequence
    end: Sequence


class Move(Request):
    cursor: Name
    position: Sequence


class Publish(Request):
    query: Annotated[str, msgspec.Meta(max_length=200)]
    batch: Sequence
    sender: Name
    create: bool = False


class Messages(Request):
    rows: Annotated[
        list[tuple[Name, bytes, Annotated[float, msgspec.Meta(lt=LATEST)] | None]],
        msgspec.Meta(max_length=MOST_MESSAGES),
    ]


class Commit(Request):
    pass


decode = msgspec.msgpack.Decoder(Hello | Range | Read | Move | Publish | Messages | Commit).decode
_encode = msgspec.msgpack.Encoder().encode


def frame(*content: Any) -> bytes:
    data = _encode(content)
    return struct.pack(">I", len(data)) + data
