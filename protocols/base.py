"""What is subtle and the same at both ends of every protocol: taking turns, waiting, closing,
cleaning up, and what becomes of errors.  Nothing here knows a wire format.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutine
from typing import Any, ClassVar, cast

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IHalfCloseableProtocol, IReactorTime, ISSLTransport
from twisted.internet.protocol import Protocol, ServerFactory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.interfaces import Accounts, Broker, BrokerError, Peer, Setting, User
from gateway.record import CONNECTED, DISCONNECTED, LOGGED_IN, REFUSED
from protocols.conversation import Conversation, OutOfTurn
from protocols.framing import FramingLost, WireError
from protocols.outbox import ENOUGH, Outbox
from protocols.timer import Timer

LINGER = 2.0  # seconds in which a peer may read our last words before we hang up
AHEAD = 1 << 20  # bytes of requests that are handled while answers wait for the barrier


class NoBroker:
    """What a client has instead of a Broker: nothing to promise and nobody to tell."""

    accepted = 0

    def durable(self) -> None:
        return None

    def note(self, kind: str, peer: Peer, **about: str) -> None:
        pass

    def count(self, what: str, *labels: str) -> None:
        pass


@implementer(IHalfCloseableProtocol)
class WireProtocol(Protocol):
    """One end of a connection.  A subclass names its `wire` module and has a method `on_X` for each
    event X that the peer may send.

    A handler answers with `send`.  If the answer must wait, it returns a Deferred or is a
    coroutine; what the peer asks meanwhile waits its turn.  A handler that makes the Broker accept
    something does so before it waits: its answer is then held until that is on disk.
    """

    wire: Any  # the module; an instance may have its own, if its listener or its past decides
    name: str  # the protocol's, in records and logs
    talks_to = "client"  # which side the peer is: "client" or "server"
    _handlers: ClassVar[dict[type, Callable[[Any, Any], Any]]]
    unpromised: ClassVar[frozenset[type]] = frozenset()  # events to which nothing is answered

    log = Logger()
    transport: Any  # more than an ITransport: it can be paused, half-closed and aborted
    clock: IReactorTime
    broker: Broker = cast(Broker, NoBroker())
    frame_limit: int | None = None  # the wire module's own, if None
    frame_timeout: float | None = None  # seconds a frame may be unfinished
    write_timeout = 30.0  # seconds a peer may read nothing while we have something to say
    output_limit = 1 << 20  # bytes that may wait, beside the transport's, for a peer to read

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if hasattr(cls, "wire"):
            names = {
                event: f"on_{event.__name__}" for row in cls.wire.TABLE.values() for event in row
            }
            cls._handlers = {
                event: getattr(cls, name) for event, name in names.items() if hasattr(cls, name)
            }

    # For the subclass to override.

    def started(self) -> None:
        """The connection is there."""

    def ended(self) -> None:
        """The connection is gone; the cleanups have been run."""

    def refuse(self, event: Any, error: BrokerError) -> None:
        """Say in the protocol's words that what the event asked is refused."""
        raise NotImplementedError(f"{self.name} has no words for a refusal")

    def wire_error(self, error: WireError) -> None:
        """The peer broke the spec.  Answer if the spec has words for it, `close` if it says so;
        after FramingLost the connection is closed in any case."""
        self.close()

    def has_room(self) -> None:
        """The peer has read, or the barrier has fired: there may be room to say more."""

    def overflow(self) -> None:
        """The peer does not read what it is sent."""
        self.abort("does not read")

    # For the subclass to use.

    def send(self, event: Any) -> None:
        """Say something to the peer, after all that has been said before."""
        data, outbox = self.talk.send(event), self.outbox
        outbox.pieces.append(data)
        outbox.size += len(data)
        if not self._reading:
            self._flush()

    def send_bytes(self, data: bytes) -> None:
        """Say what has been encoded before, for many peers at once; the table does not see it."""
        outbox = self.outbox
        outbox.pieces.append(data)
        outbox.size += len(data)
        if not self._reading:
            self._flush()

    def log_in(self, user: User) -> None:
        """This is who talks, from now on; his rights are what the Broker holds him to."""
        factory: Any = self.factory
        self.peer = Peer(self.name, user.name)
        self.broker = factory.accounts.broker_for(user, factory.broker)
        self.broker.note(LOGGED_IN, self.peer, detail=self.address)

    def add_cleanup(self, call: Callable[[], Any]) -> None:
        """Do this when the connection is gone; the last added first."""
        self._cleanups.append(call)

    def close(self) -> None:
        """Say what is still to be said, then hang up; read nothing more."""
        self._closing = True
        if not self._reading:
            self._flush()

    def abort(self, reason: str, detail: str = "") -> None:
        """Hang up at once, and note why."""
        self.note_refusal(reason, detail)
        self._closing = True
        self.transport.abortConnection()

    def note_refusal(self, reason: str, detail: str = "") -> None:
        """Count a refusal; record and log it if it is the first of its kind on this connection."""
        if reason in self._noted:
            self.broker.count("refused", self.name, reason)
            return
        self._noted.add(reason)
        self.broker.note(REFUSED, self.peer, reason=reason, detail=detail)
        text = f"{reason}: {detail}" if detail else reason
        self.log.info("{name} {address}: {text}", name=self.name, address=self.address, text=text)

    # What Twisted tells us.

    def connectionMade(self) -> None:
        self.talk = Conversation(self.wire, self.talks_to, self.frame_limit)
        self.outbox = Outbox(
            self.transport, self.broker, self._refused, self._on_free, self._on_blocked
        )
        self.peer = Peer(self.name, "")
        host = self.transport.getPeer()
        self.address = f"{host.host}:{host.port}" if hasattr(host, "port") else str(host)
        self._waiting: Deferred[Any] | None = None  # the handler that has not finished
        self._reading = False
        self._ahead = 0  # bytes heard since the outbox was free
        self._paused = False  # we have asked the transport not to read
        self._heard_all = False  # the peer has closed its side
        self._closing = False
        self._hung_up = False
        self._lost = False
        self._cleanups: list[Callable[[], Any]] = []
        self._noted: set[str] = set()
        self._stage = 0  # of the frame that the timer was set for
        self._frame_timer = Timer(self.clock, lambda: self.abort("unfinished frame"))
        self._write_timer = Timer(self.clock, self._unread)
        self.transport.registerProducer(self.outbox, True)
        self.broker.note(CONNECTED, self.peer, detail=self.address)
        self.started()

    def dataReceived(self, data: bytes) -> None:
        if not self._closing:
            self.talk.feed(data)
            self._ahead += len(data)
            self._read()

    def readConnectionLost(self) -> None:
        """The peer has said all it will.  One that waits for an answer has left, as far as anybody
        can know; any other may still read what it was promised."""
        self._heard_all = True
        if self._waiting is not None or self._hung_up:
            self.transport.loseConnection()
        else:
            self._read()

    def writeConnectionLost(self) -> None:
        """Our last words are on their way."""
        self._write_timer.set(LINGER)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._lost = self._closing = True
        self._frame_timer.stop()
        self._write_timer.stop()
        if self._waiting is not None:
            self._waiting.cancel()
        while self._cleanups:
            try:
                self._cleanups.pop()()
            except Exception:
                self.log.failure("a cleanup of {name} broke", name=self.name)
        self.broker.note(DISCONNECTED, self.peer, detail=self.address)
        self.ended()

    # Reading.

    def _read(self) -> None:
        """Handle what has arrived, as far as nothing stands in the way."""
        if self._reading or self._lost:
            return
        self._reading = True
        try:
            self._read_events()
        except Exception:
            self._broke(Failure())
        self._reading = False
        self._flush()
        self._pace()

    def _read_events(self) -> None:
        """The hot path: what it asks for each event can change while the event is handled."""
        next_event, handlers, broker = self.talk.next_event, self._handlers, self.broker
        outbox = self.outbox
        if self._waiting is not None or outbox.blocked:
            return
        if outbox.is_held and self._ahead > AHEAD:
            return  # else a publisher could fill the memory faster than the disk
        while not self._closing:
            try:
                event = next_event()
                if event is None:
                    self._closing = self._heard_all
                    return
                start, accepted = len(outbox.pieces), broker.accepted
                try:
                    result = handlers[type(event)](self, event)
                except BrokerError as error:
                    self._refused(event, error)
                    result = None
                if broker.accepted != accepted and type(event) not in self.unpromised:
                    outbox.promise(event, start)
                if result is not None:
                    self._wait(event, result)
                    if self._waiting is not None:
                        return
            except WireError as error:
                self._blame(error)
            if outbox.size > ENOUGH:
                outbox.flush()
                if outbox.blocked or outbox.size:
                    return  # so much waits for the peer or the barrier; `_on_free` goes on

    def _wait(self, event: Any, result: Any) -> None:
        """Handle nothing more until this handler has finished."""

        def failed(failure: Failure) -> None:
            if isinstance(failure.value, BrokerError):
                self._refused(event, failure.value)
            elif not (self._lost and failure.check(CancelledError)):
                self._broke(failure)

        def finished(_: object) -> None:
            self._waiting = None
            self._read()

        self._waiting = Deferred.fromCoroutine(result) if iscoroutine(result) else result
        self._waiting.addErrback(failed).addBoth(finished)

    def _pace(self) -> None:
        """Keep time over an unfinished frame, and stop a flood of what cannot be handled yet."""
        framer = self.talk.framer
        stuck = self._waiting is not None or self.outbox.blocked or self.outbox.is_held
        if self.frame_timeout is not None:
            if stuck or self._closing or not framer.held():
                self._stage = 0
                self._frame_timer.clear()
            elif framer.stage != self._stage:  # again when we learn how long the frame will be
                self._stage = framer.stage
                self._frame_timer.set(self.frame_timeout)
        flood = stuck and framer.held() > ENOUGH
        if flood is not self._paused and not self._closing:
            # A paused transport cannot tell that the peer has gone, so only a flood pauses it.
            self._paused = flood
            if flood:
                self.transport.pauseProducing()
            else:
                self.transport.resumeProducing()

    # Writing.

    def _flush(self) -> None:
        if self._lost:
            return
        if self.outbox.flush():
            if self._closing:
                self._hang_up()
        elif self.outbox.blocked and self.outbox.size > self.output_limit:
            self.overflow()

    def _on_free(self) -> None:
        if not self.outbox.blocked:
            self._write_timer.clear()
        self._ahead = 0
        self._read()
        if not self._closing:
            self.has_room()

    def _on_blocked(self) -> None:
        self._write_timer.set(self.write_timeout)

    def _unread(self) -> None:
        if self._hung_up:
            self.transport.abortConnection()  # it had its time
        else:
            self.overflow()

    def _hang_up(self) -> None:
        """Half-close and let the peer read our last words: to close with its bytes unread would
        make the kernel reset the connection."""
        if self._hung_up:
            return
        self._hung_up = True
        self._frame_timer.clear()
        self._write_timer.set(self.write_timeout)
        self.transport.unregisterProducer()
        if self._heard_all or ISSLTransport.providedBy(self.transport):
            self.transport.loseConnection()
            return
        if self._paused:
            self.transport.resumeProducing()
        self.transport.loseWriteConnection()

    # Errors.

    def _refused(self, event: Any, error: BrokerError) -> None:
        self.note_refusal(type(error).__name__, str(error))
        reading, self._reading = self._reading, True  # whoever called writes it
        self.refuse(event, error)
        self._reading = reading

    def _blame(self, error: WireError) -> None:
        """Answer a peer that broke the spec."""
        reason = "out of turn" if isinstance(error, OutOfTurn) else "broke the spec"
        self.note_refusal(reason, str(error)[:200])
        self.wire_error(error)
        if isinstance(error, FramingLost):
            self._closing = True

    def _broke(self, failure: Failure) -> None:
        """Our bug, not their mistake: log it and let only this connection suffer."""
        self.log.failure(
            "{name} broke for {address}", failure, name=self.name, address=self.address
        )
        self.broker.count("bugs", self.name)
        self._closing = True
        self.transport.abortConnection()


