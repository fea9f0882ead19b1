"""How a connection begins: the banner, what both sides can do, and who the client is."""

from __future__ import annotations

from secrets import token_hex
from typing import Any

from gateway.interfaces import Setting, User
from protocols.base import WireFactory, WireProtocol
from protocols.mqserver import events, wire
from protocols.mqserver.events import CREATING, NOTIFYING, PULLING, STORED
from protocols.mqserver.people import common_at
from protocols.mqserver.proof import HASH, is_proved
from protocols.strangers import Strangers

CAPABILITIES = STORED | NOTIFYING | PULLING | CREATING
SALT_BYTES = 16
DECOY = b"nobody has this password"  # what an unknown user's proof is checked against


class Login(WireProtocol):
    """One connection up to the ACK of its AUTH."""

    wire: Any = wire  # an instance has its listener's
    name = "mqserver"
    factory: LoginFactory

    def started(self) -> None:
        factory = self.factory
        self.frame_timeout = factory.frameSeconds
        self.common = common_at(factory.broker)
        self.notify_list: list[str] = []
        self.user: User | None = None
        self.capabilities = 0
        self._tries = 0
        if hasattr(self.transport, "setTcpKeepAlive"):
            self.transport.setTcpKeepAlive(1)  # else a user whose machine died is here for ever
        stranger = factory.strangers.admit(self, factory.loginSeconds)
        if stranger is None:
            self.send(events.Error(0, "EBUSY", "too many logins are under way"))
            self.close()
            return
        self._stranger = stranger
        self._salt = token_hex(SALT_BYTES)
        details = f"STD {HASH}"
        if factory.maxData != wire.MOST_DATA:  # else it is what everybody takes
            details += f" MAXDATA={factory.maxData}"
        self.send(events.ServerCaps(self._salt, CAPABILITIES, details))

    def on_ClientCaps(self, caps: events.ClientCaps) -> None:
        words = caps.details.split(" ")
        hashes = [word for word in words if word.startswith("HASH=")]
        if not words[0].startswith("STD") or (hashes and HASH not in hashes):
            self.note_refusal("a capability is missing", caps.details[:64])
            self.send(events.CapsRefused(caps.mid))
            self.close()
            return
        self.capabilities = caps.flags & CAPABILITIES
        self.send(events.CapsAccepted(caps.mid))

    async def on_Auth(self, auth: events.Auth) -> None:
        self._stranger.is_checked()
        accounts, salt, proof = self.factory.accounts, self._salt, auth.proof
        user = accounts.find(auth.user)
        if user is None:
            is_proved(DECOY, salt, proof)  # so that it takes as long to refuse him
        elif await accounts.check(user, lambda password: is_proved(password, salt, proof)):
            self._admit(user, auth)
            return
        self._tries += 1
        self.note_refusal("login", auth.user)
        self.send(events.LoginRefused(auth.mid))
        if self._tries >= self.factory.loginTries:
            self.close()
        else:
            self._stranger.wait()

    def _admit(self, user: User, auth: events.Auth) -> None:
        people = self.common.people
        if user.name in people.online:
            self.note_refusal("already logged in", user.name)
            self.send(events.LoginRefused(auth.mid, "already logged in"))
            self._stranger.wait()
            return
        self._stranger.no_more()
        self.log_in(user)
        self.user = user
        self.admitted(user)
        self.send(events.LoginAccepted(auth.mid))

    def admitted(self, user: User) -> None:
        """He is logged in, and will be told so."""
        raise NotImplementedError


class LoginFactory(WireFactory):
    """What a listener must know to let clients in."""

    protocol: type[Login]
    settings = {
        "maxData": Setting(wire.MOST_DATA, 1024, 1 << 28),
        "nuls": Setting(2, 1, 2),
        "loginTries": Setting(3, 1, 100),
        "loginSeconds": Setting(30.0, 0.001, 3600),
        "maxUnauthenticatedConnections": Setting(64, 1, 65535),
        "frameSeconds": Setting(60.0, 0.001, 3600),
    }
    maxData: int
    nuls: int
    loginTries: int
    loginSeconds: float
    maxUnauthenticatedConnections: int
    frameSeconds: float

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.strangers = Strangers(self.maxUnauthenticatedConnections)
        self.profile = wire.Profile(self.maxData, self.nuls)

    def buildProtocol(self, addr: Any) -> WireProtocol:
        protocol = super().buildProtocol(addr)
        protocol.wire = self.profile
        return protocol
