"""Tests for protocols.qlite.server, spoken in bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from gateway.accounts import PasswordAccounts, Secret
from gateway.interfaces import User
from gateway.record import ACCEPTED, LOGGED_IN, RETURNED, TAKEN
from protocols.qlite.server import QliteFactory
from tests.protocols.qlite import vectors
from tests.protocols.qlite.vectors import CHALLENGE, PROOF, frame
from tests.support import DurableMemory, HeldWriter, Wired, World, accounts

GREETING = frame(b"greetings;" + CHALLENGE)
PASS = frame(b"PASS;")
LEN, SPOP, LPOP = frame(b"LEN;"), frame(b"SPOP;"), frame(b"LPOP;")


def push(body: bytes) -> bytes:
    return frame(b"PUSH;" + body)


def hide(seconds: int, word: bytes = b"HIDE") -> bytes:
    return frame(word + b";" + seconds.to_bytes(4, "little"))


def passed(value: bytes) -> bytes:
    return frame(b"PASS;" + value)


def number(value: int) -> bytes:
    return passed(value.to_bytes(4, "little"))


def failed(text: str) -> bytes:
    return frame(b"FAIL;" + text.encode())


USERS = [
    # All have the password of the captured login.
    ("pub", "publisher", True, False),
    ("sub", "publisher", False, True),
    ("both", "publisher", True, True),
]


class Listener:
    """A qlite listener whose challenge is always the captured one."""

    def __init__(self, world: World | None = None, **given: Any) -> None:
        self.world = world or World()
        self.clock = self.world.clock
        self.broker = self.world.broker
        given = {"maxSubscriberConnections": 9, "maxPublisherConnections": 9, **given}
        self.accounts = given.pop("accounts", None) or accounts(*USERS)
        self.factory = QliteFactory(self.broker, self.accounts, self.clock, **given)
        self.factory.new_challenge = lambda: CHALLENGE  # type: ignore[method-assign]
        self.factory.started()

    def connect(self) -> Wired:
        return Wired(self.factory.buildProtocol(None))

    def login(self, role: bytes, name: bytes) -> Wired:
        client = self.connect()
        client.says(frame(role + name + b";" + PROOF))
        assert client.hears() == GREETING + PASS
        return client

    def publisher(self) -> Wired:
        return self.login(b"\0", b"pub")

    def subscriber(self) -> Wired:
        return self.login(b"\1", b"sub")

    def refused(self, login: bytes) -> bytes:
        """What a login that fails is answered; it is closed too."""
        client = self.connect()
        assert client.hears() == GREETING
        client.says(frame(login))
        assert client.transport.is_closed
        return client.hears()


@pytest.fixture
def listener() -> Listener:
    return Listener()


class TestCaptured:
    """The conversations of the public server, byte for byte."""

    def replay(self, client: Wired, lines: list[tuple[str, bytes]], clock: Any) -> None:
        for who, data in lines:
            if who == "C":
                client.says(data)
            else:
                if not client.transport.value():
                    clock.advance(10)
                assert client.hears() == data

    def test_a_publisher_then_a_subscriber(self, listener: Listener) -> None:
        self.replay(listener.connect(), vectors.PUBLISHER, listener.clock)
        self.replay(listener.subscriber(), vectors.SUBSCRIBER, listener.clock)

    def test_a_wrong_password(self, listener: Listener) -> None:
        client = listener.connect()
        self.replay(client, vectors.WRONG_PASSWORD, listener.clock)
        assert client.transport.is_closed


class TestLogin:
    def test_challenges_are_random(self) -> None:
        factory = QliteFactory(World().broker, accounts(), World().clock)
        assert len({factory.new_challenge() for _ in range(50)}) == 50
        assert {(c[6] >> 4, len(c)) for c in [factory.new_challenge()]} == {(4, 16)}

    @pytest.mark.parametrize(
        ("login", "text"),
        {
            b"": "error: message is empty",
            b"\0pub": "error: authentication packet formatted incorrectly",
            b"\0pub;" + PROOF + b";": "error: authentication packet formatted incorrectly",
            b"\2pub;" + PROOF: "error: authentication packet formatted incorrectly",
            b"\0nobody;" + PROOF: "error: user is not registered for this server",
            b"\0;" + PROOF: "error: user is not registered for this server",
            b"\0\xff\xfe;" + PROOF: "error: user is not registered for this server",
            b"\0PUB;" + PROOF: "error: user is not registered for this server",
            b"\1pub;" + PROOF: "error: user does not have the subscriber role",
            b"\0sub;" + PROOF: "error: user does not have the publisher role",
            b"\0pub;": "error: password is invalid",
            b"\0pub;" + PROOF[:-1]: "error: password is invalid",
            b"\0pub;" + b"$2b$10$" + b"!" * 53: "error: password is invalid",
            b"\0pub;" + PROOF[:-1] + b".": "error: password is invalid",
        }.items(),
    )
    def test_a_refusal_has_its_text_and_closes(
        self, listener: Listener, login: bytes, text: str
    ) -> None:
        assert listener.refused(login) == failed(text)

    @pytest.mark.parametrize("cost", [b"04", b"09", b"11", b"31", b"99", b"xx"])
    def test_a_hash_of_another_cost_is_refused_without_hashing(self, cost: bytes) -> None:
        """Cost 31 would take weeks."""

        def must_not_run(job: Any) -> Deferred[Any]:
            raise AssertionError("hashed")

        wary = PasswordAccounts([(User("pub", True, True), Secret(b"x"))], must_not_run)
        proof = b"$2b$" + cost + PROOF[6:]
        answer = Listener(accounts=wary).refused(b"\0pub;" + proof)
        assert answer == failed("error: password is invalid")

    @pytest.mark.parametrize("prefix", [b"$2a$", b"$2b$", b"$2y$", b"$2$"])
    def test_every_prefix_of_old_is_accepted(self, listener: Listener, prefix: bytes) -> None:
        client = listener.connect()
        client.says(frame(b"\0pub;" + prefix + PROOF[4:]))
        assert client.hears() == GREETING + PASS

    def test_bytes_after_the_hash_do_not_count(self, listener: Listener) -> None:
        client = listener.connect()
        client.says(frame(b"\0pub;" + PROOF + b"more"))
        assert client.hears() == GREETING + PASS

    def test_requests_sent_with_the_login_are_answered_after_it(self, listener: Listener) -> None:
        client = listener.connect()
        client.says(frame(b"\0pub;" + PROOF) + push(b"a") + LEN)
        assert client.hears() == GREETING + PASS + number(1) + number(1)

    def test_a_place_is_taken_after_the_password_and_freed_at_the_end(self) -> None:
        listener = Listener(maxPublisherConnections=1, maxSubscriberConnections=1)
        first = listener.publisher()
        full = "error: the max amount of publishers have already been connected"
        assert listener.refused(b"\0pub;" + PROOF) == failed(full)
        assert listener.refused(b"\0pub;" + PROOF[:-1] + b".") == failed(
            "error: password is invalid"
        )
        listener.subscriber()
        full = full.replace("publishers", "subscribers")
        assert listener.refused(b"\1both;" + PROOF) == failed(full)
        first.hangs_up()
        listener.publisher()

    def test_a_client_that_leaves_during_the_check_takes_no_place(self) -> None:
        checks: list[tuple[Any, Deferred[Any]]] = []

        def held(job: Any) -> Deferred[Any]:
            checks.append((job, Deferred()))
            return checks[-1][1]

        slow = PasswordAccounts([(User("pub", True, False), Secret(b"publisher"))], held)
        listener = Listener(accounts=slow, maxPublisherConnections=1)
        gone, stays = listener.connect(), listener.connect()
        gone.says(frame(b"\0pub;" + PROOF))
        gone.hangs_up()
        stays.says(frame(b"\0pub;" + PROOF))
        job, checked = checks[1]
        checked.callback(job())
        assert stays.hears() == GREETING + PASS

    def test_silence_after_the_greeting_is_closed_without_a_word(self, listener: Listener) -> None:
        client = listener.connect()
        client.hears()
        listener.clock.advance(8.9)
        assert client.transport.connected
        listener.clock.advance(0.1)
        assert not client.transport.connected
        assert client.hears() == b""

    def test_a_login_being_checked_is_not_late(self) -> None:
        slow = PasswordAccounts(
            [(User("pub", True, False), Secret(b"publisher"))], lambda job: Deferred()
        )
        client = (listener := Listener(accounts=slow)).connect()
        client.says(frame(b"\0pub;" + PROOF))
        listener.clock.advance(60)
        assert client.transport.connected

    def test_strangers_are_limited_by_themselves(self) -> None:
        listener = Listener(maxUnauthenticatedConnections=2)
        known = listener.publisher()
        strangers = [listener.connect(), listener.connect()]
        more = listener.connect()
        assert more.hears() == failed("error: too many logins are under way")
        assert more.transport.is_closed
        known.says(LEN)
        assert known.hears() == number(0)
        strangers[0].hangs_up()
        assert listener.connect().hears() == GREETING

    def test_no_secret_is_in_a_record_or_a_repr(self, listener: Listener) -> None:
        client = listener.connect()
        client.says(frame(b"\0pub;" + PROOF[:-1] + b"."))
        listener.world.kinds()
        everything = repr(listener.world.records) + repr(vectors.FROM_CLIENT[0][3])
        assert "2vDhoT68" not in everything
        assert "publisher" not in everything


class TestPush:
    def test_the_position_is_the_length_after_it(self, listener: Listener) -> None:
        client = listener.publisher()
        client.says(push(b"a") + push(b"b") + push(b"c"))
        assert client.hears() == number(1) + number(2) + number(3)

    def test_an_empty_message_is_refused(self, listener: Listener) -> None:
        client = listener.publisher()
        client.says(push(b"") + LEN)
        assert client.hears() == failed("cannot push empty message") + number(0)

    def test_a_full_queue_refuses_before_it_looks_at_the_size(self) -> None:
        listener = Listener(maxMessages=1, maxMessageSize=3)
        client = listener.publisher()
        client.says(push(b"long") + push(b"abc") + push(b"long") + push(b"b"))
        full = failed("queue is full")
        assert client.hears() == failed("message is too large") + number(1) + full + full

    def test_the_largest_message_passes(self, listener: Listener) -> None:
        client, reader = listener.publisher(), listener.subscriber()
        body = bytes(9 * 1024 * 1024)
        client.says(push(body))
        client.says(push(body + b"x"))
        assert client.hears() == number(1) + failed("message is too large")
        reader.says(SPOP)
        assert reader.hears() == passed(body)

    def test_subscribers_may_not(self, listener: Listener) -> None:
        client = listener.subscriber()
        client.says(push(b"x") + LEN)
        assert client.hears() == failed("subscribers cannot push to the queue") + number(0)

    def test_a_message_knows_its_sender(self, listener: Listener) -> None:
        listener.publisher().says(push(b"x"))
        listener.world.kinds()
        (message,) = [record for record in listener.world.records if record.kind == ACCEPTED]
        assert (message.sender, message.protocol) == ("pub", "qlite")
        assert (message.address, message.body) == ("queue:qlite", b"x")

    def test_passed_means_on_disk(self) -> None:
        writer = HeldWriter()
        listener = Listener(World(DurableMemory(), writer.run))
        client = listener.publisher()
        client.says(push(b"x"))
        listener.clock.advance(0)
        assert client.hears() == b""
        writer.write()
        assert client.hears() == number(1)

    def test_a_disk_that_fails_is_a_fail(self) -> None:
        writer = HeldWriter()
        listener = Listener(World(DurableMemory(), writer.run))
        client = listener.publisher()
        client.says(push(b"x"))
        listener.clock.advance(0)
        writer.fail(OSError("no space left"))
        assert client.hears() == failed("error: the journal cannot be written: no space left")


class TestPop:
    def test_pops_are_first_in_first_out(self, listener: Listener) -> None:
        client, reader = listener.publisher(), listener.subscriber()
        client.says(push(b"a") + push(b"b"))
        reader.says(SPOP + LPOP + SPOP)
        assert reader.hears() == (
            passed(b"a") + passed(b"b") + failed("cannot pop from empty slice")
        )

    @pytest.mark.parametrize(
        ("request_", "text"),
        {
            SPOP: "publishers cannot pop from the queue",
            LPOP: "publishers cannot pop from the queue",
            hide(1): "publishers cannot hide messages on the queue",
            hide(1, b"POLL"): "publishers cannot poll the queue",
            frame(b"DEL;" + bytes(16)): "publishers cannot delete hidden messages",
        }.items(),
    )
    def test_publishers_may_not(self, listener: Listener, request_: bytes, text: str) -> None:
        client = listener.publisher()
        client.says(request_ + LEN)
        assert client.hears() == failed(text) + number(0)

    def test_a_long_pop_waits(self, listener: Listener) -> None:
        client, reader = listener.publisher(), listener.subscriber()
        reader.says(LPOP)
        assert reader.hears() == b""
        client.says(push(b"x"))
        assert reader.hears() == passed(b"x")
        assert client.hears() == number(1)

    def test_a_long_pop_times_out_and_what_is_behind_it_is_answered(
        self, listener: Listener
    ) -> None:
        reader = listener.subscriber()
        reader.says(LPOP + LEN)
        listener.clock.advance(9.9)
        assert reader.hears() == b""
        listener.clock.advance(0.1)
        late = failed("error: no data could be dequeued in the specified time period")
        assert reader.hears() == late + number(0)

    def test_a_long_pop_that_timed_out_swallows_nothing(self, listener: Listener) -> None:
        """The public server lost the next message here."""
        client, reader = listener.publisher(), listener.subscriber()
        reader.says(LPOP)
        listener.clock.advance(10)
        reader.hears()
        client.says(push(b"x"))
        reader.says(LEN + SPOP)
        assert reader.hears() == number(1) + passed(b"x")

    def test_waiting_pops_are_served_first_come_first_served(self, listener: Listener) -> None:
        client = listener.publisher()
        readers = [listener.subscriber() for _ in range(3)]
        for reader in readers:
            reader.says(LPOP)
        client.says(push(b"0") + push(b"1") + push(b"2"))
        assert [reader.hears() for reader in readers] == [passed(b"0"), passed(b"1"), passed(b"2")]

    def test_one_that_leaves_while_it_waits_takes_nothing(self, listener: Listener) -> None:
        client, gone, stays = listener.publisher(), listener.subscriber(), listener.subscriber()
        gone.says(LPOP)
        stays.says(LPOP)
        gone.hangs_up()
        client.says(push(b"x"))
        assert stays.hears() == passed(b"x")

    def test_the_length_is_answered_while_another_pop_waits(self, listener: Listener) -> None:
        waits, asks = listener.subscriber(), listener.subscriber()
        waits.says(LPOP)
        asks.says(LEN)
        assert asks.hears() == number(0)

    def test_taken_is_recorded_with_who_and_how_late(self, listener: Listener) -> None:
        client, reader = listener.publisher(), listener.subscriber()
        client.says(push(b"x"))
        listener.clock.advance(2)
        reader.says(SPOP)
        assert listener.world.kinds()[-2:] == [ACCEPTED, TAKEN]
        accepted, taken = listener.world.records[-2:]
        assert (taken.message, taken.receiver, taken.latency) == (accepted.sequence, "sub", 2.0)
        assert LOGGED_IN in listener.world.kinds()


class TestHide:
    @pytest.fixture
    def hidden(self, listener: Listener) -> tuple[Listener, Wired, bytes]:
        """A listener, a subscriber, and the uid of message a, which it hides; b waits."""
        listener.publisher().says(push(b"a") + push(b"b"))
        reader = listener.subscriber()
        reader.says(hide(5))
        answer = reader.hears()
        assert answer[4:9] + answer[25:] == b"PASS;;a"
        return listener, reader, answer[9:25]

    def test_the_length_does_not_count_it(self, hidden: Any) -> None:
        _, reader, _ = hidden
        reader.says(LEN)
        assert reader.hears() == number(1)

    def test_the_maximum_counts_it(self) -> None:
        listener = Listener(maxMessages=1)
        client, reader = listener.publisher(), listener.subscriber()
        client.says(push(b"a"))
        reader.says(hide(5))
        client.says(push(b"b"))
        assert client.hears() == number(1) + failed("queue is full")

    def test_deleted_it_is_gone(self, hidden: Any) -> None:
        listener, reader, uid = hidden
        reader.says(frame(b"DEL;" + uid))
        assert reader.hears() == passed(uid)
        listener.clock.advance(60)
        reader.says(LEN)
        assert reader.hears() == number(1)

    def test_another_subscriber_may_delete_it(self, hidden: Any) -> None:
        listener, _, uid = hidden
        other = listener.subscriber()
        other.says(frame(b"DEL;" + uid))
        assert other.hears() == passed(uid)

    def test_it_comes_back_at_the_head_when_its_time_is_over(self, hidden: Any) -> None:
        listener, reader, _ = hidden
        listener.clock.advance(5)
        reader.says(SPOP + SPOP)
        assert reader.hears() == passed(b"a") + passed(b"b")
        listener.world.kinds()
        taken = [record for record in listener.world.records if record.kind == TAKEN]
        assert [record.deliveries for record in taken] == [2, 1]

    def test_its_uid_means_nothing_then(self, hidden: Any) -> None:
        listener, reader, uid = hidden
        listener.clock.advance(5)
        reader.says(frame(b"DEL;" + uid))
        assert reader.hears() == failed(
            "the key you provided does not correlate to any value being processed, "
            "expiration time may have been exceeded"
        )
        assert listener.factory.hidden == {}

    def test_it_comes_back_when_its_connection_is_lost(self, hidden: Any) -> None:
        listener, reader, _ = hidden
        reader.hangs_up()
        other = listener.subscriber()
        other.says(SPOP)
        assert other.hears() == passed(b"a")
        assert RETURNED in listener.world.kinds()
        assert listener.factory.hidden == {}
        listener.clock.advance(60)
        other.says(LEN)
        assert other.hears() == number(1)

    def test_poll_waits_and_hides(self, listener: Listener) -> None:
        client, reader = listener.publisher(), listener.subscriber()
        reader.says(hide(5, b"POLL"))
        assert reader.hears() == b""
        client.says(push(b"x"))
        assert reader.hears()[25:] == b";x"
        listener.clock.advance(5)
        reader.says(LEN)
        assert reader.hears() == number(1)

    def test_poll_times_out(self, listener: Listener) -> None:
        client, reader = listener.publisher(), listener.subscriber()
        reader.says(hide(5, b"POLL"))
        listener.clock.advance(10)
        late = failed("error: no data could be dequeued in the specified time period")
        assert reader.hears() == late
        client.says(push(b"x") + LEN)
        assert client.hears() == number(1) + number(1)

    @pytest.mark.parametrize("word", [b"HIDE", b"POLL"])
    def test_too_long_is_said_at_once(self, listener: Listener, word: bytes) -> None:
        reader = listener.subscriber()
        reader.says(hide(31, word))
        assert reader.hears() == failed(
            "provided hidden duration is longer then the max viable time"
        )

    def test_an_empty_queue_has_nothing_to_hide(self, listener: Listener) -> None:
        reader = listener.subscriber()
        reader.says(hide(1))
        assert reader.hears() == failed("queue is empty")

    def test_deleted_means_on_disk(self) -> None:
        writer = HeldWriter()
        listener = Listener(World(DurableMemory(), writer.run))
        client, reader = listener.publisher(), listener.subscriber()
        client.says(push(b"x"))
        listener.clock.advance(0)
        writer.write()
        reader.says(hide(5))
        uid = reader.hears()[9:25]
        reader.says(frame(b"DEL;" + uid))
        assert reader.hears() == b""
        listener.clock.advance(0)
        writer.write()
        assert reader.hears() == passed(uid)


class TestBadInput:
    @pytest.mark.parametrize(
        ("body", "text"),
        {
            b"": "no semicolon delimiter found",
            b"PUSH": "no semicolon delimiter found",
            b";": "error: bad request",
            b"jump;x": "error: error can not handle function JUMP, "
            "options are PUSH, LPOP, SPOP and LEN",
            b"a\xff\xfe;": "error: error can not handle function A\ufffd\ufffd, "
            "options are PUSH, LPOP, SPOP and LEN",
            b"HIDE;\1": "error: bad request",
            b"DEL;12345": "invalid UUID (got 5 bytes)",
        }.items(),
    )
    def test_a_wrong_request_is_answered_and_the_next_one_too(
        self, listener: Listener, body: bytes, text: str
    ) -> None:
        client = listener.subscriber()
        client.says(frame(body) + LEN)
        assert client.hears() == failed(text) + number(0)

    def test_a_long_name_is_not_repeated_whole(self, listener: Listener) -> None:
        client = listener.publisher()
        client.says(frame(b"x" * 1_000_000 + b";"))
        assert len(client.hears()) < 200

    def test_a_frame_over_the_limit_is_refused_at_its_length(self, listener: Listener) -> None:
        too_long = failed("error: message is longer than limit of 10 megabytes")
        for client in (listener.connect(), listener.publisher()):
            client.hears()
            client.says((10 * 1024 * 1024 + 1).to_bytes(4, "little"))
            assert client.hears() == too_long
            assert client.transport.is_closed

    def test_an_unfinished_length_and_an_unfinished_body_have_their_time(
        self, listener: Listener
    ) -> None:
        client = listener.publisher()
        client.says(b"\5")
        listener.clock.advance(2)
        client.says(b"\0\0\0SP")
        listener.clock.advance(2.9)
        assert client.transport.connected
        listener.clock.advance(0.1)
        assert not client.transport.connected
        assert client.hears() == b""

    def test_a_busy_client_whose_reads_always_end_in_a_frame_is_not_late(
        self, listener: Listener
    ) -> None:
        client = listener.publisher()
        client.says(push(b"x")[:5])
        for _ in range(10):
            listener.clock.advance(1)
            client.says(push(b"x")[5:] + push(b"x")[:5])
        assert client.transport.connected
        assert len(client.hears()) == 10 * len(number(1))

    def test_silence_after_login_has_no_end(self, listener: Listener) -> None:
        client = listener.publisher()
        listener.clock.advance(86_400)
        client.says(LEN)
        assert client.hears() == number(0)

    def test_any_bytes_at_any_time_break_nothing(self) -> None:
        true = st.sampled_from([row[2] for row in vectors.FROM_CLIENT])
        pieces = st.lists(st.one_of(st.binary(max_size=40), true), max_size=10)
        who = st.sampled_from(["connect", "publisher", "subscriber"])

        @settings(max_examples=150, deadline=None)
        @given(who, pieces)
        def check(who: str, pieces: list[bytes]) -> None:
            listener = Listener(accounts=CHEAP)
            client = Wired(listener.factory.buildProtocol(None))
            if who != "connect":
                role = b"\0" if who == "publisher" else b"\1"
                client.says(frame(role + b"pub;" + PROOF))
            for piece in pieces:
                if client.transport.connected:
                    client.says(piece)
            listener.clock.advance(100)
            assert listener.broker.counts["bugs", "qlite"] == 0

        check()


class Trusting(PasswordAccounts):
    """Believes everything: bcrypt is too slow for hundreds of examples."""

    def check(self, user: User, proof: Any) -> Deferred[bool]:
        answer: Deferred[bool] = Deferred()
        answer.callback(True)
        return answer


CHEAP = Trusting([(User("pub", True, True), Secret(b"x"))], lambda job: Deferred())
