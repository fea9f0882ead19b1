"""Rows of golden bytes become tests, see wire_vectors; and what several tests want around them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.logger import LogLevel, globalLogPublisher

from tests.wire_vectors import WireVectors


def pytest_generate_tests(metafunc: Any) -> None:
    if metafunc.cls is None or not issubclass(metafunc.cls, WireVectors):
        return
    for fixture in ("vector", "rejected", "conversation"):
        if fixture in metafunc.fixturenames:
            values, ids = metafunc.cls.parameters(fixture)
            metafunc.parametrize(fixture, values, ids=ids)


@pytest.fixture
def nothing_breaks() -> Iterator[None]:
    """Whatever a client says, no exception of ours is in the log."""
    failures: list[Any] = []

    def observe(event: Any) -> None:
        if "log_failure" in event or event.get("log_level") is LogLevel.critical:
            failures.append(event)

    globalLogPublisher.addObserver(observe)
    yield
    globalLogPublisher.removeObserver(observe)
    assert failures == []


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores SIGINT, and so would its children."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
