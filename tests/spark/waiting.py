"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONGEST = 120  # seconds; a loaded machine is slow, and a failure should still end


def wait_for(look: Callable[[], T], seconds: float = LONGEST) -> T:
    """What `look` finds, as soon as it finds anything."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, f"{look.__qualname__} found nothing in {seconds} s"
        time.sleep(0.05)
    return found
