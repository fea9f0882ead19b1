"""aWCS's meaning: who is master, who is client, and what each may do to the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.interfaces import BrokerError, Peer, Setting
from gateway.record import LOGGED_IN
from protocols.awcs import wire
from protocols.awcs.addresses import ANYBODY, is_among, networks, place
from protocols.awcs.hub import FLOODING, OVERFLOW, Hub
from protocols.base import LINGER, WireFactory, WireProtocol
from protocols.framing import FramingLost, WireError
from protocols.outbox import ENOUGH
from protocols.timer import Timer

UNIDENTIFIED = 16  # bytes that may wait until they begin a role; as many as there always were
TICK = 1.0  # seconds after which every connection has one flood point less
GRACE = 0.5  # seconds in which the kernel must take what is over the limit, or the peer is kicked
BURST = 1 << 20  # bytes that may wait in that time; a turn of the reactor brings 64 KiB at most
MASTER_BURST = 4 << 20  # the same for the master, who has many clients
PREFIXES = ("0000", "master")  # as the document says; as the servers of old did


class AwcsServer(WireProtocol):
    """One connection of an aWCS listener: a master, a client, or nobody knows yet."""

    wire = wire
    name = "awcs"
    factory: AwcsFactory
    unpromised = frozenset([wire.Text, wire.Broadcast, wire.Multicast])
    write_timeout = GRACE
    output_limit = BURST
    number = wire.NOBODY  # until it has one

    def started(self) -> None:
        factory = self.factory
        room = self.room = factory.room
        self.arrival = next(room.arrivals)
        self.place = place(self.transport.getPeer())
        self.is_protected = True  # from floods
        self._points = 0
        self._ticks = factory.ticks()
        self._most_unread = factory.client_output
        self._is_dropped = False
        self._is_known = False
        self._first = b""  # what came until it is known
        self._identify_timer = Timer(self.clock, lambda: self._dismiss("no role in time"))
        self.add_cleanup(self._identify_timer.stop)
        number = room.numbers.take()
        if number is None:
            self._dismiss("no number is free")
            return
        self.number = number
        self.add_cleanup(lambda: room.numbers.give_back(number))
        self._identify_timer.set(factory.identify_timeout)

    def ended(self) -> None:
        self.room.gone(self)

    # Reading.

    def dataReceived(self, data: bytes) -> None:
        if self._closing:
            return
        if self.is_protected and self._floods(len(data)):
            self.note_refusal("flooding")
            self.room.kick(self, FLOODING)
            self.room.flush()
        elif self._is_known:
            super().dataReceived(data)
        else:
            self._identify(data)

    def _floods(self, size: int) -> bool:
        """Count one read.  The points that time has taken off are reckoned here."""
        factory = self.factory
        ticks = factory.ticks()
        self._points = (
            max(0, self._points - (ticks - self._ticks)) + 1 + size // factory.flood_bytes
        )
        self._ticks = ticks
        return self._points > factory.flood_points

    def _identify(self, data: bytes) -> None:
        self._first += data
        if wire.identify(self._first) is not None:
            self._is_known = True
            self._identify_timer.stop()
            data, self._first = self._first, b""
            super().dataReceived(data)
        elif len(self._first) > UNIDENTIFIED:
            self._dismiss("neither master nor client")

    def _read(self) -> None:
        super()._read()
        self.room.flush()

    # Coming in.

    def on_Initialize(self, _: wire.Initialize) -> None:
        room, factory = self.room, self.factory
        if room.master is self:
            return
        if room.master is not None:
            self._dismiss("there is a master")
        elif not factory.may_be_master(self.transport.getPeer()):
            self._dismiss("may not be master")
        else:
            self.is_protected = False
            self.output_limit = MASTER_BURST
            self._enter("master", factory.master_input, factory.master_output)
            room.seat(self)

    def on_Join(self, _: wire.Join) -> None:
        if self.room.master is None:
            self._dismiss("there is no master")
        else:
            factory = self.factory
            self._enter(f"{self.number:04d}", factory.client_input, factory.client_output)
            self.room.join(self)

    def _enter(self, user: str, most_unfinished: int, most_unread: int) -> None:
        self.talk.framer.limit = most_unfinished
        self._most_unread = most_unread
        set_buffer_size(self.transport, min(most_unread, ENOUGH))
        self.peer = Peer(self.name, user)
        self.broker.note(LOGGED_IN, self.peer, address=self.factory.address, detail=self.address)

    # Clients.

    def on_Text(self, text: wire.Text) -> None:
        self.room.say_to_master(self, text.body)

    # The master.

    def on_Broadcast(self, broadcast: wire.Broadcast) -> None:
        self.room.broadcast(self, broadcast.body)

    def on_Multicast(self, multicast: wire.Multicast) -> None:
        self.room.multicast(self, multicast.clients, multicast.body)

    def on_Report(self, _: wire.Report) -> None:
        self.room.answer()

    def on_Kick(self, kick: wire.Kick) -> None:
        for client in self._present(kick.clients):
            client.note_refusal("kicked by the master")
            self.room.kick(client)

    def on_FloodOff(self, flood: wire.FloodOff) -> None:
        for client in self._present(flood.clients):
            client.is_protected = False

    def on_FloodOn(self, flood: wire.FloodOn) -> None:
        for client in self._present(flood.clients):
            client.is_protected = True

    def _present(self, numbers: tuple[int, ...]) -> list[AwcsServer]:
        """The clients of these numbers, as far as they are there, each once."""
        clients = self.room.clients
        return [clients[number] for number in dict.fromkeys(numbers) if number in clients]

    # What the hub has to say.

    def put(self, data: bytes) -> None:
        """Say what is encoded already, once for many.  It is written when the hub says so, or when
        it is much."""
        if self._closing:
            return
        outbox = self.outbox
        outbox.pieces.append(data)
        outbox.size += len(data)
        if outbox.size > ENOUGH:
            self._flush()

    def write(self) -> None:
        self._flush()

    def overflow(self) -> None:
        """More than the limit waits, beyond what the kernel has."""
        if self.outbox.size > self.output_limit:
            self._does_not_read()
        else:
            # A timer may come before the transport has tried; after one more turn it has.
            self.clock.callLater(0, self._look_again)

    def _look_again(self) -> None:
        if self._closing or not self.outbox.blocked:
            return
        if self._heard_all or self.outbox.size + ENOUGH >= self._most_unread:
            self._does_not_read()  # what the transport holds counts, and who has left will not read
        else:
            self._write_timer.set(self.write_timeout)

    def _does_not_read(self) -> None:
        self.note_refusal("does not read")
        self.room.kick(self, OVERFLOW)
        self.room.flush()

    # Going.

    def _dismiss(self, reason: str) -> None:
        """Close without a word."""
        self.note_refusal(reason)
        self.drop()
        self.hang_up()

    def drop(self) -> None:
        """Read and write no more, and forget what was to be said."""
        self._closing = self._is_dropped = True
        self.outbox.pieces.clear()
        self.outbox.size = 0

    def hang_up(self) -> None:
        """Close after `drop`.  The peer sees an orderly end, unless it has not read what it had
        before, in which case nothing but a reset would end it."""
        if self._lost:
            return
        if not self._hung_up:
            self._hung_up = True
            self.transport.unregisterProducer()
        if self.outbox.blocked:
            self.transport.abortConnection()
        else:
            self._write_timer.set(LINGER)
            self.transport.loseConnection()

    def _hang_up(self) -> None:
        if not self._is_dropped:  # else the hub says when
            super()._hang_up()

    # Errors.

    def refuse(self, event: Any, error: BrokerError) -> None:
        """There are no words for it: the text is lost, and that is noted."""

    def wire_error(self, error: WireError) -> None:
        """A master's bad frame is ignored; too long a frame is the end."""
        if isinstance(error, FramingLost):
            self.room.kick(self, FLOODING)


