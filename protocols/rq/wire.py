"""The RQ wire format: bytes to events and back, and nothing else.

A frame is a *sentence*: fields, then the verb that acts on them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from struct import Struct as Layout
from typing import Any, NoReturn

from msgspec import Struct

from protocols.framing import Cut, FrameTooLong, WireError

State = Enum("State", "OPEN DRAINING")
S = State

MOST_PAYLOAD = 16 * 1024 * 1024
# Beside one payload of the greatest size, a sentence has names, numbers and what we do not know.
BESIDE = 1 << 17
LIMIT = MOST_PAYLOAD + BESIDE
# Our longest sentence has nine commands.  Without a limit, a peer that says nothing but NOP would
# have us read all of it again with every segment.
COMMANDS = 64

CLEAR, PING, PONG, REQUEST, REPLY, DELIVERED, BROADCAST = 1, 5, 6, 10, 11, 13, 14
UNDELIVERED, CONSUME, CANCEL_QUEUE, CLOSING, SERVER_FULL, CONSUMING = 16, 20, 21, 22, 23, 24
EXCLUSIVE, NOREPLY, PRIORITY, RETRIES = 32, 33, 64, 65
QUEUEID, TIMEOUT, MAX, ID, QUEUE, PAYLOAD = 96, 97, 98, 128, 160, 224

VERBS = {
    PING: "PING",
    PONG: "PONG",
    REQUEST: "REQUEST",
    REPLY: "REPLY",
    DELIVERED: "DELIVERED",
    BROADCAST: "BROADCAST",
    UNDELIVERED: "UNDELIVERED",
    CONSUME: "CONSUME",
    CANCEL_QUEUE: "CANCEL_QUEUE",
    CLOSING: "CLOSING",
    SERVER_FULL: "SERVER_FULL",
    CONSUMING: "CONSUMING",
}
FIELDS = frozenset(
    [EXCLUSIVE, NOREPLY, PRIORITY, RETRIES, QUEUEID, TIMEOUT, MAX, ID, QUEUE, PAYLOAD]
)
NO_VERB = -1  # instead of a verb, after so many COMMANDS

NORMAL = 20  # the priority of a consumer that does not say
LARGEST_ID = 0x7FFF  # librq and rqd keep the ids of queues and messages in a signed 16 bits

# A queue is named by `queue` or by `queue_id`; b"" and 0, which name none, are for the other.


class Consume(Struct, frozen=True, gc=False):
    queue: bytes
    maximum: int = 0  # requests at a time; 0: any number
    priority: int = NORMAL
    exclusive: bool = False


class Cancel(Struct, frozen=True, gc=False):
    queue: bytes = b""
    queue_id: int = 0


class Consuming(Struct, frozen=True, gc=False):
    queue_id: int
    queue: bytes


class Request(Struct, frozen=True, gc=False):
    """A node asks."""

    id: int
    queue: bytes
    payload: bytes
    noreply: bool = False
    queue_id: int = 0
    retries: int = 0
    timeout: int = 0  # seconds; 0: none


class Task(Struct, frozen=True, gc=False):
    """A request as the controller hands it to a consumer; also a REQUEST on the wire."""

    id: int
    queue_id: int
    payload: bytes
    noreply: bool = False
    queue: bytes = b""


class Delivered(Struct, frozen=True, gc=False):
    id: int


class Undelivered(Struct, frozen=True, gc=False):
    id: int


class Reply(Struct, frozen=True, gc=False):
    id: int
    payload: bytes


class Broadcast(Struct, frozen=True, gc=False):
    """A node tells all consumers of a queue.  Its id and noreply mean nothing; librq sends them."""

    queue: bytes
    payload: bytes
    queue_id: int = 0
    id: int | None = None
    noreply: bool = False


class Announcement(Struct, frozen=True, gc=False):
    """A broadcast as a consumer hears it; also a BROADCAST on the wire."""

    queue_id: int
    payload: bytes


class Ping(Struct, frozen=True, gc=False):
    pass


class Pong(Struct, frozen=True, gc=False):
    pass


class Closing(Struct, frozen=True, gc=False):
    """A node leaves when its work is done."""


class Shutdown(Struct, frozen=True, gc=False):
    """The controller leaves; also a CLOSING on the wire."""


class ServerFull(Struct, frozen=True, gc=False):
    pass


_BOTH = [Ping, Pong, Delivered, Undelivered, Reply]
_LATE = [Request, Task, Consuming, Announcement]  # may cross a CLOSING on the way
START = S.OPEN
TABLE: dict[State, dict[type, State]] = {
    S.OPEN: {
        **dict.fromkeys([*_BOTH, *_LATE, Consume, Cancel, Broadcast, ServerFull], S.OPEN),
        Closing: S.DRAINING,
        Shutdown: S.DRAINING,
    },
    S.DRAINING: dict.fromkeys([*_BOTH, *_LATE, Closing, Shutdown], S.DRAINING),
}

Fields = dict[int, Any]
Sentence = tuple[int, bool, Fields]  # the verb, whether a CLEAR came before it, what it acts on


def sentences(most_payload: int) -> Cut:
    """Sentences whose strings are no longer than that; one that will be is refused at its length.

    Every request and answer, in the order of librq and rqd, is an event without more ado.
    """
    cut_any = any_sentences(most_payload)

    def cut(buffer: bytes, at: int) -> tuple[Sentence | Struct, int] | int:
        size = len(buffer)
        if size - at < 12:
            return cut_any(buffer, at)
        start, number, command = _begin(buffer, at)
        if start != CLEAR_ID:
            return cut_any(buffer, at)
        here, queue = at + 7, b""
        if command == DELIVERED:
            return Delivered(number), here
        if command == QUEUE:
            name = here + 1
            here = name + buffer[here]
            queue = buffer[name:here]
            command = buffer[here] if here + 5 < size else 0
            here += 1
        if command == PAYLOAD:
            length = _length(buffer, here)[0]
            body = here + 4
            here = body + length
            if length <= most_payload and here + 1 < size:
                verb = buffer[here]
                if verb == REQUEST and queue:
                    return Request(number, queue, buffer[body:here]), here + 1
                if verb == NOREPLY and queue and buffer[here + 1] == REQUEST:
                    return Request(number, queue, buffer[body:here], True), here + 2
                if verb == REPLY and not queue:
                    return Reply(number, buffer[body:here]), here + 1
        return cut_any(buffer, at)

    return cut


def any_sentences(most_payload: int) -> Cut:
    """The same in any order.  What we do not know is stepped over by its shape, which is in the
    number of the command."""

    def cut(buffer: bytes, at: int) -> tuple[Sentence, int] | int:
        here, size = at, len(buffer)
        cleared = False
        fields: Fields = {}
        for _ in range(COMMANDS):
            if here >= size:
                return here - at + 1
            command = buffer[here]
            if command < 64:
                here += 1
                if command in VERBS:
                    return (command, cleared, fields), here
                if command == CLEAR:
                    cleared, fields = True, {}
                elif command in FIELDS:
                    fields[command] = True
                continue
            start = here + _HEADS[command >> 5]
            if start > size:
                return start - at
            operand: Any = int.from_bytes(buffer[here + 1 : start], "big")
            here = start
            if command >= 160:
                here += operand
                if operand > most_payload:
                    raise FrameTooLong(f"a payload of over {most_payload} bytes")
                if here > size:
                    return here - at
                operand = buffer[start:here]
            if command in FIELDS:
                fields[command] = operand
        return (NO_VERB, cleared, fields), here

    return cut


CLEAR_ID = CLEAR << 8 | ID
_begin = Layout(">HIB").unpack_from  # CLEAR, ID and its number, and what follows
_length = Layout(">I").unpack_from
_HEADS = [1, 1, 2, 3, 5, 2, 3, 5]  # a command and its number or length, by the top three bits
cut = sentences(MOST_PAYLOAD)


class Memory:
    """The wire of one connection: fields outlive their verb, until the next CLEAR.

    Only a payload goes with the verb that carries it.
    """

    START = START
    TABLE = TABLE

    def __init__(self, most_payload: int = MOST_PAYLOAD) -> None:
        self.LIMIT = most_payload + BESIDE
        self.cut = sentences(most_payload)
        self.encode = encode
        self._last: Fields | Struct = {}  # what is remembered; an event, if it was cut as one

    def decode_client(self, state: State, sentence: Any) -> Any:
        """WireError for a sentence that is not one of a node's."""
        if type(sentence) is not tuple:
            self._last = sentence
            return sentence
        return self._decode(sentence, _FROM_CLIENT)

    def decode_server(self, state: State, sentence: Any) -> Any:
        """WireError for a sentence that is not one of a controller's."""
        if type(sentence) is not tuple:
            self._last = sentence
            if type(sentence) is not Request:
                return sentence
            return Task(sentence.id, 0, sentence.payload, sentence.noreply, sentence.queue)
        return self._decode(sentence, _FROM_SERVER)

    def remembered(self) -> Fields:
        """The fields that a sentence without CLEAR may count on."""
        last = self._last
        if isinstance(last, dict):
            return last
        fields: Fields = {ID: last.id}  # type: ignore[attr-defined]
        if isinstance(last, Request):
            fields[QUEUE] = last.queue
            if last.noreply:
                fields[NOREPLY] = True
        return fields

    def _decode(self, sentence: Sentence, readers: dict[int, Callable[[Fields], Any]]) -> Any:
        verb, cleared, fields = sentence
        if not cleared:
            fields = {**self.remembered(), **fields}
        self._last = fields
        reader = readers.get(verb)
        if reader is None:
            _refuse(verb)
        try:
            return reader(fields)
        except KeyError as missing:
            raise WireError(f"{VERBS[verb]} without {_NAMES[missing.args[0]]}") from None


