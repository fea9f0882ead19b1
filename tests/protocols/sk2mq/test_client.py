"""Tests for protocols.sk2mq.client, against our own server and against scripted bytes."""

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
from protocols.sk2mq import wire
from protocols.sk2mq.client import Sk2mqClient, Sk2mqFailure, connect
from protocols.sk2mq.wire import DIALECTS, Delivery
from tests.protocols.sk2mq import upstream_vectors, vectors
from tests.protocols.sk2mq.test_server import LATER, Listener
from tests.support import Wired, result


class Pair:
    """Our client and our server, face to face."""

    def __init__(self, listener: Listener) -> None:
        self.delivered: list[Delivery] = []
        self.client = Sk2mqClient(listener.clock, self.delivered.append)
        server = listener.factory.buildProtocol(None)
        ends = FakeTransport(server, isServer=True), FakeTransport(self.client, isServer=False)
        self.pump = join(server, ends[0], self.client, ends[1])
        assert self.result(self.client.ready) is self.client

    def result(self, deferred: Deferred[Any]) -> Any:
        """What the Deferred has, after the bytes have gone round; a failure is raised."""
        self.pump.flush()
        return result(deferred)


@pytest.fixture(params=["seed", "upstream"])
def listener(request: pytest.FixtureRequest) -> Listener:
    return Listener(request.param)


@pytest.fixture
def author(listener: Listener) -> Pair:
    pair = Pair(listener)
    pair.result(pair.client.create(b"t"))
    return pair


@pytest.fixture
def member(listener: Listener, author: Pair) -> Pair:
    pair = Pair(listener)
    pair.result(pair.client.join(b"t"))
    return pair


def test_it_speaks_the_dialect_of_its_server(listener: Listener, author: Pair) -> None:
    assert author.client.dialect == listener.factory.dialect
    assert author.client.client == b"user-1"


def test_what_is_sent_is_delivered(author: Pair, member: Pair) -> None:
    author.result(author.client.send_message(b"t", b"hello", LATER))
    member.pump.flush()
    assert member.delivered == [Delivery(LATER, b"user-1", b"t", b"hello")]
    member.result(member.client.quit(b"t"))
    author.result(author.client.send_message(b"t", b"more", LATER))
    member.pump.flush()
    assert len(member.delivered) == 1


def test_what_is_kept_is_delivered_on_join(listener: Listener, author: Pair) -> None:
    author.result(author.client.send_message(b"t", b"hello", LATER))
    late = Pair(listener)
    late.result(late.client.join(b"t"))
    assert [each.message for each in late.delivered] == [b"hello"]


def test_calls_need_not_wait_for_each_other(author: Pair) -> None:
    client = author.client
    calls = [client.create(b"u"), client.create(b"u"), client.join(b"u"), client.quit(b"nope")]
    author.result(calls[0])
    for call, code in ((calls[1], wire.FOUND), (calls[3], wire.NOTFOUND)):
        with pytest.raises(Sk2mqFailure) as failure:
            author.result(call)
        assert failure.value.code == code
    author.result(calls[2])


def test_a_failure_says_why(author: Pair) -> None:
    with pytest.raises(Sk2mqFailure, match="44: there is no such topic"):
        author.result(author.client.send_message(b"nope", b"x", LATER))


class TestScripted:
    """A server that says what the test says."""

    def connect(self) -> tuple[Sk2mqClient, Wired, list[Delivery]]:
        delivered: list[Delivery] = []
        client = Sk2mqClient(Clock(), delivered.append)
        return client, Wired(client), delivered

    def outcome(self, deferred: Deferred[Any]) -> Any:
        found: list[Any] = []
        deferred.addBoth(found.append)
        (result,) = found
        return result.value if isinstance(result, Failure) else result

    @pytest.mark.parametrize("dialect", ["seed", "upstream"])
    def test_the_golden_bytes_are_understood_and_said(self, dialect: str) -> None:
        golden: Any = vectors if dialect == "seed" else upstream_vectors
        from_server = {row[0]: row[2] for row in golden.FROM_SERVER}
        from_client = {row[0]: row[2] for row in golden.FROM_CLIENT}
        client, server, delivered = self.connect()
        server.says(from_server["hello"])
        assert self.outcome(client.ready) is client
        assert (client.dialect, client.client) == (dialect, golden.MESSAGE[1])
        calls = {
            "create": client.create(b"djibuti"),
            "join": client.join(b"djibuti"),
            "quit": client.quit(b"djibuti"),
            "send": client.send_message(b"djibuti", b"hello", vectors.DUE),
        }
        assert server.hears() == b"".join(from_client[name] for name in calls)
        server.says(from_server["ok"] + from_server["deliver"] + from_server["ok"])
        server.says(from_server["notfound"] + from_server["servererror"])
        assert delivered == [Delivery(*golden.MESSAGE)]
        results = [self.outcome(call) for call in calls.values()]
        assert results[:2] == [None, None]
        assert [failure.code for failure in results[2:]] == [wire.NOTFOUND, wire.SERVERERROR]

    @pytest.mark.parametrize("data", [b"SSH-2.0-x\r\n" * 2, b"\2\0\0\0\1\x14", b"\x14\0\0\0\0"])
    def test_what_is_no_sk2mq_server_fails_the_greeting(self, data: bytes) -> None:
        client, server, _ = self.connect()
        server.says(data)
        assert isinstance(self.outcome(client.ready), WireError)
        assert server.transport.aborted

    def test_a_lost_connection_fails_what_was_asked_and_what_is_asked_after(self) -> None:
        client, server, _ = self.connect()
        server.says(DIALECTS["seed"].encode(wire.Hello(b"yyz")))
        asked = client.join(b"t")
        server.hangs_up()
        assert isinstance(self.outcome(asked), ConnectionDone)
        assert isinstance(self.outcome(client.join(b"t")), ConnectionDone)

    def test_a_response_to_nothing_is_an_error_of_the_server(self) -> None:
        _, server, _ = self.connect()
        server.says(DIALECTS["seed"].encode(wire.Hello(b"yyz")) + b"\2\0\0\0\1\x14")
        assert server.transport.aborted

    def test_connect_waits_for_the_name(self) -> None:
        class Endpoint:
            def connect(self, factory: Any) -> Deferred[Any]:
                client = factory.buildProtocol(None)
                self.server = Wired(client)
                return succeed(client)

        endpoint = Endpoint()
        connecting: Deferred[Any] = connect(Clock(), endpoint)  # type: ignore[arg-type]
        connected: list[Any] = []
        connecting.addCallback(connected.append)
        assert connected == []
        endpoint.server.says(vectors.FROM_SERVER[0][2] + vectors.MESSAGE_BYTES)
        assert connected[0].client == b"yyz"
