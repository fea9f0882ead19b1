"""An MQServer client: connect to an endpoint, then use queues, send to other users and see who is
there; every request returns a Deferred.

client = await connect(reactor, endpoint, "fish", "haha", heard=print)
await client.create("news")
await client.join("news")           # what is sent to it is printed from now on
await client.appear(100)            # stored messages of other users come, then who is there
sent = await client.send_to_queue("news", b"hello")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.python.failure import Failure

from protocols.asking import connect as connect_to
from protocols.base import WireProtocol
from protocols.framing import FramingLost, WireError
from protocols.mqserver import events, wire
from protocols.mqserver.events import (
    LARGEST_MID,
    REQUIREACK,
    REQUIREACKPROCESS,
    Ack,
    AlterQueue,
    FromClient,
    FromQueue,
    QueueInfo,
)
from protocols.mqserver.proof import HASH, prove

LONGEST = 1 << 28  # bytes of DATA: the most that a listener of ours can be told to take
CAPABILITIES = events.STORED | events.NOTIFYING | events.PULLING | events.CREATING

Change = tuple[
    str, tuple[int, ...]
]  # as PRESENCE has it: +user and his applications, -user, #queue
Heard = Callable[[Any], object]


class MqFailure(Exception):
    """The server refused; `id` is that of its ERROR, "" if it said no in another way."""

    def __init__(self, error_id: str, text: str = "") -> None:
        super().__init__(f"{error_id} {text}".strip())
        self.id = error_id
        self.text = text


class Sent(NamedTuple):
    """What became of a message."""

    id: int
    receivers: int | None = None  # of a queue, when it was waited for
    is_stored: bool = False  # for a user who was not there


class Asked:
    """One request: what its answers so far mean, until they are all there."""

    def __init__(self, read: Callable[[str], Any] | None = None, infos: int = 0) -> None:
        """`read` makes a result of the text of an ACK, or fails; `infos` are awaited."""
        self.done: Deferred[Any] = Deferred()
        self.read = read
        self.infos = infos
        self.found: list[QueueInfo] = []


class MqClient(WireProtocol):
    """One connection, logged in.  Requests may be made without waiting for each other."""

    wire: Any = wire.Profile(LONGEST)
    name = "mqserver"
    talks_to = "server"

    def __init__(
        self, clock: IReactorTime, user: str, password: str, heard: Heard = lambda _: None
    ) -> None:
        """`heard` is called with each FromQueue, FromClient, Presence and AlterQueue that nobody
        asked for.  What has REQUIREACK among its flags comes again unless it is acknowledged."""
        self.clock = clock
        self.user = user
        self._password = password.encode()
        self._heard = heard
        self._last_mid = 0
        self._asked: dict[int, Asked] = {}
        self._getting: dict[str, list[tuple[int, list[FromQueue], Deferred[Any]]]] = {}
        self._synced: Deferred[tuple[Change, ...]] | None = None
        # Fires with the client itself when it is logged in, or fails if it never will be.
        self.ready: Deferred[Any] = Deferred(lambda _: self.transport.abortConnection())

    def disconnect(self) -> None:
        self.transport.loseConnection()

    # People.

    def appear(self, *app_ids: int) -> Deferred[tuple[Change, ...]]:
        """Be seen, with these applications.  The first time, fires with who of the notify list is
        there, after the stored messages; each must be acknowledged before the next comes."""
        if self._closing:
            return fail(ConnectionDone("not connected"))
        self.send(events.AppId(self._mid(), app_ids))
        if self._synced is not None:
            return succeed(())
        self._synced = Deferred()
        return self._synced

    def notify(self, *changes: str) -> Deferred[None]:
        """Put users, or queues with a # before them, on the notify list with +, or off it with -;
        MqFailure with ENOUSER names those that there are not, NOTLISTFULL is of no effect."""
        return self._ask(events.Notify, Asked(lambda _: None), changes)

    def notify_list(self) -> Deferred[list[str]]:
        return self._ask(events.Notify, Asked(str.split))

    def send_to_client(
        self, user: str, app_id: int, payload: bytes, wait: bool = False
    ) -> Deferred[Sent]:
        """Fires when the server has it, or with `wait` when the other has acknowledged it.
        MqFailure: ENOUSER, or ENOAPP if he is there without that application."""
        return self._ask(
            events.SendToClient, Asked(_mail_sent), user, app_id, payload, _flags(wait)
        )

    # Queues.

    def create(
        self, queue: str, flags: int = 0, max_messages: int = 0, ttl: int = 0, info: str = ""
    ) -> Deferred[None]:
        """Make a queue, with the flags of `events`; MqFailure with EEXIST if there is one."""
        return self._ask(events.CreateQueue, Asked(_done), queue, flags, max_messages, ttl, info)

    def find(self, *queues: str) -> Deferred[list[QueueInfo]]:
        """What is known of those that there are."""
        return self._ask(events.FindQueue, Asked(infos=len(queues)), queues)

    def join(self, queue: str, flags: int = 0, topics: str = "*") -> Deferred[QueueInfo]:
        """Have what is sent to it from now on, or change the flags and the filter of topics."""
        asked = self._ask(events.JoinQueue, Asked(infos=1), queue, flags, topics)
        return asked.addCallback(lambda found: found[0])

    def part(self, queue: str) -> Deferred[None]:
        return self._ask(events.PartQueue, Asked(_done), queue)

    def alter(self, queue: str, **changes: Any) -> Deferred[None]:
        """Change what AlterQueue has; all members hear of it."""
        return self._ask(AlterQueue, Asked(_done), queue, **changes)

    def send_to_queue(
        self, queue: str, payload: bytes, topic: str = "", wait: bool = False
    ) -> Deferred[Sent]:
        """Fires when the server has accepted it; with `wait` when it is handed to all members, or
        has been fetched from a PULL queue and acknowledged."""
        return self._ask(
            events.SendToQueue, Asked(_message_sent), queue, topic, payload, _flags(wait)
        )

    def get(self, queue: str, count: int = 1, topics: str = "*") -> Deferred[list[FromQueue]]:
        """The oldest messages of a PULL queue, at once and at most so many.  Acknowledge each; what
        is not goes back when the connection is gone."""

        def come(number: int) -> Deferred[list[FromQueue]] | list[FromQueue]:
            if not number:
                return []
            done: Deferred[list[FromQueue]] = Deferred()
            self._getting.setdefault(queue, []).append((number, [], done))
            return done

        asked = self._ask(events.GetFromQueue, Asked(int), queue, count, topics)
        return asked.addCallback(come)

    def ack(self, message: FromQueue | FromClient) -> None:
        """It is done, and need not come again; ConnectionDone if nobody hears that."""
        if self._closing:
            raise ConnectionDone("not connected")
        self.send(Ack(message.mid))

    # What the server says.

    def on_ServerCaps(self, caps: events.ServerCaps) -> None:
        self._salt = caps.salt
        self.send(events.ClientCaps(self._mid(), CAPABILITIES, f"STD {HASH}"))

    def on_CapsAccepted(self, accepted: events.CapsAccepted) -> None:
        self.send(events.Auth(self._mid(), self.user, prove(self._password, self._salt)))

    def on_LoginAccepted(self, accepted: events.LoginAccepted) -> None:
        self.ready.callback(self)

    def on_CapsRefused(self, refused: events.CapsRefused) -> None:
        self._no_login(refused.reason or "the server wants what we cannot")

    def on_LoginRefused(self, refused: events.LoginRefused) -> None:
        self._no_login(refused.reason or "wrong user or password")

    def _no_login(self, reason: str, error_id: str = "") -> None:
        self._give_up(Failure(MqFailure(error_id, reason)))
        self.close()

    def on_Ack(self, ack: Ack) -> None:
        asked = self._asked.pop(ack.mid, None)
        if asked is None or asked.read is None:
            raise WireError("an answer to nothing")
        try:
            result = asked.read(ack.text)
        except ValueError:
            result = Failure(MqFailure("", ack.text))
        asked.done.callback(result)

    def on_QueueInfo(self, info: QueueInfo) -> None:
        asked = self._asked.get(info.mid)
        if asked is None or not asked.infos:
            raise WireError("an answer to nothing")
        asked.found.append(info)
        if len(asked.found) == asked.infos:
            del self._asked[info.mid]
            asked.done.callback(asked.found)

    def on_Error(self, error: events.Error) -> None:
        asked = self._asked.pop(error.mid, None)
        if asked is None:
            if not self.ready.called:
                self._no_login(error.text, error.id)
            return  # about an ACK of ours: what it was for will come again
        if error.id == "ENOQUEUE" and (asked.infos > 1 or asked.found):
            asked.done.callback(asked.found)
        else:
            asked.done.errback(MqFailure(error.id, error.text))

    def on_Presence(self, presence: events.Presence) -> None:
        if self._synced is not None and not self._synced.called:
            self._synced.callback(presence.changes)
        else:
            self._heard(presence)

    def on_AlterQueue(self, alter: AlterQueue) -> None:
        self._heard(alter)

    def on_FromClient(self, message: FromClient) -> None:
        self._heard(message)

    def on_FromQueue(self, message: FromQueue) -> None:
        getting = self._getting.get(message.queue)
        if not getting or not message.flags & REQUIREACK:
            self._heard(message)
            return
        number, messages, done = getting[0]
        messages.append(message)
        if len(messages) == number:
            getting.pop(0)
            if not getting:
                del self._getting[message.queue]
            done.callback(messages)

    # What the base tells.

    def wire_error(self, error: WireError) -> None:
        if isinstance(error, FramingLost) or not getattr(error, "mid", 0):
            self._give_up(Failure(error))
            self.abort("broke the spec", str(error))

    def ended(self) -> None:
        self._give_up(Failure(ConnectionDone("the connection is gone")))

    def _mid(self) -> int:
        self._last_mid = self._last_mid % LARGEST_MID + 1
        return self._last_mid

    def _ask(self, event: type, asked: Asked, *fields: Any, **more: Any) -> Deferred[Any]:
        if self._closing:
            return fail(ConnectionDone("not connected"))
        mid = self._mid()
        self._asked[mid] = asked
        self.send(event(mid, *fields, **more))
        return asked.done

    def _give_up(self, failure: Failure) -> None:
        """Nobody waits for an answer that cannot come."""
        waiting = [asked.done for asked in self._asked.values()]
        waiting += [done for getting in self._getting.values() for _, _, done in getting]
        if self._synced is not None:
            waiting.append(self._synced)
        self._asked.clear()
        self._getting.clear()
        for each in [*waiting, self.ready]:
            if not each.called:
                each.errback(failure)


def _flags(wait: bool) -> int:
    return REQUIREACKPROCESS if wait else REQUIREACK


def _done(text: str) -> None:
    """The text of an ACK that says 1; ValueError."""
    if text.split(" ")[0] != "1":
        raise ValueError(text)


def _message_sent(text: str) -> Sent:
    _done(text)
    _, number, *more = map(int, text.split(" "))
    return Sent(number, more[0] if more else None)


def _mail_sent(text: str) -> Sent:
    how, number, *_ = map(int, text.split(" "))
    if how not in (1, 2):
        raise ValueError(text)
    return Sent(number, is_stored=how == 2)


def connect(
    clock: IReactorTime,
    endpoint: IStreamClientEndpoint,
    user: str,
    password: str,
    heard: Heard = lambda _: None,
) -> Deferred[MqClient]:
    """A client that has logged in, or MqFailure, or why the connection could not be made."""
    made = connect_to(endpoint, lambda: MqClient(clock, user, password, heard))
    return made.addCallback(lambda client: client.ready)