_NAMES = {ID: "an id", QUEUE: "a queue", QUEUEID: "a queue's id"}


def _refuse(verb: int) -> NoReturn:
    if verb == NO_VERB:
        raise WireError(f"{COMMANDS} commands and no verb")
    raise WireError(f"{VERBS[verb]} from the wrong side")


def decode_client(state: State, sentence: Any) -> Any:
    """A sentence by itself, with nothing before it."""
    return Memory().decode_client(state, sentence)


def decode_server(state: State, sentence: Any) -> Any:
    return Memory().decode_server(state, sentence)


def _read_queue(fields: Fields) -> bytes:
    """The name of a queue, b"" if there is an id instead.  KeyError if there is neither."""
    queue: bytes = fields.get(QUEUE, b"")
    if not queue and not fields.get(QUEUEID):
        raise KeyError(QUEUE)
    return queue


def _read_request(fields: Fields) -> Request:
    payload, get = fields.pop(PAYLOAD, b""), fields.get
    return Request(
        fields[ID],
        get(QUEUE, b""),
        payload,
        NOREPLY in fields,
        get(QUEUEID, 0),
        get(RETRIES, 0),
        get(TIMEOUT, 0),
    )


def _read_task(fields: Fields) -> Task:
    payload, queue = fields.pop(PAYLOAD, b""), _read_queue(fields)
    return Task(fields[ID], fields.get(QUEUEID, 0), payload, NOREPLY in fields, queue)


