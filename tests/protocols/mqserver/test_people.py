"""Tests for protocols.mqserver.mail: who is there, who wants to know, and what users are sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.store import Retention, SqliteStore
from protocols.mqserver import events
from protocols.mqserver.events import (
    PULL,
    REQUIREACK,
    REQUIREACKPROCESS,
    Ack,
    AppId,
    ClientCaps,
    CreateQueue,
    Error,
    FromClient,
    Notify,
    Presence,
    SendToClient,
)
from tests.protocols.mqserver.peers import Client, Listener, listener
from tests.support import NOW, World

__all__ = ["listener"]

pytestmark = pytest.mark.usefixtures("nothing_breaks")


def mail(mid: int, number: int, body: bytes, **more: Any) -> FromClient:
    """MSGFROMCLNT of what wally sent to the application 100 when the test began."""
    fields = {"sender": "wally", "app_id": 100, "time": int(NOW), **more}
    return FromClient(mid, id=number, payload=body, **fields)


def send(client: Client, user: str, body: bytes, flags: int = 0, app_id: int = 100) -> int:
    return client.tells(SendToClient, user, app_id, body, flags)


class TestNotify:
    def test_a_list_is_kept_and_shown(self, listener: Listener) -> None:
        client = listener.client()
        client.tells(Notify, ("+wally", "+anna", "+#news"))
        client.is_told(Ack(3))
        client.tells(Notify, ("-wally", "-nobody"))
        client.is_told(Ack(4))
        client.tells(Notify)
        client.is_told(Ack(5, "anna #news"))

    def test_it_outlives_the_connection(self, listener: Listener) -> None:
        client = listener.client()
        client.tells(Notify, ("+wally",))
        client.hangs_up()
        client = listener.client()
        client.tells(Notify)
        client.is_told(Ack(3, "wally"))

    def test_enouser_names_the_unknown_and_the_others_are_on_it(self, listener: Listener) -> None:
        client = listener.client()
        client.tells(Notify, ("+nobody", "+wally", "+noone"))
        client.is_told(Error(3, "ENOUSER", "nobody noone"))
        client.tells(Notify)
        client.is_told(Ack(4, "wally"))

    def test_notlistfull_changes_nothing(self) -> None:
        client = Listener(max_notify=1).client()
        client.tells(Notify, ("+wally",))
        client.is_told(Ack(3))
        client.tells(Notify, ("+anna",))
        client.is_told(Error(4, "NOTLISTFULL"))
        client.tells(Notify, ("-wally", "+anna"))
        client.is_told(Ack(5))


class TestPresence:
    def test_at_sync_it_names_who_is_there(self, listener: Listener) -> None:
        listener.synced("wally", 100, 7)
        listener.client("anna")  # not seen, without an APPID
        fish = listener.client()
        fish.tells(CreateQueue, "news")
        fish.tells(Notify, ("+wally", "+anna", "+#news", "+#nope"))
        fish.is_told(Ack(3, "1"), Ack(4))
        fish.tells(AppId, (1,))
        fish.is_told(Presence(1, (("+wally", (100, 7)), ("#news", ()))))

    def test_sign_on_change_and_sign_off_are_told(self, listener: Listener) -> None:
        fish = listener.synced("fish")
        fish.tells(Notify, ("+wally",))
        fish.is_told(Ack(4))
        wally = listener.client("wally")
        fish.is_told()
        wally.tells(AppId, (100,))
        fish.is_told(Presence(2, (("+wally", (100,)),)))
        wally.tells(AppId, (100,))
        fish.is_told()
        wally.tells(AppId, (100, 200))
        fish.is_told(Presence(3, (("+wally", (100, 200)),)))
        wally.hangs_up()
        fish.is_told(Presence(4, (("-wally", ()),)))

    def test_who_was_never_seen_does_not_sign_off(self, listener: Listener) -> None:
        fish = listener.synced("fish")
        fish.tells(Notify, ("+wally",))
        fish.is_told(Ack(4))
        listener.client("wally").hangs_up()
        fish.is_told()

    def test_a_queue_that_comes_into_being_is_told(self, listener: Listener) -> None:
        fish = listener.synced("fish")
        fish.tells(Notify, ("+#news",))
        fish.is_told(Ack(4))
        listener.client("wally").tells(CreateQueue, "news")
        fish.is_told(Presence(2, (("#news", ()),)))

    def test_who_did_not_say_that_he_wants_it_hears_only_the_first(
        self, listener: Listener
    ) -> None:
        fish = listener.connect()
        (banner,) = fish.hears_events()
        fish.tells(ClientCaps, 0, "STD")
        fish.hears_events()
        fish.salt = banner.salt
        fish.tries("fish", "haha")
        fish.syncs()
        fish.tells(Notify, ("+wally",))
        fish.is_told(Ack(4))
        listener.synced("wally")
        fish.is_told()


class TestMail:
    def test_who_is_there_gets_it(self, listener: Listener) -> None:
        fish, wally = listener.synced("fish", 100), listener.client("wally")
        send(wally, "fish", b"a|\0'", REQUIREACK)
        wally.is_told(Ack(3, "1 1"))
        fish.is_told(mail(2, 1, b"a|\0'"))

    def test_no_flag_no_ack(self, listener: Listener) -> None:
        wally = listener.client("wally")
        send(wally, "fish", b"hello")
        wally.is_told()

    def test_enoapp_is_for_who_is_there_without_it(self, listener: Listener) -> None:
        listener.synced("fish", 100)
        wally = listener.client("wally")
        send(wally, "fish", b"hello", app_id=7)
        wally.is_told(Error(3, "ENOAPP", "fish 7"))

    def test_enouser_is_for_who_has_no_account(self, listener: Listener) -> None:
        wally = listener.client("wally")
        send(wally, "nobody", b"hello")
        wally.is_told(Error(3, "ENOUSER", "nobody"))

    def test_efull_is_a_mailbox_that_holds_no_more(self) -> None:
        wally = Listener(maxMailbox=1).client("wally")
        send(wally, "fish", b"one")
        send(wally, "fish", b"two")
        (error,) = wally.hears_events()
        assert (error.mid, error.id) == (4, "EFULL")

    def test_who_may_not_publish_sends_no_mail(self, listener: Listener) -> None:
        reader = listener.client("reader")
        send(reader, "fish", b"hello")
        (error,) = reader.hears_events()
        assert error.id == "EPERM"

    def test_stored_messages_come_one_at_a_time_and_then_presence(self, listener: Listener) -> None:
        wally = listener.client("wally")
        send(wally, "fish", b"one", REQUIREACK)
        send(wally, "fish", b"two", app_id=9)
        wally.is_told(Ack(3, "2 1"))
        fish = listener.client()
        fish.is_told()  # not before APPID
        fish.tells(AppId, (100,))
        fish.is_told(mail(1, 1, b"one"))
        fish.acks(1)
        fish.is_told(mail(2, 2, b"two", app_id=9))
        fish.acks(2)
        fish.is_told(Presence(3))
        assert listener.broker.info("user:fish").depth == 0

    def test_what_is_not_acknowledged_comes_again(self, listener: Listener) -> None:
        wally = listener.client("wally")
        send(wally, "fish", b"one")
        send(wally, "fish", b"two")
        fish = listener.client()
        fish.tells(AppId, (100,))
        fish.is_told(mail(1, 1, b"one"))
        fish.hangs_up()
        fish = listener.client()
        fish.tells(AppId, ())
        fish.is_told(mail(1, 1, b"one"))

    def test_what_comes_while_he_syncs_is_stored_too(self, listener: Listener) -> None:
        wally = listener.client("wally")
        send(wally, "fish", b"one")
        fish = listener.client()
        fish.tells(AppId, (100,))
        send(wally, "fish", b"two")
        fish.is_told(mail(1, 1, b"one"))
        fish.acks(1)
        fish.is_told(mail(2, 2, b"two"))
        fish.acks(2)
        fish.is_told(Presence(3))

    def test_processed_means_acknowledged_by_the_other(self, listener: Listener) -> None:
        fish, wally = listener.synced("fish", 100), listener.client("wally")
        send(wally, "fish", b"hello", REQUIREACK | REQUIREACKPROCESS)
        fish.is_told(mail(2, 1, b"hello"))
        wally.is_told()
        fish.acks(2)
        wally.is_told(Ack(3, "1 1"))

    def test_one_may_write_to_oneself(self, listener: Listener) -> None:
        wally = listener.synced("wally", 100)
        send(wally, "wally", b"hello", REQUIREACK)
        wally.is_told(Ack(4, "1 1"), mail(2, 1, b"hello"))

    def test_an_ack_of_nothing_is_nothing(self, listener: Listener) -> None:
        fish = listener.synced("fish")
        fish.acks(77)
        fish.is_told()

    def test_a_mailbox_that_another_protocol_fills(self, listener: Listener) -> None:
        fish = listener.synced("fish")
        listener.push("user:fish", b"hello")
        fish.is_told(mail(2, 1, b"hello", sender="other", app_id=0))

    def test_mail_and_lists_outlive_the_gateway(self, tmp_path: Path) -> None:
        """What was handed out and not acknowledged, what waits, and who wants to hear of whom."""

        def listening() -> Listener:
            return Listener(World(SqliteStore(tmp_path, "NORMAL", Retention())))

        first = listening()
        wally = first.client("wally")
        send(wally, "fish", b"one")
        send(wally, "fish", b"two")
        fish = first.client()
        fish.tells(Notify, ("+wally",))
        fish.tells(AppId, (100,))
        first.clock.advance(0)
        fish.is_told(Ack(3), mail(1, 1, b"one"))
        first.world.broker.stopService()
        again = listening()
        again.client("wally").tells(AppId, (100,))
        again.clock.advance(0)
        fish = again.client()
        fish.tells(AppId, (100,))
        again.clock.advance(0)
        fish.is_told(mail(1, 1, b"one"))
        fish.acks(1)
        fish.is_told(mail(2, 2, b"two"))
        fish.acks(2)
        fish.is_told(Presence(3, (("+wally", (100,)),)))
        again.world.broker.stopService()


@pytest.mark.parametrize("flags", [0, PULL])
def test_a_mailbox_is_no_queue(listener: Listener, flags: int) -> None:
    """The names of users and of queues have nothing to do with each other."""
    wally = listener.client("wally")
    send(wally, "fish", b"hello")
    wally.tells(CreateQueue, "fish", flags)
    wally.is_told(Ack(4, "1"))
    wally.tells(events.FindQueue, ("fish",))
    (info,) = wally.hears_events()
    assert info.depth == 0
