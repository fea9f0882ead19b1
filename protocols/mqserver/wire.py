"""The MQServer wire format, in our textual profile: bytes to events and back, and nothing else.

The module itself takes DATA of up to a megabyte and ends its frames with two NULs; a `Profile` is
the same with other numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from zlib import crc32

from protocols.framing import Cut
from protocols.mqserver import encoding, events
from protocols.mqserver.events import (
    LARGEST_MID,
    Ack,
    AlterQueue,
    AppId,
    Auth,
    BadCrc,
    BadData,
    BadFrame,
    BadSyntax,
    BadVersion,
    CapsAccepted,
    CapsRefused,
    ClientCaps,
    CreateQueue,
    Error,
    FindQueue,
    FromClient,
    FromQueue,
    GetFromQueue,
    JoinQueue,
    LoginAccepted,
    LoginRefused,
    Notify,
    PartQueue,
    Presence,
    QueueInfo,
    SendToClient,
    SendToQueue,
    ServerCaps,
    State,
    TooBig,
    UnknownType,
)
from protocols.mqserver.reading import FROM_CLIENT, FROM_SERVER, Reader

START, TABLE = events.START, events.TABLE
S = State

HEADER = 128  # bytes up to the last bar; ours have less than half of it
MOST_DATA = 1 << 20  # bytes of encoded DATA

# In the order of their numbers, from 1.
TYPES = [
    *["ACK", "ERROR", "SRVCAP", "AUTH", "CLNTCAP"],
    *["APPID", "NOTIFY", "FINDQUEUE", "PRESENCE", "JOINQUEUE"],
    *["PARTQUEUE", "CREATEQUEUE", "QUEUEINFO", "ALTERQUEUE", "SENDTOQUEUE"],
    *["GETFROMQUEUE", "MSGFROMQUEUE", "SENDTOCLNT", "MSGFROMCLNT"],
]


Frame = tuple[int, bytes, int, int, bytes]  # MID, type, FLAGS, CRC, encoded DATA

_header = re.compile(
    rb"([0-9]{1,10})\|([^|\0]{0,64})\|[Vv]?1\|([0-9]{1,10})\|([0-9]{1,10})\|"
    rb"([0-9]{1,10}|0[xX][0-9A-Fa-f]{1,8})\|"
).match
_padding = re.compile(rb"\0+").match
_mid = re.compile(rb"([0-9]{1,10})\|").match


def frames(most_data: int) -> Cut:
    """Frames whose encoded DATA is no longer than that; one that will be is refused at its header.
    NULs between them are padding.  BadFrame, BadVersion, TooBig."""

    def cut(buffer: bytes, at: int) -> tuple[Frame | None, int] | int:
        found = _header(buffer, at)
        if found is None:
            return _no_header(buffer, at)
        mid, name, length, flags, crc = found.groups()
        size = int(length)
        if size > most_data:
            raise TooBig(f"DATA of {size} bytes, over {most_data}", _number(mid))
        start = found.end()
        end = start + size
        rest = buffer[end : end + 2]
        if not rest:
            return end + 1 - at
        if rest[0]:
            raise BadFrame(f"no NUL after DATA of {size} bytes", _number(mid))
        checksum = int(crc) if crc.isdigit() else int(crc, 16)
        frame = (_number(mid), name, int(flags), checksum, buffer[start:end])
        return frame, end + (2 if rest == b"\0\0" else 1)

    return cut


def _no_header(buffer: bytes, at: int) -> tuple[None, int] | int:
    """Padding, the beginning of a header, or nothing that we know."""
    padding = _padding(buffer, at)
    if padding is not None:
        return None, padding.end()
    head = buffer[at : at + HEADER]
    fields = head.split(b"|", 6)
    if len(fields) < 7 and len(head) < HEADER and b"\0" not in head:
        return len(head) + 1
    mid = _mid(head)
    number = 0 if mid is None else _number(mid[1])
    if len(fields) < 7 and len(head) == HEADER and b"\0" not in head:
        raise TooBig(f"a header of over {HEADER} bytes", number)
    if len(fields) == 7 and fields[2] not in (b"1", b"V1", b"v1"):
        raise BadVersion(f"version {fields[2][:8]!r}", number)
    raise BadFrame(f"no header: {head[:32]!r}", number)


def _number(digits: bytes) -> int:
    """A MID.  BadFrame."""
    number = int(digits)
    if number > LARGEST_MID:
        raise BadFrame(f"a MID of {number}")
    return number


_BY_NUMBER = {b"%d" % number: name.encode() for number, name in enumerate(TYPES, 1)}


def decode_client(state: State, frame: Frame) -> Any:
    """BadCrc, BadData, UnknownType, BadSyntax."""
    return _decode(frame, FROM_CLIENT)


def decode_server(state: State, frame: Frame) -> Any:
    """BadCrc, BadData, UnknownType, BadSyntax."""
    event = _decode(frame, FROM_SERVER)
    if type(event) is Ack:
        if state is S.CHECKING:
            return _verdict(event, LoginAccepted, LoginRefused)
        if state is S.CAPS_ASKED:
            return _verdict(event, CapsAccepted, CapsRefused)
    return event


def _decode(frame: Frame, readers: dict[bytes, Reader]) -> Any:
    mid, name, flags, crc, encoded = frame
    if crc32(encoded) != crc:
        raise BadCrc(f"a CRC of {crc}, not {crc32(encoded)}", mid)
    try:
        data = encoding.decode(encoded)
    except encoding.Malformed as error:
        raise BadData(str(error), mid) from None
    reader = readers.get(name)
    if reader is None:  # in small letters, or by its number
        reader = readers.get(_BY_NUMBER.get(name, name.upper()))
        if reader is None:
            raise UnknownType(f"{name[:16]!r} is no type of this side", mid)
    try:
        event = reader(mid, flags, data)
    except ValueError:
        event = None
    if event is None:
        raise BadSyntax(f"{name[:16]!r} with {data[:64]!r}", mid)
    return event


def _verdict(ack: Ack, accepted: type, refused: type) -> Any:
    """What the text of an ACK says: `1`, and perhaps more, or `0`, or `-1|why`."""
    word, _, _ = ack.text.partition(" ")
    if word == "1":
        return accepted(ack.mid)
    if ack.text == "0":
        return refused(ack.mid)
    if ack.text.startswith("-1|"):
        return refused(ack.mid, ack.text[3:])
    raise BadSyntax(f"an ACK with {ack.text[:64]!r}", ack.mid)


# Writing DATA.


def _say_refused(event: LoginRefused | CapsRefused) -> str:
    return f"-1|{event.reason}" if event.reason else "0"


def _say_presence(event: Presence) -> str:
    return " ".join([" ".join([name, *map(str, app_ids)]) for name, app_ids in event.changes])


def _say_join(event: JoinQueue) -> str:
    return f"{event.queue} {event.flags}" + (f" {event.filter}" if event.filter != "*" else "")


def _say_get(event: GetFromQueue) -> str:
    return f"{event.queue} {event.count}" + (f" {event.filter}" if event.filter != "*" else "")


def _say_create(event: CreateQueue) -> str:
    numbers = f"{event.queue} {event.flags} {event.max_messages} {event.ttl}"
    return f"{numbers} {event.info}" if event.info else numbers


def _say_info(event: QueueInfo) -> str:
    owner = event.owner or "-"
    numbers = f"{event.queue} {event.flags} {owner} {event.members} {event.depth}"
    return f"{numbers} {event.info}" if event.info else numbers


def _say_alter(event: AlterQueue) -> str:
    words = [event.queue]
    for key, value in [("FLAGS", event.flags), ("MAXMSGS", event.max_messages), ("TTL", event.ttl)]:
        if value is not None:
            words.append(f"{key}={value}")
    if event.owner is not None:
        words.append(f"OWNER={event.owner or '-'}")
    words += [f"ALLOW={user}" for user in event.allow]
    if event.info is not None:
        words.append(f"INFO={event.info}")
    return " ".join(words)


def _say_send(event: SendToQueue) -> bytes:
    head = f"{event.queue} {len(event.payload)} {event.topic or '-'} "
    return head.encode() + event.payload


def _say_delivery(event: FromQueue) -> bytes:
    payload = event.payload
    head = (
        f"{event.queue} {event.topic or '-'} {event.id} {event.time} {event.sender} {len(payload)} "
    )
    return head.encode() + payload


def _say_send_client(event: SendToClient) -> bytes:
    return f"{event.user} {event.app_id} {len(event.payload)} ".encode() + event.payload


def _say_from_client(event: FromClient) -> bytes:
    payload = event.payload
    head = f"{event.sender} {event.app_id} {event.id} {event.time} {len(payload)} "
    return head.encode() + payload


def _spaced(*fields: Any) -> str:
    return " ".join([str(field) for field in fields if field != ""])


_PAYLOADS: dict[type, tuple[bytes, Callable[[Any], bytes]]] = {
    SendToQueue: (b"SENDTOQUEUE", _say_send),
    FromQueue: (b"MSGFROMQUEUE", _say_delivery),
    SendToClient: (b"SENDTOCLNT", _say_send_client),
    FromClient: (b"MSGFROMCLNT", _say_from_client),
}
_TEXTS: dict[type, tuple[bytes, Callable[[Any], str]]] = {
    Ack: (b"ACK", lambda event: event.text),
    Error: (b"ERROR", lambda event: _spaced(event.id, event.text)),
    ServerCaps: (b"SRVCAP", lambda event: _spaced(event.salt, event.flags, event.details)),
    ClientCaps: (b"CLNTCAP", lambda event: _spaced(event.flags, event.details)),
    CapsAccepted: (b"ACK", lambda event: "1"),
    CapsRefused: (b"ACK", _say_refused),
    Auth: (b"AUTH", lambda event: f"{event.user} {event.proof}"),
    LoginAccepted: (b"ACK", lambda event: "1"),
    LoginRefused: (b"ACK", _say_refused),
    AppId: (b"APPID", lambda event: _spaced(*event.app_ids)),
    Notify: (b"NOTIFY", lambda event: _spaced(*event.changes)),
    FindQueue: (b"FINDQUEUE", lambda event: _spaced(*event.queues)),
    Presence: (b"PRESENCE", _say_presence),
    JoinQueue: (b"JOINQUEUE", _say_join),
    PartQueue: (b"PARTQUEUE", lambda event: event.queue),
    CreateQueue: (b"CREATEQUEUE", _say_create),
    QueueInfo: (b"QUEUEINFO", _say_info),
    AlterQueue: (b"ALTERQUEUE", _say_alter),
    GetFromQueue: (b"GETFROMQUEUE", _say_get),
}


class Profile:
    """What one listener or client speaks: how much DATA it takes, and how its frames end."""

    START, TABLE = START, TABLE
    decode_client = staticmethod(decode_client)
    decode_server = staticmethod(decode_server)

    def __init__(self, most_data: int = MOST_DATA, nuls: int = 2) -> None:
        self.most_data = most_data
        self.LIMIT = HEADER + most_data + 2
        self.cut = frames(most_data)
        self._end = bytes(nuls)
        self._short_acks = {text: self._tail(b"ACK", 0, text.encode()) for text in ("", "0", "1")}

    def encode(self, event: Any) -> bytes:
        return b"%d" % event.mid + self.tail(event)

    def tail(self, event: Any) -> bytes:
        """All that follows the MID: the same to whomever the event is sent."""
        kind = type(event)
        if kind is Ack:
            tail = self._short_acks.get(event.text)
            return self._tail(b"ACK", 0, event.text.encode()) if tail is None else tail
        found = _PAYLOADS.get(kind)
        if found is not None:
            name, say = found
            return self._tail(name, event.flags, say(event))
        name, say_text = _TEXTS[kind]
        return self._tail(name, 0, say_text(event).encode())

    def _tail(self, name: bytes, flags: int, data: bytes) -> bytes:
        encoded = encoding.encode(data)
        return b"|%b|1|%d|%d|%d|%b%b" % (
            name,
            len(encoded),
            flags,
            crc32(encoded),
            encoded,
            self._end,
        )


DEFAULT = Profile()
LIMIT, cut, encode, tail = DEFAULT.LIMIT, DEFAULT.cut, DEFAULT.encode, DEFAULT.tail
