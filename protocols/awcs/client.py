"""aWCS clients for both roles: a master that runs a room, and a client in it.

master = await connect_master(reactor, endpoint, heard=print)
client = await connect_client(reactor, endpoint, heard=print)
client.say(b"hello")            # the master hears Relay(client=2, body=b'hello')
master.multicast([2], b"hi")    # the client hears b'hi'
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.python.failure import Failure

from protocols.asking import connect
from protocols.awcs import wire
from protocols.base import WireProtocol
from protocols.framing import FramingLost, WireError

LONGEST = 1 << 24  # bytes of a frame: the most that a listener of ours can be told to let pass


class AwcsPeer(WireProtocol):
    """What both roles have."""

    wire = wire
    name = "awcs"
    talks_to = "server"
    frame_limit = LONGEST

    def __init__(self, clock: IReactorTime, heard: Callable[[Any], None]) -> None:
        self.clock = clock
        self._heard = heard
        self.lost: Deferred[None] = Deferred()  # fires when the connection is gone

    def disconnect(self) -> None:
        self.transport.loseConnection()

    def _say(self, event: Any, body: bytes = b"") -> None:
        """ConnectionDone if nobody hears it; ValueError for what cannot be said."""
        if b"\0" in body:
            raise ValueError("a NUL ends a text, and cannot be in it")
        if self._closing:
            raise ConnectionDone("not connected")
        self.send(event)

    def wire_error(self, error: WireError) -> None:
        """Later servers say more than we know: go on while it can be told apart."""
        if isinstance(error, FramingLost):
            self.abort("broke the spec", str(error))

    def ended(self) -> None:
        self.lost.callback(None)


class AwcsClient(AwcsPeer):
    """A client.  Nothing tells it that it was let in; one that was not is closed at once."""

    def started(self) -> None:
        self.send(wire.Join())

    def say(self, body: bytes) -> None:
        """To the master."""
        self._say(wire.Text(body), body)

    def on_Text(self, text: wire.Text) -> None:
        self._heard(text.body)


class AwcsMaster(AwcsPeer):
    """A master.  It hears of its clients as wire.Connected, Disconnected and Kicked, hears from
    them as wire.Relay, and from time to time wire.Elapsed."""

    def __init__(self, clock: IReactorTime, heard: Callable[[Any], None]) -> None:
        super().__init__(clock, heard)
        self.number: int | None = None  # its own, if the server says it
        self.clients: dict[int, str] = {}  # who is there, and from where
        self._prefix: int | None = None  # what a status begins with
        self._asked: deque[Deferred[Any]] = deque()
        self.seated: Deferred[AwcsMaster] = Deferred(lambda _: self.transport.abortConnection())

    def started(self) -> None:
        """A server may announce the master to itself, or not; but it answers the question."""
        self.send(wire.Initialize())
        self.alive().addCallback(lambda _: self).chainDeferred(self.seated)

    # What a user of the master calls.

    def broadcast(self, body: bytes) -> None:
        self._say(wire.Broadcast(body), body)

    def multicast(self, clients: Iterable[int], body: bytes) -> None:
        self._say(wire.Multicast(tuple(clients), body), body)

    def kick(self, *clients: int) -> None:
        self._say(wire.Kick(clients))

    def flood_off(self, *clients: int) -> None:
        """Let them send as much as they like."""
        self._say(wire.FloodOff(clients))

    def flood_on(self, *clients: int) -> None:
        self._say(wire.FloodOn(clients))

    def alive(self) -> Deferred[Any]:
        """Fires when the server has answered all that was asked before."""
        if self._closing:
            return fail(ConnectionDone("not connected"))
        self.send(wire.Report())
        self._asked.append(Deferred())
        return self._asked[-1]

    # What the server says.

    def on_Relay(self, relay: wire.Relay) -> None:
        """The first frame is a status, whatever it begins with: before a client can say anything,
        we are told that it is there.  From it we know a server that uses our own number."""
        if self._prefix is None:
            self._prefix = relay.client
        if relay.client == self._prefix:
            status = wire.decode_status(relay.body, relay.client)
            self._handlers[type(status)](self, status)
        else:
            self._heard(relay)

    def on_Connected(self, connected: wire.Connected) -> None:
        self._prefix = connected.prefix
        if self.number is None and not self.seated.called:
            self.number = connected.client
        else:
            self.clients[connected.client] = connected.address
            self._heard(connected)

    def on_Disconnected(self, disconnected: wire.Disconnected) -> None:
        self.clients.pop(disconnected.client, None)
        self._heard(disconnected)

    def on_Kicked(self, kicked: wire.Kicked) -> None:
        self._heard(kicked)

    def on_Elapsed(self, elapsed: wire.Elapsed) -> None:
        self._heard(elapsed)

    def on_Alive(self, alive: wire.Alive) -> None:
        self._prefix = alive.prefix
        if not self._asked:
            raise WireError("an answer to nothing")
        self._asked.popleft().callback(None)

    def ended(self) -> None:
        """Nobody waits for an answer that cannot come."""
        failure = Failure(ConnectionDone("the connection is gone"))
        while self._asked:
            self._asked.popleft().errback(failure)
        super().ended()


def connect_client(
    clock: IReactorTime, endpoint: IStreamClientEndpoint, heard: Callable[[bytes], None]
) -> Deferred[AwcsClient]:
    """A client that has said so; `heard` is called with what it is told."""
    return connect(endpoint, lambda: AwcsClient(clock, heard))


def connect_master(
    clock: IReactorTime, endpoint: IStreamClientEndpoint, heard: Callable[[Any], None]
) -> Deferred[AwcsMaster]:
    """A master that has its seat, or ConnectionDone if another has it; `heard` is called with what
    happens."""
    return connect(endpoint, lambda: AwcsMaster(clock, heard)).addCallback(
        lambda master: master.seated
    )
