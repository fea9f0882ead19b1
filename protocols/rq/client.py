"""An RQ node: it asks, it works, and it finds a controller that lets it.

node = Node(reactor, [endpoint, another], Random())
node.consume(b"upper", lambda payload: payload.upper())
node.start()
reply = await node.request(b"upper", b"abc")
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from protocols.rq import wire
from protocols.rq.link import Ask, Handler, Link, NotDelivered, Work

FIRST_WAIT = 0.5  # seconds, at most, after the first failure; twice that after the next
LONGEST_WAIT = 30.0
LASTING = 5.0  # seconds that a connection must last to count as one, and not as another failure
PATIENCE = 30.0  # seconds in which what is under way may finish when the node stops
MOST_WAITING = 10_000  # requests that may wait for a controller


class Node:
    """One node, which has one controller at a time; for a while two, when one gives way.

    The controllers are tried in order.  One that is full, cannot be reached, closes or is lost
    goes to the back of the list, and the next is tried after a wait that grows with each failure
    and is different for each node, so that a thousand nodes do not come back in one moment.
    """

    def __init__(
        self,
        clock: IReactorTime,
        controllers: Sequence[IStreamClientEndpoint],
        random: Random,
    ) -> None:
        self._clock = clock
        self.controllers = [*controllers]  # in the order in which they will be tried
        self._random = random
        self.works: dict[bytes, Work] = {}
        self._waiting: deque[Ask] = deque()
        self._links: dict[Link, IStreamClientEndpoint] = {}
        self._made: dict[Link, float] = {}  # when
        self._current: Link | None = None  # whom we ask
        self._connecting: Deferred[Any] | None = None
        self._next_try: IDelayedCall | None = None
        self._failures = 0  # since a connection lasted
        self._running = False
        self._stopped: Deferred[None] | None = None
        self._last_call: IDelayedCall | None = None  # for those that do not let us go

    def start(self) -> None:
        self._running = True
        self._connect()

    def stop(self) -> Deferred[None]:
        """Finish what is under way and leave; fires when all connections are closed."""
        self._running = False
        if self._next_try is not None:
            self._next_try.cancel()
            self._next_try = None
        if self._connecting is not None:
            self._connecting.cancel()
        self._current = None
        while self._waiting:
            self._waiting.popleft().answered.errback(NotDelivered("the node is stopped"))
        self._stopped = Deferred()
        stopped = self._stopped
        for link in [*self._links]:
            link.leave()
        self._last_call = self._clock.callLater(PATIENCE, self._abort_all)
        self._stop_if_alone()
        return stopped

    def _abort_all(self) -> None:
        for link in [*self._links]:
            link.abort("it does not let us go")

    # What a user of the node calls.

    def consume(
        self,
        queue: bytes,
        handler: Handler,
        *,
        maximum: int = 0,
        priority: int = wire.NORMAL,
        exclusive: bool = False,
        heard: Callable[[bytes], Any] | None = None,
        most: int | None = None,
    ) -> None:
        """Let `handler` do the requests of a queue, now and on every later connection.

        It returns the reply, or a Deferred of it; if it fails, another consumer is offered the
        request.  `heard` is called with what is broadcast to the queue.  `most`: after so many
        requests take no more, and lose none that the controller has sent already; hence it hands
        them out one by one.
        """
        maximum = maximum if most is None else 1
        work = Work(wire.Consume(queue, maximum, priority, exclusive), handler, heard, most)
        self.works[queue] = work
        for link in self._links:
            if link.is_open:
                link.send(work.consume)

    def cancel(self, queue: bytes) -> None:
        """Take no more requests of a queue."""
        if self.works.pop(queue, None) is not None:
            for link in self._links:
                if link.is_open:
                    link.send(wire.Cancel(queue))

    def request(
        self, queue: bytes, payload: bytes, *, retries: int = 0, timeout: int = 0
    ) -> Deferred[bytes]:
        """The reply; NotDelivered.  `timeout` is in seconds, 0 for none; the controller keeps it.

        A request is never sent twice: if the connection is lost, only the caller can know whether
        to ask again.
        """
        return self._ask(wire.Request(0, queue, payload, retries=retries, timeout=timeout))

    def send(self, queue: bytes, payload: bytes) -> Deferred[bytes]:
        """Ask for something without a reply; b"" when the controller has it safe, NotDelivered."""
        return self._ask(wire.Request(0, queue, payload, noreply=True))

    def broadcast(self, queue: bytes, payload: bytes) -> bool:
        """Tell all consumers of a queue.  False if there is no controller to tell it to."""
        link = self._current
        if link is None or not link.is_open:
            return False
        link.send(wire.Broadcast(queue, payload))
        return True

    def _ask(self, request: wire.Request) -> Deferred[bytes]:
        ask = Ask(request)
        link = self._current
        if link is not None and link.can_ask and not self._waiting:
            link.ask(ask)
        elif self._stopped is not None or len(self._waiting) >= MOST_WAITING:
            return fail(NotDelivered("too many requests wait for a controller"))
        else:
            self._waiting.append(ask)
        return ask.answered

    # Finding a controller.

    def _connect(self) -> None:
        """Try the first of the list, now."""
        if self._next_try is not None:
            if self._next_try.active():
                self._next_try.cancel()
            self._next_try = None
        if self._connecting is not None or not self._running:
            return
        endpoint = self.controllers[0]
        factory = Factory.forProtocol(lambda: self._new_link(endpoint))
        factory.noisy = False
        connecting = self._connecting = endpoint.connect(factory)

        def connected(_: Link) -> None:
            self._connecting = None

        def failed(_: Failure) -> None:
            self._connecting = None
            self._failed(endpoint)

        connecting.addCallbacks(connected, failed)

    def _new_link(self, endpoint: IStreamClientEndpoint) -> Link:
        link = Link(self._clock, self)
        self._links[link] = endpoint
        return link

    def _failed(self, endpoint: IStreamClientEndpoint) -> None:
        """Move it to the back, and try the next after a while."""
        self._move_back(endpoint)
        self._failures += 1
        has_one = self._current is not None and not self._current.is_silent
        if has_one or not self._running or self._connecting is not None:
            return
        if self._next_try is not None and self._next_try.active():
            return
        longest = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(self._failures - 1, 10))
        wait = longest * self._random.uniform(0.5, 1)
        self._next_try = self._clock.callLater(wait, self._connect)

    def _move_back(self, endpoint: IStreamClientEndpoint) -> None:
        self.controllers.remove(endpoint)
        self.controllers.append(endpoint)

    # What its connections tell.

    def connected(self, link: Link) -> None:
        """A new connection: consume everything, ask what waits, and let the old ones go."""
        if not self._running:
            link.abort("the node is stopped")
            return
        self._made[link] = self._clock.seconds()
        self._current = link
        for work in self.works.values():
            link.send(work.consume)
        for old in [*self._links]:
            if old is not link and not old.is_consuming:
                if old.is_silent:
                    old.abort("no answer to PING")
                else:
                    old.leave()
        self.has_room(link)

    def has_room(self, link: Link) -> None:
        while link is self._current and self._waiting and link.can_ask:
            ask = self._waiting.popleft()
            if not ask.answered.called:  # cancelled while it waited
                link.ask(ask)

    def is_unanswered(self, link: Link) -> None:
        """Try the next one at once.  This one is kept until then, and longer if we consume from it:
        it may only be busy."""
        if link is self._current and len(self.controllers) > 1:
            self._move_back(self._links[link])
            self._connect()

    def is_closing(self, link: Link) -> None:
        if link is self._current:
            self._current = None
            self._failed(self._links[link])

    def lost(self, link: Link) -> None:
        endpoint = self._links.pop(link)
        made = self._made.pop(link, self._clock.seconds())
        if self._clock.seconds() - made >= LASTING:
            self._failures = 0
        if link is self._current:
            self._current = None
            self._failed(endpoint)
        self._stop_if_alone()

    def _stop_if_alone(self) -> None:
        if self._stopped is not None and not self._links and not self._stopped.called:
            if self._last_call is not None and self._last_call.active():
                self._last_call.cancel()
            self._stopped.callback(None)
