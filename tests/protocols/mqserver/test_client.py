"""Tests for protocols.mqserver.client: with our own server over TCP, and with scripted bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock, deferLater

from protocols.framing import WireError
from protocols.mqserver import events, wire
from protocols.mqserver.client import MqClient, MqFailure, Sent, connect
from protocols.mqserver.events import (
    BROADCAST,
    NOECHO_JOIN,
    PULL,
    STORE,
    AlterQueue,
    FromClient,
    FromQueue,
    Presence,
)
from protocols.mqserver.proof import prove
from tests.protocols.mqserver.peers import PASSWORDS, Listener
from tests.protocols.mqserver.vectors import frame
from tests.support import NOW, Wired, result

pytestmark = pytest.mark.usefixtures("nothing_breaks")

PATIENCE = 20.0  # seconds for anything to come


class Place:
    """A listener on a real port, and clients that are connected to it."""

    def __init__(self, **settings: Any) -> None:
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.listener = Listener(**settings)
        self.port = self.reactor.listenTCP(0, self.listener.factory, interface="127.0.0.1")
        self.clients: list[MqClient] = []

    async def client(self, user: str, heard: Any = lambda _: None, password: str = "") -> MqClient:
        endpoint = TCP4ClientEndpoint(self.reactor, "127.0.0.1", self.port.getHost().port)
        word = password or PASSWORDS.get(user, "")
        client: MqClient = await connect(self.reactor, endpoint, user, word, heard)
        self.clients.append(client)
        return client

    async def until(self, condition: Callable[[], object]) -> None:
        end = self.reactor.seconds() + PATIENCE
        while not condition():
            assert self.reactor.seconds() < end, "it did not come"
            await deferLater(self.reactor, 0.005)

    async def hang_up(self, client: MqClient) -> None:
        """Until the server knows."""
        self.clients.remove(client)
        people = self.listener.broker.shared["mqserver"].people
        client.disconnect()
        await self.until(lambda: client.user not in people.online)

    async def close(self) -> None:
        for client in [*self.clients]:
            await self.hang_up(client)
        await self.until(lambda: not self.listener.factory.strangers.count)
        await self.port.stopListening()


Test = Callable[[Place], Awaitable[None]]


def at_a_place(test: Test) -> Any:
    """The test with a place of its own, closed when it is done."""

    async def run(self: Any) -> None:
        place = Place()
        try:
            await test(self, place)  # type: ignore[call-arg,arg-type]
        finally:
            await place.close()

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return pytest_twisted.ensureDeferred(run)


class TestOverTcp:
    @at_a_place
    async def test_it_logs_in_or_says_why_not(self, place: Place) -> None:
        fish = await place.client("fish")
        assert fish.user == "fish"
        with pytest.raises(MqFailure, match="wrong user or password"):
            await place.client("wally", password="wrong")
        with pytest.raises(MqFailure, match="already logged in"):
            await place.client("fish")

    @at_a_place
    async def test_a_broadcast_queue_from_its_making_to_its_parting(self, place: Place) -> None:
        heard: list[Any] = []
        fish, wally = await place.client("fish", heard.append), await place.client("wally")
        await fish.create("news", BROADCAST, info="what is new")
        with pytest.raises(MqFailure) as caught:
            await wally.create("news")
        assert (caught.value.id, caught.value.text) == ("EEXIST", "news")
        info = await fish.join("news", topics="a*")
        assert (info.owner, info.members, info.info) == ("fish", 1, "what is new")
        assert await wally.send_to_queue("news", b"hello\0", "abc") == Sent(1)
        assert await wally.send_to_queue("news", b"unheard", "xyz", wait=True) == Sent(2, 0)
        assert await wally.send_to_queue("news", b"again", "abd", wait=True) == Sent(3, 1)
        await place.until(lambda: len(heard) == 2)
        assert heard[0] == FromQueue(1, "news", "abc", 1, int(NOW), "wally", b"hello\0")
        await fish.alter("news", info="old", ttl=5)
        assert heard[2:] == [AlterQueue(3, "news", ttl=5, info="old")]
        await fish.part("news")
        with pytest.raises(MqFailure, match="ENOTMEMBER"):
            await fish.part("news")
        assert await wally.send_to_queue("news", b"gone", wait=True) == Sent(4, 0)

    @at_a_place
    async def test_it_finds_those_that_there_are(self, place: Place) -> None:
        fish = await place.client("fish")
        await fish.create("one")
        await fish.create("two", PULL)
        found = await fish.find("one", "nope", "two")
        assert [info.queue for info in found] == ["one", "two"]
        assert await fish.find("nope", "none") == []
        assert [info.flags for info in await fish.find("two")] == [PULL]
        with pytest.raises(MqFailure, match="ENOQUEUE nope"):
            await fish.find("nope")
        with pytest.raises(MqFailure, match="ENOQUEUE nope"):
            await fish.join("nope")

    @at_a_place
    async def test_a_pull_queue_gives_what_is_acknowledged_once(self, place: Place) -> None:
        fish, wally = await place.client("fish"), await place.client("wally")
        await fish.create("jobs", PULL)
        await wally.join("jobs")
        assert await wally.get("jobs") == []
        done = [fish.send_to_queue("jobs", b"%d" % number, wait=True) for number in range(3)]
        await place.until(lambda: place.listener.broker.info("queue:jobs").depth == 3)
        first, second = await wally.get("jobs", 2)
        assert (first.payload, second.payload) == (b"0", b"1")
        wally.ack(first)
        assert await done[0] == Sent(1, 1)
        await place.hang_up(wally)
        wally = await place.client("wally")
        await wally.join("jobs")
        again = await wally.get("jobs", 10)
        assert [message.payload for message in again] == [b"1", b"2"]
        for message in again:
            wally.ack(message)
        assert [await each for each in done[1:]] == [Sent(2, 1), Sent(3, 1)]

    @at_a_place
    async def test_gets_may_be_under_way_together(self, place: Place) -> None:
        fish = await place.client("fish")
        await fish.create("jobs", PULL)
        await fish.join("jobs")
        for topic in ("a", "b", "a"):
            await fish.send_to_queue("jobs", b"x", topic)
        one, other, none = fish.get("jobs", 5, "a"), fish.get("jobs", 5, "b"), fish.get("jobs")
        assert [message.topic for message in await one] == ["a", "a"]
        assert [message.topic for message in await other] == ["b"]
        assert await none == []

    @at_a_place
    async def test_what_is_stored_comes_to_whoever_joins(self, place: Place) -> None:
        heard: list[Any] = []
        fish = await place.client("fish", heard.append)
        await fish.create("news", BROADCAST | STORE, max_messages=2)
        for number in range(3):
            await fish.send_to_queue("news", b"%d" % number)
        await fish.join("news", NOECHO_JOIN)
        await fish.join("news")
        assert heard == []
        wally = await place.client("wally", heard.append)
        await wally.join("news")
        await place.until(lambda: len(heard) == 2)
        assert [message.payload for message in heard] == [b"1", b"2"]

    @at_a_place
    async def test_users_write_to_each_other(self, place: Place) -> None:
        heard: list[Any] = []

        def take(message: Any) -> None:
            heard.append(message)
            if isinstance(message, FromClient):
                place.clients[-1].ack(message)

        wally = await place.client("wally")
        assert await wally.send_to_client("fish", 100, b"one") == Sent(1, is_stored=True)
        done = wally.send_to_client("fish", 100, b"two", wait=True)
        await wally.notify("+fish")
        assert await wally.notify_list() == ["fish"]
        fish = await place.client("fish", take)
        assert await fish.appear(100) == ()
        assert [message.payload for message in heard] == [b"one", b"two"]
        assert await done == Sent(2)
        assert await wally.appear() == (("+fish", (100,)),)
        assert await wally.send_to_client("fish", 100, b"three") == Sent(3)
        with pytest.raises(MqFailure, match="ENOAPP fish 7"):
            await wally.send_to_client("fish", 7, b"no")
        with pytest.raises(MqFailure, match="ENOUSER nobody"):
            await wally.send_to_client("nobody", 7, b"no")
        with pytest.raises(MqFailure, match="ENOUSER nobody"):
            await wally.notify("+nobody")

    @at_a_place
    async def test_it_hears_who_comes_and_goes(self, place: Place) -> None:
        heard: list[Any] = []
        fish = await place.client("fish", heard.append)
        await fish.notify("+wally")
        await fish.appear()
        wally = await place.client("wally")
        await wally.appear(1)
        assert await wally.appear(1, 2) == ()
        await place.until(lambda: len(heard) == 2)
        await place.hang_up(wally)
        await place.until(lambda: len(heard) == 3)
        assert heard == [
            Presence(2, (("+wally", (1,)),)),
            Presence(3, (("+wally", (1, 2)),)),
            Presence(4, (("-wally", ()),)),
        ]


@pytest_twisted.ensureDeferred
async def test_a_server_that_is_full_of_strangers_says_so() -> None:
    place = Place(maxUnauthenticatedConnections=1)
    endpoint = TCP4ClientEndpoint(place.reactor, "127.0.0.1", place.port.getHost().port)
    stranger: Any = await connect_only(endpoint)
    with pytest.raises(MqFailure, match="EBUSY too many logins are under way"):
        await place.client("fish")
    stranger.transport.loseConnection()
    await place.close()


async def connect_only(endpoint: TCP4ClientEndpoint) -> Any:
    """A connection that says nothing."""
    from twisted.internet.protocol import Factory, Protocol

    return await endpoint.connect(Factory.forProtocol(Protocol))


class Scripted(Wired):
    """A client of which the test is the server."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        super().__init__(MqClient(Clock(), "fish", "haha", self.heard.append))

    def logs_in(self) -> MqClient:
        self.says(frame("SRVCAP", b"salt 15 STD", 0))
        self.says(frame("ACK", b"1", 1) + frame("ACK", b"1", 2))
        self.hears()
        client: MqClient = result(self.protocol.ready)
        return client


