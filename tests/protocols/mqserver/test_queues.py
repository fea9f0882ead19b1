"""Tests for protocols.mqserver.server: queues, their members and their messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.accounts import PasswordAccounts, Secret
from gateway.interfaces import Rights, User
from gateway.record import DROPPED, RETURNED, SETTLED
from gateway.store import Retention, SqliteStore
from protocols.mqserver import events
from protocols.mqserver.events import (
    AUTODEL,
    BROADCAST,
    DEAF,
    MEMBERSEND,
    NOECHO,
    NOECHO_JOIN,
    PRIVATE,
    PULL,
    REQUIREACK,
    REQUIREACKPROCESS,
    STORE,
    Ack,
    AlterQueue,
    CreateQueue,
    Error,
    FindQueue,
    GetFromQueue,
    JoinQueue,
    PartQueue,
    QueueInfo,
    SendToQueue,
)
from protocols.mqserver.queues import ROUND_ROBIN
from tests.protocols.mqserver.peers import Client, Listener, from_queue, listener
from tests.support import NOW, World

__all__ = ["listener"]

pytestmark = pytest.mark.usefixtures("nothing_breaks")


def create(client: Client, queue: str, *fields: Any) -> None:
    mid = client.tells(CreateQueue, queue, *fields)
    client.is_told(Ack(mid, "1"))


def join(client: Client, queue: str, flags: int = 0, topics: str = "*") -> QueueInfo:
    mid = client.tells(JoinQueue, queue, flags, topics)
    info = client.hears_events()[0]
    assert isinstance(info, QueueInfo)
    assert info.mid == mid
    return info


def send(client: Client, queue: str, body: bytes, topic: str = "", flags: int = 0) -> int:
    return client.tells(SendToQueue, queue, topic, body, flags)


def refused(client: Client, event: type, *fields: Any, **more: Any) -> str:
    """The id of the ERROR that this brings, and nothing else."""
    mid = client.tells(event, *fields, **more)
    (error,) = client.hears_events()
    assert isinstance(error, Error), error
    assert error.mid == mid
    assert not client.transport.is_closed
    return error.id


class TestDefinitions:
    def test_creating_does_not_join(self, listener: Listener) -> None:
        client = listener.client()
        client.tells(CreateQueue, "q", 1, 5, 60, "demo queue")
        client.is_told(Ack(3, "1"))
        client.tells(FindQueue, ("q",))
        client.is_told(QueueInfo(4, "q", BROADCAST, "fish", 0, 0, "demo queue"))

    def test_no_flags_mean_broadcast(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q")
        assert join(client, "q").flags == BROADCAST

    @pytest.mark.parametrize("flags", [3, BROADCAST | ROUND_ROBIN, PULL | ROUND_ROBIN])
    def test_kinds_exclude_each_other(self, listener: Listener, flags: int) -> None:
        assert refused(listener.client(), CreateQueue, "q", flags) == "ESYNTAX"

    def test_a_queue_is_made_once(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q")
        assert refused(listener.client("anna"), CreateQueue, "q", PULL) == "EEXIST"

    def test_several_are_found_at_once_and_the_missing_named(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "a")
        create(client, "b", PULL)
        client.tells(FindQueue, ("x", "a", "y", "b"))
        client.is_told(
            QueueInfo(5, "a", BROADCAST, "fish", 0, 0),
            QueueInfo(5, "b", PULL, "fish", 0, 0),
            Error(5, "ENOQUEUE", "x y"),
        )

    @pytest.mark.parametrize(
        ("event", "fields"),
        [
            (JoinQueue, ()),
            (PartQueue, ()),
            (GetFromQueue, ()),
            (SendToQueue, ("", b"a")),
            (AlterQueue, (1,)),
        ],
    )
    def test_a_queue_that_is_not_there(
        self, listener: Listener, event: type, fields: tuple[Any, ...]
    ) -> None:
        assert refused(listener.client(), event, "nope", *fields) == "ENOQUEUE"

    def test_a_listener_may_create_what_is_joined(self) -> None:
        client = Listener(auto_create=True).client()
        assert join(client, "q") == QueueInfo(3, "q", BROADCAST, "fish", 1, 0)

    def test_what_other_protocols_made_is_there(self, listener: Listener) -> None:
        """A topic wins over a queue of the same name, unless MQServer made the queue."""
        listener.broker.declare("queue:jobs", limit=7)
        listener.broker.declare("topic:news")
        client = listener.client()
        client.tells(FindQueue, ("jobs", "news"))
        client.is_told(QueueInfo(3, "jobs", PULL, "", 0, 0), QueueInfo(3, "news", 1, "", 0, 0))
        listener.broker.declare("topic:jobs")
        client.tells(FindQueue, ("jobs",))
        client.is_told(QueueInfo(4, "jobs", BROADCAST, "", 0, 0))
        create(client, "mine", PULL)
        listener.broker.declare("topic:mine")
        client.tells(FindQueue, ("mine",))
        client.is_told(QueueInfo(6, "mine", PULL, "fish", 0, 0))

    def test_options_of_other_protocols_stay(self, listener: Listener) -> None:
        listener.broker.declare("queue:jobs", limit=7, theirs="x")
        client = listener.client()
        send(client, "jobs", b"a")
        options = listener.broker.info("queue:jobs").options
        assert (options["limit"], options["theirs"]) == (7, "x")


class TestAlter:
    def test_members_hear_it_before_the_owner_is_answered(self, listener: Listener) -> None:
        owner, member = listener.client("fish"), listener.client("anna")
        create(owner, "q")
        join(owner, "q")
        join(member, "q", DEAF)
        owner.tells(AlterQueue, "q", NOECHO, 5, 60, "anna", ("+wally", "-fish"), "new text")
        news = ("q", NOECHO, 5, 60, "anna", ("+wally", "-fish"), "new text")
        owner.is_told(AlterQueue(1, *news), Ack(5, "1"))
        member.is_told(AlterQueue(1, *news))
        member.tells(FindQueue, ("q",))
        member.is_told(QueueInfo(4, "q", BROADCAST | NOECHO, "anna", 2, 0, "new text"))
        assert refused(owner, AlterQueue, "q", info="") == "EPERM"

    def test_what_is_not_named_stays(self, listener: Listener) -> None:
        owner = listener.client()
        create(owner, "q", PULL, 1, 0, "text")
        owner.tells(AlterQueue, "q", ttl=9)
        owner.is_told(Ack(4, "1"))
        send(owner, "q", b"a")
        assert refused(owner, SendToQueue, "q", "", b"b") == "EFULL"
        listener.clock.advance(9)
        owner.tells(FindQueue, ("q",))
        owner.is_told(QueueInfo(7, "q", PULL, "fish", 0, 0, "text"))

    def test_only_the_owner_may(self, listener: Listener) -> None:
        create(listener.client("fish"), "q")
        assert refused(listener.client("anna"), AlterQueue, "q", 1) == "EPERM"

    def test_nobody_owns_what_another_protocol_made(self, listener: Listener) -> None:
        listener.broker.declare("topic:news")
        assert refused(listener.client("fish"), AlterQueue, "news", 1) == "EPERM"

    def test_a_queue_keeps_its_kind(self, listener: Listener) -> None:
        owner = listener.client()
        create(owner, "q")
        assert refused(owner, AlterQueue, "q", PULL) == "EPERM"
        assert refused(owner, AlterQueue, "q", 3) == "ESYNTAX"

    def test_unknown_users_are_named(self, listener: Listener) -> None:
        owner = listener.client()
        create(owner, "q")
        assert refused(owner, AlterQueue, "q", owner="nobody") == "ENOUSER"
        assert refused(owner, AlterQueue, "q", allow=("+nobody",)) == "ENOUSER"


class TestRights:
    def test_a_publisher_sends_and_a_subscriber_joins(self, listener: Listener) -> None:
        reader, writer = listener.client("reader"), listener.client("writer")
        create(writer, "q")
        join(reader, "q")
        send(writer, "q", b"a")
        reader.is_told(from_queue(1, "q", 1, b"a", sender="writer"))
        assert refused(reader, SendToQueue, "q", "", b"b") == "EPERM"
        assert refused(writer, JoinQueue, "q") == "EPERM"
        assert refused(writer, GetFromQueue, "q") == "EPERM"

    def test_a_private_queue_is_for_those_who_are_listed(self, listener: Listener) -> None:
        owner, other = listener.client("fish"), listener.client("anna")
        create(owner, "q", PRIVATE)
        join(owner, "q")
        assert refused(other, JoinQueue, "q") == "EPERM"
        owner.tells(AlterQueue, "q", allow=("+anna",))
        assert join(other, "q").members == 2

    def test_members_may_be_the_only_ones_to_send(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q", MEMBERSEND)
        assert refused(client, SendToQueue, "q", "", b"a") == "EPERM"
        join(client, "q")
        send(client, "q", b"a")
        client.is_told(from_queue(1, "q", 1, b"a"))

    def test_rights_by_address_hold(self, listener: Listener) -> None:
        rights = Rights(publish=("topic:out*",), consume=("*:in*",), create=("topic:*",))
        account = User("fish", True, True, rights), Secret(b"haha")
        listener.factory.accounts = PasswordAccounts([account], lambda job: _now(job))
        client = listener.client()
        assert refused(client, CreateQueue, "in", PULL) == "EPERM"
        create(client, "in")
        create(client, "out")
        join(client, "in")
        assert refused(client, JoinQueue, "out") == "EPERM"
        assert refused(client, SendToQueue, "in", "", b"a") == "EPERM"
        mid = send(client, "out", b"a", flags=REQUIREACK)
        client.is_told(Ack(mid, "1 1"))


def _now(job: Any) -> Any:
    from twisted.internet.defer import succeed

    return succeed(job())


class TestBroadcast:
    def test_every_member_gets_the_same(self, listener: Listener) -> None:
        sender, other = listener.client("fish"), listener.client("anna")
        create(sender, "q")
        join(sender, "q")
        join(other, "q")
        send(sender, "q", b"a|\0'", "Mytopic", REQUIREACK)
        message = from_queue(1, "q", 1, b"a|\0'", topic="Mytopic")
        sender.is_told(message, Ack(5, "1 1"))
        other.is_told(message)

    def test_members_of_other_listeners_get_it_in_their_form(self, listener: Listener) -> None:
        other = Listener(listener.world, nuls=1).client("anna")
        sender = listener.client("fish")
        create(sender, "q")
        join(other, "q")
        send(sender, "q", b"a")
        data = other.hears()
        assert data.startswith(b"1|MSGFROMQUEUE|1|")
        assert data.endswith(b"\0")
        assert not data.endswith(b"\0\0")
        assert listener.broker.info("topic:q").consumers == 1

    def test_both_flags_bring_one_ack_with_the_number_of_receivers(
        self, listener: Listener
    ) -> None:
        sender, other = listener.client("fish"), listener.client("anna")
        heard: list[Any] = []
        create(sender, "q")
        join(other, "q")
        listener.broker.subscribe("topic:q", heard.append)
        send(sender, "q", b"a", flags=REQUIREACK | REQUIREACKPROCESS)
        sender.is_told(Ack(4, "1 1 2"))
        assert [message.body for message in heard] == [b"a"]

    def test_no_flag_no_ack(self, listener: Listener) -> None:
        sender = listener.client()
        create(sender, "q")
        send(sender, "q", b"a")
        sender.is_told()

    def test_the_deaf_hear_nothing(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q")
        assert join(client, "q", DEAF).members == 1
        send(client, "q", b"a")
        client.is_told()

    def test_joining_again_changes_flags_and_filter(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q")
        join(client, "q", DEAF)
        assert join(client, "q", 0, "a*").members == 1
        send(client, "q", b"1", "b")
        send(client, "q", b"2", "ab")
        client.is_told(from_queue(1, "q", 2, b"2", topic="ab"))

    def test_no_echo_of_ones_own(self, listener: Listener) -> None:
        one, other = listener.client("fish"), listener.client("anna")
        create(one, "q")
        join(one, "q", NOECHO_JOIN)
        join(other, "q")
        send(one, "q", b"1")
        send(other, "q", b"2")
        one.is_told(from_queue(1, "q", 2, b"2", sender="anna"))
        assert len(other.hears_events()) == 2
        create(one, "silent", NOECHO)
        join(one, "silent")
        send(one, "silent", b"3")
        one.is_told()

    @pytest.mark.parametrize(
        ("topics", "heard"),
        [
            ("*", [b"1", b"2", b"3"]),
            ("a.*", [b"1"]),
            ("[ab].?", [b"1", b"2"]),
            ("*" * 200 + "[!x]", [b"1", b"2"]),
            ("nothing", []),
        ],
    )
    def test_filters_are_patterns_of_the_shell(
        self, listener: Listener, topics: str, heard: list[bytes]
    ) -> None:
        client = listener.client()
        create(client, "q")
        join(client, "q", 0, topics)
        for topic, body in (("a.z", b"1"), ("b.y", b"2"), ("", b"3")):
            send(client, "q", body, topic)
        assert [event.payload for event in client.hears_events()] == heard

    def test_no_filter_takes_long(self, listener: Listener) -> None:
        """Written naively, this one would take longer than the universe lasts."""
        client = listener.client()
        create(client, "q")
        join(client, "q", 0, "*a" * 200)
        send(client, "q", b"1", "a" * 30 + "b")
        client.is_told()

    def test_who_parts_hears_no_more(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q")
        join(client, "q")
        client.tells(PartQueue, "q")
        client.is_told(Ack(5, "1"))
        assert refused(client, PartQueue, "q") == "ENOTMEMBER"
        send(client, "q", b"a")
        client.is_told()
        assert listener.broker.info("topic:q").consumers == 0

    def test_topics_of_other_protocols(self, listener: Listener) -> None:
        """Both ways; without a topic, and with an id from MQServer."""
        heard: list[Any] = []
        listener.broker.declare("topic:news")
        listener.broker.subscribe("topic:news", heard.append)
        client = listener.client()
        join(client, "news")
        listener.publish("topic:news", b"theirs")
        client.is_told(from_queue(1, "news", 1, b"theirs", sender="other"))
        send(client, "news", b"ours", "word")
        client.is_told(from_queue(2, "news", 2, b"ours", topic="word"))
        assert [message.body for message in heard] == [b"theirs", b"ours"]

    def test_what_is_kept_elsewhere_is_shown_to_whoever_joins(self, listener: Listener) -> None:
        listener.broker.declare("topic:news")
        listener.publish("topic:news", b"old", due=NOW + 60)
        one, other = listener.client("fish"), listener.client("anna")
        for client in (one, other):  # both see the same id
            client.tells(JoinQueue, "news")
            assert client.hears_events()[1:] == [from_queue(1, "news", 1, b"old", sender="other")]

    def test_a_sender_of_other_protocols_is_made_a_word(self, listener: Listener) -> None:
        listener.broker.declare("topic:news")
        client = listener.client()
        join(client, "news")
        from gateway.interfaces import Message

        listener.broker.publish(Message("topic:news", b"", "", "rq"))
        listener.broker.publish(Message("topic:news", b"", "two words", "rq"))
        assert [event.sender for event in client.hears_events()] == ["-", "two_words"]

    def test_autodel_goes_with_the_last_member(self, listener: Listener) -> None:
        one, other = listener.client("fish"), listener.client("anna")
        create(one, "q", AUTODEL)
        join(one, "q")
        join(other, "q")
        other.hangs_up()
        one.tells(FindQueue, ("q",))
        one.is_told(QueueInfo(5, "q", BROADCAST | AUTODEL, "fish", 1, 0))
        one.tells(PartQueue, "q")
        one.is_told(Ack(6, "1"))
        assert refused(one, FindQueue, ("q",)) == "ENOQUEUE"
        create(one, "q", PULL)

    def test_an_address_that_somebody_deletes_has_no_members(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q")
        join(client, "q")
        listener.broker.delete("topic:q")
        assert refused(client, SendToQueue, "q", "", b"a") == "ENOQUEUE"
        create(client, "q", PULL)
        assert refused(client, GetFromQueue, "q") == "ENOTMEMBER"

    def test_a_member_that_does_not_read_is_dropped(self) -> None:
        listener = Listener(maxUnreadBytes=1 << 16)
        sender, slow = listener.client("fish"), listener.client("anna")
        create(sender, "q")
        join(slow, "q")
        slow.transport.producer.pauseProducing()
        for _ in range(3):
            send(sender, "q", bytes(30_000))
        assert slow.transport.aborted
        assert listener.broker.counts["refused", "mqserver", "does not read"] == 1
        assert any(record.reason == "does not read" for record in _all(listener))
        sender.tells(FindQueue, ("q",))
        assert sender.hears_events()[0].members == 0


def _all(listener: Listener) -> list[Any]:
    listener.clock.advance(0)
    return listener.world.records


class TestStore:
    def test_later_joiners_get_what_is_kept(self, listener: Listener) -> None:
        sender, late = listener.client("fish"), listener.client("anna")
        create(sender, "q", STORE, 2)
        for body, topic in ((b"1", "a"), (b"2", "b"), (b"3", "a")):
            send(sender, "q", body, topic)
        late.tells(JoinQueue, "q")
        info, *kept = late.hears_events()
        assert info == QueueInfo(3, "q", BROADCAST | STORE, "fish", 1, 2)
        assert kept == [
            from_queue(1, "q", 2, b"2", topic="b"),
            from_queue(2, "q", 3, b"3", topic="a"),
        ]
        assert [r.reason for r in _all(listener) if r.kind == DROPPED] == ["over the limit"]

    def test_joining_again_does_not_repeat_it(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q", STORE)
        send(client, "q", b"1")
        client.tells(JoinQueue, "q", DEAF)
        client.tells(JoinQueue, "q", 0)
        assert [type(event) for event in client.hears_events()] == [QueueInfo, QueueInfo]

    def test_ttl_ends_it(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q", STORE, 0, 10)
        send(client, "q", b"1")
        listener.clock.advance(10)
        assert join(client, "q").depth == 0
        client.is_told()

    def test_a_backlog_waits_until_there_is_room(self, listener: Listener) -> None:
        sender, late = listener.client("fish"), listener.client("anna")
        create(sender, "q", STORE)
        for number in range(20):
            send(sender, "q", b"%d" % number + bytes(50_000))
        late.transport.producer.pauseProducing()
        late.tells(JoinQueue, "q")
        send(sender, "q", b"live")
        late.is_told()
        late.transport.producer.resumeProducing()
        _, *heard = late.hears_events()
        assert [event.id for event in heard] == [*range(1, 22)]
        assert heard[-1].payload == b"live"


class TestPull:
    def test_messages_wait_and_each_is_for_one(self, listener: Listener) -> None:
        sender, one, other = (listener.client(user) for user in ("fish", "anna", "wally"))
        create(sender, "q", PULL)
        join(one, "q")
        assert join(other, "q").depth == 0
        for body in (b"1", b"2", b"3"):
            send(sender, "q", body)
        one.is_told()
        one.tells(GetFromQueue, "q", 2)
        one.is_told(
            Ack(4, "2"),
            from_queue(1, "q", 1, b"1", flags=1),
            from_queue(2, "q", 2, b"2", flags=1),
        )
        other.tells(GetFromQueue, "q", 5)
        other.is_told(Ack(4, "1"), from_queue(1, "q", 3, b"3", flags=1))
        other.tells(GetFromQueue, "q")
        other.is_told(Ack(5, "0"))

    def test_an_ack_removes_it_and_a_hang_up_puts_it_back(self, listener: Listener) -> None:
        client, other = listener.client("fish"), listener.client("anna")
        create(client, "q", PULL)
        join(client, "q")
        join(other, "q")
        for body in (b"1", b"2", b"3"):
            send(client, "q", body, "word")
        client.tells(GetFromQueue, "q", 2)
        client.acks(1)
        client.hangs_up()
        kinds = [record.kind for record in _all(listener)]
        assert (kinds.count(SETTLED), kinds.count(RETURNED)) == (1, 1)
        other.tells(GetFromQueue, "q", 9)
        ack, *rest = other.hears_events()
        assert ack == Ack(4, "2")
        assert [(event.id, event.topic) for event in rest] == [(2, "word"), (3, "word")]

    def test_a_filter_leaves_the_others_in_their_place(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q", PULL)
        join(client, "q")
        for body, topic in ((b"1", "a"), (b"2", "b"), (b"3", "a")):
            send(client, "q", body, topic)
        client.tells(GetFromQueue, "q", 9, "b")
        assert [event.payload for event in client.hears_events()[1:]] == [b"2"]
        client.tells(GetFromQueue, "q", 9)
        assert [event.payload for event in client.hears_events()[1:]] == [b"1", b"3"]

    def test_only_members_get(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q", PULL)
        assert refused(client, GetFromQueue, "q") == "ENOTMEMBER"

    def test_a_broadcast_queue_has_nothing_to_get(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q")
        join(client, "q")
        client.tells(GetFromQueue, "q")
        client.is_told(Ack(5, "0"))

    def test_processed_means_fetched_and_acknowledged(self, listener: Listener) -> None:
        sender, reader = listener.client("fish"), listener.client("anna")
        create(sender, "q", PULL)
        join(reader, "q")
        send(sender, "q", b"1", flags=REQUIREACK)
        sender.is_told(Ack(4, "1 1"))
        send(sender, "q", b"2", flags=REQUIREACK | REQUIREACKPROCESS)
        reader.tells(GetFromQueue, "q", 2)
        sender.is_told()
        reader.acks(1)
        sender.is_told()
        reader.acks(2)
        sender.is_told(Ack(5, "1 2 1"))

    def test_what_expires_is_not_processed(self, listener: Listener) -> None:
        sender = listener.client()
        create(sender, "q", PULL, 0, 10)
        send(sender, "q", b"1", flags=REQUIREACKPROCESS)
        listener.clock.advance(10)
        sender.is_told(Ack(4, "0"))

    def test_a_sender_that_left_is_told_nothing(self, listener: Listener) -> None:
        sender, reader = listener.client("fish"), listener.client("anna")
        create(sender, "q", PULL)
        join(reader, "q")
        send(sender, "q", b"1", flags=REQUIREACKPROCESS)
        sender.hangs_up()
        reader.tells(GetFromQueue, "q")
        reader.acks(1)
        assert SETTLED in [record.kind for record in _all(listener)]

    def test_another_protocol_may_take_it(self, listener: Listener) -> None:
        sender = listener.client()
        create(sender, "q", PULL)
        send(sender, "q", b"1", flags=REQUIREACKPROCESS)
        from gateway.interfaces import Peer

        assert listener.broker.take("queue:q", Peer("qlite", "sub")).body == b"1"
        sender.is_told(Ack(4, "1 1 1"))

    def test_what_another_protocol_pushed_keeps_its_id(self, listener: Listener) -> None:
        listener.broker.declare("queue:jobs")
        listener.push("queue:jobs", b"theirs")
        one, other = listener.client("fish"), listener.client("anna")
        join(one, "jobs")
        one.tells(GetFromQueue, "jobs")
        shown = from_queue(1, "jobs", 1, b"theirs", sender="other", flags=1)
        one.is_told(Ack(4, "1"), shown)
        one.hangs_up()
        join(other, "jobs")
        other.tells(GetFromQueue, "jobs")
        other.is_told(Ack(4, "1"), shown)

    def test_a_full_queue_refuses(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q", PULL, 1)
        send(client, "q", b"1")
        assert refused(client, SendToQueue, "q", "", b"2") == "EFULL"

    def test_who_acknowledges_nothing_gets_no_more(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q", PULL)
        join(client, "q")
        for _ in range(1001):
            send(client, "q", b"1")
        client.tells(GetFromQueue, "q", 9999)
        assert client.hears_events()[0].text == "1000"
        assert refused(client, GetFromQueue, "q") == "EBUSY"
        client.acks(1)
        client.tells(GetFromQueue, "q")
        assert client.hears_events()[0].text == "1"

    def test_after_parting_an_ack_still_counts(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q", PULL)
        join(client, "q")
        send(client, "q", b"1")
        send(client, "q", b"2")
        client.tells(GetFromQueue, "q", 2)
        client.tells(PartQueue, "q")
        client.acks(1)
        info = listener.broker.info("queue:q")
        assert (info.depth, info.outstanding, info.consumers) == (0, 1, 0)
        client.hangs_up()
        assert listener.broker.info("queue:q").depth == 1


class TestRoundRobin:
    def test_members_take_turns(self, listener: Listener) -> None:
        sender = listener.client("fish")
        members = [listener.client(user) for user in ("anna", "wally", "reader")]
        create(sender, "q", ROUND_ROBIN)
        for member, flags in zip(members, (0, 0, DEAF), strict=True):
            join(member, "q", flags)
        for body in (b"1", b"2", b"3"):
            send(sender, "q", body)
        heard = [[event.payload for event in member.hears_events()] for member in members]
        assert heard == [[b"1", b"3"], [b"2"], []]

    def test_what_is_not_acknowledged_goes_to_another(self, listener: Listener) -> None:
        sender, one, other = (listener.client(user) for user in ("fish", "anna", "wally"))
        create(sender, "q", ROUND_ROBIN)
        join(one, "q")
        send(sender, "q", b"1", flags=REQUIREACKPROCESS)
        one.is_told(from_queue(1, "q", 1, b"1", flags=1))
        join(other, "q")
        one.hangs_up()
        other.is_told(from_queue(1, "q", 1, b"1", flags=1))
        other.acks(1)
        sender.is_told(Ack(4, "1 1 1"))

    def test_one_may_send_to_oneself(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q", ROUND_ROBIN)
        join(client, "q")
        send(client, "q", b"1", flags=REQUIREACK)
        client.is_told(Ack(5, "1 1"), from_queue(1, "q", 1, b"1", flags=1))

    def test_a_member_has_so_many_at_a_time(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q", ROUND_ROBIN)
        join(client, "q")
        for _ in range(150):
            send(client, "q", b"1")
        assert len(client.hears_events()) == 100
        client.acks(1)
        assert len(client.hears_events()) == 1

    def test_a_slow_member_is_not_given_more(self, listener: Listener) -> None:
        sender, slow = listener.client("fish"), listener.client("anna")
        create(sender, "q", ROUND_ROBIN)
        join(slow, "q")
        slow.transport.producer.pauseProducing()
        for _ in range(20):
            send(sender, "q", bytes(1_000_000))
        assert slow.transport.connected
        assert listener.broker.info("queue:q").depth == 20
        slow.transport.producer.resumeProducing()
        assert len(slow.hears_events()) == 20

    def test_it_takes_no_filter(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q", ROUND_ROBIN)
        assert refused(client, JoinQueue, "q", 0, "a*") == "ESYNTAX"


class TestIds:
    def test_ids_are_not_used_again_after_a_restart(self, tmp_path: Path) -> None:
        def world() -> World:
            return World(SqliteStore(tmp_path, "NORMAL", Retention(1000, 1 << 20)))

        first = world()
        client = Listener(first).client()
        client.tells(CreateQueue, "q", PULL, 50, 0, "text")
        client.tells(CreateQueue, "news", STORE)
        client.tells(SendToQueue, "q", "word", b"1")
        client.tells(SendToQueue, "news", "", b"1")
        first.clock.advance(0)
        first.broker.stopService()
        second = world()
        client = Listener(second).client("anna")
        client.tells(SendToQueue, "q", "", b"2")
        client.tells(JoinQueue, "q")
        client.tells(GetFromQueue, "q", 2)
        second.clock.advance(0)
        info, ack, *messages = client.hears_events()
        assert info == QueueInfo(4, "q", PULL, "fish", 1, 2, "text")
        assert ack == Ack(5, "2")
        assert [(event.id, event.topic) for event in messages] == [(1, "word"), (1001, "")]
        client.tells(JoinQueue, "news")
        assert client.hears_events()[1].id == 1
        second.broker.stopService()

    def test_more_are_reserved_when_a_block_is_used_up(self, listener: Listener) -> None:
        client = listener.client()
        create(client, "q")
        for _ in range(1000):
            send(client, "q", b"1")
        mid = send(client, "q", b"1", flags=REQUIREACK)
        client.is_told(Ack(mid, "1 1001"))
        assert listener.broker.info("topic:q").options["mqserver"]["ids"] == 2000

    def test_the_id_of_a_routed_message_is_of_the_queue_it_is_shown_in(
        self, listener: Listener
    ) -> None:
        from gateway.routes import Route

        client = listener.client()
        create(client, "a")
        create(client, "b")
        join(client, "b")
        listener.broker.set_routes([Route("topic:a", "topic:b")])
        send(client, "b", b"1")
        send(client, "a", b"2", "word")
        assert [(event.id, event.topic) for event in client.hears_events()] == [
            (1, ""),
            (2, "word"),
        ]


def test_a_bad_filter_is_a_syntax_error(listener: Listener) -> None:
    client = listener.client()
    create(client, "q")
    join(client, "q", 0, "[z-a]")
    send(client, "q", b"1", "z")
    client.is_told()
    assert events.FILTER == 511
