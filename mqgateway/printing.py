"""How messages and events look to a person, to a pipe, and as JSON."""

from __future__ import annotations

import base64
import json
import re
import sys
from datetime import datetime
from typing import Any

# What a terminal would obey instead of show: control characters, and those that turn text round.
_UNSHOWN = re.compile(
    "[\0-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\udc80-\udcff]"
)
PREVIEW = 60  # characters of a body that are shown of an event


def put(data: bytes) -> None:
    """A line on standard output, now: whoever reads it may act on it."""
    sys.stdout.buffer.write(data + b"\n")
    sys.stdout.buffer.flush()


def put_json(**fields: Any) -> None:
    put(json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogateescape"))


def put_body(sender: str, body: bytes, with_sender: bool) -> None:
    """The bytes as they are for a pipe; for a terminal, as text that does it no harm."""
    if sys.stdout.isatty():
        body = printable(body).encode()
        sender = printable(sender.encode())
    put(b"%s\t%s" % (sender.encode(), body) if with_sender else body)


def printable(body: bytes) -> str:
    """Text that can be shown: what cannot reads as \\xNN or \\uNNNN."""
    text = body.decode("utf-8", "surrogateescape")
    return _UNSHOWN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code >= 0xDC80:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code > 0xFF else f"\\x{code:02x}"


def body_fields(body: bytes) -> dict[str, str]:
    """A body in JSON: as text if it is UTF-8, else in base64."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def event_line(row: dict[str, Any]) -> str:
    """One event of the sink, for a person."""
    time = datetime.fromtimestamp(row["time"]).strftime("%H:%M:%S.%f")[:-3]
    address = f"{row['address_kind']}:{row['address']}" if row["address_kind"] else ""
    facts = [
        f"{row['sender'] or '-'} -> {row['receiver']}" if row["receiver"] else row["sender"],
        row["reason"],
        _about(row),
    ]
    told = "  ".join(fact for fact in facts if fact)
    line = f"{time} {row['event']:12} {row['protocol']:8} {address:20} {told}"
    return printable(line.rstrip().encode("utf-8", "surrogateescape"))


def _about(row: dict[str, Any]) -> str:
    if row["body"] is not None:
        body = printable(base64.b64decode(row["body"]))
        shown = body if len(body) <= PREVIEW else body[:PREVIEW] + "..."
        return f"{row['size']} bytes: {shown}" if shown else "empty"
    if row["message"]:
        after = "" if row["latency"] is None else f" after {row['latency'] * 1000:.1f} ms"
        return f"message {row['message']}{after}"
    return str((row["headers"] or {}).get("detail", ""))
