"""Names that are raw bytes on a wire, as the text that an address of the Broker is made of.

The mapping loses nothing: two names on a wire are two addresses, and `to_raw` gives the bytes back.
What is UTF-8 reads as it is; control characters and all other bytes read as %XX, and a % before
two digits of that kind as %25.
"""

from __future__ import annotations

import re

# Fixed for all time, as addresses are in journals: no table of Unicode that a later Python changes.
_HIDDEN = re.compile("[\0-\x1f\x7f-\x9f\udc80-\udcff]|%(?=[0-9A-F]{2})")
_ESCAPED = re.compile(b"%([0-9A-F]{2})")


def to_name(raw: bytes) -> str:
    """The bytes as printable text."""
    return _HIDDEN.sub(_escape, raw.decode("utf-8", "surrogateescape"))


def to_raw(name: str) -> bytes:
    """The bytes that `to_name` made this text of."""
    return _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), name.encode())


def _escape(found: re.Match[str]) -> str:
    return "".join([f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogateescape")])
