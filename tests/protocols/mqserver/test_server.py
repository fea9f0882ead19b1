"""Tests for protocols.mqserver.server: from the banner to the login, and what is refused."""

from __future__ import annotations

import re
import sqlite3

import pytest

from gateway.record import LOGGED_IN
from protocols.mqserver import events, wire
from protocols.mqserver.events import (
    Ack,
    AppId,
    ClientCaps,
    CreateQueue,
    Error,
    FindQueue,
    LoginAccepted,
    LoginRefused,
    SendToQueue,
)
from tests.protocols.mqserver.peers import Listener, listener
from tests.support import DurableMemory, HeldWriter, World

__all__ = ["listener"]

pytestmark = pytest.mark.usefixtures("nothing_breaks")


class TestLogin:
    def test_the_banner_has_a_salt_of_its_own_for_each_connection(self, listener: Listener) -> None:
        (one,), (other,) = (listener.connect().hears_events() for _ in range(2))
        assert re.fullmatch("[0-9a-f]{16,}", one.salt)
        assert one.salt != other.salt
        assert (one.mid, one.flags) == (0, 15)
        assert one.details == "STD HASH=HMAC-SHA256"

    def test_the_banner_says_how_much_data_is_taken_if_it_is_unusual(self) -> None:
        (banner,) = Listener(maxData=2048).connect().hears_events()
        assert banner.details == "STD HASH=HMAC-SHA256 MAXDATA=2048"

    def test_a_user_logs_in(self, listener: Listener) -> None:
        client = listener.connect()
        assert client.logs_in("fish") == [LoginAccepted(2)]
        assert LOGGED_IN in listener.world.kinds()
        assert listener.world.records[-1].sender == "fish"

    def test_byte_by_byte_it_is_the_same(self, listener: Listener) -> None:
        client = listener.connect()
        client.hears()
        for byte in wire.encode(ClientCaps(1, 15, "STD")):
            client.says(bytes([byte]))
        assert client.hears() == b"1|ACK|1|2|0|2115703570|\x010\0\0"

    @pytest.mark.parametrize("details", ["", "XML", "STD HASH=MD5"])
    def test_a_client_that_lacks_what_is_needed_is_refused(
        self, listener: Listener, details: str
    ) -> None:
        client = listener.connect()
        client.hears_events()
        client.tells(ClientCaps, 15, details)
        client.is_told(events.CapsRefused(1))
        assert client.transport.is_closed

    def test_a_client_may_name_the_hash(self, listener: Listener) -> None:
        client = listener.connect()
        client.hears_events()
        client.tells(ClientCaps, 0, "STD HASH=HMAC-SHA256 MAXDATA=5")
        client.is_told(events.CapsAccepted(1))

    @pytest.mark.parametrize("user", ["fish", "nobody"])
    def test_three_wrong_proofs_are_the_end(self, listener: Listener, user: str) -> None:
        """An unknown user is answered as a wrong password is."""
        client = listener.connect()
        assert client.logs_in(user, "wrong") == [LoginRefused(2)]
        assert client.tries(user, "wrong") == [LoginRefused(3)]
        assert not client.transport.is_closed
        assert client.tries(user, "wrong") == [LoginRefused(4)]
        assert client.transport.is_closed

    def test_a_user_may_mistype_once(self, listener: Listener) -> None:
        client = listener.connect()
        assert client.logs_in("fish", "wrong") == [LoginRefused(2)]
        assert client.tries("fish", "haha") == [LoginAccepted(3)]

    def test_no_password_is_in_the_log(self, listener: Listener) -> None:
        client = listener.connect()
        client.logs_in("fish", "wrong")
        listener.world.kinds()
        assert "wrong" not in repr(listener.world.records)

    def test_a_user_is_logged_in_once_on_all_listeners(self, listener: Listener) -> None:
        first = listener.client("fish")
        other = Listener(listener.world).connect()
        assert other.logs_in("fish") == [LoginRefused(2, "already logged in")]
        first.hangs_up()
        assert other.tries("fish", "haha") == [LoginAccepted(3)]

    def test_who_does_not_log_in_is_cut_off(self, listener: Listener) -> None:
        client = listener.connect()
        listener.clock.advance(29)
        assert client.transport.connected
        listener.clock.advance(1)
        assert client.transport.aborted

    def test_who_has_logged_in_has_time(self, listener: Listener) -> None:
        client = listener.client()
        listener.clock.advance(100_000)
        assert client.transport.connected

    def test_strangers_are_counted(self) -> None:
        listener = Listener(maxUnauthenticatedConnections=1)
        first, second = listener.connect(), listener.connect()
        second.is_told(Error(0, "EBUSY", "too many logins are under way"))
        assert second.transport.is_closed
        assert first.logs_in("fish") == [LoginAccepted(2)]
        assert listener.connect().logs_in("anna") == [LoginAccepted(2)]
        listener.connect().hangs_up()
        assert listener.factory.strangers.count == 0

    def test_an_idle_client_may_be_cut_off(self) -> None:
        listener = Listener(idleSeconds=10.0)
        client = listener.client()
        listener.clock.advance(9)
        client.tells(FindQueue, ("q",))
        listener.clock.advance(9)
        assert client.transport.connected
        listener.clock.advance(1)
        assert client.transport.aborted

    def test_one_nul_may_end_a_frame(self) -> None:
        listener = Listener(nuls=1)
        banner = listener.connect().hears()
        assert banner.endswith(b"\0")
        assert not banner.endswith(b"\0\0")


