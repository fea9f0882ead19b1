"""The sink's token: who has it reads, and nobody is shown it."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark.jobs.archive import JOB
from spark.session import read_log, read_stream
from tests.integration.peers import gateway
from tests.support import ROOT

SECRET = "known-to-the-sink-alone"


def test_plans_reports_and_checkpoints_do_not_show_it(spark: SparkSession, tmp_path: Path) -> None:
    """Neither of a table nor of a stream; without it, or with another, there are no rows."""
    with gateway(tmp_path, replaySink={"token": SECRET}) as running:
        endpoint = f"tcp:127.0.0.1:{running.replay}"
        for token in ("", "another"):
            with pytest.raises(PySparkException, match="the token is wrong"):
                read_log(spark, endpoint, JOB, token).count()
        table = read_log(spark, endpoint, JOB, SECRET)
        assert table.count() > 0
        stream = read_stream(spark, endpoint, JOB, SECRET)
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            table.explain(True)
            stream.explain(True)
            writer = stream.writeStream.format("noop").trigger(availableNow=True)
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            query.awaitTermination()
            query.explain(True)
        reports = [report.json for report in query.recentProgress]
        said = [shown.getvalue(), *reports, repr(table), repr(stream)]
        wrong = read_stream(spark, endpoint, JOB, f"{SECRET}-not").writeStream.format("noop")
        query = wrong.trigger(availableNow=True).start()
        with pytest.raises(PySparkException, match="the token is wrong") as error:
            query.awaitTermination()
        said.append(str(error.value))
    assert any("mqgateway" in text for text in said)
    assert reports
    assert not [text for text in said if SECRET in text]
    kept = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("how", ["file", "environment"])
def test_the_command_takes_it_from_a_file_or_the_environment(how: str, tmp_path: Path) -> None:
    with gateway(tmp_path, replaySink={"token": SECRET}) as running:
        file = tmp_path / "sink-token"
        file.write_text(f"{SECRET}\n")
        words = ["--sink-token-file", str(file)] if how == "file" else []
        variables = {"MQGATEWAY_SINK_TOKEN": SECRET} if how == "environment" else {}
        shown = subprocess.run(
            [
                *(sys.executable, "-m", "spark", "show", "sizes", "--json"),
                *("--gateway", f"tcp:127.0.0.1:{running.replay}", "--master", "local[1]", *words),
            ],
            cwd=ROOT,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert (shown.returncode, shown.stdout) == (0, "[]\n"), shown.stderr
