"""One conversation: the peer's bytes to events, our events to bytes, by the table.

Pure: no transport, no clock, no broker.  The same class serves both ends of every protocol.
"""

from __future__ import annotations

from typing import Any, Protocol

from protocols.framing import Cut, Framer, WireError

Table = dict[Any, dict[type, Any]]


class Wire(Protocol):
    """What a `wire` module has; or an object, where the meaning of a frame depends on earlier ones.

    `TABLE` says which events may happen in a state, whoever sends them, and the state that
    follows; a state without a row is the end.  The two decoders turn one frame into an event or
    raise WireError; they have the state because the meaning of bytes may depend on it.
    """

    START: Any
    TABLE: Table
    LIMIT: int  # a frame's longest, if the listener does not say otherwise

    cut: Cut

    def decode_client(self, state: Any, frame: Any) -> Any:
        """What a client sent."""

    def decode_server(self, state: Any, frame: Any) -> Any:
        """What a server sent."""

    def encode(self, event: Any) -> bytes:
        """An event as the frame that carries it."""


class OutOfTurn(WireError):
    """An event that the table does not allow now."""

    def __init__(self, event: object, state: Any) -> None:
        super().__init__(f"{type(event).__name__} is out of turn in {state.name}")
        self.event = event


class Conversation:
    """Feed it the peer's bytes and ask for the next event until there is none."""

    def __init__(self, wire: Wire, peer: str, limit: int | None = None) -> None:
        """`peer` is who talks to us: "client" or "server"."""
        self._decode = wire.decode_client if peer == "client" else wire.decode_server
        self._encode = wire.encode
        self._table = wire.TABLE
        self.state = wire.START
        self._allowed = wire.TABLE[wire.START]
        self.framer = Framer(wire.cut, wire.LIMIT if limit is None else limit)
        self.feed = self.framer.feed

    def next_event(self) -> Any:
        """The next event, or None until more bytes come.  WireError, of which only FramingLost
        is the end: after any other, the frame at fault is behind us."""
        frame = self.framer.next_frame()
        if frame is None:
            return None
        event = self._decode(self.state, frame)
        following = self._allowed.get(type(event))
        if following is not self.state:
            if following is None:
                raise OutOfTurn(event, self.state)
            self._enter(following)
        return event

    def send(self, event: Any) -> bytes:
        """The bytes that say it to the peer.  To say what the table forbids is our own bug."""
        following = self._allowed.get(type(event))
        if following is not self.state:
            if following is None:
                raise RuntimeError(f"we may not send {type(event).__name__} in {self.state.name}")
            self._enter(following)
        return self._encode(event)

    def _enter(self, state: Any) -> None:
        self.state = state
        self._allowed = self._table.get(state, {})
