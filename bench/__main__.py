"""`python -m bench`: start the servers, measure, print the table, save the run."""

from __future__ import annotations

import argparse
import resource
import signal
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from bench import awcs, beside, mqserver, qlite, reading, rq, sk2mq
from bench.flatness import Flatness, Memory, Plan, connected, stored
from bench.load import LoadError
from bench.machine import code, machine
from bench.measure import Finding, Progress, Result, Subject, rounds
from bench.server import REPOSITORY, Lab, ServerError
from bench.table import Report, lines, save
from gateway.supervisor import missing

SUBJECTS = [cast(Subject, module) for module in (qlite, awcs, sk2mq, rq, mqserver)]
DURABILITIES = ["memory", "normal", "full"]
PUBLISHERS = 8  # as many as any row uses
FULL = Plan(rounds=9, seconds=0.6)  # many and short: the machine may have other things to do
SPARK_TURNS = 5
QUICK = Plan(rounds=4, seconds=0.25)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the rows, in short rounds")
    parser.add_argument("--reactor", default="uvloop", choices=["uvloop", "epoll"])
    parser.add_argument("--rounds", type=int, help="how often each server has its turn")
    parser.add_argument("--seconds", type=float, help="how long a turn is")
    parser.add_argument("--spark", action="store_true", help="only Spark: reading, and beside us")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows with this in a name")
    return parser.parse_args()


def rows(lab: Lab, subject: Subject, plan: Plan, only: str, progress: Progress) -> list[Result]:
    """All rows of a protocol: the bare responder and a gateway of each durability, in turn."""
    wanted = [row for row in subject.ROWS if only.lower() in row.name.lower()]
    found: list[Result] = []
    with ExitStack() as context:
        progress(f"{subject.NAME}: starting and logging in")
        servers = [lab.bare(context, subject.NAME)]
        servers += [
            lab.gateway(context, durability, subject.LISTENER, subject.USERS)
            for durability in DURABILITIES
        ]
        everybody = [
            context.enter_context(closing(subject.connect(server, PUBLISHERS)))
            for server in servers
        ]
        for clients in everybody:
            clients.push(0.2, PUBLISHERS, 64)  # to warm up
        for row in wanted:
            runs = [(row, clients) for clients in everybody]
            found += rounds(runs, plan.rounds, plan.seconds, progress)
    return found


def run(directory: Path, chosen: argparse.Namespace, progress: Progress) -> Report:
    plan = QUICK if chosen.quick else FULL
    plan = Plan(chosen.rounds or plan.rounds, chosen.seconds or plan.seconds)
    about = machine(chosen.reactor)
    lab = Lab(directory, chosen.reactor)
    subjects = [] if chosen.spark else SUBJECTS
    found = {subject.TITLE: rows(lab, subject, plan, chosen.only, progress) for subject in subjects}
    flatness: list[Flatness] = []
    memory: list[Memory] = []
    spark: list[Finding] = []
    if not (chosen.quick or chosen.only or chosen.spark):
        for mode in ["memory", "full"]:
            pairs, taken = stored(lab, SUBJECTS[0], mode, plan, progress)
            flatness += pairs
            memory.append(taken)
        for mode in ["bare", "memory", "full"]:
            flatness += connected(lab, SUBJECTS[0], mode, plan, progress)
    if chosen.spark or not (chosen.quick or chosen.only or missing()):
        turns = 2 if chosen.quick else SPARK_TURNS
        spark += reading.read(lab, turns, progress)
        spark += beside.beside(lab, turns, progress)
    return Report(about, code(), vars(chosen), found, flatness, memory, spark)


def main() -> int:
    chosen = options()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are ended too
    progress = Progress()
    # Beside the code, because a journal on a disk that is none would measure nothing.
    with TemporaryDirectory(prefix="run-", dir=REPOSITORY / "bench") as directory:
        (Path(directory) / ".gitignore").write_text("*\n")
        try:
            report = run(Path(directory), chosen, progress)
        except (LoadError, ServerError, OSError) as error:
            progress.clear()
            print(f"bench: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            progress.clear()
            print("bench: interrupted", file=sys.stderr)
            return 130
    progress.clear()
    print("\n".join(lines(report)))
    print(f"saved as {save(report).relative_to(REPOSITORY)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
