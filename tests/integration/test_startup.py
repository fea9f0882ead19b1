"""A real `twistd mqgateway`: how it starts, why it does not, and how it ends."""

from __future__ import annotations

import json
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.support import ROOT, Process, free_port, read_exactly, running

TWISTD = str(Path(sys.executable).with_name("twistd"))
SECRET = "hunter2"
MAX_CONNECTIONS = 2
GREETING = b"\x1a\x00\x00\x00greetings;"  # and 16 bytes more


def write(
    directory: Path, *ports: int, sink: int | None = None, data: str = "data", **listener: Any
) -> Path:
    """A configuration with a qlite listener on each port of loopback."""
    path = directory / "gateway.yaml"
    listeners = [
        {
            "protocol": "qlite",
            "endpoint": f"tcp:{port}:interface=127.0.0.1",
            "queue": f"queue{number}",
            **listener,
        }
        for number, port in enumerate(ports)
    ]
    content: dict[str, Any] = {
        "data": data,
        "users": [{"name": "pub", "password": SECRET, "publisher": True}],
        "listeners": listeners,
    }
    if sink is not None:
        content["sink"] = {"lines": f"tcp:{sink}:interface=127.0.0.1"}
    path.write_text(yaml.safe_dump(content))
    path.chmod(0o600)
    return path


def twistd(
    config: Path, *flags: str, options: tuple[str, ...] = ("--nodaemon", "--pidfile=")
) -> Any:
    """Run it to its end, which must come by itself."""
    return subprocess.run(
        [TWISTD, *options, "mqgateway", "--config", str(config), *flags],
        cwd=config.parent,
        capture_output=True,
        text=True,
        timeout=30,
    )


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 10)


def is_served(connection: socket.socket) -> bool:
    """Whether it hears the greeting, all 30 bytes of it, or else its end."""
    heard = read_exactly(connection, 30)
    assert heard == b"" or (heard.startswith(GREETING) and len(heard) == 30)
    return heard != b""


