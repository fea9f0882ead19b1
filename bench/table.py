"""What a run found: as a table of 100 columns, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from bench.flatness import AIM, MEMORY_AIM, Flatness, Memory
from bench.measure import Finding, Result, Sample, number
from bench.server import REPOSITORY

RESULTS = REPOSITORY / "bench" / "results"
MISSED = "MISSED"
LIKE_AIM = 3.0  # what a row may cost, relative to rows of another protocol that do the same
LEGEND = """\
messages/s and CPU are medians of rounds in which the servers took turns; of bare is the median of
each round's own ratio to the bare Twisted responder, (rounds) the least and the greatest of them.
CPU us: the server's processor time for a message, of all its threads, from /proc's schedstat; what
it still does after the last answer counts.  LPOP: the time from the PUSH until the subscriber that
waits has the message; its CPU is that of the whole cycle: LPOP, LEN and PUSH."""
SPARK_LEGEND = """\
rows/s: without the time that a query takes to start.  To the page: from the acknowledgement of a
message until the page is told of it, all jobs running.  Beside: of what the same gateway does in
the same round while Spark stands still."""
FLAT_LEGEND = """\
PUSH; each round is taken out again.  x CPU and x time: what a message costs the server and how long
it takes, relative to the line above."""


class Report(NamedTuple):
    """One run."""

    machine: dict[str, Any]  # at the start
    code: str  # at the end
    options: dict[str, Any]
    rows: dict[str, list[Result]]  # by the subject's title
    flatness: list[Flatness]
    memory: list[Memory]
    spark: list[Finding]


def lines(report: Report) -> Iterator[str]:
    about = report.machine
    yield f"{about['date']}  {about['cpus']} x {about['cpu']}  commit {about['commit'] or 'none'}"
    yield (
        f"Python {about['python']}  Twisted {about['twisted']}  reactor {about['reactor']}  "
        f"code {about['code']}  load before {about['load']:.1f}"
    )
    if report.code != about["code"]:
        yield "THE CODE CHANGED DURING THE RUN: not all servers ran the same."
    for title, results in report.rows.items():
        yield ""
        yield f"{title:37}{'messages/s':>11}{'of bare':>9}{'(rounds)':>12}{'aim':>9}{'CPU us':>8}"
        name = ""
        for result in results:
            yield _row_line(result, "" if result.row.name == name else result.row.name)
            name = result.row.name
    if report.rows:
        yield ""
        yield LEGEND
    if report.flatness:
        yield from _flat_lines(report.flatness)
    if report.memory:
        yield from _memory_lines(report.memory)
    yield from _beside_lines(report)
    if report.spark:
        yield from _spark_lines(report.spark)
        yield ""
        yield SPARK_LEGEND
    count = sum(MISSED in line for line in _aimed_lines(report))
    yield ""
    yield f"{count} aims missed" if count else "no aim missed"


def _aimed_lines(report: Report) -> Iterator[str]:
    for results in report.rows.values():
        for result in results:
            yield _row_line(result, "")
    yield from _flat_lines(report.flatness)
    yield from _memory_lines(report.memory)
    yield from _beside_lines(report)
    yield from _spark_lines(report.spark)


def _row_line(result: Result, name: str) -> str:
    line = f"{name:30}{result.mode:7}{result.rate:11,.0f}"
    aim = result.row.aims.get(result.mode)
    if result.mode == "bare":
        line += " " * 30
    else:
        spread = f"{min(result.ratios):.2f}-{max(result.ratios):.2f}"
        line += f"{result.ratio:9.2f}{spread:>12}{f'>= {aim:.2f}' if aim else '':>9}"
    line += f"{result.cost:8.1f}"
    latencies = [latency for sample in result.samples for latency in sample.latencies]
    if latencies:
        line += f"  p50 {median(latencies) * 1e6:.0f} us"
    return f"{line}  {MISSED}" if aim is not None and result.ratio < aim else line


def _flat_lines(flatness: list[Flatness]) -> Iterator[str]:
    yield ""
    yield (
        f"{'flatness':40}{'':7}{'messages/s':>11}{'CPU us':>8}{'x CPU':>7}{'x time':>8}{'aim':>8}"
    )
    for pair in flatness:
        few, many = pair.few, pair.many
        yield f"{few.row.name:40}{pair.mode:7}{few.rate:11,.0f}{few.cost:8.1f}"
        slower = 1 / many.ratio
        line = f"{many.row.name:40}{'':7}{many.rate:11,.0f}{many.cost:8.1f}"
        line += f"{many.cost_ratio:7.2f}{slower:8.2f}"
        if pair.mode != "bare":
            line += f"{f'<= {AIM}':>8}"
            if max(many.cost_ratio, slower) > AIM:
                line += f" {MISSED}"
        yield line
    yield ""
    yield FLAT_LEGEND


def _beside(report: Report) -> Iterator[tuple[Result, float]]:
    """Results of rows that do what others do, and what it costs those; if those were measured."""
    costs = {
        (result.row.name, result.mode): result.cost
        for results in report.rows.values()
        for result in results
    }
    for results in report.rows.values():
        for result in results:
            others = [costs.get((name, result.mode)) for name in result.row.like]
            if others and None not in others and result.mode != "bare":
                yield result, sum(cost for cost in others if cost is not None)


def _beside_lines(report: Report) -> Iterator[str]:
    found = [*_beside(report)]
    if found:
        yield ""
        yield f"{'beside another protocol':30}{'':7}{'CPU us':>8}{'its':>8}{'x CPU':>7}{'aim':>8}"
    for result, cost in found:
        ratio = result.cost / cost
        line = f"{result.row.name:30}{result.mode:7}{result.cost:8.1f}{cost:8.1f}{ratio:7.2f}"
        line += f"{f'<= {LIKE_AIM:.0f}':>8}  {' + '.join(result.row.like)}"
        yield f"{line}  {MISSED}" if ratio > LIKE_AIM else line


def _memory_lines(memory: list[Memory]) -> Iterator[str]:
    yield ""
    yield f"{'memory, resident':40}{'':7}{'messages':>11}{'bytes each':>15}{'aim':>8}"
    for found in memory:
        line = f"{'a stored message of 100 bytes':40}{found.mode:7}{found.messages:11,}"
        line += f"{found.each:15,.0f}{f'<= {MEMORY_AIM}':>8}"
        yield f"{line}  {MISSED}" if found.each > MEMORY_AIM else line


def _spark_lines(findings: list[Finding]) -> Iterator[str]:
    yield ""
    yield f"{'Spark':46}{'':>12}{'aim':>12}"
    for found in findings:
        aim = ""
        if found.least is not None:
            aim = f">= {number(found.least)}"
        elif found.most is not None:
            aim = f"<= {number(found.most)}"
        line = f"{found.name:46}{number(found.value):>12}{aim:>12}  {found.about}"
        yield f"{line}  {MISSED}" if found.is_missed else line


def save(report: Report) -> Path:
    """Write the run to its own file, named after the time in UTC."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    rows = [
        {"subject": title, **_result(result)}
        for title, results in report.rows.items()
        for result in results
    ]
    flatness = [
        {
            "mode": pair.mode,
            "cost_ratio": pair.many.cost_ratio,
            "time_ratio": 1 / pair.many.ratio,
            "aim": AIM,
            "few": _result(pair.few),
            "many": _result(pair.many),
        }
        for pair in report.flatness
    ]
    memory = [{**found._asdict(), "each": found.each, "aim": MEMORY_AIM} for found in report.memory]
    content = {
        "machine": report.machine,
        "code_changed": report.code != report.machine["code"],
        "options": report.options,
        "rows": rows,
        "flatness": flatness,
        "memory": memory,
        "spark": [found._asdict() for found in report.spark],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def _result(result: Result) -> dict[str, Any]:
    return {
        "row": result.row.name,
        "mode": result.mode,
        "rate": result.rate,
        "ratio": result.ratio,
        "aim": result.row.aims.get(result.mode),
        "cost": result.cost,
        "samples": [_sample(sample) for sample in result.samples],
    }


def _sample(sample: Sample) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messages": sample.messages,
        "seconds": sample.seconds,
        "cpu": sample.cpu,
    }
    if len(sample.latencies) > 1:
        cuts = quantiles(sample.latencies, n=100)
        found["latency"] = {"p50": cuts[49], "p99": cuts[98], "most": max(sample.latencies)}
    return found
