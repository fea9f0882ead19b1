"""What somebody who speaks a protocol can do, whichever it is: send, receive, and leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint

Heard = Callable[[str, bytes], None]  # who sent it, "" if the protocol does not say; the body

FAREWELL = 5.0  # seconds that what was sent may take to be written when a speaker leaves
KINDS = ("queue", "topic", "user", "hub")


class Access(NamedTuple):
    """Who logs in, where a protocol asks for that."""

    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Access({self.user!r}, ...)"


class Part(NamedTuple):
    """What a speaker is there for, because some protocols want to know when it connects."""

    sends: bool = True
    receives: bool = False
    is_master: bool = False  # of an aWCS room


class Refused(Exception):
    """The gateway, or the protocol, does not do that; the text is for a person."""


class Speaker:
    """One connection to a gateway, which can be used without knowing the protocol.

    A name is `jobs` or, where a protocol has addresses of more than one kind, `topic:jobs`.
    """

    protocol: ClassVar[str]
    port: ClassVar[int]  # of etc/mqgateway.yaml
    asks_who: ClassVar[bool] = False  # there is no way in without a user and a password
    names: ClassVar[str] = ""  # what a name is; "": the listener has one place, and no name is said

    def __init__(
        self, reactor: Any, endpoint: IStreamClientEndpoint, access: Access, part: Part
    ) -> None:
        self.reactor = reactor
        self.endpoint = endpoint
        self.access = access
        self.part = part
        self.is_gone = False
        self.on_gone: Callable[[], None] = lambda: None  # called when the connection is gone

    async def open(self) -> None:
        """Connect and log in; fails with what stands in the way."""
        raise NotImplementedError

    def send(self, name: str, body: bytes) -> Deferred[str]:
        """Fires when the message is acknowledged, with how, in a few words; and where the protocol
        has no acknowledgement, when it is written."""
        raise NotImplementedError

    async def receive(self, name: str, heard: Heard, most: int | None = None) -> None:
        """Call `heard` with each message from now on; take no more than `most` from a queue."""
        raise NotImplementedError

    async def close(self) -> None:
        """Leave; done when all that was sent is written and the connection is gone."""
        if self.is_gone:
            return
        gone: Deferred[None] = Deferred()
        self.on_gone = lambda: gone.callback(None)
        self.hang_up()
        await gone.addTimeout(FAREWELL, self.reactor).addErrback(lambda _: None)

    def hang_up(self) -> None:
        """Begin to leave."""
        raise NotImplementedError

    def gone(self, _: object = None) -> None:
        """For the subclass to call when the connection is gone."""
        if not self.is_gone:
            self.is_gone = True
            self.on_gone()


def split(name: str, default: str) -> tuple[str, str]:
    """The kind and the name of `topic:jobs`; a name without a kind is of the default one."""
    kind, colon, rest = name.partition(":")
    return (kind, rest) if colon and kind in KINDS else (default, name)