@pytest.fixture
def scripted() -> Scripted:
    return Scripted()


class TestScripted:
    def test_its_login_in_bytes(self, scripted: Scripted) -> None:
        scripted.says(frame("SRVCAP", b"salt 15 STD", 0))
        assert scripted.hears() == frame("CLNTCAP", b"15 STD HASH=HMAC-SHA256", 1)
        scripted.says(frame("ACK", b"1", 1))
        assert scripted.hears() == frame("AUTH", f"fish {prove(b'haha', 'salt')}".encode(), 2)

    @pytest.mark.parametrize(
        ("answers", "reason"),
        [
            ([b"0"], "the server wants what we cannot"),
            ([b"-1|no"], "no"),
            ([b"1", b"0"], "wrong user or password"),
            ([b"1", b"-1|account locked"], "account locked"),
        ],
    )
    def test_it_says_why_it_is_not_let_in(
        self, scripted: Scripted, answers: list[bytes], reason: str
    ) -> None:
        scripted.says(frame("SRVCAP", b"salt 15 STD", 0))
        for mid, answer in enumerate(answers, 1):
            scripted.says(frame("ACK", answer, mid))
        with pytest.raises(MqFailure, match=f"^{reason}$"):
            result(scripted.protocol.ready)
        assert scripted.transport.is_closed

    def test_answers_may_come_in_another_order(self, scripted: Scripted) -> None:
        client = scripted.logs_in()
        one, other = client.send_to_queue("q", b"", wait=True), client.part("q")
        scripted.says(frame("ACK", b"1", 4))
        assert result(other) is None
        scripted.says(frame("ACK", b"1 7 2", 3))
        assert result(one) == Sent(7, 2)

    @pytest.mark.parametrize("text", [b"0", b"-1|gone", b"", b"x"])
    def test_another_ack_than_1_is_a_failure(self, scripted: Scripted, text: bytes) -> None:
        client = scripted.logs_in()
        sent = client.send_to_queue("q", b"", wait=True), client.send_to_client("a", 1, b"")
        scripted.says(frame("ACK", text, 3) + frame("ACK", text, 4))
        for each in sent:
            with pytest.raises(MqFailure):
                result(each)

    @pytest.mark.parametrize("answer", [frame("ACK", b"1", 9), frame("QUEUEINFO", b"q 1 - 0 0", 9)])
    def test_an_answer_to_nothing_is_the_end(self, scripted: Scripted, answer: bytes) -> None:
        client = scripted.logs_in()
        waiting = client.part("q")
        scripted.says(answer)
        with pytest.raises(WireError):
            result(waiting)
        assert scripted.transport.aborted

    def test_a_frame_that_is_wrong_does_not_end_it(self, scripted: Scripted) -> None:
        client = scripted.logs_in()
        scripted.says(frame("MSGFROMQUEUE", b"q", 5))
        scripted.says(frame("MSGFROMQUEUE", b"q - 1 2 x 1 a", 6))
        assert [message.mid for message in scripted.heard] == [6]
        assert not client._closing

    def test_nobody_waits_when_the_connection_is_gone(self, scripted: Scripted) -> None:
        client = scripted.logs_in()
        waiting: list[Deferred[Any]] = [client.part("q"), client.get("q", 2), client.appear()]
        scripted.says(frame("ACK", b"2", 4) + frame("MSGFROMQUEUE", b"q - 1 2 x 1 a", 1, 1))
        scripted.hangs_up()
        waiting += [client.part("q"), client.appear()]
        for each in waiting:
            with pytest.raises(ConnectionDone):
                result(each)
        with pytest.raises(ConnectionDone):
            client.ack(events.FromQueue(1, "q", "", 1, 1, "x", b"a", 1))

    def test_a_connection_that_goes_before_the_login(self, scripted: Scripted) -> None:
        scripted.hangs_up()
        with pytest.raises(ConnectionDone):
            result(scripted.protocol.ready)

    def test_mids_go_on_from_1(self, scripted: Scripted) -> None:
        client = scripted.logs_in()
        client._last_mid = events.LARGEST_MID
        client.part("q").addErrback(lambda _: None)
        assert scripted.hears() == wire.encode(events.PartQueue(1, "q"))
