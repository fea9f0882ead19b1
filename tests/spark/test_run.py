"""Tests for `python -m spark`: real processes, from a client's message to a posted number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark.__main__ import main
from spark.health import newest, one_line
from spark.jobs.description import BUILT_IN, NoSuchJob, find, find_all
from tests.integration.peers import QlitePeer, gateway
from tests.spark.posts import TOKEN, Posts
from tests.spark.waiting import wait_for
from tests.support import ROOT, free_port


def start(directory: Path, port: int, web: Posts, *options: str) -> subprocess.Popen[bytes]:
    """A real `python -m spark run`; what it says is in spark.log."""
    token = directory / "token"
    token.write_text(f"{TOKEN}\n")
    with (directory / "spark.log").open("ab") as log:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "spark", "run", "--gateway", f"tcp:127.0.0.1:{port}"),
                *("--web", web.address, "--token-file", str(token), "--master", "local[2]"),
                *("--checkpoint", str(directory / "checkpoint"), *options),
            ],
            cwd=ROOT,
            env={key: value for key, value in os.environ.items() if key != "PYSPARK_PYTHON"},
            stdout=log,
            stderr=log,
        )


def end(process: subprocess.Popen[bytes]) -> int:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(60)
    finally:
        process.kill()


def test_what_clients_do_becomes_posted_numbers(tmp_path: Path, web: Posts) -> None:
    """All jobs run beside a real gateway; SIGTERM ends them, and each says that it has stopped."""
    with gateway(tmp_path) as running:
        publisher, subscriber = QlitePeer(running.port, "pub"), QlitePeer(running.port, "sub")
        for _ in range(20):
            assert publisher.ask(b"PUSH;hello").startswith(b"PASS;")
        for _ in range(5):
            assert subscriber.ask(b"SPOP;") == b"PASS;hello"
        publisher.ask(b"PUSH;")
        publisher.close()
        process = start(tmp_path, running.replay, web, "--archive", str(tmp_path / "archive"))
        try:

            def all_have_reported() -> bool:
                assert process.poll() is None, (tmp_path / "spark.log").read_text()
                read = {name for name, report in web.states("running").items() if report["newest"]}
                return read >= {*BUILT_IN}

            wait_for(all_have_reported)
            rates = wait_for(lambda: web.rows("rates"))
            wait_for(lambda: any(row["ended"] for row in web.rows("sessions")))
        finally:
            status = end(process)
        subscriber.close()
    assert status == 0, (tmp_path / "spark.log").read_text()
    assert {*web.states("stopped")} == {*BUILT_IN}
    assert web.states("failed") == {}
    assert [sum(row[name] for row in rates) for name in ("accepted", "delivered", "bytes")] == [
        *(20, 5, 100)
    ]
    assert sum(row["count"] for row in web.rows("latency") if row["until"] == "settled") == 5
    assert web.rows("sizes") == [{"bucket": 16, "messages": 20}]
    busiest = {"what": "sender", "name": "pub", "messages": 20, "bytes": 100, "over": 0}
    assert busiest in web.rows("top")
    sessions = {row["user"]: row for row in web.rows("sessions")}
    assert sessions["pub"]["ended"] > sessions["pub"]["started"]
    assert sessions["sub"]["ended"] is None
    assert [*(tmp_path / "archive").glob("day=*/protocol=qlite/*.parquet")]


def test_a_query_that_fails_is_told_and_ends_a_run_of_once(tmp_path: Path, web: Posts) -> None:
    """Its error is one line, and the status 1."""
    (tmp_path / "broken.py").write_text(
        "from spark.jobs.description import Job\n"
        "JOB = Job('broken', 'fails', lambda rows: rows.select('no_such_column'))\n"
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "broken.py").rename(tmp_path / "mine" / "broken.py")
    environment = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = str(tmp_path)
    try:
        process = start(tmp_path, free_port(), web, "--jobs", "mine.broken", "--once")
    finally:
        os.environ["PYTHONPATH"] = environment
    try:
        assert process.wait(120) == 1
    finally:
        process.kill()
    report = web.states("failed")["broken"]
    assert "no_such_column" in report["error"]
    assert "\n" not in report["error"]


def test_every_job_that_is_named_is_found_and_no_other() -> None:
    assert [job.name for job in find_all(", ".join(BUILT_IN))] == [*BUILT_IN]
    assert find("spark.jobs.rates") is find("rates")
    for names in ("rate", "spark.jobs.nothing", "spark.schema", "rates,rates", ","):
        with pytest.raises(NoSuchJob):
            find_all(names)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--jobs", "archive"], "needs --archive"),
        (["--web", "127.0.0.1:8000"], "--web takes an address"),
        (["--web", "http://localhost", "--token-file", "/no/such"], "token cannot be read"),
        (["--jobs", "nothing"], "there is no job 'nothing'"),
        (["--sink-token-file", "/no/such"], "token cannot be read"),
        (["--py-files", "mqgateway.whl"], "takes zips, not mqgateway.whl"),
    ],
)
def test_what_cannot_run_says_so_in_a_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--checkpoint", "unused", *arguments]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_without_java_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(["show", "rates"]) == 1
    assert "needs Java" in capsys.readouterr().err


def test_an_offset_tells_the_last_sequence_and_an_error_its_line() -> None:
    assert newest('{"sequence": 8}') == 7
    assert [newest(offset) for offset in (None, "", "null", "{}")] == [None] * 4
    error = "[STREAM_FAILED] Query\n  at x\nspark.client.GatewayError: it is away\n\tat y"
    assert one_line(error) == "spark.client.GatewayError: it is away"
    assert one_line("plain\nmore") == "plain"
    java = "An error occurred while calling o55.load.\n: a.b.Exception: no such source\n\tat x"
    assert one_line(java) == "a.b.Exception: no such source"
