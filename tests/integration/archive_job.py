"""A Spark driver that can be killed: the job archive, with a batch whenever there is something.

    python archive_job.py PORT DIRECTORY [finish]

With `finish` it reads what is there, ends, and leaves what the archive and the log have in
rows.json.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, unix_micros

from spark.jobs.description import find
from spark.run import Plan, Runner
from spark.session import read_log, read_stream, start


def plain(table: DataFrame, *more: Any) -> list[list[Any]]:
    columns = ["sequence", "event", "protocol", "body", unix_micros("time")]
    rows = table.select(*columns, *more).orderBy("sequence").collect()
    return [
        [sequence, event, protocol or "", bytes(body or b"").decode(), *others]
        for sequence, event, protocol, body, *others in rows
    ]


def main(port: str, directory: Path, finish: bool) -> int:
    logging.basicConfig()
    gateway = f"tcp:127.0.0.1:{port}"
    session = start("local[2]", [f"spark.local.dir={directory / 'local'}"])
    plan = Plan(
        [replace(find("archive"), seconds=0.2)],
        lambda job: read_stream(session, gateway, job),
        directory / "checkpoint",
        directory / "archive",
        finish,
    )
    status = Runner(session, plan, None).run()
    if finish:
        archive = session.read.parquet(str(directory / "archive"))
        found = {
            "archive": plain(archive, col("day").cast("string")),
            "log": plain(read_log(session, gateway, find("archive"))),
        }
        (directory / "rows.json").write_text(json.dumps(found))
    session.stop()
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), "finish" in sys.argv[3:]))
