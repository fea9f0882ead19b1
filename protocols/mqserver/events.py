"""What is said in MQServer, and when it may be said: every event, and the errors of a frame."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from msgspec import Struct

from protocols.framing import FrameTooLong, FramingLost, WireError

State = Enum("State", "BANNER CAPS CAPS_ASKED LOGIN CHECKING IN SYNCING SYNCED CLOSED")
S = State

NAME = 31  # bytes of a user, queue or topic
FILTER = 511  # bytes of a filter, as in the server of old
LARGEST_MID = 0xFFFFFFFF

REQUIREACK, REQUIREACKPROCESS = 1, 2  # FLAGS of a frame
STORED, NOTIFYING, PULLING, CREATING = 1, 2, 4, 8  # capabilities
DEAF, NOECHO_JOIN = 1, 2  # of a member
BROADCAST, PULL, STORE, NOECHO, MEMBERSEND, PRIVATE, AUTODEL = 1, 2, 4, 8, 16, 32, 64  # of a queue


class BadData(WireError):
    """DATA that no encoder writes.  Of this and the errors below, `mid` is the MID of the frame at
    fault, 0 if it has none, and `id` what an ERROR calls it."""

    id: ClassVar[str] = "EDATA"

    def __init__(self, text: str, mid: int = 0) -> None:
        super().__init__(text)
        self.mid = mid


class BadCrc(BadData):
    id = "ECRC"


class UnknownType(BadData):
    """A type that there is not, or that is not for this side to send."""

    id = "ETYPE"


class BadSyntax(BadData):
    """DATA that does not have the fields of its type."""

    id = "ESYNTAX"


class BadFrame(FramingLost):
    """A header that is none, or no NUL where the frame should end."""

    id: ClassVar[str] = "EFRAME"

    def __init__(self, text: str, mid: int = 0) -> None:
        super().__init__(text)
        self.mid = mid


class BadVersion(BadFrame):
    id = "EVERSION"


class TooBig(BadFrame, FrameTooLong):
    id = "ETOOBIG"


# Names and texts are str, as the profile says that they are UTF-8; "" stands for the `-` of a topic
# or an owner that is none.


class ServerCaps(Struct, frozen=True, gc=False):
    salt: str
    flags: int
    details: str
    mid: int = 0


class ClientCaps(Struct, frozen=True, gc=False):
    mid: int
    flags: int
    details: str


class CapsAccepted(Struct, frozen=True, gc=False):
    """The ACK of ClientCaps."""

    mid: int


class CapsRefused(Struct, frozen=True, gc=False):
    """The other ACK of ClientCaps."""

    mid: int
    reason: str = ""


class Auth(Struct, frozen=True, gc=False):
    mid: int
    user: str
    proof: str

    def __repr__(self) -> str:
        return f"Auth({self.mid}, {self.user!r}, ...)"


class LoginAccepted(Struct, frozen=True, gc=False):
    """The ACK of Auth."""

    mid: int


class LoginRefused(Struct, frozen=True, gc=False):
    """The other ACK of Auth; with a reason, it is the account's fault."""

    mid: int
    reason: str = ""


class Ack(Struct, frozen=True, gc=False):
    """Every other ACK: of the frame that had this MID."""

    mid: int
    text: str = ""


class Error(Struct, frozen=True, gc=False):
    mid: int
    id: str
    text: str = ""


class AppId(Struct, frozen=True, gc=False):
    mid: int
    app_ids: tuple[int, ...]


class Notify(Struct, frozen=True, gc=False):
    """Users, or queues with a # before them, each with + or -; none at all asks for the list."""

    mid: int
    changes: tuple[str, ...] = ()


class FindQueue(Struct, frozen=True, gc=False):
    mid: int
    queues: tuple[str, ...]


class Presence(Struct, frozen=True, gc=False):
    """+user with his applications, -user, or #queue."""

    mid: int
    changes: tuple[tuple[str, tuple[int, ...]], ...] = ()


class JoinQueue(Struct, frozen=True, gc=False):
    mid: int
    queue: str
    flags: int = 0
    filter: str = "*"


class PartQueue(Struct, frozen=True, gc=False):
    mid: int
    queue: str


class CreateQueue(Struct, frozen=True, gc=False):
    mid: int
    queue: str
    flags: int = 0
    max_messages: int = 0  # 0: no limit
    ttl: int = 0  # seconds; 0: no limit
    info: str = ""


class QueueInfo(Struct, frozen=True, gc=False):
    mid: int
    queue: str
    flags: int
    owner: str
    members: int
    depth: int
    info: str = ""


class AlterQueue(Struct, frozen=True, gc=False):
    """A client asks for it, a server tells it; None is what stays as it is."""

    mid: int
    queue: str
    flags: int | None = None
    max_messages: int | None = None
    ttl: int | None = None
    owner: str | None = None
    allow: tuple[str, ...] = ()  # users, each with + or - before it
    info: str | None = None


class SendToQueue(Struct, frozen=True, gc=False):
    mid: int
    queue: str
    topic: str
    payload: bytes
    flags: int = 0


class GetFromQueue(Struct, frozen=True, gc=False):
    mid: int
    queue: str
    count: int = 1
    filter: str = "*"


class FromQueue(Struct, frozen=True, gc=False):
    mid: int
    queue: str
    topic: str
    id: int
    time: int  # seconds since 1970
    sender: str
    payload: bytes
    flags: int = 0


class SendToClient(Struct, frozen=True, gc=False):
    mid: int
    user: str
    app_id: int
    payload: bytes
    flags: int = 0


class FromClient(Struct, frozen=True, gc=False):
    mid: int
    sender: str
    app_id: int
    id: int
    time: int  # seconds since 1970
    payload: bytes
    flags: int = REQUIREACK


_ANY = [Ack, Error]  # a client may say them at any time, to no effect
_USUAL = [
    *_ANY,
    *[Notify, FindQueue, JoinQueue, PartQueue, CreateQueue, AlterQueue],
    *[SendToQueue, GetFromQueue, SendToClient, QueueInfo, FromQueue],
]
START = S.BANNER
TABLE: dict[State, dict[type, State]] = {
    S.BANNER: {ServerCaps: S.CAPS, **dict.fromkeys(_ANY, S.BANNER)},
    S.CAPS: {ClientCaps: S.CAPS_ASKED, **dict.fromkeys(_ANY, S.CAPS)},
    S.CAPS_ASKED: {
        CapsAccepted: S.LOGIN,
        CapsRefused: S.CLOSED,
        **dict.fromkeys(_ANY, S.CAPS_ASKED),
    },
    S.LOGIN: {Auth: S.CHECKING, **dict.fromkeys(_ANY, S.LOGIN)},
    S.CHECKING: {
        LoginAccepted: S.IN,
        LoginRefused: S.LOGIN,
        **dict.fromkeys(_ANY, S.CHECKING),
    },
    S.IN: {AppId: S.SYNCING, **dict.fromkeys(_USUAL, S.IN)},
    S.SYNCING: {Presence: S.SYNCED, **dict.fromkeys([*_USUAL, AppId, FromClient], S.SYNCING)},
    S.SYNCED: dict.fromkeys([*_USUAL, AppId, FromClient, Presence], S.SYNCED),
}
