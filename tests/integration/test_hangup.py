"""Clients that leave, half-close or do not read, on real TCP."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.peers import Gateway, QlitePeer, frame, gateway
from tests.support import read_exactly

EMPTY = b"FAIL;cannot pop from empty slice"
MANY = 200


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    directory: Path = tmp_path_factory.mktemp("hangup")
    with gateway(directory, maxPollingTimeSeconds=60, maxUnauthenticatedConnections=MANY) as made:
        yield made


@pytest.fixture
def publisher(running: Gateway) -> Iterator[QlitePeer]:
    peer = QlitePeer(running.port, "pub")
    yield peer
    peer.close()


@pytest.fixture
def subscriber(running: Gateway) -> Iterator[QlitePeer]:
    peer = QlitePeer(running.port, "sub")
    yield peer
    while peer.ask(b"SPOP;") != EMPTY:
        pass
    peer.close()


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
def test_a_client_that_leaves_while_it_waits_takes_nothing(
    running: Gateway, publisher: QlitePeer, subscriber: QlitePeer, how: str
) -> None:
    with socket.create_connection(("127.0.0.1", running.sink)) as sink:
        sink.settimeout(20)
        gone = QlitePeer(running.port, "sub")
        place = f'127.0.0.1:{gone.socket.getsockname()[1]}"'
        gone.say(b"LPOP;", b"LEN;")
        if how == "reset":
            gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "half-close":
            gone.socket.shutdown(socket.SHUT_WR)
        else:
            gone.close()
        with sink.makefile() as lines:
            assert any('"disconnected"' in line and place in line for line in lines)
        gone.close()
    assert publisher.ask(b"PUSH;kept")[:5] == b"PASS;"
    assert subscriber.ask(b"SPOP;") == b"PASS;kept"


def test_a_client_that_half_closes_after_a_request_gets_its_answer(
    running: Gateway, subscriber: QlitePeer
) -> None:
    peer = QlitePeer(running.port, "pub")
    peer.say(*[b"PUSH;x"] * 100)
    peer.socket.shutdown(socket.SHUT_WR)
    answers = read_exactly(peer.socket, 13 * 100 + 1)
    assert len(answers) == 13 * 100
    assert answers[-4:] == (100).to_bytes(4, "little")
    peer.close()


def test_the_reason_of_a_close_is_not_lost_to_a_reset(running: Gateway) -> None:
    """The public server reset the connection here, and the text was lost."""
    peer = QlitePeer(running.port, "pub")
    peer.socket.sendall(b"\xff\xff\xff\xff" + bytes(500_000))
    assert peer.hear() == b"FAIL;error: message is longer than limit of 10 megabytes"
    assert read_exactly(peer.socket, 1) == b""
    peer.close()


def test_one_that_does_not_read_its_answers_costs_little_and_hurts_nobody(
    running: Gateway, publisher: QlitePeer, subscriber: QlitePeer
) -> None:
    """It asks for 600 MB and reads nothing; the gateway gives it what the kernel takes."""
    body = bytes(1 << 20)
    for _ in range(60):
        assert publisher.ask(b"PUSH;" + body)[:5] == b"PASS;"
    before = running.memory()
    greedy = QlitePeer(running.port, "sub")
    greedy.say(*[b"SPOP;"] * 600)
    for _ in range(20):
        assert publisher.ask(b"LEN;")[:5] == b"PASS;"
    assert running.memory() - before < 20 << 20
    assert int.from_bytes(publisher.ask(b"LEN;")[5:], "little") > 30
    greedy.close()


def test_strangers_over_their_limit_are_refused_and_hurt_nobody(
    running: Gateway, publisher: QlitePeer, subscriber: QlitePeer
) -> None:
    strangers = []
    refused = 0
    for _ in range(MANY + 50):
        stranger = QlitePeer(running.port)
        strangers.append(stranger)
        refused += stranger.greeting.startswith(b"FAIL;")
    assert refused == 50
    assert publisher.ask(b"PUSH;x")[:5] == b"PASS;"
    for stranger in strangers:
        stranger.close()


def test_a_sink_reader_that_does_not_read_is_dropped_and_slows_nobody(
    running: Gateway, publisher: QlitePeer, subscriber: QlitePeer
) -> None:
    with socket.create_connection(("127.0.0.1", running.sink)) as idle:
        idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        before = running.memory()
        for _ in range(40):
            assert publisher.ask(b"PUSH;" + bytes(1 << 19))[:5] == b"PASS;"
            assert subscriber.ask(b"SPOP;")[:5] == b"PASS;"
        assert running.memory() - before < 20 << 20
        idle.settimeout(20)
        with pytest.raises(ConnectionResetError):
            read_all(idle)
    log = running.process.log.read_text()
    assert "the sink drops its reader" in log
    assert "Traceback" not in log


def read_all(connection: socket.socket) -> None:
    while connection.recv(1 << 20):
        pass


def test_garbage_is_one_line_in_the_log(running: Gateway, publisher: QlitePeer) -> None:
    peer = QlitePeer(running.port, "pub")
    port = peer.socket.getsockname()[1]
    for _ in range(10):
        assert peer.ask(b"nonsense").startswith(b"FAIL;")
    assert publisher.ask(b"LEN;")[:5] == b"PASS;"
    lines = running.process.log.read_text().splitlines()
    (line,) = [line for line in lines if f"127.0.0.1:{port}:" in line]
    assert line.endswith("broke the spec: no semicolon delimiter found")
    peer.socket.sendall(frame(b"LEN;")[:3])
    peer.close()
