"""A reader of the gateway's line sink."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.protocols.basic import LineOnlyReceiver

LONGEST = (
    1 << 26
)  # bytes of a line: a message of 16 MiB in base64, and its other fields, twice over

Seen = Callable[[bytes, dict[str, Any]], None]  # the line, and the row that it is


class EventReader(LineOnlyReceiver):
    """One connection to the sink."""

    delimiter = b"\n"
    MAX_LENGTH = LONGEST
    transport: Any

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self.is_gone = False
        self.on_gone: Callable[[], None] = lambda: None

    def lineReceived(self, line: bytes) -> None:
        try:
            row = json.loads(line)
            is_event = isinstance(row, dict) and "event" in row
        except ValueError:
            is_event = False
        if is_event:
            self._seen(line, row)
        else:
            self.transport.abortConnection()  # it is no sink, and might go on for ever

    def disconnect(self) -> None:
        self.transport.loseConnection()

    def connectionLost(self, reason: object = None) -> None:
        self.is_gone = True
        self.on_gone()


def follow(endpoint: IStreamClientEndpoint, seen: Seen) -> Deferred[Any]:
    """An EventReader that calls `seen` with each event from now on, or why there is none."""
    factory = Factory.forProtocol(lambda: EventReader(seen))
    factory.noisy = False
    return endpoint.connect(factory)
