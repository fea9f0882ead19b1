"""What a connection has once it is logged in: messages that it has not acknowledged, queues that it
has joined, and what waits until it has read the rest."""

from __future__ import annotations

from typing import Any

from gateway.interfaces import (
    BrokerError,
    Denied,
    Message,
    NoSuchAddress,
    Overloaded,
    QueueFull,
)
from protocols.backlog import Backlog, Encode
from protocols.conversation import OutOfTurn
from protocols.framing import FramingLost, WireError
from protocols.mqserver import events
from protocols.mqserver.events import LARGEST_MID, REQUIREACK, REQUIREACKPROCESS, Ack
from protocols.mqserver.handed import Handed, Processing, Window
from protocols.mqserver.login import Login
from protocols.mqserver.queues import Queue, Refusal
from protocols.timer import Timer

ERRORS: dict[type[BrokerError], str] = {
    NoSuchAddress: "ENOQUEUE",
    QueueFull: "EFULL",
    Denied: "EPERM",
    Overloaded: "EBUSY",
}


class Session(Login):
    """One connection, without the requests of a client; those are for its subclasses."""

    factory: Any
    # Nothing is answered to these, or nothing that promises anything.
    unpromised = frozenset([Ack, events.Error, events.AppId, events.GetFromQueue])

    def started(self) -> None:
        self._last_mid = 0
        self.is_present = False  # has said which applications it has
        self.app_ids: tuple[int, ...] = ()
        self.processing: dict[Processing, None] = {}
        self.joined: dict[str, Queue] = {}
        self.mail: Window | None = None
        self.windows: dict[Window, None] = {}
        self._on_hold = False
        self.handed: dict[int, Handed] = {}  # not acknowledged, by MID
        self.backlog = Backlog(self)
        self._idle_timer = Timer(self.clock, lambda: self.abort("idle"))
        self.add_cleanup(self._idle_timer.stop)
        self.add_cleanup(self._leave)
        super().started()
        self._restart_idle_timer()

    def _leave(self) -> None:
        """Give back what is not acknowledged, leave the queues, and tell those who watch."""
        while self.windows:
            self.windows.popitem()[0].cancel()
        self.handed.clear()
        self.backlog.clear()
        while self.joined:
            self.common.queues.leave(self.joined.popitem()[1], self)
        for processing in [*self.processing]:
            processing.abandon()
        user, self.user = self.user, None
        if user is not None:
            self.common.people.go(user.name)
            self.is_present = False

    def must_be(self, right: str) -> None:
        if not getattr(self.user, right):
            raise Denied(f"{self.peer.user} is no {right}")

    def next_mid(self) -> int:
        self._last_mid = self._last_mid % LARGEST_MID + 1
        return self._last_mid

    def sync(self) -> None:
        """There may be room for more mail."""
        raise NotImplementedError

    def push(
        self,
        message: Message,
        send: events.SendToClient | events.SendToQueue,
        done: str,
        taken: str,
    ) -> None:
        """To a queue of the Broker; `taken` says that it was, `done` that it is processed."""
        if send.flags & REQUIREACKPROCESS:
            processing = Processing(self, send.mid, done)
            try:
                self.broker.push(message, processing)
            except BrokerError:
                processing.abandon()
                raise
            return
        self.broker.push(message)
        if send.flags & REQUIREACK:
            self.send(Ack(send.mid, taken))

    def on_Ack(self, ack: Ack) -> None:
        handed = self.handed.pop(ack.mid, None)
        if handed is not None:  # else it acknowledges what need not be
            handed.settle()
            if handed.window.is_over:
                self.windows.pop(handed.window, None)

    def on_Error(self, error: events.Error) -> None:
        """What the client could not take stays where it is until the client has gone."""
        self.note_refusal("the client says ERROR", f"{error.id} {error.text}"[:64])

    def hold(self, window: Window) -> None:
        """Let nothing be handed to it by this handler, whose answers may be taken back if the disk
        fails; it goes on when all that came has been read."""
        window.hold()
        self._on_hold = True

    # What members hear without asking.

    def hear(self, queue: Queue, message: Message, tail: bytes) -> None:
        """The hot path: one call for each member and message."""
        if self.backlog.waiting:
            self.backlog.add(message, self.encode_for(queue))
            return
        self.send_bytes(b"%d" % self.next_mid() + tail)

    def hear_altered(self, alter: events.AlterQueue) -> None:
        self.send_bytes(b"%d" % self.next_mid() + self.wire.tail(alter))

    def expelled(self, queue: Queue) -> None:
        """It is no member any more."""
        self.joined.pop(queue.name, None)
        self.backlog.forget(queue.address)

    def encode_for(self, queue: Queue) -> Encode:
        return lambda message: self.wire.encode(queue.event(message, self.next_mid()))

    def has_room(self) -> None:
        if self.backlog.waiting:
            self.backlog.send()
        self._adjust_windows()

    def _on_blocked(self) -> None:
        super()._on_blocked()
        self._adjust_windows()

    def _adjust_windows(self) -> None:
        for window in [*self.windows]:
            if window is self.mail:
                self.sync()
            else:
                window.adjust()

    def overflow(self) -> None:
        self._leave()  # the connection may take a moment to go
        super().overflow()

    def dataReceived(self, data: bytes) -> None:
        self._restart_idle_timer()
        super().dataReceived(data)
        if self._on_hold:
            self._on_hold = False
            self._adjust_windows()

    def _restart_idle_timer(self) -> None:
        if self.factory.idleSeconds:
            self._idle_timer.set(self.factory.idleSeconds)

    # Refusals.

    def refuse(self, event: Any, error: BrokerError) -> None:
        """It may come late, when the disk has failed."""
        for processing in [*self.processing]:
            if processing.mid == event.mid:
                if processing.is_taken:
                    return  # whoever has it answers
                processing.abandon()
        if isinstance(error, Refusal):
            self.send(events.Error(event.mid, error.id, error.text))
        else:
            self.send(events.Error(event.mid, ERRORS.get(type(error), "EBUSY"), str(error)))

    def wire_error(self, error: WireError) -> None:
        if isinstance(error, OutOfTurn):
            self.send(events.Error(getattr(error.event, "mid", 0), "ESTATE"))
            self.close()
            return
        error_id = getattr(error, "id", "ETOOBIG" if isinstance(error, FramingLost) else "EDATA")
        self.send(events.Error(getattr(error, "mid", 0), error_id))
