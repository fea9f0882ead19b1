"""Tests for gateway.sink and the line form of gateway.record."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from gateway.interfaces import Message, Peer
from gateway.record import Record, lines, pack, row, unpack
from gateway.sink import LineSink
from tests.support import Wired, World

ANN = Peer("test", "ann")


class TestRecord:
    def test_what_is_packed_unpacks_the_same(self) -> None:
        records = [
            Record("queue:a", b"\0\xff", "bob", "qlite", sequence=7, time=1.5, headers={"n": 1}),
            Record(kind="expired", message=7, latency=0.25, reason="expired", deliveries=3),
            Record(due=9.5, stored=True, receiver="ann"),
        ]
        assert unpack(pack(records)) == records

    def test_a_row_is_flat_and_says_the_size(self) -> None:
        accepted = row(Record("queue:a:b", b"abc", "bob", "qlite", sequence=7, time=1.5))
        assert accepted["address_kind"] == "queue"
        assert accepted["address"] == "a:b"
        assert (accepted["size"], accepted["message"], accepted["body"]) == (3, 7, b"abc")
        settled = row(Record("queue:a", kind="settled", sequence=9, message=7))
        assert (settled["size"], settled["message"], settled["body"]) == (None, 7, None)

    def test_a_line_is_json_with_the_body_in_base64(self) -> None:
        data = lines([Record("queue:a", b"\0\n\xff", sequence=1), Record(sequence=2, kind="x")])
        first, second, rest = data.split(b"\n")
        assert base64.b64decode(json.loads(first)["body"]) == b"\0\n\xff"
        assert json.loads(second)["event"] == "x"
        assert rest == b""


class Sink:
    def __init__(self) -> None:
        self.world = World()
        self.world.broker.declare("queue:a")
        self.sink = LineSink(self.world.broker, buffer=10_000)

    def connect(self) -> Wired:
        return Wired(self.sink.buildProtocol(None))  # type: ignore[arg-type]

    def push(self, body: bytes) -> None:
        self.world.broker.push(Message("queue:a", body, "bob", "test"))
        self.world.clock.advance(0)

    def bodies(self, reader: Wired) -> list[bytes]:
        found = [json.loads(line) for line in reader.hears().splitlines()]
        return [base64.b64decode(line["body"]) for line in found if line["event"] == "accepted"]


@pytest.fixture
def sink() -> Sink:
    return Sink()


class TestLineSink:
    def test_a_reader_gets_what_happens_from_when_it_connects(self, sink: Sink) -> None:
        sink.push(b"before")
        reader = sink.connect()
        sink.push(b"after")
        assert sink.bodies(reader) == [b"after"]

    def test_every_reader_gets_every_event(self, sink: Sink) -> None:
        readers = [sink.connect(), sink.connect()]
        sink.push(b"a")
        sink.world.broker.take("queue:a", ANN)
        sink.world.clock.advance(0)
        first, second = (reader.hears() for reader in readers)
        assert first == second
        assert [json.loads(line)["event"] for line in first.splitlines()] == ["accepted", "taken"]

    def test_what_a_reader_sends_is_ignored(self, sink: Sink) -> None:
        reader = sink.connect()
        reader.says(b"GET / HTTP/1.1\r\n\r\n")
        sink.push(b"a")
        assert sink.bodies(reader) == [b"a"]

    def test_one_that_does_not_read_is_dropped_and_counted(self, sink: Sink) -> None:
        slow, quick = sink.connect(), sink.connect()
        slow.transport.producer.pauseProducing()
        for _ in range(12):
            sink.push(b"x" * 1000)
        assert slow.transport.aborted
        assert len(sink.bodies(quick)) == 12
        assert sink.world.broker.counts["sink-dropped", "does not read"] == 1

    def test_one_that_reads_on_in_time_misses_nothing(self, sink: Sink) -> None:
        reader = sink.connect()
        reader.transport.producer.pauseProducing()
        sink.push(b"a")
        sink.push(b"b")
        assert reader.hears() == b""
        reader.transport.producer.resumeProducing()
        sink.push(b"c")
        assert sink.bodies(reader) == [b"a", b"b", b"c"]

    def test_without_readers_nothing_is_watched(self, sink: Sink, monkeypatch: Any) -> None:
        sink.connect().hangs_up()
        monkeypatch.setattr("gateway.sink.lines", lambda records: pytest.fail("encoded"))
        sink.push(b"a")
