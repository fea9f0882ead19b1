"""The sk2mq wire format in its two dialects: bytes to events and back, and nothing else.

The module itself speaks the seed dialect, as SEED does; UPSTREAM is the other one.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct as Layout
from typing import Any

from msgspec import Struct

from protocols.framing import WireError, length_prefixed

State = Enum("State", "HELLO OPEN")
S = State

HEADER_SIZE = 5
LIMIT = HEADER_SIZE + 16 * 1024 * 1024  # the protocol itself would allow 4 GiB

MSG, MGMT, RESP, HELLO = range(4)  # tags
OK, FOUND, BADPACKET, BADCLIENT, INPAST, NOTFOUND, SERVERERROR = 20, 32, 40, 41, 43, 44, 50
CODES = frozenset([OK, FOUND, BADPACKET, BADCLIENT, INPAST, NOTFOUND, SERVERERROR])

Frame = tuple[int, bytes]  # tag, body

cut = length_prefixed(">BI")


class Hello(Struct, frozen=True, gc=False):
    """The name that the client has from now on."""

    client: bytes


class Create(Struct, frozen=True, gc=False):
    topic: bytes


class Join(Struct, frozen=True, gc=False):
    topic: bytes


class Quit(Struct, frozen=True, gc=False):
    topic: bytes


class Send(Struct, frozen=True, gc=False):
    due: int  # in seconds since 1970; worthless from then on
    client: bytes
    topic: bytes
    message: bytes


class Delivery(Struct, frozen=True, gc=False):
    """What somebody sent to a topic, in the same layout."""

    due: int
    client: bytes
    topic: bytes
    message: bytes


class Response(Struct, frozen=True, gc=False):
    """To a Create, Join, Quit or Send; they are answered in their order."""

    code: int


START = S.HELLO
TABLE: dict[State, dict[type, State]] = {
    S.HELLO: {Hello: S.OPEN},
    S.OPEN: dict.fromkeys([Create, Join, Quit, Send, Response, Delivery], S.OPEN),
}

_header = Layout(">BI").pack
_number = Layout(">I")
_lengths = Layout(">IIII").unpack_from
_message_head = Layout(">BIIIII").pack
_topic_head = Layout(">BIBI").pack
_code = Layout(">BIB").pack


class Dialect:
    """The seed dialect; what a subclass does otherwise has a method of its own."""

    START, TABLE, LIMIT = START, TABLE, LIMIT
    cut = staticmethod(cut)

    name = "seed"
    actions: dict[int, type[Join | Quit | Create]] = {0: Join, 1: Quit, 2: Create}
    ignores_rest = False  # whether a body may be longer than what its lengths say

    def __init__(self) -> None:
        self._action_numbers = {event: number for number, event in self.actions.items()}

    # From a client.

    def decode_client(self, state: State, frame: Frame) -> Struct:
        tag, body = frame
        if tag == MSG:
            return Send(*self._decode_message(body))
        if tag == MGMT:
            return self._decode_topic(body)
        raise WireError(f"tag {tag} is none of a client")

    def _decode_topic(self, body: bytes) -> Join | Quit | Create:
        if len(body) < 5:
            raise WireError(f"an action in {len(body)} bytes")
        event = self.actions.get(body[0])
        if event is None:
            raise WireError(f"there is no action {body[0]}")
        end = 5 + _number.unpack_from(body, 1)[0]
        self._check_end(end, body)
        return event(body[5:end])

    def _decode_message(self, body: bytes) -> tuple[int, bytes, bytes, bytes]:
        """Due, client, topic and message."""
        if len(body) < 16:
            raise WireError(f"a message in {len(body)} bytes")
        due, client, topic, message = _lengths(body)
        client_end = 16 + client
        topic_end = client_end + topic
        end = topic_end + message
        self._check_end(end, body)
        return due, body[16:client_end], body[client_end:topic_end], body[topic_end:end]

    def _check_end(self, end: int, body: bytes) -> None:
        size = len(body)
        if end > size or (end < size and not self.ignores_rest):
            raise WireError(f"lengths that make {end} in a body of {size} bytes")

    # From a server.

    def decode_server(self, state: State, frame: Frame) -> Struct:
        tag, body = frame
        if state is S.HELLO:
            if tag != HELLO:
                raise WireError(f"tag {tag} instead of a HELLO")
            return self._decode_hello(body)
        if tag == MSG:
            return Delivery(*self._decode_message(body))
        return Response(self._decode_code(tag, body))

    def _decode_hello(self, body: bytes) -> Hello:
        if not has_length(body):
            raise WireError("a HELLO without the length of its name")
        return Hello(body[4:])

    def _decode_code(self, tag: int, body: bytes) -> int:
        if tag != RESP or len(body) != 1 or body[0] not in CODES:
            raise WireError(f"neither a message nor a response: tag {tag}, {body[:8]!r}")
        return body[0]

    # To both.

    def encode(self, event: Any) -> bytes:
        kind = type(event)
        if kind is Response:
            return self._encode_code(event.code)
        if kind is Send or kind is Delivery:
            return self.encode_message(event.due, event.client, event.topic, event.message)
        if kind is Hello:
            return self._encode_hello(event.client)
        topic: bytes = event.topic
        size = len(topic)
        return _topic_head(MGMT, 5 + size, self._action_numbers[kind], size) + topic

    def encode_message(self, due: int, client: bytes, topic: bytes, message: bytes) -> bytes:
        """A Send or Delivery; they are the same bytes."""
        return b"".join([_lengths_of(due, client, topic, message), client, topic, message])

    def _encode_hello(self, client: bytes) -> bytes:
        size = len(client)
        return _header(HELLO, 4 + size) + _number.pack(size) + client

    def _encode_code(self, code: int) -> bytes:
        return _code(RESP, 1, code)


class Upstream(Dialect):
    """The dialect of the public implementation."""

    name = "upstream"
    actions = {10: Join, 11: Quit, 12: Create}
    ignores_rest = True

    def _decode_message(self, body: bytes) -> tuple[int, bytes, bytes, bytes]:
        if len(body) < 16:
            raise WireError(f"a message in {len(body)} bytes")
        due, client, topic, message = _lengths(body)  # in this order, but the topic comes first
        topic_end = 16 + topic
        client_end = topic_end + client
        end = client_end + message
        self._check_end(end, body)
        return due, body[topic_end:client_end], body[16:topic_end], body[client_end:end]

    def _decode_hello(self, body: bytes) -> Hello:
        return Hello(body)

    def _decode_code(self, tag: int, body: bytes) -> int:
        if tag not in CODES or body:
            raise WireError(f"neither a message nor a response: tag {tag}, {body[:8]!r}")
        return tag

    def encode_message(self, due: int, client: bytes, topic: bytes, message: bytes) -> bytes:
        return b"".join([_lengths_of(due, client, topic, message), topic, client, message])

    def _encode_hello(self, client: bytes) -> bytes:
        return _header(HELLO, len(client)) + client

    def _encode_code(self, code: int) -> bytes:
        return _header(code, 0)


def _lengths_of(due: int, client: bytes, topic: bytes, message: bytes) -> bytes:
    sizes = len(client), len(topic), len(message)
    return _message_head(MSG, 16 + sum(sizes), due, *sizes)


def has_length(body: bytes) -> bool:
    """Whether the body of a HELLO is a length and a name of that length, as in the seed dialect.

    The names of the public server begin with `user`, which is too long for a length.
    """
    return len(body) >= 4 and _number.unpack_from(body)[0] == len(body) - 4


SEED = Dialect()
UPSTREAM = Upstream()
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (SEED, UPSTREAM)}

decode_client, decode_server, encode = SEED.decode_client, SEED.decode_server, SEED.encode


class Recognised(Dialect):
    """What one client speaks: the dialect of its server's HELLO."""

    spoken = SEED  # until it has been heard, when nothing can be said

    def decode_server(self, state: State, frame: Frame) -> Struct:
        if state is S.HELLO:
            self.spoken = SEED if has_length(frame[1]) else UPSTREAM
        return self.spoken.decode_server(state, frame)

    def encode(self, event: Any) -> bytes:
        return self.spoken.encode(event)
