"""Tests for protocols.sk2mq.wire: the golden bytes of both dialects."""

from __future__ import annotations

from protocols.sk2mq.wire import UPSTREAM, has_length
from tests.protocols.sk2mq import upstream_vectors
from tests.wire_vectors import WireVectors


class TestSeedWire(WireVectors):
    package = "sk2mq"


class TestUpstreamWire(WireVectors):
    package = "sk2mq"

    @classmethod
    def load(cls) -> None:
        super().load()
        cls.wire, cls.vectors = UPSTREAM, upstream_vectors


def test_a_hello_tells_its_dialect() -> None:
    assert has_length(b"\0\0\0\3yyz")
    assert has_length(b"\0\0\0\0")
    for body in (b"user-1766395700-5", b"yyz", b"", b"\0\0\0\3yyzz"):
        assert not has_length(body)
