"""The command line: `python -m spark run`, `show` and `jobs`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GATEWAY = "tcp:127.0.0.1:7001"  # where the replay sink listens unless told otherwise
ROWS = 40  # that `show` prints: a screen
DEFAULT_JOBS = "rates,latency,top,sizes,refusals,sessions"


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="python -m spark", description="Spark jobs over the event log of mqgateway."
    )
    commands = whole.add_subparsers(dest="command", required=True, metavar="run | show | jobs")
    run = commands.add_parser("run", help="run jobs and post their results to the gateway")
    _common(run)
    run.add_argument("--web", help="the gateway's web server, such as http://127.0.0.1:8000")
    run.add_argument("--token-file", type=Path, help="file with its token (or MQGATEWAY_TOKEN)")
    run.add_argument(
        "--jobs",
        default=DEFAULT_JOBS,
        help="names with commas between; one with a dot is a module of your own with a JOB in it "
        f"(default: {DEFAULT_JOBS})",
    )
    run.add_argument(
        "--checkpoint",
        type=Path,
        required=True,
        help="directory where Spark keeps how far each job is; on a cluster, one that all share",
    )
    run.add_argument("--archive", type=Path, help="directory for Parquet files; adds job archive")
    run.add_argument("--once", action="store_true", help="read all that there is, then end")
    run.add_argument(
        "--with-parent",
        type=int,
        metavar="PID",
        help="end when the process of that id does, which has started this one",
    )
    run.add_argument(
        "--nice", type=int, default=0, help="give way to others, up to 19 (default: 0)"
    )
    show = commands.add_parser("show", help="print what a job makes of the retained log")
    show.add_argument("job", help="its name, or a module of your own")
    _common(show)
    show.add_argument("--json", action="store_true", help="one JSON array instead of a table")
    show.add_argument("--rows", type=int, default=ROWS, help=f"at most so many (default {ROWS})")
    commands.add_parser("jobs", help="list the jobs")
    return whole


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--gateway", default=GATEWAY, help=f"the gateway's replay sink (default: {GATEWAY})"
    )
    command.add_argument(
        "--sink-token-file", type=Path, help="file with its token (or MQGATEWAY_SINK_TOKEN)"
    )
    command.add_argument("--master", default="local[*]", help="Spark's master (default: local[*])")
    command.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    command.add_argument(
        "--py-files", default="", help="zip of mqgateway for workers that do not have it"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    try:
        import pyspark  # noqa: F401
    except ImportError:
        return _complain("pyspark is not installed; try: pip install 'mqgateway[spark]'")
    from spark.jobs.description import NoSuchJob
    from spark.session import CannotRun

    try:
        return {"run": _run, "show": _show, "jobs": _jobs}[options.command](options)
    except (CannotRun, NoSuchJob) as error:
        return _complain(str(error))


def _complain(sentence: str) -> int:
    sys.stderr.write(f"{sentence}\n")
    return 1


def _jobs(options: argparse.Namespace) -> int:
    from spark.jobs.description import BUILT_IN, find

    for name in BUILT_IN:
        job = find(name)
        sys.stdout.write(f"{name:10} every {job.seconds:2.0f} s  {job.about}\n")
    return 0


def _run(options: argparse.Namespace) -> int:
    from spark.jobs.description import find, find_all
    from spark.results import Web
    from spark.run import Plan, Runner, end_with_parent
    from spark.session import CannotRun, read_stream, start

    jobs = find_all(options.jobs)
    if options.archive and not any(job.name == "archive" for job in jobs):
        jobs.append(find("archive"))
    if not options.archive and any(job.partitions is not None for job in jobs):
        raise CannotRun("the job archive needs --archive DIR")
    if options.web and not options.web.startswith(("http://", "https://")):
        raise CannotRun(f"--web takes an address such as http://127.0.0.1:8000, not {options.web}")
    web = None
    if options.web:
        web = Web(options.web, _token(options.token_file, "MQGATEWAY_TOKEN"))
    sink_token = _token(options.sink_token_file, "MQGATEWAY_SINK_TOKEN")
    ended: list[Any] = []  # a signal that comes while Spark starts
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *signal: ended.append(signal))
    os.nice(options.nice)  # before there is a Java, and threads
    if options.with_parent:
        end_with_parent(options.with_parent, lambda: ended.append(None))
    session = start(options.master, options.conf, options.py_files)
    plan = Plan(
        jobs,
        lambda job: read_stream(session, options.gateway, job, sink_token),
        options.checkpoint,
        options.archive,
        options.once,
    )
    runner = Runner(session, plan, web)
    for number in (signal.SIGTERM, signal.SIGINT):  # again: Spark has its own idea of SIGINT
        signal.signal(number, lambda *_: runner.stop())
    if ended:
        runner.stop()
    try:
        return runner.run()
    finally:
        session.stop()


def _token(path: Path | None, variable: str) -> str:
    from spark.session import CannotRun

    if path is None:
        return os.environ.get(variable, "")
    try:
        return path.read_text().strip()
    except OSError as error:
        raise CannotRun(f"the token cannot be read: {error}") from error


def _show(options: argparse.Namespace) -> int:
    from spark.health import one_line
    from spark.jobs.description import find
    from spark.results import plain_rows
    from spark.session import CannotRun, read_log, start

    job = find(options.job)
    token = _token(options.sink_token_file, "MQGATEWAY_SINK_TOKEN")
    session = start(options.master, options.conf, options.py_files)
    try:
        table = job.table(read_log(session, options.gateway, job, token))
        if options.json:
            sys.stdout.write(json.dumps(plain_rows(table, job, options.rows)) + "\n")
            return 0
        if job.order:
            table = table.orderBy(job.order)
        table.show(options.rows, truncate=40)
    except Exception as error:  # such as a gateway that is away: one line is enough
        raise CannotRun(f"{options.job} cannot be shown: {one_line(error)}") from error
    finally:
        session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
