"""What tests of the replay sink share: a Broker on a journal, and readers that speak in bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gateway.accounts import Secret
from gateway.interfaces import Message
from gateway.journal import at_once
from gateway.record import Record, unpack
from gateway.replay import ReplaySink
from gateway.routes import Route
from gateway.store import Retention, SqliteStore
from tests.support import Wired, World

JOBS, NEWS = "queue:jobs", "topic:news"
HOUR = Retention(3600, 1 << 30)


def frame(*content: Any) -> bytes:
    data = msgspec.msgpack.encode(content)
    return struct.pack(">I", len(data)) + data


class Reader(Wired):
    """Somebody connected to the replay sink."""

    def tells(self) -> list[Any]:
        """What it has been sent since it was last asked, as arrays; only whole ones are sent."""
        data, found = self.hears(), []
        while data:
            (size,) = struct.unpack(">I", data[:4])
            found.append(msgspec.msgpack.decode(data[4 : 4 + size]))
            data = data[4 + size :]
        return found

    def asks(self, *request: Any) -> list[Any]:
        """The answers so far."""
        self.says(frame(*request))
        return self.tells()

    def asks_one(self, *request: Any) -> Any:
        (answer,) = self.asks(*request)
        return answer

    @property
    def is_cut_off(self) -> bool:
        return self.transport.is_closed


def records_in(answers: list[Any]) -> list[Record]:
    """Those of a read, which ends as it should."""
    assert answers[-1] == ["done"]
    found: list[Record] = []
    for kind, end, sizes, data in answers[:-1]:
        assert kind == "rows"
        at = 0
        for size in sizes:
            found += unpack(data[at : at + size])
            at += size
        assert at == len(data)
        assert found[-1].sequence == end - 1
    return found


class Replay:
    """A gateway with a replay sink, on a Clock and a real file."""

    def __init__(
        self,
        directory: Path,
        *,
        token: bytes | None = None,
        retention: Retention = HOUR,
        run: Any = at_once,
        read: Any = at_once,
        routes: tuple[Route, ...] = (),
        later: float = 0.0,
        store: Any = None,
    ) -> None:
        """`run` writes the journal, `read` reads it; `later`: so many seconds after the start."""
        self.store = store or SqliteStore(directory / "data", "OFF", retention)
        self.world = World(self.store, run, later)
        self.broker, self.clock = self.world.broker, self.world.clock
        self.broker.set_routes([*routes])
        self.sink = ReplaySink(
            self.clock,
            self.broker,
            self.world.journal,
            read,
            None if token is None else Secret(token),
        )

    def connect(self, hello: bool = True) -> Reader:
        reader = Reader(self.sink.buildProtocol(None))
        if hello:
            assert reader.asks("hello", 1, "") == [["ready", 1]]
        return reader

    def turn(self) -> None:
        """The reactor's turn ends: what was accepted in it is a row of the log."""
        self.clock.advance(0)

    def push(self, *bodies: bytes, address: str = JOBS) -> None:
        """In one commit."""
        for body in bodies:
            self.broker.push(Message(address, body, "ann", "test"))
        self.turn()

    def stop(self) -> None:
        self.broker.stopService()

    def depth(self, address: str) -> int:
        return self.broker.info(address).depth

    def refusals(self) -> list[str]:
        """The reasons of those that were recorded."""
        self.turn()
        return [record.reason for record in self.world.records if record.kind == "refused"]

    # The way back.

    def publish(
        self, rows: list[Any], query: str = "q", batch: int = 0, create: bool = False
    ) -> list[Any]:
        """The last answer to a batch; rows are (address, body) or (address, body, due)."""
        reader = self.connect()
        rows = [[*row, None][:3] for row in rows]
        answer = reader.asks_one("publish", query, batch, "spark", create)
        if answer == ["done"]:
            answer = reader.asks_one("messages", rows)
        if answer == ["done"]:
            reader.says(frame("commit"))
            self.turn()
            (answer,) = reader.tells()
        reader.hangs_up()
        return answer


Make = Callable[..., Replay]  # a fixture that starts one
