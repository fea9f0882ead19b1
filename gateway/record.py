"""One row of the event log: its fields, its form on disk and its form as a JSON line.

Everything that reads or writes the log, Spark included, takes the row from here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

# What a record tells, as its `kind`.  About a message:
ACCEPTED = "accepted"  # taken in, with its body; its sequence is the message's identity
DELIVERED = "delivered"  # handed to a consumer that will settle it later
TAKEN = "taken"  # handed over and settled in one step
SETTLED = "settled"  # done: the consumer said so
REPLIED = "replied"  # the consumer's answer, with its body
RETURNED = "returned"  # not settled in time or its consumer left: back at the head
EXPIRED = "expired"  # its time was over before anybody settled it
DROPPED = "dropped"  # given up, for the reason given
# About everything else:
DECLARED = "declared"  # an address came into being or changed; headers are its options
DELETED = "deleted"  # an address is no more
CONNECTED = "connected"
DISCONNECTED = "disconnected"
LOGGED_IN = "logged-in"
PUBLISHED = "published"  # a batch of messages came in whole; headers say whose and which
REFUSED = "refused"  # a login, a connection or a request, for the reason given

KINDS = frozenset(
    [
        *(ACCEPTED, DELIVERED, TAKEN, SETTLED, REPLIED, RETURNED, EXPIRED, DROPPED),
        *(DECLARED, DELETED, CONNECTED, DISCONNECTED, LOGGED_IN, PUBLISHED, REFUSED),
    ]
)
# A message is over, and no longer waits, after one of these.
FINAL = frozenset([TAKEN, SETTLED, EXPIRED, DROPPED])


class Record(msgspec.Struct, array_like=True, gc=False, omit_defaults=True):
    """One broker event.  The order of the fields is the form on disk: add only at the end.

    It is not frozen because the broker stamps `sequence` and `time` when it accepts a message,
    and nobody else changes one.
    """

    address: str = ""
    body: bytes = b""
    sender: str = ""
    protocol: str = ""
    kind: str = ACCEPTED
    sequence: int = 0
    time: float = 0.0
    message: int = 0  # the sequence of the accepted message this is about
    due: float | None = None  # the message is worthless from then on
    deliveries: int = 0  # how often the message has been handed out, this time included
    latency: float | None = None  # seconds since the message was accepted
    reason: str = ""
    headers: dict[str, Any] | None = None  # what a protocol wants to keep beside the body
    stored: bool = False  # waits on disk until a FINAL record names it
    receiver: str = ""  # who was given the message, if that has a name


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Record])
_to_json = msgspec.json.Encoder()


def pack(records: list[Record]) -> bytes:
    """Records as they lie on disk."""
    return _encoder.encode(records)


def unpack(data: bytes | memoryview) -> list[Record]:
    return _decoder.decode(data)


def row(record: Record) -> dict[str, Any]:
    """A record as a reader of the log sees it: flat, with the address split and the size said."""
    kind, _, name = record.address.partition(":")
    has_body = record.kind in (ACCEPTED, REPLIED)
    return {
        "sequence": record.sequence,
        "time": record.time,
        "event": record.kind,
        "protocol": record.protocol,
        "address_kind": kind,
        "address": name,
        "sender": record.sender,
        "receiver": record.receiver,
        "message": record.sequence if record.kind == ACCEPTED else record.message or None,
        "deliveries": record.deliveries,
        "latency": record.latency,
        "size": len(record.body) if has_body else None,
        "reason": record.reason,
        "due": record.due,
        "headers": record.headers,
        "body": record.body if has_body else None,
    }


def lines(records: Iterable[Record]) -> bytes:
    """Records as JSON, one object a line, the body in base64."""
    return b"".join([_to_json.encode(row(record)) + b"\n" for record in records])
