"""A power cut: only what was synced is left, and in `full` that is all that was answered.

kill -9 does not prove that, because what was written and not synced survives in the page cache.
So a shim around fsync and fdatasync (synced.c) keeps a copy of what was synced, and the gateway is
started again on that copy.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from tests.integration.ledger import (
    Number,
    Publisher,
    answered,
    asked,
    drain,
    is_in_order,
    number_of,
    traffic,
    wait_until,
)
from tests.integration.peers import Gateway, QlitePeer, gateway


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc) for the shim that knows what was synced")
    shim = tmp_path_factory.mktemp("shim") / "synced.so"
    source = Path(__file__).with_name("synced.c")
    options = ["-shared", "-fPIC", "-O2", "-Wall", "-o"]
    subprocess.run([compiler, *options, shim, source, "-ldl"], check=True)
    return shim


class Disk:
    """The data directory of a gateway, and what of it is safe."""

    def __init__(self, directory: Path, shim: Path) -> None:
        self._directory = directory.resolve()
        self._shim = shim
        self.data = self._directory / "data"
        self.safe = self._directory / "safe"
        (self.safe / "files").mkdir(parents=True)

    @contextmanager
    def gateway(self, durability: str) -> Iterator[Gateway]:
        """One under the eyes of the shim."""
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("LD_PRELOAD", str(self._shim))
            environment.setenv("SYNCED_FROM", str(self.data))
            environment.setenv("SYNCED_TO", str(self.safe))
            with gateway(self._directory, durability=durability) as running:
                yield running

    def lose_power(self) -> None:
        """A file is left if its name and its content were synced, as it was when they were."""
        shutil.rmtree(self.data)
        names = self.safe / "names"
        if names.exists():
            self.data.mkdir()
            for name in names.read_text().splitlines():
                if (self.safe / "files" / name).is_file():
                    shutil.copy(self.safe / "files" / name, self.data)

    def drain(self, durability: str) -> list[Number]:
        """What a gateway finds, without the shim."""
        with gateway(self._directory, durability=durability) as running:
            return drain(running.port)


@pytest.fixture
def disk(tmp_path: Path, shim: Path) -> Disk:
    return Disk(tmp_path, shim)


def push_and_lose_power(disk: Disk, durability: str) -> tuple[set[Number], set[Number]]:
    """Push, delete some, and lose power when all is answered: what was answered, what deleted."""
    publisher = Publisher("ann")
    with disk.gateway(durability) as running:
        publisher.log_in(running.port)
        publisher.push(most=300)
        subscriber = QlitePeer(running.port, "sub")
        deleted = set()
        for _ in range(5):
            hidden = subscriber.ask(b"HIDE;" + (30).to_bytes(4, "little"))
            uid, body = hidden[5:21], hidden[22:]
            assert subscriber.ask(b"DEL;" + uid) == b"PASS;" + uid
            deleted.add(number_of(b"PASS;" + body))
        hidden = subscriber.ask(b"HIDE;" + (30).to_bytes(4, "little"))
        running.process.kill()
        subscriber.close()
    assert len(publisher.answered) == 300
    assert len(deleted) == 5
    disk.lose_power()
    return answered([publisher]), deleted


def test_full_durability_loses_nothing_that_was_answered(disk: Disk) -> None:
    """Every message whose push was answered is there, in order, and none that was deleted.

    One that was hidden, which is to say handed out and not settled, is there too.
    """
    pushed, deleted = push_and_lose_power(disk, "full")
    found = disk.drain("full")
    assert set(found) == pushed - deleted
    assert is_in_order(found)


def test_normal_durability_loses_what_was_answered(disk: Disk) -> None:
    """The control: without a sync for each commit the same is lost, so the test above can fail."""
    pushed, _ = push_and_lose_power(disk, "normal")
    assert len(pushed - set(disk.drain("normal"))) == 300


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_a_power_cut_in_the_middle_leaves_the_beginning(disk: Disk, durability: str) -> None:
    """Through many rounds of SQLite's log, of each publisher all up to some message is there; in
    `full`, that message is not before the last that was answered."""
    seed = time.time_ns()
    print(f"seed {seed}")
    publishers = [Publisher(name, size=5000) for name in ("ann", "bob")]
    with disk.gateway(durability) as running:
        for publisher in publishers:
            publisher.log_in(running.port)
        with traffic(publishers):
            wait_until(lambda: sum(len(each.answered) for each in publishers) > 2000, running)
            Event().wait(random.Random(seed).uniform(0, 0.3))
            running.process.kill()
    disk.lose_power()
    assert (disk.data / "journal.sqlite3").stat().st_size > 1 << 20  # it did go round
    found = disk.drain(durability)
    lost = answered(publishers) - set(found)
    print(
        f"{len(answered(publishers))} of {len(asked(publishers))} pushes answered, "
        f"{len(found)} found, {len(lost)} lost"
    )
    assert is_in_order(found)
    for publisher in publishers:
        numbers = [number for name, number in found if name == publisher.name]
        assert numbers == publisher.asked[: len(numbers)]
    if durability == "full":
        assert lost == set()
