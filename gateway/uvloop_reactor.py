"""Twisted's asyncio reactor on uvloop: `twistd --reactor=uvloop`."""

from __future__ import annotations

import asyncio
from socket import SO_ERROR, SOL_SOCKET
from typing import Any

import uvloop
from twisted.internet.asyncioreactor import AsyncioSelectorReactor
from twisted.internet.main import CONNECTION_LOST, installReactor


class UvloopReactor(AsyncioSelectorReactor):
    """Notices a peer that resets its connection, which uvloop tells only once.

    On an error of a socket uvloop calls its reader one last time and forgets the socket.  If that
    read finds bytes that came before the reset, Twisted would wait for ever for the rest, and a
    message would be handed to a client that is gone.  So look for the error after each read.
    """

    def _readOrWrite(self, selectable: Any, read: bool) -> None:
        super()._readOrWrite(selectable, read)
        if read and selectable in self._readers:
            socket = getattr(selectable, "socket", None)
            if socket is not None and socket.getsockopt(SOL_SOCKET, SO_ERROR):
                self._disconnectSelectable(selectable, CONNECTION_LOST, read)


def install() -> None:
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(
        loop
    )  # without it, what asks asyncio for the loop gets another and hangs
    installReactor(UvloopReactor(loop))
