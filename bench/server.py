"""The servers under load: real processes, each on its own loopback port, ended by their id."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
START = 30.0  # seconds until a server must listen
STOP = 30.0  # seconds in which it may write what is left before it is killed
PAGE = os.sysconf("SC_PAGE_SIZE")


class ServerError(Exception):
    """A server did not start; the text has the end of its log."""


class Server:
    """A process that listens on a loopback port until it is stopped."""

    def __init__(self, mode: str, command: list[str], port: int, log: Path) -> None:
        self.mode = mode  # "bare", or a durability
        self.port = port
        self._log = log
        with log.open("wb") as output:
            # Its own session: Ctrl-C is for us, and we end it.
            self._process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def wait_until_listening(self) -> None:
        end = monotonic() + START
        while self._process.poll() is None and monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except ConnectionRefusedError:
                sleep(0.05)
            else:
                return
        raise ServerError(f"{self.mode} does not listen:\n{self._log.read_text()[-2000:]}")

    def cpu(self) -> float:
        """Seconds of processor time so far: the first field of each thread's schedstat, which is
        what /proc/<pid>/stat has as utime + stime, but in nanoseconds."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def rss(self) -> int:
        """Bytes of memory that it has now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Lab:
    """Starts servers in a directory of their own, and stops each when its context ends."""

    def __init__(self, directory: Path, reactor: str) -> None:
        self.directory = directory
        self._reactor = reactor
        self._started = 0

    def bare(self, context: ExitStack, protocol: str) -> Server:
        """The responder of `bench.<protocol>`."""
        port = free_port()
        command = [sys.executable, "-m", "bench.bare", "--protocol", protocol]
        command += ["--reactor", self._reactor, "--port", str(port)]
        return self._start(context, Server("bare", command, port, self._new("log")))

    def gateway(
        self,
        context: ExitStack,
        durability: str,
        listener: dict[str, Any],
        users: list[dict[str, Any]],
        **sections: Any,
    ) -> Server:
        """An mqgateway with one listener and, unless there are more sections, nothing else."""
        port, config, log = free_port(), self._new("yaml"), self._new("log")
        stanza = {**listener, "endpoint": f"tcp:{port}:interface=127.0.0.1"}
        config.touch(0o600)
        config.write_text(
            yaml.safe_dump(
                {
                    "data": str(self._new("data")),
                    "durability": durability,
                    "users": users,
                    "listeners": [stanza],
                    **sections,
                }
            )
        )
        twistd = str(Path(sys.executable).with_name("twistd"))
        command = [twistd, "--nodaemon", "--pidfile=", f"--reactor={self._reactor}"]
        command += ["mqgateway", "--config", str(config)]
        return self._start(context, Server(durability, command, port, log))

    def _start(self, context: ExitStack, server: Server) -> Server:
        context.callback(server.stop)
        server.wait_until_listening()
        return server

    def _new(self, kind: str) -> Path:
        self._started += 1
        return self.directory / f"{self._started}.{kind}"


_given: set[int] = set()


def free_port() -> int:
    """Never the same twice, though it is free until somebody listens there."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in _given:
            _given.add(port)
            return port