class WireFactory(ServerFactory):
    """One listener of a protocol.  A subclass names its `protocol` and its `settings`, which become
    attributes under the names that the protocol's document uses."""

    protocol: type[WireProtocol]
    settings: ClassVar[dict[str, Setting]] = {}
    noisy = False

    def __init__(
        self, broker: Broker, accounts: Accounts, clock: IReactorTime, **settings: Any
    ) -> None:
        self.broker = broker
        self.accounts = accounts
        self.guests_broker = accounts.broker_for(None, broker)  # for clients, until they log in
        self.clock = clock
        for name, setting in self.settings.items():
            setattr(self, name, settings.get(name, setting.default))

    @classmethod
    def read_stanza(cls, stanza: dict[str, Any], read: Callable[[str], Any]) -> dict[str, Any]:
        """A listener's stanza as the configuration should see it.  `read` gives the content of a
        YAML file that the stanza names; ValueError has what is wrong with it, an argument each."""
        return stanza

    def started(self) -> None:
        """The Broker runs, nobody has connected yet: declare what there must be."""

    def finish(self) -> Deferred[None] | None:
        """The gateway ends, and lets nobody new in: fires when what is under way is done."""
        return None

    def farewell(self) -> bytes:
        """What to say to a connection over the limit."""
        return b""

    def buildProtocol(self, addr: Any) -> WireProtocol:
        protocol = self.protocol()
        protocol.factory = self
        protocol.broker = self.guests_broker
        protocol.clock = self.clock
        return protocol
