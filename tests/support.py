"""What tests share: a Broker on a Clock, a writer the test controls, a peer that speaks bytes, and
a real gateway process."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.python.failure import Failure

from gateway.accounts import PasswordAccounts, Secret
from gateway.broker import Broker
from gateway.interfaces import User
from gateway.journal import Journal, at_once
from gateway.memory import MemoryStore
from gateway.record import Record
from gateway.store import Store

ROOT = Path(__file__).parent.parent
NOW = 1_800_000_000.0  # when tests begin, so that times look like times


def result(deferred: Deferred[Any]) -> Any:
    """What it has now; a failure is raised."""
    found: list[Any] = []
    deferred.addBoth(found.append)
    assert found, "no answer yet"
    if isinstance(found[0], Failure):
        found[0].raiseException()
    return found[0]


class HeldWriter:
    """A journal's writer that does nothing until the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def run(self, job: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.jobs.append((job, done))
        return done

    def write(self) -> None:
        """Do the oldest job."""
        job, done = self.jobs.pop(0)
        maybeDeferred(job).chainDeferred(done)

    def fail(self, error: Exception) -> None:
        """Let the oldest job fail, as if the disk had."""
        _, done = self.jobs.pop(0)
        done.errback(error)


class DurableMemory(MemoryStore):
    """A store that must be waited for, like a disk, and forgets, unlike one."""

    durable = True


class World:
    """A real Broker on a Clock, and everything that it recorded and that is safe."""

    def __init__(self, store: Store | None = None, run: Any = at_once, later: float = 0.0) -> None:
        """`later`: begin so many seconds after the usual time."""
        self.clock = Clock()
        self.clock.advance(NOW + later)
        self.journal = Journal(self.clock, store or MemoryStore(), run)
        self.broker = Broker(self.clock, self.journal)
        self.broker.startService()
        self.records: list[Record] = []
        self.broker.watch(self.records.extend)

    def kinds(self) -> list[str]:
        """What happened, in order, up to now."""
        self.clock.advance(0)
        return [record.kind for record in self.records]


def accounts(*users: tuple[str, str, bool, bool]) -> PasswordAccounts:
    """Accounts from (name, password, publisher, subscriber), checked at once."""
    return PasswordAccounts(
        [(User(name, pub, sub), Secret(word.encode())) for name, word, pub, sub in users],
        lambda job: succeed(job()),
    )


class Transport(StringTransportWithDisconnection):
    """One that can be half-closed, and whose peer's side can be too."""

    half_closed = False
    aborted = False

    def loseWriteConnection(self) -> None:
        if not self.half_closed:
            self.half_closed = True
            IHalfCloseableProtocol(self.protocol).writeConnectionLost()

    def abortConnection(self) -> None:
        self.aborted = True
        self.loseConnection()

    @property
    def is_closed(self) -> bool:
        return self.half_closed or not self.connected


class Wired:
    """The peer of one of our protocols, in memory."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol
        self.transport = Transport()
        self.transport.protocol = protocol
        protocol.makeConnection(self.transport)

    def says(self, data: bytes) -> None:
        """The peer sends this."""
        self.protocol.dataReceived(data)

    def hears(self) -> bytes:
        """What the peer has been sent since it was last asked."""
        heard = self.transport.value()
        self.transport.clear()
        return heard

    def hangs_up(self) -> None:
        if self.transport.connected:
            self.transport.loseConnection()


# Real processes and sockets.


_ports = iter(random.sample(range(20_000, 32_000), 12_000))


def free_port() -> int:
    """One that nobody listens on, never the same twice, and none of those that the system gives to
    clients, of which one might have it by the time that it is listened on."""
    for port in _ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


class Process:
    """A real `twistd mqgateway`, ended by its pid."""

    def __init__(
        self, config: Path, *, reactor: str = "uvloop", env: dict[str, str] | None = None
    ) -> None:
        self.log = config.with_suffix(".log")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(str(Path(sys.executable).with_name("twistd")), "--nodaemon", "--pidfile="),
                    *(f"--reactor={reactor}", "mqgateway", "--config", str(config)),
                ],
                cwd=config.parent,
                env={**os.environ, **(env or {})},
                stdout=log,
                stderr=log,
            )

    def wait_for(self, port: int, seconds: float = 20) -> None:
        """Until it takes connections there."""
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"it does not listen on {port}:\n{self.log.read_text()}")
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"it does not end:\n{self.log.read_text()}") from None


@contextlib.contextmanager
def running(config: Path, port: int, **options: Any) -> Iterator[Process]:
    """A gateway while the test needs it."""
    process = Process(config, **options)
    try:
        process.wait_for(port)
        yield process
    finally:
        if process.process.poll() is None:
            process.stop()


def read_exactly(connection: socket.socket, size: int, seconds: float = 20) -> bytes:
    """So many bytes, or what came before the end or the time-out."""
    data = b""
    until = time.monotonic() + seconds
    while len(data) < size:
        ready, _, _ = select.select([connection], [], [], max(0, until - time.monotonic()))
        piece = connection.recv(size - len(data)) if ready else b""
        if not piece:
            break
        data += piece
    return data
