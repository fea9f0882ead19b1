"""How the command ends, and what it shows meanwhile: signals, a terminal, the sink, files."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mqgateway.test_command import Shell
from tests.support import running

pytestmark = pytest.mark.usefixtures("interruptible")

PATIENCE = 60.0  # seconds; the machine may be busy


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp("endings"))
    with running(made.config, made.ports["sink"]):
        yield made


def begin(shell: Shell, command: str, port: str, *words: str) -> subprocess.Popen[bytes]:
    at = f"tcp:127.0.0.1:{shell.ports[port]}"
    return subprocess.Popen(
        [sys.executable, "-m", "mqgateway", command, "--at", at, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )


def heard_by_the_sink(shell: Shell, *words: str) -> subprocess.Popen[bytes]:
    """A `tail` that is there: it has shown a message that was sent for that."""
    tail = begin(shell, "tail", "sink", *words)
    until = time.monotonic() + PATIENCE
    assert tail.stdout is not None
    while not select.select([tail.stdout], [], [], 0)[0]:
        assert tail.poll() is None
        assert time.monotonic() < until
        assert shell.run("send", "sk2mq", "--name", "are-you-there", "--quiet", "hello")[0] == 0
    return tail


@pytest.mark.parametrize(
    ("ask", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
@pytest.mark.parametrize("command", ["tail", "recv"])
def test_a_signal_ends_it_without_a_word(
    shell: Shell, command: str, ask: signal.Signals, code: int
) -> None:
    """The exit code is 128 and the signal, as shells have it."""
    if command == "tail":
        running = heard_by_the_sink(shell, "--event", "accepted")
    else:
        name = f"until-{ask.name}"
        assert shell.run("send", "rq", "--name", name, "x")[0] == 0
        running = begin(shell, "recv", "rq", "--protocol", "rq", "--name", name)
        assert running.stdout is not None
        assert running.stdout.readline() == b"x\n"
    running.send_signal(ask)
    _, said = running.communicate(timeout=PATIENCE)
    assert (running.returncode, said) == (code, b"")


def test_tail_shows_what_its_filters_let_through(shell: Shell) -> None:
    """Patterns of one kind are alternatives; those of different kinds must all be true."""
    tail = heard_by_the_sink(
        shell,
        *("--event", "accepted", "--address", "topic:are-*", "--address", "queue:tail*"),
        *("--json",),
    )
    shell.run("send", "rq", "--name", "other", "not this")
    shell.run("send", "rq", "--name", "tailed", "this")
    assert tail.stdout is not None
    rows = iter(lambda: json.loads(tail.stdout.readline()), None)  # type: ignore[union-attr]
    row = next(row for row in rows if row["address"] != "are-you-there")
    assert (row["event"], row["address_kind"], row["address"]) == ("accepted", "queue", "tailed")
    assert (row["protocol"], row["size"], row["body"]) == ("rq", 4, "dGhpcw==")
    tail.terminate()
    tail.communicate(timeout=PATIENCE)


def test_tail_ends_after_a_count_or_a_silence(shell: Shell) -> None:
    tail = heard_by_the_sink(shell, "--count", "1", "--address", "topic:are-you-there")
    out, said = tail.communicate(timeout=PATIENCE)
    assert (tail.returncode, out.count(b"\n"), said) == (0, 1, b"")
    assert b"topic:are-you-there" in out
    nothing = begin(shell, "tail", "sink", "--wait", "0.2", "--address", "queue:none")
    assert nothing.communicate(timeout=PATIENCE) == (b"", b"")
    assert nothing.returncode == 3


def test_tail_of_what_is_no_sink_is_one_sentence_and_1(shell: Shell) -> None:
    tail = begin(shell, "tail", "qlite")
    out, said = tail.communicate(timeout=PATIENCE)
    assert (tail.returncode, out, said.count(b"\n")) == (1, b"", 1)


def test_a_file_is_sent_by_lines_or_whole(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "bodies"
    path.write_bytes(b"one\n\ntwo\n")
    name = ("--name", "files")
    code, out, _ = shell.run("send", "sk2mq", *name, "--file", str(path), "--json")
    answers = [json.loads(line) for line in out.splitlines()]
    assert (code, [answer["size"] for answer in answers]) == (0, [3, 0, 3])
    assert [answer["number"] for answer in answers] == [1, 2, 3]
    code, out, _ = shell.run("send", "sk2mq", *name, "--file", str(path), "--whole")
    assert (code, out) == (0, b"1: 9 bytes, OK\n")
    code, out, _ = shell.run("recv", "sk2mq", *name, "--count", "4", "--json")
    bodies = [json.loads(line)["body"] for line in out.splitlines()]
    assert (code, bodies) == (0, ["one", "", "two", "one\n\ntwo\n"])


@pytest.mark.parametrize("is_directory", [False, True], ids=["missing", "a directory"])
def test_a_file_that_cannot_be_read_is_named(
    shell: Shell, tmp_path: Path, is_directory: bool
) -> None:
    path = tmp_path if is_directory else tmp_path / "none"
    code, out, said = shell.run("send", "sk2mq", "--name", "files", "--file", str(path))
    assert (code != 0, out, said.count("\n")) == (True, b"", 1)
    assert str(path) in said


def test_senders_are_printed_before_a_tab(shell: Shell) -> None:
    shell.run("send", "sk2mq", "--name", "signed", "hello")
    code, out, _ = shell.run("recv", "sk2mq", "--name", "signed", "--count", "1", "--senders")
    sender, body = out.split(b"\t")
    assert (code, body) == (0, b"hello\n")
    assert sender


def test_a_password_file_is_used_before_the_variable(shell: Shell, tmp_path: Path) -> None:
    """Its last newline is not part of the password; one that cannot be read is a mistake."""
    path = tmp_path / "password"
    path.write_text("secret\n")
    words = ("--user", "pub", "--password-file")
    assert shell.run("send", "qlite", *words, str(path), "x", password="wrong")[0] == 0
    code, _, said = shell.run("send", "qlite", *words, str(tmp_path / "none"), "x")
    assert (code, "No such file" in said) == (2, True)


def test_long_work_has_a_progress_line_on_a_terminal(shell: Shell, tmp_path: Path) -> None:
    """It is for the person at the terminal, and not in the output that goes elsewhere."""
    ours, its = pty.openpty()
    out = tmp_path / "out"
    at = f"tcp:127.0.0.1:{shell.ports['sk2mq']}"
    line = ["send", "--protocol", "sk2mq", "--at", at, "--name", "long"]
    with out.open("wb") as output:
        sending = subprocess.Popen(
            [sys.executable, "-m", "mqgateway", *line],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=its,
        )
    os.close(its)
    assert sending.stdin is not None
    sending.stdin.write(b"one\ntwo\n")
    sending.stdin.flush()
    shown = b""
    while b"2 acknowledged" not in shown:
        assert select.select([ours], [], [], PATIENCE)[0]
        shown += os.read(ours, 1000)
    sending.stdin.close()
    assert sending.wait(PATIENCE) == 0
    os.close(ours)
    assert out.read_bytes() == b"1: 3 bytes, OK\n2: 3 bytes, OK\n"
