"""Where and on what code a run was made."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.server import REPOSITORY

CODE = ["gateway", "protocols", "spark", "twisted"]  # what a server loads when it starts


def machine(reactor: str) -> dict[str, Any]:
    """Ask at the start: what is committed meanwhile was not measured."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "code": code(),
        "cpus": os.cpu_count(),
        "cpu": models[0] if models else platform.machine(),
        "load": os.getloadavg()[0],  # of others, so far
        "kernel": platform.release(),
        "python": platform.python_version(),
        "twisted": version("twisted"),
        "uvloop": version("uvloop"),
        "pyspark": version("pyspark"),
        "reactor": reactor,
    }


def code() -> str:
    """A digest of the gateway's source, which tells whether two servers ran the same."""
    digest = sha256()
    for path in sorted(path for part in CODE for path in (REPOSITORY / part).rglob("*.py")):
        digest.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _commit() -> str:
    """The commit, with a + if there is more than it; empty if there is none."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(REPOSITORY), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "--verify", "--short=12", "HEAD")
    return commit + "+" if commit and git("status", "--porcelain") else commit
