"""Spark on a cluster: a real master and a real worker, each a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset
import pyspark
import pytest

from tests.integration.peers import Gateway, QlitePeer, gateway
from tests.spark.posts import TOKEN, Posts
from tests.spark.waiting import wait_for
from tests.support import ROOT, free_port

SPARK = Path(pyspark.__file__).parent
COUNT = 20
PACKAGES = ("gateway", "spark", "pyspark_mqgateway")  # what workers need of mqgateway


class Cluster(NamedTuple):
    directory: Path
    address: str

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A driver, `python -m spark`, that has the cluster as its master."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
        }
        words = [word for key in settings for word in ("--conf", f"{key}={settings[key]}")]
        return subprocess.run(
            [sys.executable, "-m", "spark", *arguments, "--master", self.address, *words],
            env={**clean(), **environment},
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def clean() -> dict[str, str]:
    """The environment, without what other tests have set for their Spark."""
    known = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK")}
    return {**known, "SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}


@contextlib.contextmanager
def daemon(directory: Path, name: str, *arguments: str) -> Iterator[Path]:
    """A process of the cluster, ended by its id; where its log is."""
    log = directory / f"{name}.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [
                *(str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"),
                *("--host", "127.0.0.1", "--webui-port", str(free_port()), *arguments),
            ],
            env={**clean(), "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false"},
            cwd=directory,
            stdout=output,
            stderr=output,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("cluster")
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    work = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / "work"))
    with (
        daemon(directory, "master.Master", "--port", str(port)) as log,
        daemon(directory, "worker.Worker", *work, address),
    ):
        wait_for(lambda: "Registering worker" in log.read_text())
        yield Cluster(directory, address)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that COUNT messages were pushed to."""
    with gateway(tmp_path_factory.mktemp("gateway")) as started:
        publisher = QlitePeer(started.port, "pub")
        for _ in range(COUNT):
            assert publisher.ask(b"PUSH;hello").startswith(b"PASS;")
        publisher.close()
        yield started


def test_jobs_and_the_archive_run_on_workers_that_have_mqgateway(
    cluster: Cluster, running: Gateway, web: Posts, tmp_path: Path
) -> None:
    """The streaming jobs count what was sent, state and all, and the archive has each message."""
    ended = cluster.run(
        *("run", "--once", "--gateway", f"tcp:127.0.0.1:{running.replay}", "--web", web.address),
        *("--jobs", "rates,top", "--checkpoint", str(tmp_path / "checkpoint")),
        *("--archive", str(tmp_path / "archive")),
        MQGATEWAY_TOKEN=TOKEN,
    )
    assert ended.returncode == 0, ended.stderr
    counted = [(row["address"], row["accepted"], row["bytes"]) for row in web.rows("rates")]
    assert {address for address, _, _ in counted} == {"queue:qlite"}
    assert [sum(row[column] for row in counted) for column in (1, 2)] == [COUNT, 5 * COUNT]
    assert {(row["name"], row["messages"]) for row in web.rows("top")} == {
        *(("pub", COUNT), ("queue:qlite", COUNT))
    }
    archive = pyarrow.dataset.dataset(tmp_path / "archive", partitioning="hive")
    rows = archive.to_table(columns=["event", "body"]).to_pylist()
    bodies = [row["body"] for row in rows if row["event"] == "accepted"]
    assert bodies == [b"hello"] * COUNT


def test_workers_without_mqgateway_are_given_it(
    cluster: Cluster, running: Gateway, tmp_path: Path
) -> None:
    """Their Python has what mqgateway needs, and not mqgateway; --py-files has it."""
    python = python_without_mqgateway(tmp_path)
    packages = tmp_path / "mqgateway.zip"
    with zipfile.ZipFile(packages, "w") as file:
        for path in [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]:
            file.write(path, path.relative_to(ROOT))
    shown = cluster.run(
        *("show", "top", "--json", "--gateway", f"tcp:127.0.0.1:{running.replay}"),
        *("--py-files", str(packages)),
        PYSPARK_PYTHON=str(python),
    )
    assert shown.returncode == 0, shown.stderr
    assert {(row["name"], row["messages"]) for row in json.loads(shown.stdout)} == {
        *(("pub", COUNT), ("queue:qlite", COUNT))
    }


def python_without_mqgateway(directory: Path) -> Path:
    """An environment with all packages of this one but mqgateway."""
    made = directory / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    (packages,) = made.glob("lib/python*/site-packages")
    for path in SPARK.parent.iterdir():
        if "mqgateway" not in path.name:
            (packages / path.name).symlink_to(path)
    python = made / "bin" / "python"
    for module, status in (("pyspark", 0), ("msgspec", 0), ("gateway", 1), ("spark", 1)):
        tried = subprocess.run(
            [str(python), "-c", f"import {module}"], cwd=directory, capture_output=True, check=False
        )
        assert tried.returncode == status, module
    return python