def _read_reply(fields: Fields) -> Reply:
    payload = fields.pop(PAYLOAD, b"")
    return Reply(fields[ID], payload)


def _read_broadcast(fields: Fields) -> Broadcast:
    payload, queue = fields.pop(PAYLOAD, b""), _read_queue(fields)
    return Broadcast(queue, payload, fields.get(QUEUEID, 0), fields.get(ID), NOREPLY in fields)


def _read_announcement(fields: Fields) -> Announcement:
    payload = fields.pop(PAYLOAD, b"")
    return Announcement(fields[QUEUEID], payload)


def _read_consume(fields: Fields) -> Consume:
    queue = fields.get(QUEUE)
    if not queue:  # an id will not do, and an empty name is none
        raise KeyError(QUEUE)
    return Consume(queue, fields.get(MAX, 0), fields.get(PRIORITY, NORMAL), EXCLUSIVE in fields)


def _read_cancel(fields: Fields) -> Cancel:
    return Cancel(_read_queue(fields), fields.get(QUEUEID, 0))


_PING, _PONG, _CLOSING, _SHUTDOWN, _FULL = Ping(), Pong(), Closing(), Shutdown(), ServerFull()
_FROM_BOTH: dict[int, Callable[[Fields], Any]] = {
    PING: lambda fields: _PING,
    PONG: lambda fields: _PONG,
    REPLY: _read_reply,
    DELIVERED: lambda fields: Delivered(fields[ID]),
    UNDELIVERED: lambda fields: Undelivered(fields[ID]),
}
_FROM_CLIENT = {
    **_FROM_BOTH,
    REQUEST: _read_request,
    BROADCAST: _read_broadcast,
    CONSUME: _read_consume,
    CANCEL_QUEUE: _read_cancel,
    CLOSING: lambda fields: _CLOSING,
}
_FROM_SERVER = {
    **_FROM_BOTH,
    REQUEST: _read_task,
    BROADCAST: _read_announcement,
    CONSUMING: lambda fields: Consuming(fields[QUEUEID], fields[QUEUE]),
    CLOSING: lambda fields: _SHUTDOWN,
    SERVER_FULL: lambda fields: _FULL,
}


