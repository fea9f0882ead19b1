"""Tests for protocols.qlite.client, against our own server and against scripted bytes."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.test.iosim import FakeTransport
from twisted.test.iosim import connect as join

from protocols.framing import WireError
from protocols.qlite.client import PUBLISHER, SUBSCRIBER, QliteClient, QliteFailure
from tests.protocols.qlite.test_server import Listener
from tests.protocols.qlite.vectors import CHALLENGE, frame
from tests.support import Wired, result


def at_once(job: Any) -> Deferred[Any]:
    return succeed(job())


class Pair:
    """Our client and our server, face to face."""

    def __init__(self, listener: Listener, role: Any, name: str, password: str) -> None:
        self.client = QliteClient(listener.clock, name, password, role, at_once)
        server = listener.factory.buildProtocol(None)
        ends = FakeTransport(server, isServer=True), FakeTransport(self.client, isServer=False)
        self.pump = join(server, ends[0], self.client, ends[1])

    def result(self, deferred: Deferred[Any]) -> Any:
        """What the Deferred has, after the bytes have gone round; a failure is raised."""
        self.pump.flush()
        return result(deferred)


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def publisher(listener: Listener) -> Pair:
    pair = Pair(listener, PUBLISHER, "pub", "publisher")
    assert pair.result(pair.client.ready) is pair.client
    return pair


@pytest.fixture
def subscriber(listener: Listener) -> Pair:
    pair = Pair(listener, SUBSCRIBER, "sub", "publisher")
    assert pair.result(pair.client.ready) is pair.client
    return pair


def test_what_is_pushed_can_be_counted_and_popped(publisher: Pair, subscriber: Pair) -> None:
    assert publisher.result(publisher.client.push(b"a;b\0")) == 1
    assert subscriber.result(subscriber.client.length()) == 1
    assert subscriber.result(subscriber.client.pop()) == b"a;b\0"


def test_calls_need_not_wait_for_each_other(publisher: Pair) -> None:
    calls = [publisher.client.push(b"%d" % number) for number in range(5)]
    assert [publisher.result(call) for call in calls] == [1, 2, 3, 4, 5]


def test_a_fail_is_raised_with_the_servers_text(subscriber: Pair) -> None:
    with pytest.raises(QliteFailure, match="cannot pop from empty slice"):
        subscriber.result(subscriber.client.pop())


def test_a_pop_may_wait(publisher: Pair, subscriber: Pair) -> None:
    popped = subscriber.client.pop(wait=True)
    subscriber.pump.flush()
    publisher.result(publisher.client.push(b"x"))
    assert subscriber.result(popped) == b"x"


def test_a_hidden_message_can_be_deleted(publisher: Pair, subscriber: Pair) -> None:
    publisher.result(publisher.client.push(b"x"))
    uid, body = subscriber.result(subscriber.client.hide(5))
    assert (len(uid), body) == (16, b"x")
    subscriber.result(subscriber.client.delete(uid))
    publisher.result(publisher.client.push(b"y"))
    assert subscriber.result(subscriber.client.hide(5, wait=True))[1] == b"y"


def test_to_ask_what_the_role_may_not_is_refused_before_it_is_sent(publisher: Pair) -> None:
    with pytest.raises(RuntimeError, match="we may not send ShortPop in PUBLISHER"):
        publisher.client.pop()
    assert publisher.result(publisher.client.length()) == 0


def test_a_refused_login_fails_with_the_servers_text(listener: Listener) -> None:
    pair = Pair(listener, PUBLISHER, "pub", "wrong")
    with pytest.raises(QliteFailure, match="error: password is invalid"):
        pair.result(pair.client.ready)


class TestScripted:
    """A server that says what the test says."""

    def connect(self) -> tuple[QliteClient, Wired]:
        client = QliteClient(Clock(), "pub", "publisher", PUBLISHER, at_once)
        return client, Wired(client)

    def outcome(self, deferred: Deferred[Any]) -> Any:
        found: list[Any] = []
        deferred.addBoth(found.append)
        (result,) = found
        return result.value if isinstance(result, Failure) else result

    @pytest.mark.parametrize("words", [b"PASS;", b"PASS", b"pass"])
    def test_every_generations_welcome_is_understood(self, words: bytes) -> None:
        client, server = self.connect()
        server.says(frame(b"greetings;" + CHALLENGE))
        server.says(frame(words))
        assert self.outcome(client.ready) is client

    def test_a_bare_error_text_is_a_refusal(self) -> None:
        client, server = self.connect()
        server.says(frame(b"greetings;" + CHALLENGE) + frame(b"error: password is invalid"))
        failure = self.outcome(client.ready)
        assert isinstance(failure, QliteFailure)
        assert str(failure) == "error: password is invalid"

    def test_a_refusal_instead_of_a_greeting_fails_the_login(self) -> None:
        client, server = self.connect()
        server.says(frame(b"FAIL;error: too many"))
        assert isinstance(self.outcome(client.ready), QliteFailure)

    def test_what_is_no_qlite_server_fails_the_login(self) -> None:
        client, server = self.connect()
        server.says(frame(b"SSH-2.0-x"))
        assert isinstance(self.outcome(client.ready), WireError)
        assert server.transport.aborted

    def test_a_lost_connection_fails_what_was_asked_and_what_is_asked_after(self) -> None:
        client, server = self.connect()
        server.says(frame(b"greetings;" + CHALLENGE) + frame(b"PASS;"))
        asked = client.push(b"x")
        server.hangs_up()
        assert isinstance(self.outcome(asked), ConnectionDone)
        assert isinstance(self.outcome(client.push(b"y")), ConnectionDone)

    def test_an_answer_to_nothing_is_an_error_of_the_server(self) -> None:
        _, server = self.connect()
        server.says(frame(b"greetings;" + CHALLENGE) + frame(b"PASS;") + frame(b"PASS;more"))
        assert server.transport.aborted

    def test_the_password_is_in_no_repr(self) -> None:
        client, _ = self.connect()
        assert "publisher" not in repr(client)
