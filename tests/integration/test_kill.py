"""kill -9, at any moment: what was answered is there after a restart, once and in order."""

from __future__ import annotations

import random
import time
from pathlib import Path
from threading import Event

import pytest

from tests.integration.ledger import (
    Popper,
    Publisher,
    answered,
    asked,
    drain,
    is_in_order,
    traffic,
    wait_until,
)
from tests.integration.peers import gateway

KILLS = 3


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_what_was_answered_outlives_kills(tmp_path: Path, durability: str) -> None:
    """Three kills on one data directory lose no message that was answered, and double none.

    What was not answered may be there or not.  A pop is not waited for: its message may come back,
    unless a push that came after it has been answered; and if the answer to a pop is lost with the
    gateway, so may be the message.
    """
    seed = time.time_ns()
    print(f"seed {seed}")
    moments = random.Random(seed)
    publishers = [Publisher(name) for name in ("ann", "bob", "cyd")]
    poppers = []
    for _ in range(KILLS):
        with gateway(tmp_path, durability=durability) as running:
            for publisher in publishers:
                publisher.log_in(running.port)
            popper = Popper(running.port)
            poppers.append(popper)
            with traffic(publishers, popper):
                wait_until(lambda popper=popper: popper.safe, running)
                Event().wait(moments.uniform(0, 0.6))
                running.process.kill()
    with gateway(tmp_path, durability=durability) as running:
        found = drain(running.port)
    with gateway(tmp_path, durability=durability) as running:
        assert drain(running.port) == []  # it was stopped, not killed: all is written

    popped = {number for popper in poppers for number in popper.popped}
    print(
        f"{len(answered(publishers))} of {len(asked(publishers))} pushes answered, {len(popped)} "
        f"popped, {len(found)} found, {len(popped & set(found))} of them popped before, "
        f"{len(answered(publishers) - popped - set(found))} lost with the answer to a pop"
    )
    assert is_in_order(found)
    assert set(found) | popped <= asked(publishers)
    lost = answered(publishers) - set(found) - popped
    assert len(lost) <= sum(popper.unanswered for popper in poppers)
    came_later = set(found)
    for popper in reversed(poppers):
        assert is_in_order(popper.popped)
        assert not came_later & set(popper.popped[: popper.safe])
        came_later |= set(popper.popped)
    assert answered(publishers) & set(found)  # there was something to lose
    assert all(popper.safe for popper in poppers)
