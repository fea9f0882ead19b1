"""Tests for gateway.replay: hello, the range of the log, reading it, and readers that misbehave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.logger import globalLogPublisher

from gateway import chunks, replay
from gateway.journal import Journal
from gateway.memory import MemoryStore
from gateway.replay import FRAME_BYTES, FRAME_SECONDS, HELLO_BYTES, LINGER
from tests.gateway.replaying import JOBS, Make, Reader, Replay, frame, records_in
from tests.support import HeldWriter


@pytest.fixture
def logged() -> Iterator[list[Any]]:
    """What is logged meanwhile."""
    events: list[Any] = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


def of_the_sink(logged: list[Any]) -> list[str]:
    return [event["text"] for event in logged if event.get("log_namespace") == "gateway.replay"]


class TestHello:
    def test_in_bytes(self, make: Make) -> None:
        """["hello", 1, ""] and ["ready", 1]; ["range"] and ["range", 1, 2]: one record so far."""
        reader = make().connect(hello=False)
        reader.says(bytes.fromhex("00000009 93 a568656c6c6f 01 a0"))
        assert reader.hears() == bytes.fromhex("00000008 92 a57265616479 01")
        reader.says(bytes.fromhex("00000007 91 a572616e6765"))
        assert reader.hears() == bytes.fromhex("00000009 93 a572616e6765 01 02")

    def test_byte_by_byte_it_is_the_same(self, make: Make) -> None:
        reader = make().connect(hello=False)
        for byte in frame("hello", 1, "") + frame("range"):
            reader.says(bytes([byte]))
        assert reader.tells() == [["ready", 1], ["range", 1, 2]]

    def test_the_first_request_may_come_with_it(self, make: Make) -> None:
        reader = make().connect(hello=False)
        reader.says(frame("hello", 1, "") + frame("range"))
        assert reader.tells() == [["ready", 1], ["range", 1, 2]]

    @pytest.mark.parametrize("first", [["range"], ["read", 1, 2], ["commit"]])
    def test_nothing_comes_before_it(self, make: Make, first: list[Any]) -> None:
        reader = make().connect(hello=False)
        assert reader.asks(*first) == [["error", "wrong", "hello comes first, and once"]]
        assert reader.is_cut_off

    def test_it_comes_once(self, make: Make) -> None:
        reader = make().connect()
        assert reader.asks("hello", 1, "") == [["error", "wrong", "hello comes first, and once"]]
        assert reader.is_cut_off

    def test_another_version_is_told_ours(self, make: Make) -> None:
        reader = make().connect(hello=False)
        text = "this gateway speaks version 1, not 2"
        assert reader.asks("hello", 2, "") == [["error", "wrong", text]]
        assert reader.is_cut_off

    def test_one_that_says_nothing_is_cut_off(self, make: Make) -> None:
        """And a byte now and then gains it no time."""
        made = make()
        silent, slow = made.connect(hello=False), made.connect(hello=False)
        for byte in frame("hello", 1, "")[:9]:
            made.clock.advance(FRAME_SECONDS / 10)
            slow.says(bytes([byte]))
        assert not silent.is_cut_off
        made.clock.advance(FRAME_SECONDS / 10)
        text = "nothing whole came in 30 seconds"
        assert silent.tells() == slow.tells() == [["error", "wrong", text]]
        assert silent.is_cut_off
        assert slow.is_cut_off


class TestToken:
    def test_the_right_one_is_let_in(self, make: Make) -> None:
        reader = make(token=b"s\xc3\xa4sam").connect(hello=False)
        assert reader.asks("hello", 1, "säsam") == [["ready", 1]]

    @pytest.mark.parametrize("hello", [("nearly",), ("",), ()])
    def test_a_wrong_one_or_none_is_refused_recorded_counted_and_logged_once(
        self, make: Make, logged: list[Any], hello: tuple[str, ...]
    ) -> None:
        made = make(token=b"nearlyright")
        reader = made.connect(hello=False)
        reader.says(frame("hello", 1, *hello) + frame("range"))
        assert reader.tells() == [["error", "token", "the token is wrong"]]
        assert reader.is_cut_off
        assert made.refusals() == ["wrong token"]
        assert {key: n for key, n in made.broker.counts.items() if key[0] == "refused"} == {
            ("refused", "replay", "wrong token"): 1
        }
        assert of_the_sink(logged) == ["192.168.1.1:54321: the token is wrong"]

    def test_it_takes_as_long_to_refuse_one_that_is_nearly_right(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The comparison is hmac's, which does not stop at the first difference."""
        compared: list[Any] = []

        reader = make(token=b"sesame").connect(hello=False)
        monkeypatch.setattr(replay.hmac, "compare_digest", lambda *both: compared.append(both))
        reader.says(frame("hello", 1, "sesam"))
        assert compared == [(b"sesame", b"sesam")]

    def test_where_none_is_asked_for_any_will_do(self, make: Make) -> None:
        assert make().connect(hello=False).asks("hello", 1, "x") == [["ready", 1]]


