"""What a job is, and how one is found by its name."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

BUILT_IN = ("rates", "latency", "top", "sizes", "refusals", "sessions", "archive")

WINDOW = "5 seconds"  # of the windowed jobs: fine enough for a live curve, and 720 rows an hour
# How late a row may be.  The log is in order, so only a clock that was set back makes a row late.
LATENESS = "30 seconds"


class NoSuchJob(Exception):
    """What was asked for, and what there is."""


@dataclass(frozen=True)
class Job:
    """One job.  `function` is all that it must have; the rest says how to run and show it."""

    name: str
    about: str  # one line for people
    function: Callable[[DataFrame], DataFrame]  # rows of SCHEMA to results, streaming or not
    events: tuple[str, ...] = ()  # the kinds of rows that it looks at; none: all
    bodies: bool = True  # whether it looks at bodies
    keys: tuple[str, ...] = ()  # the columns by which a result takes the place of an older one
    order: str | None = None  # the column whose highest values are kept
    replace: bool = False  # a batch that has results has the whole table
    mode: str = "update"  # Spark's output mode
    seconds: float = 5.0  # between two batches: each costs about a quarter of a second
    # What a stream cannot do, such as ranking: applied to the results of one batch.
    finish: Callable[[DataFrame], DataFrame] | None = None
    partitions: tuple[str, ...] | None = None  # of Parquet files, in place of a posted table

    def table(self, rows: DataFrame) -> DataFrame:
        """The finished results of rows that do not stream."""
        results = self.function(rows)
        return self.finish(results) if self.finish else results


def find(name: str) -> Job:
    """The job of that name; a name with a dot is a module with a `JOB` in it."""
    if "." not in name and name not in BUILT_IN:
        raise NoSuchJob(
            f"there is no job {name!r}; there are {', '.join(BUILT_IN)}, and modules of your own"
        )
    module = name if "." in name else f"spark.jobs.{name}"
    try:
        job = pkgutil.resolve_name(f"{module}:JOB")
    except (ImportError, AttributeError, ValueError) as error:
        raise NoSuchJob(f"{name!r} is no job: {error}") from error
    if not isinstance(job, Job):
        raise NoSuchJob(f"{name!r} is no job: its JOB is no spark.jobs.description.Job")
    return job


def find_all(names: str) -> list[Job]:
    """Jobs by their names, with commas between; each may be there once."""
    jobs = [find(name.strip()) for name in names.split(",") if name.strip()]
    found = [job.name for job in jobs]
    if not found:
        raise NoSuchJob(f"no job is named; there are {', '.join(BUILT_IN)}")
    if len(set(found)) < len(found):
        raise NoSuchJob(f"a job is named twice in {', '.join(found)}")
    return jobs
