"""The room of one aWCS listener: who is in it, what is said in it, and who is told."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

from gateway.interfaces import Broker, Message
from protocols.awcs import wire
from protocols.awcs.wire import NOBODY, Alive, Connected, Disconnected, Elapsed, Kicked, Relay, Text

if TYPE_CHECKING:
    from protocols.awcs.server import AwcsServer

LAST = 9999  # the greatest number that four digits have
FLOODING, OVERFLOW = 0, 1  # why the server kicks a client; too long an input counts as flooding


class Numbers:
    """The numbers of connections, 1 to 9999 in turn: none comes again before all others have."""

    def __init__(self) -> None:
        self._newest = 0
        self._used: set[int] = set()

    def take(self) -> int | None:
        """The next one that is free, or None."""
        if len(self._used) >= LAST:
            return None
        self._newest = self._newest % LAST + 1
        while self._newest in self._used:
            self._newest = self._newest % LAST + 1
        self._used.add(self._newest)
        return self._newest

    def give_back(self, number: int) -> None:
        self._used.discard(number)


class Hub:
    """One master and its clients.

    What is said in one read is collected with each member and written when `flush` is called, at
    the end of the read: a kick in the same read can then still take it back.
    """

    def __init__(
        self,
        broker: Broker,
        members_broker: Broker,
        clock: IReactorTime,
        address: str,
        *,
        prefix_is_master: bool,
        announces_master: bool,
        notify_interval: float,
    ) -> None:
        self._broker = broker
        self._members_broker = members_broker  # as who is in the room may use it
        self._clock = clock
        self._address = address
        self._prefix_is_master = prefix_is_master
        self._announces_master = announces_master
        self._notify_interval = notify_interval
        self._prefix = NOBODY
        self.numbers = Numbers()
        self.arrivals = count()
        self.master: AwcsServer | None = None
        self.clients: dict[int, AwcsServer] = {}
        self._leaving: list[AwcsServer] = []  # kicked, and closed at the end of this turn
        self._unsent: dict[int, AwcsServer] = {}  # who has something to be written
        self._own: Message | None = None  # what we publish ourselves, right now
        self._notifier = LoopingCall(self._notify)
        self._notifier.clock = clock

    def open(self) -> None:
        """Be an address of the Broker's: what others publish to it is broadcast."""
        self._broker.declare(self._address)
        self._broker.subscribe(self._address, self._published)

    # Coming and going.

    def seat(self, master: AwcsServer) -> None:
        self.master = master
        self._prefix = master.number if self._prefix_is_master else NOBODY
        self._notifier.start(self._notify_interval, now=False)
        if self._announces_master:
            self.tell(Connected(master.number, master.place, self._prefix))

    def join(self, client: AwcsServer) -> None:
        self.clients[client.number] = client
        self.tell(Connected(client.number, client.place, self._prefix))

    def gone(self, member: AwcsServer) -> None:
        """The connection is lost, whoever ended it."""
        if member is self.master:
            self._unseat()
        elif self.clients.get(member.number) is member:
            del self.clients[member.number]
            self.tell(Disconnected(member.number, prefix=self._prefix))
            self.flush()

    def kick(self, member: AwcsServer, reason: int | None = None) -> None:
        """Let it say and hear nothing more.  The master is told when the client is gone, at the
        end of the turn, and the reason before, unless the kick was its own wish.

        The master's own end is everybody's; who has not said what it is just goes.
        """
        member.drop()
        if member is self.master:
            self._unseat()
            member.hang_up()
        elif self.clients.pop(member.number, None) is None:
            member.hang_up()
        else:
            self._leaving.append(member)
            if len(self._leaving) == 1:
                self._clock.callLater(0, self._tear_down)
            if reason is not None:
                self.tell(Kicked(member.number, reason, self._prefix))

    def _tear_down(self) -> None:
        """Close the kicked in the order in which they came."""
        leaving, self._leaving = self._leaving, []
        for member in sorted(leaving, key=lambda member: member.arrival):
            self.tell(Disconnected(member.number, prefix=self._prefix))
            member.hang_up()
        self.flush()

    def _unseat(self) -> None:
        """The master leaves and everybody with it, without a word."""
        self.master = None  # first of all: nobody may be tempted to tell a master that is full
        self._notifier.stop()
        everybody = [*self.clients.values(), *self._leaving]
        self.clients.clear()
        self._leaving.clear()
        for client in everybody:
            client.drop()
            client.hang_up()

    # What is said.  It is published first: what cannot be recorded is not delivered.

    def say_to_master(self, client: AwcsServer, body: bytes) -> None:
        self._publish(body, client.peer.user)
        self.tell(Relay(client.number, body))

    def broadcast(self, master: AwcsServer, body: bytes) -> None:
        self._publish(body, master.peer.user, {"to": "all"})
        self._say_to_all(body)

    def multicast(self, master: AwcsServer, numbers: tuple[int, ...], body: bytes) -> None:
        """A client that is named twice gets it twice; one that is not there is skipped."""
        self._publish(body, master.peer.user, {"to": list(numbers)})
        data, clients, unsent = wire.encode(Text(body)), self.clients, self._unsent
        for number in numbers:
            client = clients.get(number)
            if client is not None:
                client.put(data)
                unsent[number] = client

    def answer(self) -> None:
        self.tell(Alive(self._prefix))

    def tell(self, event: Any) -> None:
        """Say it to the master, if there is one."""
        master = self.master
        if master is not None:
            master.put(wire.encode(event))
            self._unsent[master.number] = master

    def flush(self) -> None:
        """Write what has been said since."""
        unsent = self._unsent
        while unsent:
            unsent.popitem()[1].write()

    def _say_to_all(self, body: bytes) -> None:
        data = wire.encode(Text(body))
        for client in [*self.clients.values()]:  # one that does not read may be kicked meanwhile,
            client.put(data)
        self._unsent |= self.clients  # and what was said till then be written

    def _notify(self) -> None:
        self.tell(Elapsed(self._prefix))
        self.flush()

    # The hub as an address.

    def _publish(self, body: bytes, sender: str, headers: dict[str, Any] | None = None) -> None:
        self._own = Message(self._address, body, sender, "awcs", headers=headers)
        try:
            self._members_broker.publish(self._own)
        finally:
            self._own = None

    def _published(self, message: Message) -> None:
        if message is self._own:
            return  # whom it is for, we know better
        if b"\0" in message.body:
            self._broker.count("dropped", "awcs", "has a NUL")  # it would be two texts
            return
        self._say_to_all(message.body)
        self.flush()
