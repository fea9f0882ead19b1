"""One SparkSession, and the gateway's log as its rows."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark.health import one_line
from spark.jobs.description import Job
from spark.source import MqgatewaySource

FORMAT = "mqgateway"

EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",  # a day of the archive is the same day everywhere
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",  # a line without an end, in a log
    "spark.scheduler.mode": "FAIR",  # a long batch of one job does not hold up the others
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # results are given at once
    # The gateway calls a query silent after 15 seconds.
    "spark.sql.streaming.noDataProgressEventInterval": "5000",
    "spark.sql.streaming.minBatchesToRetain": "20",  # a batch a second makes many small files
    "spark.sql.streaming.stopTimeout": "10s",
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
}
LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Each costs a task and a state file every batch; and what is shuffled is counted already.
    "spark.sql.shuffle.partitions": "1",
    # Java's second compiler takes most of two cores for the first minutes, for batches that are
    # small and spend their time elsewhere.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # Hadoop's usual way to a local file starts readlink and chmod, forty processes for a batch of
    # one query, and so half a core for six; this way it starts four.  A rename is atomic in both.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution."
    "streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

ARCHIVES = (".zip", ".egg", ".jar")  # what Spark puts on the path of its workers


class CannotRun(Exception):
    """One sentence for whoever typed the command."""


def start(master: str, settings: Iterable[str] = (), py_files: str = "") -> SparkSession:
    """Start Spark.  `settings` are `key=value` and win over ours; CannotRun without a Java."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and (Path(home) / "bin" / "java").exists()):
        raise CannotRun("Spark needs Java 17 or newer: no java is on the path, nor in JAVA_HOME")
    is_local = master.startswith("local")
    chosen: dict[str, str] = {**EVERYWHERE, **(LOCAL if is_local else {})}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise CannotRun(f"--conf takes key=value, not {setting!r}")
        chosen[key] = value
    if py_files:
        if not all(name.endswith(ARCHIVES) for name in py_files.split(",")):
            raise CannotRun(f"--py-files takes zips, not {py_files}; a wheel is one, if renamed")
        chosen["spark.submit.pyFiles"] = py_files
    # Code of jobs and of the source runs in this Python, not in the first of the path.  Workers of
    # a cluster look for it in the same place, unless PYSPARK_PYTHON says where.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # What pyspark does with pandas draws a warning from each worker, about pyspark's own code.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName("mqgateway")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except Exception as error:  # whatever kept Java from starting has been printed by Java
        raise CannotRun(f"Spark does not start on {master}: {one_line(error)}") from error
    session.sparkContext.setLogLevel("OFF")  # what fails is told in one line, by whoever ran it
    # By itself Spark finds it where mqgateway is installed, but not in a zip of --py-files.
    session.dataSource.register(MqgatewaySource)
    return session


def read_stream(session: SparkSession, gateway: str, job: Job, token: str = "") -> DataFrame:
    """What this job wants of the log as it grows, from where its cursor is."""
    reader = session.readStream.format(FORMAT).options(**_options(gateway, job, token))
    return reader.option("cursor", f"spark-{job.name}").load()


def read_log(session: SparkSession, gateway: str, job: Job, token: str = "") -> DataFrame:
    """What this job wants of all that is retained of the log now."""
    return session.read.format(FORMAT).options(**_options(gateway, job, token)).load()


def _options(gateway: str, job: Job, token: str) -> dict[str, str]:
    """Neither Spark's plans nor its reports show the values of options."""
    options = {"endpoint": gateway, "bodies": str(job.bodies), "events": ",".join(job.events)}
    return {**options, **({"token": token} if token else {})}
