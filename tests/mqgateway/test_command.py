"""The command as a person runs it: real processes against a real gateway."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support import free_port, running

SETTINGS = {"qlite": {"queue": "jobs"}, "rq": {}, "mqserver": {}, "sk2mq": {}, "awcs": {}}


class Shell:
    """Runs `mqgateway` against one gateway."""

    def __init__(self, directory: Path) -> None:
        self.ports = {name: free_port() for name in (*SETTINGS, "sink")}
        self.config = directory / "gateway.yaml"
        users = [
            {"name": name, "password": "secret", "publisher": True, "subscriber": True}
            for name in ("pub", "sub")
        ]
        listeners = [
            {"protocol": name, "endpoint": f"tcp:{self.ports[name]}:interface=127.0.0.1", **own}
            for name, own in SETTINGS.items()
        ]
        sink = {"lines": f"tcp:{self.ports['sink']}:interface=127.0.0.1"}
        content = {"data": str(directory / "data"), "users": users, "listeners": listeners}
        self.config.write_text(yaml.safe_dump({**content, "sink": sink}))
        self.config.chmod(0o600)

    def run(
        self, command: str, protocol: str, *words: str, given: bytes = b"", password: str = "secret"
    ) -> tuple[int, bytes, str]:
        """The exit code, and what it said on its two outputs."""
        at = f"tcp:127.0.0.1:{self.ports[protocol]}"
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "mqgateway",
                command,
                "--protocol",
                protocol,
                "--at",
                at,
                *words,
            ],
            input=given,
            capture_output=True,
            timeout=60,
            env={**os.environ, "MQGATEWAY_PASSWORD": password},
        )
        said = done.stderr.decode()
        assert "Traceback" not in said
        return done.returncode, done.stdout, said


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp("command"))
    with running(made.config, made.ports["sink"]):
        yield made


def test_what_one_protocol_sent_another_receives_and_no_more_is_taken(shell: Shell) -> None:
    code, out, _ = shell.run("send", "qlite", "--user", "pub", "one", "two")
    assert (code, out) == (0, b"1: 3 bytes, position 1\n2: 3 bytes, position 2\n")
    assert shell.run("recv", "rq", "--name", "jobs", "--count", "1")[:2] == (0, b"one\n")
    code, out, _ = shell.run("recv", "qlite", "--user", "sub", "--count", "1", "--json")
    row = json.loads(out)
    assert (code, row["body"], row["size"]) == (0, "two", 3)


def test_lines_of_standard_input_are_messages(shell: Shell) -> None:
    given = b"first\nsecond \xff"
    code, _, _ = shell.run("send", "sk2mq", "--name", "lines", "--quiet", given=given)
    assert code == 0
    code, out, _ = shell.run("recv", "sk2mq", "--name", "lines", "--count", "2", "--json")
    first, second = map(json.loads, out.splitlines())
    assert (code, first["body"], second["body_base64"]) == (0, "first", "c2Vjb25kIP8=")


def test_nothing_in_time_is_3(shell: Shell) -> None:
    assert shell.run("recv", "rq", "--name", "none", "--wait", "0.2") == (3, b"", "")


def test_a_refusal_is_one_line_and_1(shell: Shell) -> None:
    code, out, said = shell.run("send", "qlite", "--user", "pub", "x", password="wrong")
    assert (code, out, said) == (1, b"", "mqgateway: refused: password is invalid\n")
    code, _, said = shell.run("send", "awcs", "x")
    assert (code, said.count("\n")) == (1, 1)
    assert "no master" in said


def test_nobody_at_the_endpoint_is_one_line_and_1(shell: Shell) -> None:
    at = f"tcp:127.0.0.1:{free_port()}"
    code, _, said = shell.run("send", "rq", "--name", "q", "x", "--at", at)
    assert (code, said) == (1, f"mqgateway: nothing listens at {at}; is the gateway running?\n")


def test_a_mistake_in_the_command_is_2(shell: Shell) -> None:
    assert shell.run("send", "rq", "x")[0] == 2
    assert shell.run("send", "qlite", "x")[0] == 2


def test_mqserver_has_queues_broadcasts_and_mail(shell: Shell) -> None:
    code, out, _ = shell.run("send", "mqserver", "--user", "pub", "--name", "work", "one", "two")
    assert (code, out) == (0, b"1: 3 bytes, id 1\n2: 3 bytes, id 2\n")
    access = ("--user", "sub", "--name", "work", "--count", "2", "--senders")
    assert shell.run("recv", "mqserver", *access)[:2] == (0, b"pub\tone\npub\ttwo\n")
    code, out, _ = shell.run("send", "mqserver", "--user", "pub", "--name", "user:sub", "hello")
    assert (code, out) == (0, b"1: 5 bytes, id 1, stored\n")
    access = ("--user", "sub", "--name", "user:sub", "--count", "1")
    assert shell.run("recv", "mqserver", *access)[:2] == (0, b"hello\n")
    code, out, _ = shell.run("send", "mqserver", "--user", "pub", "--name", "topic:t", "x")
    assert (code, out) == (0, b"1: 1 byte, id 1\n")


def test_mqserver_says_why_it_refuses(shell: Shell) -> None:
    code, _, said = shell.run("send", "mqserver", "--user", "pub", "--name", "user:nobody", "x")
    assert code == 1
    assert "ENOUSER nobody" in said
    access = ("--user", "pub", "--name", "work", "x")
    code, _, said = shell.run("send", "mqserver", *access, password="wrong")
    assert code == 1
    assert "wrong user or password" in said
    code, _, said = shell.run("recv", "mqserver", "--user", "pub", "--name", "user:sub")
    assert code == 1
    assert "a mailbox is read by its user" in said
