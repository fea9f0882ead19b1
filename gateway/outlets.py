"""What shows the gateway to others, in the configuration: the sinks, the page, Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from gateway.accounts import Secret
from gateway.checks import Checks
from gateway.interfaces import Setting

LONGEST_TOKEN = 1024  # bytes; it must fit into the first frame of a reader
SHORTEST_TOKEN = 16  # characters; ours has 32
JOBS = ("rates", "latency", "top", "sizes", "refusals", "sessions")  # with results for the page
ARCHIVE = "archive"  # the job that writes files


class WebSettings(NamedTuple):
    """The dashboard and its API."""

    endpoint: str
    token: Secret | None  # None: made at the first start, and kept with the data


class SparkSettings(NamedTuple):
    """The Spark that runs beside the gateway."""

    master: str
    jobs: list[str]
    checkpoint: Path
    archive: Path | None


class OutletChecks(Checks):
    """Reads those parts of the file."""

    def _token(self, sink: dict[str, Any]) -> Secret | None:
        token = sink.get("token")
        if token is None:
            return None
        # Spark has it in its environment, where nothing has a zero in it.
        is_text = isinstance(token, str) and "\0" not in token
        if not is_text or not 0 < len(token.encode()) <= LONGEST_TOKEN:
            # What it is instead is nobody's business.
            self._wrong("sink.token", f"must be text of 1 to {LONGEST_TOKEN} bytes, in quotes")
            return None
        return Secret(token.encode())

    def _web(self, value: Any) -> WebSettings | None:
        web = self._mapping(value, "web", ["endpoint", "token"])
        endpoint, token = web.get("endpoint"), web.get("token")
        if token is not None and not (
            isinstance(token, str)
            and len(token) >= SHORTEST_TOKEN
            and re.fullmatch(r"[!-~]+", token)
        ):
            self._wrong("web.token", f"must be text of {SHORTEST_TOKEN} or more letters and digits")
        if endpoint is None:
            return None
        self._endpoint(endpoint, "web.endpoint")
        return WebSettings(endpoint, None if token is None else Secret(str(token).encode()))

    def _spark(self, top: dict[str, Any], sink: dict[str, Any]) -> SparkSettings | None:
        known = ["enabled", "master", "jobs", "checkpoint", "archive"]
        spark = self._mapping(top.get("spark", {}), "spark", known)
        paths: dict[str, Path | None] = {}
        for name in ("checkpoint", "archive"):
            given = spark.get(name) is not None
            paths[name] = Path(self._value(spark, "spark", name, Setting("-"))) if given else None
        master = self._value(spark, "spark", "master", Setting("local[*]"))
        jobs = self._list(spark.get("jobs", [*JOBS]), "spark.jobs")
        if not jobs or not all(isinstance(job, str) and job.isidentifier() for job in jobs):
            self._wrong("spark.jobs", f"must be names, such as {', '.join(JOBS)}")
        if ARCHIVE in jobs and paths["archive"] is None:
            self._wrong("spark.archive", f"must say where, if {ARCHIVE} is one of the jobs")
        elif ARCHIVE not in jobs and paths["archive"] is not None:
            jobs = [*jobs, ARCHIVE]
        if not self._value(spark, "spark", "enabled", Setting(False)):
            return None
        web = top.get("web")
        web = web if isinstance(web, dict) else {}
        wanted = {
            "web.endpoint": web.get("endpoint"),
            "sink.replay": sink.get("replay"),
        }
        for place, endpoint in wanted.items():
            if not isinstance(endpoint, str) or not endpoint.startswith("tcp:"):
                self._wrong("spark.enabled", f"needs {place} to be a tcp: endpoint")
        if top.get("durability") == "memory":
            self._wrong("spark.enabled", "needs the log on disk: durability must not be memory")
        data = Path(str(top.get("data", "data")))
        return SparkSettings(master, jobs, paths["checkpoint"] or data / "spark", paths["archive"])