class AwcsFactory(WireFactory):
    """One aWCS listener, and its hub."""

    protocol = AwcsServer
    settings = {
        "hub": Setting("awcs", unique=True),
        "status_prefix": Setting(PREFIXES[0], choices=PREFIXES),
        "announce_master": Setting(True),
        "master_from": Setting(ANYBODY),
        "notify_interval": Setting(3.0, 0.1, 86_400),
        "identify_timeout": Setting(30.0, 0.1, 86_400),
        "client_input": Setting(8192, 16, 1 << 20),
        "client_output": Setting(8192, 1024, ENOUGH),  # all of it is the transport's
        "master_input": Setting(131_072, 16, 1 << 24),
        "master_output": Setting(262_144, 1024, MASTER_BURST),
        "flood_points": Setting(100, 1, 1 << 30),
        "flood_bytes": Setting(50, 1, 1 << 30),
    }
    hub: str
    status_prefix: str
    announce_master: bool
    master_from: str
    notify_interval: float
    identify_timeout: float
    client_input: int
    client_output: int
    master_input: int
    master_output: int
    flood_points: int
    flood_bytes: int

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.address = f"hub:{self.hub}"
        self._start = self.clock.seconds()
        self._masters = networks(self.master_from)
        self.room = Hub(
            self.broker,
            self.guests_broker,
            self.clock,
            self.address,
            prefix_is_master=self.status_prefix == PREFIXES[1],
            announces_master=self.announce_master,
            notify_interval=self.notify_interval,
        )

    @classmethod
    def read_stanza(cls, stanza: dict[str, Any], read: Callable[[str], Any]) -> dict[str, Any]:
        """Look at what a Setting cannot say of itself."""
        masters = stanza.get("master_from")
        if isinstance(masters, str):
            try:
                networks(masters)
            except ValueError as error:
                raise ValueError(f"master_from: must be {ANYBODY}, or addresses: {error}") from None
        return stanza

    def started(self) -> None:
        self.room.open()

    def ticks(self) -> int:
        """How often everybody's flood points have been lowered."""
        return int((self.clock.seconds() - self._start) / TICK)

    def may_be_master(self, peer: Any) -> bool:
        return self._masters is None or is_among(peer, self._masters)


def set_buffer_size(transport: Any, size: int) -> None:
    """Let the transport, whatever wraps it, call more than this many unsent bytes too much.

    Twisted's own number is 64 KiB, eight times what a client may leave unread.  It is also how much
    is read at once, as the servers of old read no more than had room.
    """
    while (inner := getattr(transport, "transport", None)) is not None:
        transport = inner
    transport.bufferSize = size
