"""Tests for protocols.qlite.wire: the golden bytes."""

from tests.wire_vectors import WireVectors


class TestQliteWire(WireVectors):
    package = "qlite"
