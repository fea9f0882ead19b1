"""Rows of golden bytes become tests; see wire_vectors."""

from __future__ import annotations

from typing import Any

from tests.wire_vectors import WireVectors


def pytest_generate_tests(metafunc: Any) -> None:
    if metafunc.cls is None or not issubclass(metafunc.cls, WireVectors):
        return
    for fixture in ("vector", "rejected", "conversation"):
        if fixture in metafunc.fixturenames:
            values, ids = metafunc.cls.parameters(fixture)
            metafunc.parametrize(fixture, values, ids=ids)
