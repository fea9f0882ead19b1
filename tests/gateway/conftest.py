"""Gateways with a replay sink, as several tests want them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.replaying import JOBS, Make, Replay


@pytest.fixture
def make_bare(tmp_path: Path) -> Iterator[Make]:
    """Makes gateways on one journal, one after the other."""
    made: list[Replay] = []

    def start(**options: Any) -> Replay:
        if made:
            made.pop().stop()
        made.append(Replay(tmp_path, **options))
        return made[0]

    yield start
    made.pop().stop()


@pytest.fixture
def make(make_bare: Make) -> Make:
    """The same, with a queue."""

    def start(**options: Any) -> Replay:
        made = make_bare(**options)
        made.broker.declare(JOBS)
        made.turn()
        return made

    return start
