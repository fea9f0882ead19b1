"""The aWCS wire format: bytes to events and back, and nothing else."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from protocols.framing import FramingLost, WireError

State = Enum("State", "UNKNOWN MASTER CLIENT")
S = State
# To look up a member of an Enum takes 0.08 us, as much as to make an event: for the hot path.
MASTER, CLIENT = S.MASTER, S.CLIENT

LIMIT = 131_072  # what a master may send; the server knows a smaller one for clients
INITIALIZE, JOIN = b"6 \0", b"aWCS\0"

NOBODY = 0  # no client has this number, and a status has it in the place of a client's
ANSWER = b"42"  # the parameter of a status that has none


def cut(buffer: bytes, at: int) -> tuple[bytes, int] | int:
    """Frames closed by a NUL.

    An unfinished frame asks for no byte more than is there: as many as the limit may wait without
    their NUL, as they always could, and only the next one is too many.
    """
    end = buffer.find(b"\0", at)
    return len(buffer) - at if end < 0 else (buffer[at:end], end + 1)


class Initialize(Struct, frozen=True, gc=False):
    """I am the master.  Said again, it means nothing."""


class Join(Struct, frozen=True, gc=False):
    """I am a client."""


class Text(Struct, frozen=True, gc=False):
    """What a client says, and what it is told."""

    body: bytes


class Broadcast(Struct, frozen=True, gc=False):
    body: bytes


class Multicast(Struct, frozen=True, gc=False):
    clients: tuple[int, ...]
    body: bytes


class Report(Struct, frozen=True, gc=False):
    """The master asks whether we are alive."""


class Kick(Struct, frozen=True, gc=False):
    clients: tuple[int, ...]


class FloodOff(Struct, frozen=True, gc=False):
    clients: tuple[int, ...]


class FloodOn(Struct, frozen=True, gc=False):
    clients: tuple[int, ...]


class Relay(Struct, frozen=True, gc=False):
    """A client's text, on its way to the master."""

    client: int
    body: bytes


# What the master is told by the server itself.  `prefix` is what stands where a client's number
# would: nobody's, or the master's own.


class Connected(Struct, frozen=True, gc=False):
    client: int
    address: str
    prefix: int = NOBODY


class Disconnected(Struct, frozen=True, gc=False):
    client: int
    code: int = 1  # there is a 0 in the document, and nothing that means it
    prefix: int = NOBODY


class Kicked(Struct, frozen=True, gc=False):
    client: int
    reason: int
    prefix: int = NOBODY


class Alive(Struct, frozen=True, gc=False):
    prefix: int = NOBODY


class Elapsed(Struct, frozen=True, gc=False):
    """The notify time is over once more."""

    prefix: int = NOBODY


START = S.UNKNOWN
TABLE: dict[State, dict[type, State]] = {
    S.UNKNOWN: {Initialize: S.MASTER, Join: S.CLIENT},
    S.MASTER: dict.fromkeys(
        [
            *(Initialize, Broadcast, Multicast, Report, Kick, FloodOff, FloodOn),
            *(Relay, Connected, Disconnected, Kicked, Alive, Elapsed),
        ],
        S.MASTER,
    ),
    S.CLIENT: {Text: S.CLIENT},
}

_INITIALIZE, _JOIN, _REPORT = Initialize(), Join(), Report()


def identify(heard: bytes) -> type[Initialize] | type[Join] | None:
    """Who begins a stream like this; None while nobody can tell, or nobody ever will."""
    if heard.startswith(JOIN):
        return Join
    return Initialize if heard.startswith(INITIALIZE) else None


# What clients and masters send.


def decode_client(state: State, frame: bytes) -> Struct:
    if state is CLIENT:
        return Text(frame)
    if state is MASTER:
        reader = _COMMANDS.get(frame[:1])
        if reader is None:
            raise WireError(f"no command: {frame[:16]!r}")
        return reader(frame)
    if frame == b"aWCS":
        return _JOIN
    if frame == b"6 ":
        return _INITIALIZE
    raise FramingLost(f"neither a master nor a client: {frame[:16]!r}")


def _argument(frame: bytes) -> bytes:
    if frame[1:2] != b" ":
        raise WireError(f"no space after the command: {frame[:16]!r}")
    return frame[2:]


def _multicast(frame: bytes) -> Multicast:
    listed, space, body = _argument(frame).partition(b" ")
    if not space:
        raise WireError("a multicast of nothing")
    return Multicast(_clients(listed), body)


