"""Where the bodies to send come from: words, a file, or standard input as it is typed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from threading import Semaphore, Thread
from typing import Any

from twisted.internet.defer import Deferred, succeed

PIECE = 1 << 16  # bytes that are read at once


class Words:
    """Bodies that are there already."""

    def __init__(self, bodies: Iterable[bytes]) -> None:
        self._bodies = iter(list(bodies))

    def next(self) -> Deferred[bytes | None]:
        """The next body, or None after the last."""
        return succeed(next(self._bodies, None))


class Stream:
    """The lines of something that may take its time, or all of it as one body.

    It is read in a thread that nobody waits for, with `os.read`: what Python keeps of standard
    input could not be let go while that thread still reads it.
    """

    def __init__(self, reactor: Any, descriptor: int, whole: bool) -> None:
        self._reactor = reactor
        self._descriptor = descriptor
        self._whole = whole
        self._unfinished: list[bytes] = []  # pieces of the line that has not ended
        self._bodies: deque[bytes] = deque()
        self._ended = False
        self._error: OSError | None = None
        self._wanted: Deferred[bytes | None] | None = None
        self._go = Semaphore(0)  # for the thread: read the next piece
        self._reading = False
        Thread(target=self._read, name="input", daemon=True).start()

    def next(self) -> Deferred[bytes | None]:
        wanted: Deferred[bytes | None] = Deferred()
        self._wanted = wanted
        self._serve()
        return wanted

    def _read(self) -> None:
        while True:
            self._go.acquire()
            try:
                piece: bytes | OSError = os.read(self._descriptor, PIECE)
            except OSError as error:
                piece = error
            self._reactor.callFromThread(self._heard, piece)
            if not piece or isinstance(piece, OSError):
                return

    def _heard(self, piece: bytes | OSError) -> None:
        self._reading = False
        if isinstance(piece, OSError):
            self._error = piece
        elif not piece:
            self._ended = True
            if self._whole or any(self._unfinished):
                self._bodies.append(b"".join(self._unfinished))
        elif self._whole:
            self._unfinished.append(piece)
        else:
            *lines, rest = piece.split(b"\n")
            if lines:
                lines[0] = b"".join([*self._unfinished, lines[0]])
                self._unfinished.clear()
            self._unfinished.append(rest)
            self._bodies.extend(lines)
        self._serve()

    def _serve(self) -> None:
        """Give what is wanted, if it is there; else have the next piece read."""
        wanted = self._wanted
        if wanted is None:
            return
        if not (self._bodies or self._ended or self._error):
            if not self._reading:
                self._reading = True
                self._go.release()
            return
        self._wanted = None
        if self._bodies:
            wanted.callback(self._bodies.popleft())
        elif self._error is not None:
            wanted.errback(self._error)
        else:
            wanted.callback(None)
