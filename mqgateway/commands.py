"""The commands send, recv and tail."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.endpoints import clientFromString
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from mqgateway import printing
from mqgateway.ending import DONE, FAILED, NOTHING_CAME, USAGE, Ending, explain
from mqgateway.events import EventReader, follow
from mqgateway.source import Stream, Words
from mqgateway.speakers.base import Part, Speaker
from mqgateway.speakers.table import SPEAKERS

UNDER_WAY = 100  # messages that may be sent and not yet acknowledged: the wire is never idle
SHOWN_EVERY = 0.5  # seconds between two updates of the progress line


def endpoint_of(reactor: Any, text: str) -> Any:
    try:
        return clientFromString(reactor, text)
    except Exception as error:  # each kind of endpoint has its own way to fail
        raise Ending(USAGE, f"--at {text} is no endpoint such as tcp:127.0.0.1:8080") from error


def speaker_for(reactor: Any, options: Namespace, receives: bool) -> Speaker:
    is_master = options.role == "master" if options.role else receives
    part = Part(sends=not receives, receives=receives, is_master=is_master)
    endpoint = endpoint_of(reactor, options.at)
    return SPEAKERS[options.protocol](reactor, endpoint, options.access, part)


class Progress:
    """A line on a terminal about work that takes its time; nothing if there is no terminal."""

    def __init__(self, reactor: Any, what: str) -> None:
        self.count = 0
        self._what = what
        self._loop = LoopingCall(self._show)
        self._loop.clock = reactor
        self._shown = False
        if sys.stderr.isatty() and not sys.stdout.isatty():
            self._loop.start(SHOWN_EVERY, now=False)

    def _show(self) -> None:
        self._shown = True
        print(f"\r{self.count} {self._what}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._loop.running:
            self._loop.stop()
        if self._shown:
            self._show()
            print(file=sys.stderr)


async def send(reactor: Any, options: Namespace) -> int:
    """Send everything in order; stop at the first refusal."""
    speaker = speaker_for(reactor, options, receives=False)
    source = _source(reactor, options)
    await speaker.open()
    progress = Progress(reactor, "acknowledged")
    room = DeferredSemaphore(UNDER_WAY)
    failed: list[Failure] = []
    number = 0

    def answered(answer: str, number: int, body: bytes, started: float) -> None:
        progress.count += 1
        _say_acknowledged(options, number, body, answer, reactor.seconds() - started)

    try:
        while not failed and (body := await _unless_gone(speaker, source.next())) is not None:
            await room.acquire()
            if failed:
                break
            number += 1
            sent = speaker.send(options.name, body)
            sent.addCallback(answered, number, body, reactor.seconds()).addErrback(failed.append)
            sent.addBoth(lambda _: room.release())
        for _ in range(UNDER_WAY):  # when all places are free, all is answered
            await room.acquire()
        if failed:
            failed[0].raiseException()
    except Exception as error:
        if isinstance(error, BrokenPipeError):
            raise
        sentence = f"{progress.count} of {number} acknowledged, then: {explain(error, options.at)}"
        raise Ending(FAILED, sentence) from error
    finally:
        progress.end()
        await speaker.close()
    return DONE


def _source(reactor: Any, options: Namespace) -> Words | Stream:
    if options.body:
        bodies = [os.fsencode(body) for body in options.body]
        return Words([b"\n".join(bodies)] if options.whole else bodies)
    if options.file is not None:
        with Path(options.file).open("rb") as file:  # os.open would take a directory, too
            return Stream(reactor, os.dup(file.fileno()), options.whole)
    return Stream(reactor, sys.stdin.fileno(), options.whole)


def _unless_gone(connection: Speaker | EventReader, waiting: Deferred[Any]) -> Deferred[Any]:
    """What is waited for, or ConnectionDone if the connection goes first."""
    either: Deferred[Any] = Deferred()

    def first(result: Any) -> None:
        if not either.called:
            either.callback(result)

    def gone() -> None:
        first(Failure(ConnectionDone()))

    waiting.addBoth(first)
    connection.on_gone = gone
    if connection.is_gone:
        gone()
    return either


def _say_acknowledged(
    options: Namespace, number: int, body: bytes, answer: str, seconds: float
) -> None:
    if options.quiet:
        return
    if options.json:
        printing.put_json(
            number=number,
            protocol=options.protocol,
            name=options.name,
            size=len(body),
            answer=answer,
            seconds=round(seconds, 6),
        )
    else:
        size = f"{len(body)} byte{'' if len(body) == 1 else 's'}"
        printing.put(f"{number}: {size}, {answer}".encode())


class Coming:
    """Counts what comes, and fires when it is enough or when nothing has come for too long."""

    def __init__(self, reactor: Any, count: int | None, wait: float | None, what: str) -> None:
        self._reactor = reactor
        self._most = count
        self._wait = wait
        self._timer: IDelayedCall | None = None
        self.over: Deferred[int] = Deferred()
        self.progress = Progress(reactor, what)

    @property
    def is_enough(self) -> bool:
        return self.over.called

    def start(self) -> None:
        if self._wait is not None:
            self._timer = self._reactor.callLater(self._wait, self._too_late)

    def came(self) -> None:
        self.progress.count += 1
        if self._timer is not None and self._timer.active():
            self._timer.reset(self._wait or 0)
        if self.progress.count == self._most:
            self.end(DONE)

    def _too_late(self) -> None:
        """Who asked for no number has had what there was."""
        came_all = self._most is None and self.progress.count > 0
        self.end(DONE if came_all else NOTHING_CAME)

    def end(self, result: Any) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self.progress.end()
        if not self.over.called:
            self.over.callback(result)


async def recv(reactor: Any, options: Namespace) -> int:
    """Print what comes."""
    speaker = speaker_for(reactor, options, receives=True)
    coming = Coming(reactor, options.count, options.wait, "received")

    def heard(sender: str, body: bytes) -> None:
        if coming.is_enough:
            return  # a topic goes on
        try:
            _print(options, coming.progress.count + 1, sender, body)
        except OSError:
            coming.end(Failure())
            raise
        coming.came()

    await speaker.open()
    coming.start()
    try:
        await speaker.receive(options.name, heard, options.count)
        return await _unless_gone(speaker, coming.over)
    finally:
        coming.end(DONE)
        await speaker.close()


def _print(options: Namespace, number: int, sender: str, body: bytes) -> None:
    if options.json:
        printing.put_json(
            number=number,
            protocol=options.protocol,
            name=options.name,
            sender=sender,
            size=len(body),
            **printing.body_fields(body),
        )
    else:
        printing.put_body(sender, body, options.senders)


async def tail(reactor: Any, options: Namespace) -> int:
    """Print the events that the filters let through."""
    coming = Coming(reactor, options.count, options.wait, "events")

    def seen(line: bytes, row: dict[str, Any]) -> None:
        if coming.is_enough or not _is_wanted(options, row):
            return
        try:
            printing.put(line if options.json else printing.event_line(row).encode())
        except OSError:
            coming.end(Failure())
            return
        coming.came()

    reader = await follow(endpoint_of(reactor, options.at), seen)
    coming.start()
    try:
        return await _unless_gone(reader, coming.over)
    finally:
        coming.end(DONE)
        reader.disconnect()


def _is_wanted(options: Namespace, row: dict[str, Any]) -> bool:
    address = f"{row['address_kind']}:{row['address']}"
    return all(
        patterns is None or any(fnmatchcase(value, pattern) for pattern in patterns)
        for value, patterns in (
            (row["event"], options.event),
            (row["protocol"], options.protocol),
            (address, options.address),
        )
    )


COMMANDS = {"send": send, "recv": recv, "tail": tail}
