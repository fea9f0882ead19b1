"""The qlite wire format: bytes to events and back, and nothing else."""

from __future__ import annotations

import re
from enum import Enum
from struct import Struct as Layout

from msgspec import Struct

from protocols.framing import WireError, length_prefixed

State = Enum(
    "State",
    "GREETING LOGIN PUBLISHER_LOGIN SUBSCRIBER_LOGIN PUBLISHER SUBSCRIBER CLOSED",
)
S = State
# To look up a member of an Enum takes 0.08 us, as much as to make an event: for the hot path.
PUBLISHER, SUBSCRIBER = S.PUBLISHER, S.SUBSCRIBER

LIMIT = 4 + 10 * 1024 * 1024
TOO_LONG = "error: message is longer than limit of 10 megabytes"

cut = length_prefixed("<I")


class BadLogin(WireError):
    """A login that cannot be one; the text is for the client."""


class BadRequest(WireError):
    """A request that cannot be one; the text is for the client."""


class Greeting(Struct, frozen=True, gc=False):
    challenge: bytes


class PublisherLogin(Struct, frozen=True, gc=False):
    name: bytes
    proof: bytes

    def __repr__(self) -> str:
        return f"PublisherLogin({self.name!r}, ...)"


class SubscriberLogin(Struct, frozen=True, gc=False):
    name: bytes
    proof: bytes

    def __repr__(self) -> str:
        return f"SubscriberLogin({self.name!r}, ...)"


class Push(Struct, frozen=True, gc=False):
    body: bytes


class ShortPop(Struct, frozen=True, gc=False):
    pass


class LongPop(Struct, frozen=True, gc=False):
    pass


class Length(Struct, frozen=True, gc=False):
    pass


class Hide(Struct, frozen=True, gc=False):
    seconds: int


class Poll(Struct, frozen=True, gc=False):
    seconds: int


class Delete(Struct, frozen=True, gc=False):
    uid: bytes


class Pass(Struct, frozen=True, gc=False):
    value: bytes = b""


class Fail(Struct, frozen=True, gc=False):
    text: str


_ANSWERS = [Pass, Fail]
START = S.GREETING
TABLE: dict[State, dict[type, State]] = {
    S.GREETING: {Greeting: S.LOGIN, Fail: S.CLOSED},
    S.LOGIN: {
        PublisherLogin: S.PUBLISHER_LOGIN,
        SubscriberLogin: S.SUBSCRIBER_LOGIN,
        Fail: S.CLOSED,
    },
    S.PUBLISHER_LOGIN: {Pass: S.PUBLISHER, Fail: S.CLOSED},
    S.SUBSCRIBER_LOGIN: {Pass: S.SUBSCRIBER, Fail: S.CLOSED},
    S.PUBLISHER: dict.fromkeys([Push, Length, *_ANSWERS], S.PUBLISHER),
    S.SUBSCRIBER: dict.fromkeys(
        [ShortPop, LongPop, Length, Hide, Poll, Delete, *_ANSWERS], S.SUBSCRIBER
    ),
}

_ROLES: dict[int, type[PublisherLogin | SubscriberLogin]] = {0: PublisherLogin, 1: SubscriberLogin}
_OPTIONS = "PUSH, LPOP, SPOP and LEN"
_SHORT_POP, _LONG_POP, _LENGTH = ShortPop(), LongPop(), Length()


def decode_client(state: State, body: bytes) -> Struct:
    """BadLogin, BadRequest."""
    if state is PUBLISHER and body[:5] == b"PUSH;":
        return Push(body[5:])
    if state is S.LOGIN:
        return _decode_login(body)
    name, semicolon, argument = body.partition(b";")
    if not semicolon:
        raise BadRequest("no semicolon delimiter found")
    if not name:
        raise BadRequest("error: bad request")
    function = _function_name(name)
    reader = _FUNCTIONS.get(function)
    if reader is None:
        raise BadRequest(
            f"error: error can not handle function {function[:64]}, options are {_OPTIONS}"
        )
    return reader(argument)


def _decode_login(body: bytes) -> PublisherLogin | SubscriberLogin:
    if not body:
        raise BadLogin("error: message is empty")
    role = _ROLES.get(body[0])
    if role is None or body.count(b";", 1) != 1:
        raise BadLogin("error: authentication packet formatted incorrectly")
    return role(*body[1:].split(b";"))


def _function_name(name: bytes) -> str:
    """In upper case, as Unicode has it; a byte that is no UTF-8 is one U+FFFD."""
    if len(name) > 1024:
        name = name[:1024]  # it is none of ours, and we repeat only its beginning
    text = name.decode("utf-8", "surrogateescape").upper()
    return re.sub("[\udc80-\udcff]", "\ufffd", text)


def _seconds(argument: bytes) -> int:
    if len(argument) < 4:
        raise BadRequest("error: bad request")
    return int.from_bytes(argument[:4], "little")


def _uid(argument: bytes) -> bytes:
    if len(argument) != 16:
        raise BadRequest(f"invalid UUID (got {len(argument)} bytes)")
    return argument


_FUNCTIONS = {
    "PUSH": Push,
    "SPOP": lambda argument: _SHORT_POP,
    "LPOP": lambda argument: _LONG_POP,
    "LEN": lambda argument: _LENGTH,
    "HIDE": lambda argument: Hide(_seconds(argument)),
    "POLL": lambda argument: Poll(_seconds(argument)),
    "DEL": lambda argument: Delete(_uid(argument)),
}


def decode_server(state: State, body: bytes) -> Struct:
    """What a server of any generation sends: `PASS` without its semicolon was one's, and a login
    refused with a bare text."""
    if state is S.GREETING and body[:10] == b"greetings;" and len(body) == 26:
        return Greeting(body[10:])
    if body[:5] == b"FAIL;":
        return Fail(body[5:].decode("utf-8", "replace"))
    if state is S.GREETING:
        raise WireError("no greeting")
    if body[:5] == b"PASS;":
        return Pass(body[5:])
    if state is S.PUBLISHER_LOGIN or state is S.SUBSCRIBER_LOGIN:
        return Pass() if body.lower() == b"pass" else Fail(body.decode("utf-8", "replace"))
    raise WireError(f"neither PASS nor FAIL: {body[:16]!r}")


_answer_head = Layout("<I5s").pack
_length = Layout("<I").pack


def encode(event: Struct) -> bytes:
    kind = type(event)
    if kind is Pass:  # first, and not through the table below: this is every answer
        value = event.value  # type: ignore[attr-defined]
        return _answer_head(5 + len(value), b"PASS;") + value
    body = _ENCODERS[kind](event)
    return _length(len(body)) + body


_ENCODERS = {
    Fail: lambda fail: b"FAIL;" + fail.text.encode(),
    Greeting: lambda greeting: b"greetings;" + greeting.challenge,
    PublisherLogin: lambda login: b"\x00" + login.name + b";" + login.proof,
    SubscriberLogin: lambda login: b"\x01" + login.name + b";" + login.proof,
    Push: lambda push: b"PUSH;" + push.body,
    ShortPop: lambda pop: b"SPOP;",
    LongPop: lambda pop: b"LPOP;",
    Length: lambda length: b"LEN;",
    Hide: lambda hide: b"HIDE;" + _length(hide.seconds),
    Poll: lambda poll: b"POLL;" + _length(poll.seconds),
    Delete: lambda delete: b"DEL;" + delete.uid,
}

number = _length  # positions and lengths, as an answer has them