@pytest.fixture(scope="module", autouse=True)
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores SIGINT, and so would its children."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Running(NamedTuple):
    process: Process
    directory: Path
    port: int
    other_port: int
    sink: int


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A gateway that is there already, for those who want its ports, its data and its places."""
    directory = tmp_path_factory.mktemp("there")
    port, other_port, sink = free_port(), free_port(), free_port()
    config = write(directory, port, other_port, sink=sink, maxConnections=MAX_CONNECTIONS)
    with running(config, sink) as process:
        yield Running(process, directory, port, other_port, sink)


@pytest.mark.parametrize("ask", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("reactor", ["uvloop", "epoll"])
def test_it_serves_on_either_reactor_until_it_is_asked_to_end(
    tmp_path: Path, reactor: str, ask: signal.Signals
) -> None:
    """It says what listens where, greets, and ends with status 0 though a client is connected."""
    port, sink = free_port(), free_port()
    config = write(tmp_path, port, sink=sink)
    with running(config, port, reactor=reactor) as process, connect(port) as client:
        assert is_served(client)
        process.process.send_signal(ask)
        assert process.process.wait(20) == 0
        assert read_exactly(client, 1) == b""
    log = process.log.read_text()
    assert ("AsyncioSelectorReactor" in log or "UvloopReactor" in log) == (reactor == "uvloop")
    assert f"qlite listens on 127.0.0.1:{port}\n" in log
    assert f"the line sink listens on 127.0.0.1:{sink}\n" in log
    assert f"Received {ask.name}, shutting down" in log
    assert "Traceback" not in log
    assert "Unhandled" not in log
    assert SECRET not in log


def test_the_example_runs_as_it_is(tmp_path: Path) -> None:
    """etc/mqgateway.yaml serves, on ports that are free here and without Spark, which has a test of
    its own; its data is where it is started, and it says where the dashboard is."""
    content = yaml.safe_load((ROOT / "etc" / "mqgateway.yaml").read_text())
    stanzas = [*content["listeners"], content["web"]]
    for stanza in stanzas:
        stanza["endpoint"] = f"tcp:{free_port()}:interface=127.0.0.1"
    for name in ("lines", "replay"):
        content["sink"][name] = f"tcp:{free_port()}:interface=127.0.0.1"
    content["spark"]["enabled"] = False
    port, web = (int(stanzas[number]["endpoint"].split(":")[1]) for number in (0, -1))
    config = tmp_path / "mqgateway.yaml"
    config.write_text(yaml.safe_dump(content))
    with running(config, web) as process, connect(port) as client:
        assert is_served(client)
        assert (tmp_path / "data" / "journal.sqlite3").exists()
        assert (tmp_path / "data" / "token").stat().st_mode & 0o777 == 0o600
        assert process.stop() == 0
    log = process.log.read_text()
    assert "has passwords and others can read it" in log
    assert f"the dashboard is at http://127.0.0.1:{web}/\n" in log
    assert "Traceback" not in log


def test_check_config_starts_nothing(tmp_path: Path, there: Running) -> None:
    """It does not mind that the ports are taken, and leaves no file behind."""
    config = write(tmp_path, there.port, sink=there.sink)
    ended = twistd(config, "--check-config")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{config} is right\n", "")
    assert [*tmp_path.iterdir()] == [config]


def test_mistakes_in_the_file_are_told_on_stderr(tmp_path: Path) -> None:
    """All of them, a line each, without a traceback; nothing is started."""
    config = write(tmp_path, 1, 2, colour="red", data="")
    ended = twistd(config)
    assert (ended.returncode, ended.stdout) == (1, "")
    told = [line.partition(";")[0] for line in ended.stderr.splitlines()]
    assert sorted(told) == [
        "data: must not be empty",
        "listeners[0].colour: unknown",
        "listeners[1].colour: unknown",
    ]
    assert [*tmp_path.iterdir()] == [config]


def test_taken_ports_are_told_all_at_once(tmp_path: Path, there: Running) -> None:
    """Each with its place; the free one between them is not held against it."""
    config = write(tmp_path, there.port, free_port(), there.other_port, sink=there.sink)
    ended = twistd(config)
    assert ended.returncode == 1
    told = ended.stderr.splitlines()
    assert [line.partition(": ")[0] for line in told] == [
        "listeners[0].endpoint",
        "listeners[2].endpoint",
        "sink.lines",
    ]
    assert all("Address already in use" in line for line in told)
    assert "Traceback" not in ended.stdout
    assert not (tmp_path / "data").exists()


def test_a_daemon_that_cannot_start_tells_it_in_its_log(tmp_path: Path, there: Running) -> None:
    """Its parent has a status and a word too, and no pid file is left for the next."""
    config = write(tmp_path, there.port)
    ended = twistd(config, options=("--pidfile=pid", "--logfile=log"))
    assert ended.returncode == 1
    assert "listeners[0].endpoint" in ended.stderr
    log = (tmp_path / "log").read_text()
    assert "listeners[0].endpoint: Couldn't listen on 127.0.0.1" in log
    assert "Traceback" not in log + ended.stderr
    assert not (tmp_path / "pid").exists()


def newer_journal(data: Path) -> str:
    data.mkdir()
    database = sqlite3.connect(data / "journal.sqlite3")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA user_version=99")
    database.close()
    return f"data: {data}/journal.sqlite3 was written by a newer mqgateway: format 99, not "


def no_journal(data: Path) -> str:
    data.mkdir()
    (data / "journal.sqlite3").write_text("Dear diary, today I was a text file. " * 100)
    return f"data: {data}/journal.sqlite3 cannot be used: file is not a database"


def no_directory(data: Path) -> str:
    data.write_text("")
    return f"data: {data}/journal.sqlite3 cannot be used: [Errno 17] File exists"


@pytest.mark.parametrize("prepare", [newer_journal, no_journal, no_directory])
def test_data_that_cannot_be_used_is_refused(tmp_path: Path, prepare: Any) -> None:
    """It says why in one line, does not start, and changes nothing of what is there."""
    data = tmp_path / "data"
    reason = prepare(data)
    file = data if data.is_file() else data / "journal.sqlite3"
    before = file.read_bytes()
    ended = twistd(write(tmp_path, free_port(), data=str(data)))
    assert ended.returncode == 1
    (told,) = ended.stderr.splitlines()
    assert told.startswith(reason)
    assert "Traceback" not in ended.stdout
    assert file.read_bytes() == before


def test_data_of_another_gateway_is_refused(tmp_path: Path, there: Running) -> None:
    """Two gateways never share a data directory, and the first one goes on."""
    data = there.directory / "data"
    ended = twistd(write(tmp_path, free_port(), data=str(data)))
    assert ended.returncode == 1
    assert ended.stderr == f"data: {data} is in use by another mqgateway\n"
    assert "Traceback" not in ended.stdout
    with connect(there.port) as client:
        assert is_served(client)


def test_a_disk_that_breaks_ends_it_with_a_status(tmp_path: Path) -> None:
    """What cannot be made safe must not be promised: it ends, and neither quietly nor with 0."""
    port = free_port()
    with running(write(tmp_path, port), port) as process, connect(port) as client:
        assert is_served(client)
        # No file may grow beyond what the journal has now: to write is an I/O error from here on.
        limit = (tmp_path / "data" / "journal.sqlite3-wal").stat().st_size
        resource.prlimit(process.process.pid, resource.RLIMIT_FSIZE, (limit, limit))
        with connect(port):
            assert process.process.wait(20) == 1
    assert "mqgateway stops: the journal cannot be written" in process.log.read_text()


def test_one_connection_too_many_is_closed_and_recorded(there: Running) -> None:
    """The last of maxConnections + 1 hears nothing but its end; when one leaves, there is room."""
    with connect(there.sink) as sink, sink.makefile("rb") as lines:

        def until(event: str, **about: Any) -> None:
            for line in lines:
                row = json.loads(line)
                if row["event"] == event and about.items() <= row.items():
                    return
            raise AssertionError(f"the sink ended before {event}")

        sink.settimeout(20)
        with connect(there.other_port) as first:
            assert is_served(first)
            with connect(there.other_port) as second:
                address = f"127.0.0.1:{second.getsockname()[1]}"
                assert is_served(second)
                with connect(there.other_port) as third:
                    assert not is_served(third)
                until("refused", protocol="qlite", reason="too many connections")
            until("disconnected", headers={"detail": address})
            with connect(there.other_port) as fourth:
                assert is_served(fourth)
    assert f"qlite: all {MAX_CONNECTIONS} connections are taken" in there.process.log.read_text()


def test_a_qlite_servers_own_file_is_enough_for_a_listener(tmp_path: Path) -> None:
    """Its port is listened on, on every interface, as the original did."""
    port = next(port for port in iter(free_port, 0) if 1024 <= port <= 49151)
    (tmp_path / "qlite.yaml").write_text(
        f"users: [{{name: pub, password: {SECRET}, publisher: true}}]\nport: {port}\n"
    )
    config = tmp_path / "gateway.yaml"
    config.write_text("listeners: [{protocol: qlite, config: qlite.yaml}]\n")
    with running(config, port) as process, connect(port) as client:
        assert is_served(client)
        assert process.stop() == 0
    log = process.log.read_text()
    assert f"qlite listens on 0.0.0.0:{port}\n" in log
    assert f"{tmp_path}/qlite.yaml has passwords and others can read it" in log
    assert SECRET not in log


# What systemd does for a service with a socket: it is file descriptor 3, and LISTEN_PID says whose.
SYSTEMD = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="qlite")
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_a_socket_passed_by_systemd_is_served(tmp_path: Path) -> None:
    """`systemd:` is no endpoint without socket activation; with it, a client is greeted."""
    config = write(tmp_path, 1)
    endpoint = "systemd:domain=INET:name=qlite"
    config.write_text(config.read_text().replace("tcp:1:interface=127.0.0.1", endpoint))
    command = [TWISTD, "--nodaemon", "--pidfile=", "mqgateway", "--config", str(config)]
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = subprocess.Popen(
            [sys.executable, "-c", SYSTEMD, str(server.fileno()), *command],
            cwd=tmp_path,
            pass_fds=[server.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            with connect(server.getsockname()[1]) as client:  # the kernel keeps it until then
                assert is_served(client)
        finally:
            process.send_signal(signal.SIGTERM)
            log, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in log
