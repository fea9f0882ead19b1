"""Tests for protocols.conversation, on a protocol of two words."""

from __future__ import annotations

import pytest

from protocols.conversation import Conversation, OutOfTurn
from protocols.framing import FramingLost, WireError
from tests.protocols import toy


def test_the_table_is_followed_by_both_ends() -> None:
    client, server = Conversation(toy, "server"), Conversation(toy, "client")
    assert server.state is client.state is toy.State.NEW
    server.feed(client.send(toy.Hello(b"ann")))
    assert server.next_event() == toy.Hello(b"ann")
    assert server.state is client.state is toy.State.OPEN


def test_an_event_out_of_turn_is_named_and_behind_us() -> None:
    server = Conversation(toy, "client")
    server.feed(b"say early\nhello ann\n")
    with pytest.raises(OutOfTurn, match="Say is out of turn in NEW") as raised:
        server.next_event()
    assert raised.value.event == toy.Say(b"early")
    assert server.next_event() == toy.Hello(b"ann")


def test_a_frame_that_is_wrong_is_behind_us() -> None:
    server = Conversation(toy, "client")
    server.feed(b"nonsense\nhello ann\n")
    with pytest.raises(WireError, match="nonsense") as raised:
        server.next_event()
    assert not isinstance(raised.value, FramingLost)
    assert server.next_event() == toy.Hello(b"ann")


def test_to_say_what_the_table_forbids_is_no_fault_of_the_peer() -> None:
    server = Conversation(toy, "client")
    with pytest.raises(RuntimeError, match="we may not send Heard in NEW"):
        server.send(toy.Heard(b"x"))


def test_the_limit_may_be_another_than_the_wire_module_has() -> None:
    server = Conversation(toy, "client", limit=8)
    server.feed(b"hello somebody\n")
    with pytest.raises(FramingLost):
        server.next_event()
