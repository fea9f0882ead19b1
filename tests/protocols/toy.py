"""A protocol of a few words, for tests of what all protocols share.  It is a wire module."""

from __future__ import annotations

from enum import Enum
from typing import Any

from msgspec import Struct

from protocols.framing import WireError, delimited

State = Enum("State", "NEW OPEN")
LIMIT = 1 << 17
cut = delimited(b"\n")


class Hello(Struct, frozen=True):
    name: bytes


class Say(Struct, frozen=True):
    """Ask the server for something; what, is up to the test."""

    text: bytes


class Heard(Struct, frozen=True):
    text: bytes


START = State.NEW
TABLE = {State.NEW: {Hello: State.OPEN}, State.OPEN: {Say: State.OPEN, Heard: State.OPEN}}
WORDS = {b"hello": Hello, b"say": Say, b"heard": Heard}


def decode_client(state: Any, frame: bytes) -> Any:
    word, _, text = frame.partition(b" ")
    if word not in WORDS:
        raise WireError(f"no word: {frame.decode('latin-1')}")
    return WORDS[word](text)


decode_server = decode_client


def encode(event: Any) -> bytes:
    (text,) = (getattr(event, name) for name in event.__struct_fields__)
    word = type(event).__name__.lower().encode()
    return word + b" " + text + b"\n"