class TestReading:
    def test_the_range_grows_with_what_is_committed(self, make: Make) -> None:
        made = make()
        reader = made.connect()
        made.push(b"a", b"b")
        assert reader.asks_one("range") == ["range", 1, 4]

    def test_what_is_not_committed_is_not_shown(self, make: Make) -> None:
        writer = HeldWriter()
        made = make(run=writer.run)
        reader = made.connect()
        assert reader.asks_one("range") == ["range", 1, 1]
        writer.write()
        assert reader.asks_one("range") == ["range", 1, 2]

    def test_all_of_the_log_comes_in_order(self, make: Make) -> None:
        """Whatever bytes a body has: zeros, text that is none, and nothing at all."""
        made = make()
        bodies = [b"", b"\0", b"\xff\xfe\0\0", bytes(range(256)) * 40, b"'; --", b"\n,\n"]
        for body in bodies:
            made.push(body)
        made.push(*bodies)
        found = records_in(made.connect().asks("read", 1, 14))
        assert [record.sequence for record in found] == [*range(1, 14)]
        assert [record.body for record in found[1:]] == bodies * 2

    @pytest.mark.parametrize(
        ("start", "end", "shown"),
        [
            (2, 5, range(2, 5)),  # a row, whole
            (3, 4, range(2, 5)),  # in its middle: rows are not divided
            (4, 6, range(2, 8)),  # from the middle of one to the middle of the next
            (7, 8, range(5, 8)),  # the last record of all
        ],
    )
    def test_a_read_may_begin_and_end_in_the_middle_of_a_row(
        self, make: Make, start: int, end: int, shown: range
    ) -> None:
        made = make()
        made.push(b"a", b"b", b"c")
        made.push(b"d", b"e", b"f")
        found = records_in(made.connect().asks("read", start, end))
        assert [record.sequence for record in found] == [*shown]

    @pytest.mark.parametrize(("start", "end"), [(2, 2), (3, 1), (0, 0)])
    def test_an_empty_range_has_nothing(self, make: Make, start: int, end: int) -> None:
        made = make()
        made.push(b"a")
        assert made.connect().asks("read", start, end) == [["done"]]

    def test_much_comes_in_chunks(self, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each is as big as is good to hold, and one row more."""
        monkeypatch.setattr(chunks, "CHUNK_BYTES", 1000)
        monkeypatch.setattr(chunks, "CHUNK_ROWS", 3)
        made = make()
        for number in range(7):
            made.push(b"%d" % number)
        for _ in range(3):
            made.push(b"x" * 600)
        answers = made.connect().asks("read", 1, 12)
        assert [len(answer[2]) for answer in answers[:-1]] == [3, 3, 3, 2]
        assert [r.sequence for r in records_in(answers)] == [*range(1, 12)]

    def test_the_same_range_is_the_same_also_after_a_restart(self, make: Make) -> None:
        made = make()
        made.push(b"a", b"b")
        made.push(b"c")
        before = made.connect().asks("read", 2, 5)
        assert make(later=60).connect().asks("read", 2, 5) == before

    def test_what_is_not_there_yet_is_ahead(self, make: Make) -> None:
        made = make()
        made.push(b"a")
        reader = made.connect()
        assert reader.asks_one("read", 1, 4) == [
            *("error", "ahead", "the log ends at 3, before 4"),
        ]
        assert len(records_in(reader.asks("read", 1, 3))) == 2

    def test_what_is_trimmed_is_missing(self, make: Make) -> None:
        """And the connection is kept."""
        made = make()
        made.push(b"a", b"b")
        made.clock.advance(4000)
        made.push(b"c")
        made.push(b"d")
        reader = made.connect()
        _, oldest, end = reader.asks_one("range")
        assert (oldest, end) == (4, 6)
        assert reader.asks_one("read", 3, 6) == [
            *("error", "missing", "the log begins at 4: the rows from 3 on are trimmed"),
        ]
        assert [record.body for record in records_in(reader.asks("read", 4, 6))] == [b"c", b"d"]

    def test_what_is_trimmed_while_it_is_read_is_missing(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After the rows that were still there."""
        monkeypatch.setattr(chunks, "CHUNK_ROWS", 1)
        reads = HeldWriter()
        made = make(read=reads.run)
        for body in (b"a", b"b", b"c"):
            made.push(body)
        reader = made.connect()
        reader.says(frame("read", 1, 5))
        reads.write()
        made.clock.advance(4000)
        for body in (b"d", b"e"):
            made.push(body)
        reads.write()
        rows, error = reader.tells()
        assert rows[:2] == ["rows", 2]
        assert error[:2] == ["error", "missing"]
        assert reader.asks_one("range")[0] == "range"

    def test_a_log_in_memory_is_read_the_same_way(self, make: Make) -> None:
        made = make(store=MemoryStore())
        made.push(b"a", b"b")
        reader = made.connect()
        assert reader.asks_one("range") == ["range", 1, 4]
        assert [r.body for r in records_in(reader.asks("read", 2, 4))] == [b"a", b"b"]
        assert reader.asks("move", "mine", 2) == [["done"]]
        assert made.publish([(JOBS, b"c")]) == ["published", 1, 0]
        assert made.publish([(JOBS, b"c")]) == ["published", 0, 0]


WRONG: dict[str, bytes] = {
    "no MessagePack": b"\xc1\xc1",
    "nothing": b"",
    "no array": b"\xc0",
    "an empty array": b"\x90",
    "a map": b"\x81\xa1a\x01",
    "an unknown request": frame("explode")[4:],
    "too few values": frame("read", 1)[4:],
    "a negative number": frame("read", -1, 5)[4:],
    "a number that is too big": frame("read", 1, 1 << 63)[4:],
    "a number that is text": frame("read", "1", "2")[4:],
    "a cursor without a name": frame("move", "", 1)[4:],
    "a cursor with too long a name": frame("move", "x" * 201, 1)[4:],
    "something behind it": frame("range")[4:] + b"\0",
    "text that is no UTF-8": b"\x93\xa4move\xa2\xff\xff\x01",
    "a name that is no UTF-8": b"\x91\xa2\xff\xff",
    "arrays in arrays": b"\x92\xa5range" + b"\x91" * 3000,
    "messages of no batch": frame("messages", [])[4:],
    "a commit of no batch": frame("commit")[4:],
    "a body that is text": frame("messages", [[JOBS, "x", None]])[4:],
    "a due time that is no number": frame("messages", [[JOBS, b"x", float("nan")]])[4:],
    "a due time that is never": frame("messages", [[JOBS, b"x", float("inf")]])[4:],
}


class TestWrongRequests:
    @pytest.mark.parametrize("name", WRONG)
    def test_each_is_refused_counted_and_logged_once(
        self, make: Make, logged: list[Any], name: str
    ) -> None:
        """The connection is closed, what follows in it is not heard, and others go on."""
        made = make()
        reader, other = made.connect(), made.connect()
        data = WRONG[name]
        reader.says(len(data).to_bytes(4, "big") + data + frame("range"))
        (answer,) = reader.tells()
        assert answer[:2] == ["error", "wrong"]
        assert reader.is_cut_off
        assert made.refusals() == ["wrong request"]
        assert made.broker.counts["refused", "replay", "wrong request"] == 1
        assert len(of_the_sink(logged)) == 1
        assert ("bugs", "replay") not in made.broker.counts
        assert other.asks_one("range")[0] == "range"

    @settings(
        max_examples=200,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(data=st.binary(max_size=60))
    def test_random_bytes_break_nothing(self, make: Make, data: bytes) -> None:
        made = make()
        reader = made.connect()
        reader.says(len(data).to_bytes(4, "big") + data)
        assert [answer[:2] for answer in reader.tells()] == [["error", "wrong"]]
        assert ("bugs", "replay") not in made.broker.counts

    def test_before_hello_a_frame_is_short(self, make: Make) -> None:
        """It is refused at its length: nothing of it is waited for."""
        reader = make().connect(hello=False)
        reader.says((HELLO_BYTES + 1).to_bytes(4, "big"))
        text = f"a frame of {HELLO_BYTES + 1} bytes, and {HELLO_BYTES} is the most"
        assert reader.tells() == [["error", "wrong", text]]
        assert reader.is_cut_off

    def test_after_hello_it_is_as_long_as_the_biggest_body_needs(self, make: Make) -> None:
        made = make()
        reader = made.connect()
        assert reader.asks_one("publish", "", 0, "spark", False) == ["done"]
        assert reader.asks_one("messages", [[JOBS, bytes(16 << 20), None]]) == ["done"]
        reader.says((FRAME_BYTES + 1).to_bytes(4, "big"))
        text = f"a frame of {FRAME_BYTES + 1} bytes, and {FRAME_BYTES} is the most"
        assert reader.tells() == [["error", "wrong", text]]
        assert made.sink.waiting == 0

    def test_a_request_before_the_last_one_is_answered_is_refused(self, make: Make) -> None:
        """What was being read is not sent any more."""
        reads = HeldWriter()
        made = make(read=reads.run)
        reader = made.connect()
        reader.says(frame("read", 1, 2))
        text = "a request before the last one was answered"
        assert reader.asks("range") == [["error", "wrong", text]]
        reads.write()
        assert reader.tells() == []
        assert reader.is_cut_off

    def test_half_a_frame_is_waited_for_for_30_seconds(self, make: Make) -> None:
        """From its first byte on, however it dribbles; between frames there is all the time."""
        made = make()
        reader = made.connect()
        made.clock.advance(10 * FRAME_SECONDS)
        whole = frame("range")
        reader.says(whole[:1])
        for byte in whole[1:-1]:
            made.clock.advance(FRAME_SECONDS / 20)
            reader.says(bytes([byte]))
        reader.says(whole[-1:] + whole[:3])
        assert reader.tells()[0][0] == "range"
        made.clock.advance(FRAME_SECONDS - 1)
        assert not reader.is_cut_off
        made.clock.advance(1)
        assert reader.tells() == [["error", "wrong", "nothing whole came in 30 seconds"]]
        assert reader.is_cut_off

    def test_one_that_does_not_hang_up_is_hung_up_on(self, make: Make) -> None:
        """Refused once, whatever it had begun; what it says then is not kept."""
        made = make()
        reader = made.connect(hello=False)
        reader.says(frame("range"))
        reader.tells()
        for _ in range(3):
            reader.says(b"x" * 1000)
        assert reader.transport.connected
        made.clock.advance(LINGER)
        assert reader.transport.aborted
        made.clock.advance(2 * FRAME_SECONDS)
        assert reader.tells() == []
        assert made.refusals() == ["wrong request"]

    def test_a_bug_costs_one_connection(
        self, make: Make, monkeypatch: pytest.MonkeyPatch, logged: list[Any]
    ) -> None:
        made = make()
        reader, other = made.connect(), made.connect()

        def break_down(*_: object) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "range", break_down)
            assert reader.asks("range") == []
        assert reader.transport.aborted
        assert made.broker.counts["bugs", "replay"] == 1
        assert [event["log_failure"].type for event in logged if "log_failure" in event] == [
            ZeroDivisionError
        ]
        assert other.asks_one("range")[0] == "range"


class TestPace:
    @pytest.fixture
    def reads(self) -> HeldWriter:
        return HeldWriter()

    @pytest.fixture
    def made(self, make: Make, reads: HeldWriter, monkeypatch: pytest.MonkeyPatch) -> Replay:
        """A gateway with four chunks of log."""
        monkeypatch.setattr(chunks, "CHUNK_ROWS", 1)
        made = make(read=reads.run)
        for body in (b"a", b"b", b"c"):
            made.push(body)
        return made

    def test_of_one_that_does_not_read_one_chunk_waits(
        self, made: Replay, reads: HeldWriter
    ) -> None:
        slow = made.connect()
        slow.says(frame("read", 1, 5))
        slow.transport.producer.pauseProducing()
        reads.write()
        assert [answer[:2] for answer in slow.tells()] == [["rows", 2]]
        assert reads.jobs == []  # it has what it has; no more is read for it
        slow.transport.producer.resumeProducing()
        for _ in range(3):
            reads.write()
        assert len(slow.tells()) == 4

    def test_others_are_not_held_up_by_it(self, made: Replay, reads: HeldWriter) -> None:
        slow, quick = made.connect(), made.connect()
        slow.says(frame("read", 1, 5))
        slow.transport.producer.pauseProducing()
        quick.says(frame("read", 1, 5))
        while reads.jobs:
            reads.write()
        assert len(records_in(quick.tells())) == 4
        assert len(slow.tells()) == 1

    def test_one_that_goes_in_the_middle_of_a_read_leaves_nothing(
        self, made: Replay, reads: HeldWriter
    ) -> None:
        """Whether a chunk is being read for it, or waits for it to read."""
        reading, paused = made.connect(), made.connect()
        paused.says(frame("read", 1, 5))
        paused.transport.producer.pauseProducing()
        reads.write()
        reading.says(frame("read", 1, 5))
        reading.hangs_up()
        paused.hangs_up()
        assert made.sink.readers == {}
        while reads.jobs:
            reads.write()
        assert reading.tells() == []
        assert made.clock.getDelayedCalls() == []

    def test_one_that_closes_its_side_is_let_go(self, made: Replay, reads: HeldWriter) -> None:
        reader = made.connect()
        reader.says(frame("read", 1, 5))
        reader.protocol.readConnectionLost()
        assert not reader.transport.connected
        while reads.jobs:
            reads.write()
        assert reader.tells() == []
        assert made.sink.readers == {}

    def test_the_end_of_the_gateway_waits_for_what_is_being_read(
        self, made: Replay, reads: HeldWriter
    ) -> None:
        """Then nothing more is read: the journal may be closed."""
        reader: Reader = made.connect()
        reader.says(frame("read", 1, 5))
        lost = reader.transport.loseConnection
        reader.transport.loseConnection = lambda: None  # a real one is lost a turn later
        finished: list[Any] = []
        made.sink.finish().addCallback(finished.append)
        assert reader.transport.aborted
        assert (finished, len(reads.jobs)) == ([], 2)
        reads.write()
        reads.write()
        assert (finished, reads.jobs) == ([None], [])
        lost()
