"""MQServer on the bench: its listener, its clients, its loads and its bare responder."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any

from twisted.internet.protocol import Protocol

from bench.load import PATIENCE, READ, LoadError, dial
from bench.measure import Row, Sample, meter
from bench.server import Server
from protocols.mqserver import events, wire
from protocols.mqserver.events import BROADCAST, PULL, REQUIREACK, REQUIREACKPROCESS, Ack
from protocols.mqserver.proof import prove

NAME = "mqserver"
TITLE = "MQServer, messages of 100 bytes"
PASSWORD = "secret"
MEMBERS = 50  # of the queue FAN
WINDOW = 64
FILL_WINDOW = 256  # where nothing is measured, as fast as it goes
APP_ID = 1
MAIL = "mail"  # the user who is sent mail
# A user may be logged in once: as many as there are connections.
NAMES = [*[f"p{n}" for n in range(8)], *[f"m{n}" for n in range(MEMBERS)], "one", "get", MAIL]
USERS: list[dict[str, Any]] = [
    {"name": name, "password": PASSWORD, "publisher": True, "subscriber": True} for name in NAMES
]
LISTENER: dict[str, Any] = {
    "protocol": "mqserver",
    "maxConnections": 2000,
    "maxUnauthenticatedConnections": 1000,
    "maxMessages": 100_000_000,
}

BARE, ONE, FAN, JOBS = "bare", "one", "fan", "jobs"  # queues
MESSAGE = bytes(range(100, 200))


def send_frame(queue: str) -> bytes:
    return wire.encode(events.SendToQueue(9, queue, "topic", MESSAGE, REQUIREACK))


ACK_TAIL = wire.tail(Ack(0))
GET = wire.encode(events.GetFromQueue(9, JOBS, WINDOW))
LETTER = wire.encode(events.SendToClient(9, MAIL, APP_ID, MESSAGE, REQUIREACKPROCESS))


def frames(connection: socket.socket, count: int) -> bytes:
    """So many frames; each ends with two NULs and has no other."""
    received = b""
    while received.count(b"\0") < 2 * count:
        data = connection.recv(READ)
        if not data:
            raise LoadError(f"the server hung up after {received!r}")
        received += data
    return received


def request(connection: socket.socket, event: Any) -> Any:
    """Ask, and have the answer, which is one frame."""
    connection.sendall(wire.encode(event))
    answer = read_frame(frames(connection, 1), events.State.SYNCED)
    if isinstance(answer, events.Error):
        raise LoadError(f"the server answered {answer}")
    return answer


def read_frame(data: bytes, state: events.State) -> Any:
    found = wire.cut(data, 0)
    if not isinstance(found, tuple):
        raise LoadError(f"the server sent {data[:40]!r}")
    return wire.decode_server(state, found[0])


class MqServerClients:
    """Publishers, the members of a queue for one and of one for many, and who reads the rest."""

    def __init__(self, server: Server, publishers: int) -> None:
        self.server = server
        self._is_bare = server.mode == "bare"
        self._publishers = [self._open(f"p{n}") for n in range(publishers)]
        first = self._publishers[0]
        for queue, flags in [(BARE, BROADCAST), (ONE, BROADCAST), (FAN, BROADCAST), (JOBS, PULL)]:
            request(first, events.CreateQueue(3, queue, flags))
        self._members = {
            ONE: [self._join("one", ONE)],
            FAN: [self._join(f"m{n}", FAN) for n in range(MEMBERS)],
        }
        self._getter = self._join("get", JOBS)
        self._got = 0  # MSGFROMQUEUE so far: the server counts its MIDs
        self._receiver = self._open(MAIL)
        request(self._receiver, events.AppId(3, (APP_ID,)))
        self._letters = 1  # and MSGFROMCLNT, after the PRESENCE

    def _open(self, user: str) -> socket.socket:
        connection = dial(self.server.port)
        banner = read_frame(frames(connection, 1), events.State.BANNER)
        request(connection, events.ClientCaps(1, 15, "STD"))
        proof = prove(PASSWORD.encode(), banner.salt)
        answer = request(connection, events.Auth(2, user, proof))
        if answer.text != "1":
            raise LoadError(f"{user} is refused: {answer.text}")
        return connection

    def _join(self, user: str, queue: str) -> socket.socket:
        connection = self._open(user)
        request(connection, events.JoinQueue(3, queue))
        return connection

    def close(self) -> None:
        members = [member for members in self._members.values() for member in members]
        for connection in [*self._publishers, *members, self._getter, self._receiver]:
            connection.close()

    # Loads.

    def push(self, seconds: float, active: int, window: int) -> Sample:
        """Send on that many connections to a queue without members."""
        work = partial(_drive, self._publishers[:active], [], send_frame(BARE), window, seconds)
        return meter(self.server, work)

    def fan(self, seconds: float, queue: str) -> Sample:
        """Send with a window; the messages are the copies that the members have read."""
        members = self._members[queue]

        def work() -> int:
            frame = send_frame(queue)
            return _drive(self._publishers[:1], members, frame, WINDOW, seconds) * len(members)

        return meter(self.server, work)

    def get(self, seconds: float) -> Sample:
        """Fill for that long, unmeasured, and take it all out: GETFROMQUEUE for as many as a window
        has, and their ACKs with the next one."""
        count = _drive(self._publishers[:1], [], send_frame(JOBS), FILL_WINDOW, seconds)
        sample = meter(self.server, lambda: self._take(count))
        info = request(self._publishers[0], events.FindQueue(3, (JOBS,)))
        if not self._is_bare and info.depth:
            raise LoadError(f"{info.depth} messages were left")
        return sample

    def _take(self, count: int) -> int:
        connection, left = self._getter, count
        while left > 0:
            connection.sendall(GET)
            number = min(WINDOW, left) if not self._is_bare else WINDOW
            frames(connection, 1 + number)
            mids = range(self._got + 1, self._got + 1 + number)
            connection.sendall(b"".join([b"%d" % mid + ACK_TAIL for mid in mids]))
            self._got += number
            left -= number
        return count - min(left, 0)

    def mail(self, seconds: float) -> Sample:
        """One message to a user, who acknowledges it, which its sender is told; again and again.

        Timed is the way from the sender to the other and back.
        """
        sender, receiver = self._publishers[0], self._receiver
        latencies: list[float] = []

        def mail_until(end: float) -> int:
            while perf_counter() < end:
                start = perf_counter()
                sender.sendall(LETTER)
                frames(receiver, 1)
                self._letters += 1
                receiver.sendall(b"%d" % self._letters + ACK_TAIL)
                frames(sender, 1)
                latencies.append(perf_counter() - start)
            return len(latencies)

        sample = meter(self.server, lambda: mail_until(perf_counter() + seconds))
        return sample._replace(latencies=latencies)

    def fill(self, count: int) -> None:
        raise NotImplementedError("flatness is measured with another protocol")


def _drive(
    publishers: Sequence[socket.socket],
    members: Sequence[socket.socket],
    frame: bytes,
    window: int,
    seconds: float,
) -> int:
    """Keep a window of messages under way on each connection, and read all answers and all copies;
    how many messages were sent.  Frames are counted by their NULs: their sizes vary."""
    by_number = {each.fileno(): each for each in [*publishers, *members]}
    nuls = dict.fromkeys(by_number, 0)
    sent = dict.fromkeys([each.fileno() for each in publishers], window)
    copies = [each.fileno() for each in members]
    end = perf_counter() + seconds
    with select.epoll() as poller:
        for number in by_number:
            poller.register(number, select.EPOLLIN)
        for publisher in publishers:
            publisher.sendall(frame * window)
        while any(nuls[each] < 2 * sent[each] for each in sent) or any(
            nuls[each] < 2 * sum(sent.values()) for each in copies
        ):
            ready = poller.poll(PATIENCE)
            if not ready:
                raise LoadError(f"no answer in {PATIENCE} seconds")
            for number, _ in ready:
                data = by_number[number].recv(READ)
                if not data:
                    raise LoadError("the server hung up")
                nuls[number] += data.count(b"\0")
                if number in sent:
                    more = window - sent[number] + nuls[number] // 2
                    if more > 0 and perf_counter() < end:
                        by_number[number].sendall(frame * more)
                        sent[number] += more
    return sum(sent.values())


def connect(server: Server, publishers: int) -> MqServerClients:
    return MqServerClients(server, publishers)


def _push(clients: MqServerClients, seconds: float, active: int, window: int) -> Sample:
    return clients.push(seconds, active, window)


_PUSHED, _POPPED = "PUSH window 64, 1 connection", "SPOP window 64, 1 connection"
ROWS = [
    Row("SENDTOQUEUE to nobody", {}, partial(_push, active=1, window=WINDOW), like=(_PUSHED,)),
    Row("SENDTOQUEUE 1 to 1", {}, partial(MqServerClients.fan, queue=ONE), like=(_PUSHED, _POPPED)),
    Row("SENDTOQUEUE 1 to 50", {}, partial(MqServerClients.fan, queue=FAN), like=(_POPPED,)),
    Row("GETFROMQUEUE 64 and ACKs", {}, MqServerClients.get, like=(_POPPED,)),
    Row("SENDTOCLNT there and back", {}, MqServerClients.mail, like=("LPOP woken by a PUSH",)),
]


class Responder(Protocol):
    """Cuts MQServer's frames at their NULs and answers each as the gateway would, all of one read
    in one write.  It looks at the type and the queue, and checks, decodes and keeps nothing."""

    _members: dict[bytes, list[Responder]] = {}  # of the class: one responder serves one bench
    _receiver: Responder | None = None
    _letter: tuple[Responder, bytes] | None = None  # who waits for an ACK
    _accepted = wire.tail(Ack(0, "1"))
    _sent = wire.tail(Ack(0, "1 1000"))
    _info = wire.tail(events.QueueInfo(0, JOBS, PULL, "p0", 1, 0))
    _copy = wire.encode(events.FromQueue(1000, FAN, "topic", 1000, 1 << 30, "p0", MESSAGE))
    _mail = wire.encode(events.FromClient(1000, "p0", APP_ID, 1000, 1 << 30, MESSAGE))

    def connectionMade(self) -> None:
        assert self.transport is not None
        self._write = self.transport.write
        self._left = b""
        self._write(wire.encode(events.ServerCaps("a1b2c3d4e5f60718", 15, "STD")))

    def dataReceived(self, data: bytes) -> None:
        *found, self._left = (self._left + data).split(b"\0\0")
        shared, answers = Responder, []
        copies: dict[bytes, int] = {}
        for frame in found:
            mid, kind, _, _, _, _, encoded = frame.split(b"|", 6)
            if kind == b"SENDTOQUEUE":
                answers.append(mid + self._sent)
                queue = encoded[1 : encoded.index(b"\x1f")]  # a space, as it is encoded
                copies[queue] = copies.get(queue, 0) + 1
            elif kind == b"ACK":
                if shared._letter is not None:
                    sender, its_mid = shared._letter
                    shared._letter = None
                    sender._write(its_mid + self._sent)
            elif kind == b"SENDTOCLNT" and shared._receiver is not None:
                shared._letter = self, mid
                shared._receiver._write(self._mail)
            elif kind == b"GETFROMQUEUE":
                answers.append(mid + self._sent + self._copy * WINDOW)
            else:
                answers.append(mid + self._seldom(kind, encoded))
        if answers:
            self._write(b"".join(answers))
        for queue, count in copies.items():
            for member in self._members.get(queue, ()):
                member._write(self._copy * count)

    def _seldom(self, kind: bytes, encoded: bytes) -> bytes:
        if kind == b"JOINQUEUE":
            self._members.setdefault(encoded[1 : encoded.index(b"\x1f")], []).append(self)
        if kind in (b"JOINQUEUE", b"FINDQUEUE"):
            return self._info
        if kind == b"APPID":
            Responder._receiver = self
            return wire.tail(events.Presence(0))
        return self._accepted