class TestErrors:
    """Each ERROR that a frame itself may bring; the others are with what they refuse."""

    def test_eframe_closes(self, listener: Listener) -> None:
        client = listener.client()
        client.says(b"7|FINDQUEUE|1|1|0|2363233923|xx\0\0")
        client.is_told(Error(7, "EFRAME"))
        assert client.transport.is_closed

    def test_eversion_closes(self, listener: Listener) -> None:
        client = listener.client()
        client.says(b"7|FINDQUEUE|2|1|0|2363233923|x\0\0")
        client.is_told(Error(7, "EVERSION"))
        assert client.transport.is_closed

    def test_etoobig_closes_at_the_header(self) -> None:
        client = Listener(maxData=1024).client()
        client.says(b"7|FINDQUEUE|1|1025|0|0|")
        client.is_told(Error(7, "ETOOBIG"))
        assert client.transport.is_closed

    def test_a_header_without_end_is_etoobig(self, listener: Listener) -> None:
        client = listener.client()
        client.says(b"7|" + b"x" * 126)
        client.is_told(Error(7, "ETOOBIG"))
        assert client.transport.is_closed

    def test_what_follows_an_error_that_closes_is_not_read(self, listener: Listener) -> None:
        client = listener.client()
        good = wire.encode(CreateQueue(8, "q"))
        client.says(b"7|FINDQUEUE|2|1|0|2363233923|x\0\0" + good)
        client.is_told(Error(7, "EVERSION"))
        assert not listener.factory.broker.shared["mqserver"].queues.has("q")

    @pytest.mark.parametrize(
        "early", [FindQueue(1, ("q",)), AppId(1, ()), events.Auth(1, "fish", "x")]
    )
    def test_estate_closes(self, listener: Listener, early: object) -> None:
        client = listener.connect()
        client.hears_events()
        client.says(wire.encode(early))
        client.is_told(Error(1, "ESTATE"))
        assert client.transport.is_closed

    def test_capabilities_are_said_once(self, listener: Listener) -> None:
        client = listener.client()
        client.says(wire.encode(ClientCaps(9, 15, "STD")))
        client.is_told(Error(9, "ESTATE"))
        assert client.transport.is_closed

    def test_before_the_login_other_errors_do_not_close_either(self, listener: Listener) -> None:
        client = listener.connect()
        client.hears_events()
        client.says(b"7|CLNTCAP|1|1|0|1|x\0\0" + b"8|CLNTCAP|1|1|0|2363233923|x\0\0")
        client.is_told(Error(7, "ECRC"), Error(8, "ESYNTAX"))
        client.tells(ClientCaps, 15, "STD")
        client.is_told(events.CapsAccepted(1))

    @pytest.mark.parametrize("said", [Ack(9, "1"), Error(9, "EBUSY", "later")])
    def test_an_ack_or_error_is_never_answered(self, listener: Listener, said: object) -> None:
        for client in (listener.connect(), listener.client()):
            client.hears()
            client.says(wire.encode(said))
            client.is_told()
            assert not client.transport.is_closed

    def test_a_second_login_is_estate(self, listener: Listener) -> None:
        client = listener.client()
        client.says(wire.encode(events.Auth(9, "anna", "x")))
        client.is_told(Error(9, "ESTATE"))
        assert client.transport.is_closed

    @pytest.mark.parametrize(
        ("frame", "error"),
        [
            (b"7|FINDQUEUE|1|1|0|1|x\0\0", "ECRC"),
            (b"7|FINDQUEUE|1|2|0|801444648|\x01\x01\0\0", "EDATA"),
            (b"7|SRVCAP|1|1|0|2363233923|x\0\0", "ETYPE"),
            (b"7|NONSENSE|1|1|0|2363233923|x\0\0", "ETYPE"),
            (b"7|FINDQUEUE|1|1|0|2363233923|x\0\0", "ESYNTAX"),
        ],
    )
    def test_the_others_do_not_close(self, listener: Listener, frame: bytes, error: str) -> None:
        client = listener.client()
        client.says(frame)
        client.is_told(Error(7, error))
        assert not client.transport.is_closed
        client.tells(FindQueue, ("q",))
        client.is_told(Error(3, "ENOQUEUE", "q"))

    def test_ebusy_is_a_disk_that_is_full(self) -> None:
        writer = HeldWriter()
        listener = Listener(World(DurableMemory(), writer.run))
        client = listener.client()
        listener.clock.advance(0)
        writer.write()
        create = wire.encode(CreateQueue(3, "q", events.PULL))
        client.says(create + wire.encode(SendToQueue(4, "q", "", b"a", events.REQUIREACK)))
        client.is_told()  # accepted is on disk
        listener.clock.advance(0)
        writer.fail(full_disk())
        heard = [(event.mid, event.id) for event in client.hears_events()]
        client.says(wire.encode(SendToQueue(5, "q", "", b"a")))
        heard += [(event.mid, event.id) for event in client.hears_events()]
        assert heard == [(3, "EBUSY"), (4, "EBUSY"), (5, "EBUSY")]
        assert listener.broker.info("queue:q").depth == 0

    def test_an_answer_waits_for_the_disk(self) -> None:
        writer = HeldWriter()
        listener = Listener(World(DurableMemory(), writer.run))
        client = listener.client()
        client.tells(CreateQueue, "q")
        client.is_told()
        listener.clock.advance(0)
        writer.write()
        client.is_told(Ack(3, "1"))


def full_disk() -> Exception:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error
