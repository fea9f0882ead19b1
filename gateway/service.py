"""The running gateway: its ports and threads, started and ended in the right order."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, NoReturn

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, DeferredList, maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.interfaces import Broker
from gateway.policies import ConnectionLimit
from gateway.store import JournalRefused

log = Logger()

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where "everywhere" is, from here
FINISH = 5.0  # seconds that what is under way has when the gateway ends


class CannotStart(Exception):
    """What is wrong, with its place in the configuration."""


class Threads:
    """A few threads for what takes long; they start when they are first used.

    Beside Twisted's thread pool a job here costs a third less, and each commit is one.
    """

    def __init__(self, reactor: Any, count: int, name: str) -> None:
        self._reactor = reactor
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Deferred[Any]] | None] = SimpleQueue()
        self._count = count
        self._name = name
        self._threads: list[Thread] = []

    def run(self, job: Callable[[], Any]) -> Deferred[Any]:
        """Do the job in a thread and tell its result."""
        if not self._threads:
            for _ in range(self._count):
                self._threads.append(Thread(target=self._work, name=self._name, daemon=True))
                self._threads[-1].start()
        done: Deferred[Any] = Deferred()
        self._jobs.put((job, done))
        return done

    def _work(self) -> None:
        while (work := self._jobs.get()) is not None:
            job, done = work
            try:
                result = job()
            except BaseException:
                self._reactor.callFromThread(_tell, done, Failure())
            else:
                self._reactor.callFromThread(_tell, done, result)

    def stop(self) -> None:
        """Finish what has been asked, and end."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []


def _tell(done: Deferred[Any], result: Any) -> None:
    if not done.called:  # whoever waited may have cancelled it
        done.callback(result)


class Port(NamedTuple):
    """Something that listens."""

    path: str  # in the configuration, for whoever must mend it
    name: str
    endpoint: str
    factory: Any


class Gateway(MultiService):
    """The Broker, which is a child, and around it what lets people in.

    Ports are bound first, while there may be privileges; the Broker restores; then connections
    are taken.  At the end the Broker writes what is left, and only then do its threads end.
    """

    def __init__(self, reactor: Any) -> None:
        super().__init__()
        self._reactor = reactor
        self._ports: list[tuple[Port, Any]] = []
        self._listening: dict[str, IListeningPort] = {}  # by path
        self._threads: tuple[Threads, ...] = ()
        self.warnings: list[str] = []

    def add_threads(self, *threads: Threads) -> None:
        self._threads = threads

    def add_port(self, port: Port, broker: Broker, most: int | None = None) -> None:
        """Listen there when the gateway starts, to at most so many connections."""
        factory = port.factory
        if most is not None:
            factory = ConnectionLimit(factory, most, broker, port.name)
        self._ports.append((port, factory))

    def connections(self) -> dict[str, int]:
        """How many clients there are, by protocol."""
        counts: dict[str, int] = {}
        for port, factory in self._ports:
            if isinstance(factory, ConnectionLimit) and port.path.startswith("listeners"):
                counts[port.name] = counts.get(port.name, 0) + len(factory.protocols)
        return counts

    def where(self, path: str) -> str | None:
        """The host and port that something in the configuration listens on, for who is here."""
        listening = self._listening.get(path)
        host: Any = listening and listening.getHost()
        if not hasattr(host, "port"):
            return None
        here = _LOOPBACK.get(host.host, host.host)
        return f"[{here}]:{host.port}" if ":" in here else f"{here}:{host.port}"

    def privilegedStartService(self) -> None:
        super().privilegedStartService()
        problems: list[str] = []

        def bound(listening: IListeningPort, port: Port) -> None:
            self._listening[port.path] = listening
            log.info("{name} listens on {where}", name=port.name, where=_where(listening))

        def not_bound(failure: Failure, port: Port) -> None:
            problems.append(f"{port.path}: {failure.getErrorMessage()}")

        def listen(port: Port, factory: Any) -> Deferred[IListeningPort]:
            return serverFromString(self._reactor, port.endpoint).listen(factory)

        for port, factory in self._ports:
            listening = maybeDeferred(listen, port, factory)
            listening.addCallback(bound, port).addErrback(not_bound, port)
        if problems:
            refuse_to_start(problems)

    def startService(self) -> None:
        for warning in self.warnings:
            log.warn("{warning}", warning=warning)
        try:
            super().startService()
        except JournalRefused as refused:
            refuse_to_start([f"data: {refused}"])
        for port, _ in self._ports:
            started = getattr(port.factory, "started", None)
            if started is not None:
                started()

    def stopService(self) -> Deferred[Any]:
        async def stop() -> None:
            for listening in self._listening.values():
                await maybeDeferred(listening.stopListening)
            await self._finish()
            await MultiService.stopService(self)
            for threads in self._threads:
                threads.stop()
            # All is written.  twistd would now end as if the signal that asked us to had killed it.
            self._reactor._exitSignal = None

        return Deferred.fromCoroutine(stop())

    async def _finish(self) -> None:
        """Let the listeners end what they have begun; those that take too long are cut off."""
        finishing = [port.factory.finish() for port, _ in self._ports]
        under_way = [finished for finished in finishing if finished is not None]
        await DeferredList(under_way, consumeErrors=True).addTimeout(FINISH, self._reactor)

    def fail(self, reason: str) -> None:
        """We cannot go on: end, and let the exit status tell."""
        log.critical("mqgateway stops: {reason}", reason=reason)
        atexit.register(_exit_in_failure)
        with suppress(ReactorNotRunning):  # it may be ending already
            self._reactor.stop()


def refuse_to_start(problems: list[str]) -> NoReturn:
    """Say why, in the log for a daemon and on stderr for people, and leave.

    An exception, and not SystemExit, lets twistd clean up its pid file and tell the parent of a
    daemon; but a traceback is no answer to a taken port.
    """
    for problem in problems:
        log.critical("{problem}", problem=problem)
    # sys.stderr is the log by now.
    sys.excepthook = lambda *_: print(*problems, sep="\n", file=sys.__stderr__)
    raise CannotStart("; ".join(problems))


def _exit_in_failure() -> None:
    # twistd ends with status 0 after any reactor.stop; this comes last, and says otherwise.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def _where(listening: IListeningPort) -> str:
    host: Any = listening.getHost()
    return f"{host.host}:{host.port}" if hasattr(host, "port") else str(host)