def _listed(frame: bytes) -> tuple[int, ...]:
    """The clients of a command that has nothing else to say: what follows a space is ignored."""
    return _clients(_argument(frame).partition(b" ")[0])


def _clients(listed: bytes) -> tuple[int, ...]:
    """All of them, or WireError if one is no number.  A comma at the end was always let pass."""
    numbers = listed.removesuffix(b",").split(b",")
    if not all(map(bytes.isdigit, numbers)):
        raise WireError(f"no list of clients: {listed[:32]!r}")
    return tuple([int(number) if len(number) < 10 else _long(number) for number in numbers])


def _long(digits: bytes) -> int:
    """Zeroes in front do not count; a number too long for any client is nobody's, and Python need
    not reckon it out."""
    digits = digits.lstrip(b"0")
    return int(digits or b"0") if len(digits) < 10 else NOBODY


_COMMANDS = {
    b"0": lambda frame: Broadcast(_argument(frame)),
    b"1": _multicast,
    b"2": lambda frame: _REPORT,
    b"3": lambda frame: Kick(_listed(frame)),
    b"4": lambda frame: FloodOff(_listed(frame)),
    b"5": lambda frame: FloodOn(_listed(frame)),
    b"6": lambda frame: _INITIALIZE,
}


# What servers send.


def decode_server(state: State, frame: bytes) -> Struct:
    """A status is known by nobody's number.  A server that uses the master's instead makes it look
    like a client's text: who knows that number asks `decode_status`."""
    if state is CLIENT:
        return Text(frame)
    if state is not MASTER:
        raise WireError("the server spoke first")
    number, space, body = frame.partition(b" ")
    client = _number(number)
    if not space:
        raise WireError(f"neither a text nor a status: {frame[:16]!r}")
    return Relay(client, body) if client else decode_status(body)


def decode_status(body: bytes, prefix: int = NOBODY) -> Struct:
    """WireError for a type that we do not know, of which later servers had some."""
    kind, _, parameters = body.partition(b" ")
    reader = _STATUSES.get(kind)
    if reader is None:
        raise WireError(f"no status: {body[:16]!r}")
    first, _, second = parameters.partition(b" ")
    return reader(first, second, prefix)


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > 9:
        raise WireError(f"no number: {digits[:16]!r}")
    return int(digits)


_STATUSES = {
    b"0": lambda first, second, prefix: Connected(
        _number(first), second.decode("ascii", "replace"), prefix
    ),
    b"1": lambda first, second, prefix: Disconnected(_number(first), _number(second), prefix),
    b"2": lambda first, second, prefix: Kicked(_number(first), _number(second), prefix),
    b"3": lambda first, second, prefix: Alive(prefix),
    b"4": lambda first, second, prefix: Elapsed(prefix),
}


# What both send.


def encode(event: Struct) -> bytes:
    return _ENCODERS[type(event)](event)


def _list(clients: tuple[int, ...]) -> bytes:
    return b",".join([b"%04d" % client for client in clients])


_ENCODERS = {
    Relay: lambda relay: b"%04d %b\0" % (relay.client, relay.body),
    Text: lambda text: text.body + b"\0",
    Initialize: lambda _: INITIALIZE,
    Join: lambda _: JOIN,
    Broadcast: lambda broadcast: b"0 %b\0" % broadcast.body,
    Multicast: lambda multicast: b"1 %b %b\0" % (_list(multicast.clients), multicast.body),
    Report: lambda _: b"2 \0",
    Kick: lambda kick: b"3 %b\0" % _list(kick.clients),
    FloodOff: lambda flood: b"4 %b\0" % _list(flood.clients),
    FloodOn: lambda flood: b"5 %b\0" % _list(flood.clients),
    Connected: lambda status: (
        b"%04d 0 %04d %b\0" % (status.prefix, status.client, status.address.encode())
    ),
    Disconnected: lambda status: b"%04d 1 %04d %d\0" % (status.prefix, status.client, status.code),
    Kicked: lambda status: b"%04d 2 %04d %d\0" % (status.prefix, status.client, status.reason),
    Alive: lambda status: b"%04d 3 %b\0" % (status.prefix, ANSWER),
    Elapsed: lambda status: b"%04d 4 %b\0" % (status.prefix, ANSWER),
}