_id = Layout(">BI").pack
_id_verb = Layout(">BBIB").pack  # a whole sentence: CLEAR, ID, verb
_id_payload = Layout(">BBIBI").pack  # one that ends with the payload and the verb
_short = Layout(">BH").pack
_tiny = Layout(">BB").pack
_payload = Layout(">BI").pack
_queue_id_payload = Layout(">BBHBI").pack


def _queue(queue: bytes, queue_id: int) -> bytes:
    """Exactly one of the two: librq aborts at both."""
    return _tiny(QUEUE, len(queue)) + queue if queue else _short(QUEUEID, queue_id)


def _say_request(request: Request) -> bytes:
    return b"".join(
        [
            b"\x01" + _id(ID, request.id) + _queue(request.queue, request.queue_id),
            _payload(PAYLOAD, len(request.payload)),
            request.payload,
            b"\x21" if request.noreply else b"",
            _tiny(RETRIES, request.retries) if request.retries else b"",
            _short(TIMEOUT, request.timeout) if request.timeout else b"",
            b"\x0a",
        ]
    )


def _say_task(task: Task) -> bytes:
    payload = task.payload
    if task.queue:
        head = b"\x01" + _queue(task.queue, 0) + _payload(PAYLOAD, len(payload))
    else:
        head = _queue_id_payload(CLEAR, QUEUEID, task.queue_id, PAYLOAD, len(payload))
    flag = b"\x21" if task.noreply else b""
    return head + payload + flag + _id(ID, task.id) + b"\x0a"


def _say_broadcast(broadcast: Broadcast) -> bytes:
    return b"".join(
        [
            b"\x01" if broadcast.id is None else b"\x01" + _id(ID, broadcast.id),
            _queue(broadcast.queue, broadcast.queue_id),
            _payload(PAYLOAD, len(broadcast.payload)),
            broadcast.payload,
            b"\x21\x0e" if broadcast.noreply else b"\x0e",
        ]
    )


def _say_announcement(news: Announcement) -> bytes:
    head = _queue_id_payload(CLEAR, QUEUEID, news.queue_id, PAYLOAD, len(news.payload))
    return head + news.payload + b"\x0e"


def _say_consume(consume: Consume) -> bytes:
    flag = b"\x20" if consume.exclusive else b""
    numbers = _short(MAX, consume.maximum) + _tiny(PRIORITY, consume.priority)
    return b"\x01" + flag + _queue(consume.queue, 0) + numbers + b"\x14"


def _say_consuming(consuming: Consuming) -> bytes:
    return b"\x01" + _short(QUEUEID, consuming.queue_id) + _queue(consuming.queue, 0) + b"\x18"


def encode(event: Struct) -> bytes:
    """In the order in which rqd and librq say it."""
    return _ENCODERS[type(event)](event)


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    Delivered: lambda event: _id_verb(CLEAR, ID, event.id, DELIVERED),
    Reply: lambda reply: (
        _id_payload(CLEAR, ID, reply.id, PAYLOAD, len(reply.payload)) + reply.payload + b"\x0b"
    ),
    Task: _say_task,
    Request: _say_request,
    Undelivered: lambda event: _id_verb(CLEAR, ID, event.id, UNDELIVERED),
    Broadcast: _say_broadcast,
    Announcement: _say_announcement,
    Consume: _say_consume,
    Consuming: _say_consuming,
    Cancel: lambda cancel: b"\x01" + _queue(cancel.queue, cancel.queue_id) + b"\x15",
    Ping: lambda _: b"\x05",
    Pong: lambda _: b"\x06",
    Closing: lambda _: b"\x16",
    Shutdown: lambda _: b"\x01\x16",
    ServerFull: lambda _: b"\x17",
}
