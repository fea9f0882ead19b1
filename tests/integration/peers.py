"""Blocking peers on real sockets: a qlite client that can misbehave, and a gateway to talk to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from protocols.qlite.proof import prove
from tests.support import Process, free_port, read_exactly, running

USERS = [
    {"name": "pub", "password": "publisher", "publisher": True},
    {"name": "sub", "password": "subscriber", "subscriber": True},
]


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


class Gateway(NamedTuple):
    process: Process
    port: int
    sink: int
    config: Path
    replay: int

    def memory(self) -> int:
        """Bytes of memory that the process has."""
        pages = Path(f"/proc/{self.process.process.pid}/statm").read_text().split()[1]
        return int(pages) * 4096


@contextmanager
def gateway(directory: Path, reactor: str = "uvloop", **qlite: Any) -> Iterator[Gateway]:
    """A real gateway with one qlite listener and a line sink, for the length of a test."""
    port, sink = free_port(), free_port()
    replay = free_port()
    config = directory / "gateway.yaml"
    listener = {
        "protocol": "qlite",
        "endpoint": f"tcp:{port}:interface=127.0.0.1",
        "maxSubscriberConnections": 50,
        "maxPublisherConnections": 50,
        "maxMessages": 1_000_000,
        **qlite,
    }
    durability = listener.pop("durability", "full")
    content = {
        "data": str(directory / "data"),
        "durability": durability,
        "users": USERS,
        "listeners": [listener],
        "sink": {
            "lines": f"tcp:{sink}:interface=127.0.0.1",
            "bufferBytes": 1 << 20,
            "replay": f"tcp:{replay}:interface=127.0.0.1",
            **listener.pop("replaySink", {}),
        },
        **listener.pop("settings", {}),
    }
    config.write_text(yaml.safe_dump(content))
    config.chmod(0o600)
    with running(config, port, reactor=reactor) as process:
        yield Gateway(process, port, sink, config, replay)


class QlitePeer:
    """A qlite client that waits for each answer, unless it is told not to."""

    def __init__(self, port: int, name: str | None = None) -> None:
        """Log in as `name`, pub or sub; without one, stay a stranger."""
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        try:
            self._log_in(name)
        except BaseException:  # the gateway died
            self.close()
            raise

    def _log_in(self, name: str | None) -> None:
        self.greeting = self.hear()
        if name is not None:
            role, password = {"pub": (0, b"publisher"), "sub": (1, b"subscriber")}[name]
            proof = prove(password, self.greeting[10:])
            assert self.ask(bytes([role]) + name.encode() + b";" + proof) == b"PASS;"

    def say(self, *bodies: bytes) -> None:
        self.socket.sendall(b"".join(map(frame, bodies)))

    def hear(self) -> bytes:
        """The body of the next frame, or b"" at the end."""
        size = int.from_bytes(read_exactly(self.socket, 4), "little")
        return read_exactly(self.socket, size)

    def ask(self, body: bytes) -> bytes:
        self.say(body)
        return self.hear()

    def close(self) -> None:
        self.socket.close()
