"""`make demo`, a few seconds of it and without Spark: everything moves, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.cast import TRAFFIC
from tests.support import ROOT, free_port

pytestmark = pytest.mark.usefixtures("interruptible")

PATIENCE = 120.0  # seconds; the machine may be busy


def configured(directory: Path) -> Path:
    """etc/demo.yaml on ports that are free here, without Spark."""
    content = yaml.safe_load((ROOT / "etc" / "demo.yaml").read_text())
    for stanza in [*content["listeners"], content["web"]]:
        stanza["endpoint"] = f"tcp:{free_port()}:interface=127.0.0.1"
    for name in ("lines", "replay"):
        content["sink"][name] = f"tcp:{free_port()}:interface=127.0.0.1"
    content["spark"]["enabled"] = False
    config = directory / "demo.yaml"
    config.write_text(yaml.safe_dump(content))
    config.chmod(0o600)
    return config


def begin(config: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "demo", "--config", str(config), *words],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(config.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(config: Path) -> list[int]:
    """Who runs with that configuration on its command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue  # it ended meanwhile
        if os.fsencode(config) in line:
            found.append(int(path.parent.name))
    return found


def test_a_few_seconds_move_every_kind_of_traffic_and_leave_nothing(tmp_path: Path) -> None:
    """It says where the dashboard is, tells a line a second, sums up and ends with 0."""
    config = configured(tmp_path)
    out, said = begin(config, "--seconds", "6").communicate(timeout=PATIENCE)
    assert said == ""
    first, *lines = out.splitlines()
    web = yaml.safe_load(config.read_text())["web"]["endpoint"].split(":")[1]
    assert first == f"the dashboard is at http://127.0.0.1:{web}/"
    moved = {}
    for line in lines:
        if summed := re.fullmatch(r"(\w+) .* (\d+) sent +(\d+) heard", line):
            moved[summed[1]] = (int(summed[2]), int(summed[3]))
    assert moved.keys() == {traffic.kind for traffic in TRAFFIC}
    assert all(sent and heard for sent, heard in moved.values()), out
    seconds = [line for line in lines if "replies/s" in line]
    assert seconds
    for traffic in TRAFFIC:
        assert any(re.search(rf"{traffic.protocol} +[1-9]\d*/s", line) for line in seconds)
    assert any(re.search(r"[1-9]\d* refused/s", line) for line in seconds)
    assert processes_of(config) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.yaml"]


@pytest.mark.parametrize("ask", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_it_goes_on_until_it_is_asked_to_end(tmp_path: Path, ask: signal.Signals) -> None:
    """Ctrl-C is how a demo without a time ends, and nothing that went wrong."""
    config = configured(tmp_path)
    demo = begin(config)
    assert demo.stdout is not None
    while "replies/s" not in demo.stdout.readline():
        assert demo.poll() is None
    demo.send_signal(ask)
    out, said = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, said) == (0, "")
    assert "sent" in out
    assert processes_of(config) == []


def test_a_taken_port_is_one_sentence_and_1(tmp_path: Path) -> None:
    """It names the port, and has no clients that speak to whoever has it."""
    config = configured(tmp_path)
    port = int(yaml.safe_load(config.read_text())["listeners"][1]["endpoint"].split(":")[1])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        demo = begin(config, "--seconds", "5")
        out, said = demo.communicate(timeout=PATIENCE)
    assert (demo.returncode, out, said.count("\n")) == (1, "", 1)
    assert f"127.0.0.1:{port}" in said
    assert "Does another demo run?" in said


def test_a_gateway_that_dies_ends_the_demo_with_1(tmp_path: Path) -> None:
    config = configured(tmp_path)
    demo = begin(config)
    assert demo.stdout is not None
    while "replies/s" not in demo.stdout.readline():
        assert demo.poll() is None
    (gateway,) = [pid for pid in processes_of(config) if pid != demo.pid]
    os.kill(gateway, signal.SIGKILL)
    _, said = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 1
    assert "the gateway has ended with status -9" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "words", [["--seconds", "0"], ["--rate", "none"]], ids=["no time", "no number"]
)
def test_a_mistake_is_2(tmp_path: Path, words: list[Any]) -> None:
    demo = begin(configured(tmp_path), *words)
    _, said = demo.communicate(timeout=PATIENCE)
    assert demo.returncode == 2
    assert "Traceback" not in said
