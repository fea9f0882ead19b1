"""aWCS on the bench: its listener, a room of 200 clients, its loads and its bare responder."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Any, cast

from twisted.internet.protocol import Protocol

from bench.load import LoadError, Stream, dial, drive_for, expect, receive
from bench.measure import Row, Sample, meter
from bench.server import Server

NAME = "awcs"
TITLE = "aWCS, texts of 100 bytes"
USERS: list[dict[str, Any]] = []
LISTENER: dict[str, Any] = {
    "protocol": "awcs",
    "maxConnections": 2000,
    "notify_interval": 86_400.0,  # else one would be among the answers
    "flood_points": 1 << 30,
}
CLIENTS = 200
SOME = 50
WINDOW = 64
ROUND = 8  # broadcasts under way

BODY = bytes(range(100, 200))
TEXT = BODY + b"\0"
BROADCAST = b"0 " + TEXT
RELAY_SIZE = 5 + len(TEXT)


class Across:
    """A connection whose one end is several clients, in turn, and whose other is the master."""

    def __init__(self, clients: Sequence[socket.socket], master: socket.socket) -> None:
        self._clients = clients
        self._turn = 0
        self.recv = master.recv

    def sendall(self, data: memoryview) -> None:
        self._turn = (self._turn + 1) % len(self._clients)
        self._clients[self._turn].sendall(data)


class AwcsClients:
    """A master and its room.  Nothing is kept, so that it is always as full as it was."""

    def __init__(self, server: Server, publishers: int) -> None:
        self.server = server
        self._master = dial(server.port)
        self._master.sendall(b"6 \0")
        self._status()
        self._clients: list[socket.socket] = []
        self._numbers: list[bytes] = []
        for _ in range(max(publishers, CLIENTS)):
            self._clients.append(dial(server.port))
            self._clients[-1].sendall(b"aWCS\0")
            self._numbers.append(self._status())

    def _status(self) -> bytes:
        """The number of whoever has come."""
        status = b""
        while not status.endswith(b"\0"):
            status += receive(self._master, 1)
        expect(status[:7], b"0000 0 ")
        return status.split(b" ")[2]

    def close(self) -> None:
        for connection in [self._master, *self._clients]:
            connection.close()

    # Loads.

    def push(self, seconds: float, active: int, window: int) -> Sample:
        """Texts of that many clients, on their way to the master."""
        across = Across(self._clients[:active], self._master)
        stream = Stream(cast(socket.socket, across), TEXT, RELAY_SIZE, window)
        sample = meter(self.server, lambda: drive_for([stream], seconds))
        expect(stream.last[4:], b" " + TEXT)
        return sample

    def broadcast(self, seconds: float) -> Sample:
        return self._tell(BROADCAST, self._clients, seconds)

    def multicast(self, seconds: float) -> Sample:
        """To every fourth, so that they are not those who came first."""
        step = CLIENTS // SOME
        command = b"1 " + b",".join(self._numbers[:CLIENTS:step]) + b" " + TEXT
        return self._tell(command, self._clients[:CLIENTS:step], seconds)

    def fill(self, count: int) -> None:
        """A room keeps nothing."""

    def _tell(self, command: bytes, told: Sequence[socket.socket], seconds: float) -> Sample:
        commands, wanted = command * ROUND, TEXT * ROUND

        def tell_until(end: float) -> int:
            rounds = 0
            while perf_counter() < end:
                self._master.sendall(commands)
                for client in told:
                    if receive(client, len(wanted)) != wanted:
                        raise LoadError("a client was told something else")
                rounds += 1
            return rounds * ROUND * len(told)

        return meter(self.server, lambda: tell_until(perf_counter() + seconds))


def connect(server: Server, publishers: int) -> AwcsClients:
    return AwcsClients(server, publishers)


def _texts(clients: AwcsClients, seconds: float, active: int) -> Sample:
    return clients.push(seconds, active, WINDOW)


# A text is counted when the master has it; a broadcast or multicast once for each who is told.
ROWS = [
    Row("text, 1 client, window 64", {}, partial(_texts, active=1)),
    Row("text, 8 clients, window 64", {}, partial(_texts, active=8)),
    Row("broadcast to 200, for each", {}, AwcsClients.broadcast),
    Row("multicast to 50 of 200, each", {}, AwcsClients.multicast),
]


class Responder(Protocol):
    """Passes aWCS's frames on as the gateway would, all of one read in one write to each.

    It has no numbers in use, no flood, no limits and no errors.
    """

    master: Responder | None = None  # of the class: one responder serves one bench
    clients: dict[int, Responder] = {}
    newest = 0

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.write = self.transport.write
        self._left = b""
        self._prefix = b""

    def dataReceived(self, data: bytes) -> None:
        *frames, self._left = (self._left + data).split(b"\0")
        if frames and not self._prefix:
            self._enter(frames.pop(0))
        if self is Responder.master:
            self._obey(frames)
        elif frames and Responder.master is not None:
            prefix = self._prefix
            Responder.master.write(b"".join([prefix + frame + b"\0" for frame in frames]))

    def _enter(self, frame: bytes) -> None:
        Responder.newest += 1
        self._prefix = b"%04d " % Responder.newest
        if frame == b"6 ":
            Responder.master = self
        else:
            Responder.clients[Responder.newest] = self
        assert Responder.master is not None
        Responder.master.write(b"0000 0 " + self._prefix + b"127.0.0.1:1\0")

    def _obey(self, frames: list[bytes]) -> None:
        clients, said = Responder.clients, dict[int, list[bytes]]()
        for frame in frames:
            if frame[:1] == b"0":
                numbers, text = list(clients), frame[2:]
            else:
                listed, _, text = frame[2:].partition(b" ")
                numbers = [int(number) for number in listed.split(b",")]
            text += b"\0"
            for number in numbers:
                said.setdefault(number, []).append(text)
        for number, texts in said.items():
            clients[number].write(b"".join(texts))
