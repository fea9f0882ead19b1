"""One message from a client's call to a line that Spark can read, through a real process."""

from __future__ import annotations

import base64
import json
import socket
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.endpoints import clientFromString

from protocols.qlite.client import PUBLISHER, SUBSCRIBER, QliteFailure, connect
from tests.integration.peers import gateway


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("reactor_name", ["uvloop", "epoll"])
async def test_a_message_goes_from_a_client_to_another_and_to_the_sink(
    tmp_path: Path, reactor_name: str
) -> None:
    from twisted.internet import reactor

    with gateway(tmp_path, reactor_name) as running, socket.socket() as sink:
        sink.connect(("127.0.0.1", running.sink))
        endpoint = clientFromString(reactor, f"tcp:127.0.0.1:{running.port}")
        publisher = await connect(reactor, endpoint, "pub", "publisher", PUBLISHER)
        subscriber = await connect(reactor, endpoint, "sub", "subscriber", SUBSCRIBER)
        popped = subscriber.pop(wait=True)
        assert await publisher.push(b"hello \0 \xff") == 1
        assert await popped == b"hello \0 \xff"
        with pytest.raises(QliteFailure, match="cannot push empty message"):
            await publisher.push(b"")
        events = read_events(sink, "taken")
        publisher.disconnect()
        subscriber.disconnect()
    accepted, taken = (
        next(event for event in events if event["event"] == kind) for kind in ("accepted", "taken")
    )
    assert base64.b64decode(accepted["body"]) == b"hello \0 \xff"
    assert (accepted["protocol"], accepted["sender"]) == ("qlite", "pub")
    assert (accepted["address_kind"], accepted["address"]) == ("queue", "qlite")
    assert (taken["message"], taken["receiver"]) == (accepted["sequence"], "sub")
    sequences = [event["sequence"] for event in events]
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))


def read_events(sink: socket.socket, last: str) -> list[dict[str, Any]]:
    """What the sink shows, up to the first event of that kind."""
    sink.settimeout(20)
    with sink.makefile("rb") as lines:
        events = []
        for line in lines:
            events.append(json.loads(line))
            if events[-1]["event"] == last:
                break
        return events
