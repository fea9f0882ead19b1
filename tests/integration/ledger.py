"""Who remembers what was promised: publishers and a popper that go on until the gateway dies."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from threading import Event, Thread

from tests.integration.peers import Gateway, QlitePeer

BATCH = 20  # pushes sent together; as many again are under way while they are answered
Number = tuple[str, int]  # a message: its publisher, and which of its messages


class Publisher:
    """Pushes numbered messages without waiting for each answer; goes on in the next life."""

    def __init__(self, name: str, size: int = 10) -> None:
        """`size`: how many bytes the body has beside the number."""
        self.name = name
        self.asked: list[int] = []
        self.answered: set[int] = set()
        self._padding = b"." * size
        self._peer: QlitePeer | None = None

    def log_in(self, port: int) -> None:
        self._close()
        self._peer = QlitePeer(port, "pub")

    def _close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    def push(self, popper: Popper | None = None, most: int = 1 << 30) -> None:
        """Until so many are answered, or the gateway dies."""
        try:
            self._push_until_it_dies(popper, most)
        finally:
            self._close()

    def _push_until_it_dies(self, popper: Popper | None, most: int) -> None:
        assert self._peer is not None
        under_way: list[tuple[list[int], int]] = []
        with contextlib.suppress(ConnectionError):
            while most > 0 or under_way:
                if most > 0:
                    batch = [*range(len(self.asked), len(self.asked) + min(BATCH, most))]
                    most -= len(batch)
                    self.asked += batch
                    under_way.append((batch, len(popper.popped) if popper else 0))
                    self._peer.say(*[self._push(number) for number in batch])
                if len(under_way) == 2 or most == 0:
                    batch, popped = under_way.pop(0)
                    self._hear(batch)
                    if popper:
                        popper.is_safe(popped)

    def _push(self, number: int) -> bytes:
        return b"PUSH;%s %d " % (self.name.encode(), number) + self._padding

    def _hear(self, batch: Iterable[int]) -> None:
        assert self._peer is not None
        for number in batch:
            answer = self._peer.hear()
            if len(answer) < 9:
                raise ConnectionError("it died before it had said all")
            assert answer[:5] == b"PASS;", answer
            self.answered.add(number)


class Popper:
    """Pops one message at a time until the gateway dies."""

    def __init__(self, port: int) -> None:
        self._peer = QlitePeer(port, "sub")
        self.popped: list[Number] = []
        self.safe = 0  # so many of them are on disk, and must not come back
        self.unanswered = 0  # handed over, perhaps, to a client that never heard

    def is_safe(self, popped: int) -> None:
        """A push was answered that came after so many pops: the journal keeps the order."""
        self.safe = max(self.safe, popped)

    def pop(self) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                self.unanswered = 1
                answer = self._peer.ask(b"SPOP;")
                if answer != b"FAIL;cannot pop from empty slice":
                    self.popped.append(number_of(answer))
                self.unanswered = 0
        self._peer.close()


def number_of(answer: bytes) -> Number:
    if not answer:
        raise ConnectionError("it died")
    assert answer[:5] == b"PASS;", answer
    name, number, _ = answer[5:].split(b" ")
    return name.decode(), int(number)


def drain(port: int) -> list[Number]:
    """Everything that waits, which is as much as LEN says."""
    peer = QlitePeer(port, "sub")
    length = int.from_bytes(peer.ask(b"LEN;")[5:], "little")
    found: list[Number] = []
    while len(found) < length:
        some = min(200, length - len(found))
        peer.say(*[b"SPOP;"] * some)
        found += [number_of(peer.hear()) for _ in range(some)]
    assert peer.ask(b"SPOP;") == b"FAIL;cannot pop from empty slice"
    peer.close()
    return found


def is_in_order(found: list[Number]) -> bool:
    """Of each publisher, every message at most once, and none before an earlier one."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for name, number in found:
        numbers[name].append(number)
    return all(mine == sorted(set(mine)) for mine in numbers.values())


def asked(publishers: list[Publisher]) -> set[Number]:
    return {(publisher.name, number) for publisher in publishers for number in publisher.asked}


def answered(publishers: list[Publisher]) -> set[Number]:
    return {(publisher.name, number) for publisher in publishers for number in publisher.answered}


def wait_until(happened: Callable[[], object], running: Gateway) -> None:
    """Or until the gateway has died by itself."""
    while not happened() and running.process.process.poll() is None:
        Event().wait(0.01)


@contextlib.contextmanager
def traffic(publishers: list[Publisher], popper: Popper | None = None) -> Iterator[None]:
    """All of them at once; inside, kill the gateway, for they go on until it dies."""
    threads = [Thread(target=publisher.push, args=(popper,)) for publisher in publishers]
    if popper is not None:
        threads.append(Thread(target=popper.pop))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
