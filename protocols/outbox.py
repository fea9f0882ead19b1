"""What is said on one connection, in order, and not before what it promises is safe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IPushProducer, ITransport
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.interfaces import Broker, BrokerError

ENOUGH = 1 << 16  # bytes after which answers are written, not collected on

Promise = tuple[Any, int, int]  # an event, and from where to where its answers are among the pieces


@implementer(IPushProducer)
class Outbox:
    """Collects pieces and gives them to the transport in one write.

    Pieces that promise something wait for the Broker's barrier, and all later ones behind them.
    """

    def __init__(
        self,
        transport: ITransport,
        broker: Broker,
        refuse: Callable[[Any, BrokerError], None],
        on_free: Callable[[], None],
        on_blocked: Callable[[], None],
    ) -> None:
        """`refuse` adds the refusal of an event, instead of what it was promised; `on_blocked` and
        `on_free` tell when the transport has too much, and when there is room again."""
        self._transport = transport
        self._broker = broker
        self._refuse = refuse
        self._on_free = on_free
        self._on_blocked = on_blocked
        self.pieces: list[bytes] = []  # add to them, and to their size
        self.size = 0
        self._promises: list[Promise] = []
        self._held: tuple[list[bytes], list[Promise]] | None = None
        self.blocked = False  # the transport has more than it can send

    @property
    def is_held(self) -> bool:
        """Answers wait for the barrier."""
        return self._held is not None

    def promise(self, event: Any, start: int) -> None:
        """The pieces from `start` on are true only when all that is accepted by now is safe."""
        self._promises.append((event, start, len(self.pieces)))

    def flush(self) -> bool:
        """Write what may be written.  True if nothing is left."""
        if self._held is not None:
            return False
        if self._promises:
            barrier = self._broker.durable()
            if barrier is not None:
                self._held = self.pieces, self._promises
                self.pieces, self._promises, self.size = [], [], 0
                barrier.addCallbacks(self._safe, self._unsafe)
                return False
            self._promises = []
        if self.pieces:
            if self.blocked:
                return False
            data = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
            self.pieces.clear()
            self.size = 0
            self._transport.write(data)
        return True

    def _safe(self, _: None) -> None:
        assert self._held is not None
        self._release(self._held[0])

    def _unsafe(self, failure: Failure) -> None:
        """It is not on disk: refuse what was promised, each in its place among the answers."""
        error = failure.value
        assert isinstance(error, BrokerError), error
        assert self._held is not None
        said, promises = self._held
        later, self.pieces = self.pieces, []
        at = 0
        for event, start, end in promises:
            self.pieces += said[at:start]
            self._refuse(event, error)
            at = end
        pieces = self.pieces + said[at:]
        self.pieces = later
        self.size = sum(map(len, later))
        self._release(pieces)

    def _release(self, pieces: list[bytes]) -> None:
        self._held = None
        self._transport.write(b"".join(pieces))
        self._on_free()

    # The transport's word on how much it can send.

    def pauseProducing(self) -> None:
        self.blocked = True
        self._on_blocked()

    def resumeProducing(self) -> None:
        self.blocked = False
        self._on_free()

    def stopProducing(self) -> None:
        """The connection is going; the protocol is told by itself."""
