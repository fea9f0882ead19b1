"""One protocol in, another out: every pair of them, with real clients, on one real gateway.

The first half of each pair's messages is sent before the gateway is restarted, once for all pairs,
and the second half after it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
import yaml
from twisted.internet.endpoints import clientFromString
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from mqgateway.events import EventReader, follow
from mqgateway.speakers.base import Access, Part, Speaker
from mqgateway.speakers.table import SPEAKERS
from tests.crossing import CROSSINGS, PROTOCOLS, SHOWS_SENDER, Crossing, page
from tests.support import ROOT, Process, free_port

PATIENCE = 60.0  # seconds for anything to come; the machine may be busy
NUMBERED = 9  # messages of each half, beside those with awkward bodies
AWKWARD = [b"|';\xff\r\n", bytes(range(1, 256))]
WITH_NUL = [b"a\0|';\xff\0", bytes(range(256))]
PASSWORDS = {"pub": "publisher", "sub": "subscriber", "fish": "haha", "wally": "hoho"}
USERS = {"qlite": ("pub", "sub"), "mqserver": ("fish", "wally")}  # who sends, who receives
ONE_PLACE = ("qlite", "awcs")  # protocols whose listeners have one queue or room each


def bodies(crossing: Crossing, half: int) -> list[bytes]:
    numbered = [b"%s %d.%d" % (crossing.name.encode(), half, n) for n in range(NUMBERED)]
    awkward = [*AWKWARD, *(WITH_NUL if crossing.carries_nul else [])]
    return [*numbered, *awkward, *([b""] if crossing.carries_empty else []), b"the end %d" % half]


class Gateway:
    """A real gateway with a listener for each place that a pair needs, and their routes."""

    def __init__(self, directory: Path) -> None:
        self.ports: dict[tuple[str, str], int] = {}
        self.sink = free_port()
        self.config = directory / "gateway.yaml"
        content = {
            "data": str(directory / "data"),
            "users": [
                {"name": name, "password": word, "publisher": True, "subscriber": True}
                for name, word in PASSWORDS.items()
            ],
            "listeners": [*self._listeners()],
            "routes": [each.route for each in CROSSINGS if each.route],
            "sink": {"lines": f"tcp:{self.sink}:interface=127.0.0.1"},
        }
        self.config.write_text(yaml.safe_dump(content))
        self.config.chmod(0o600)
        self.rows: list[dict[str, Any]] = []  # all that the sink has shown
        self.outcomes: dict[Crossing, Any] = {}  # of the first half
        self._reader: EventReader | None = None

    def _listeners(self) -> Any:
        settings = {"qlite": "queue", "awcs": "hub"}
        for protocol in SPEAKERS:
            places = [""]
            if protocol in ONE_PLACE:
                places = [each.name for each in CROSSINGS if protocol in each[:2]]
            for place in places:
                port = self.ports[protocol, place] = free_port()
                own = {settings[protocol]: place} if place else {}
                yield {"protocol": protocol, "endpoint": f"tcp:{port}:interface=127.0.0.1", **own}

    async def start(self) -> None:
        from twisted.internet import reactor

        self.process = Process(self.config)
        await deferToThread(self.process.wait_for, self.sink)
        endpoint = clientFromString(reactor, f"tcp:127.0.0.1:{self.sink}")
        self._reader = await follow(endpoint, lambda _, row: self.rows.append(row))

    async def stop(self) -> None:
        if self._reader is not None:
            self._reader.disconnect()
        assert await deferToThread(self.process.stop) == 0

    async def speaker(self, protocol: str, crossing: Crossing, part: Part) -> Speaker:
        from twisted.internet import reactor

        port = self.ports[protocol, crossing.name if protocol in ONE_PLACE else ""]
        user = USERS.get(protocol, ("", ""))[part.receives]
        access = Access(user, PASSWORDS.get(user, ""))
        endpoint = clientFromString(reactor, f"tcp:127.0.0.1:{port}")
        speaker = SPEAKERS[protocol](reactor, endpoint, access, part)
        await speaker.open()
        return speaker


class Meeting:
    """The clients of one pair, while they are connected."""

    def __init__(self, gateway: Gateway, crossing: Crossing) -> None:
        self._gateway = gateway
        self._crossing = crossing
        self._speakers: list[Speaker] = []
        self.heard: list[tuple[str, bytes]] = []

    async def opened(self, protocol: str, part: Part) -> Speaker:
        speaker = await self._gateway.speaker(protocol, self._crossing, part)
        self._speakers.append(speaker)
        return speaker

    async def listen(self) -> None:
        crossing = self._crossing
        if crossing.consumer == "awcs":  # a master keeps the room open, unless it is who publishes
            self.master = await self.opened("awcs", Part(is_master=True))
        consumer = await self.opened(crossing.consumer, Part(sends=False, receives=True))
        name = f"{crossing.target}:{crossing.name}" if crossing.consumer != "sk2mq" else ""
        await consumer.receive(
            name or crossing.name, lambda sender, body: self.heard.append((sender, body))
        )
        if crossing.target == "topic" and crossing.consumer == "rq":
            await until(lambda: self._is_seen("declared", f"topic:{crossing.name}"), "the consumer")

    def _is_seen(self, event: str, address: str) -> bool:
        return any(
            (row["event"], f"{row['address_kind']}:{row['address']}") == (event, address)
            for row in self._gateway.rows
        )

    async def say(self, half: int) -> Speaker:
        crossing = self._crossing
        if crossing.name == "awcs-awcs":
            publisher = self.master
        else:
            publisher = await self.opened(crossing.publisher, Part(is_master=True))
        kind = f"{crossing.source}:" if crossing.publisher != "sk2mq" else ""
        for body in bodies(crossing, half):
            await publisher.send(f"{kind}{crossing.name}", body)
        return publisher

    async def hear(self, expected: list[bytes]) -> None:
        await until(lambda: len(self.heard) >= len(expected), lambda: f"heard {self.heard}")
        assert [body for _, body in self.heard] == expected

    async def end(self) -> None:
        while self._speakers:
            await self._speakers.pop().close()


async def until(condition: Callable[[], bool], what: Any) -> None:
    """Wait for it; what did not come is said after a while."""
    from twisted.internet import reactor

    end = reactor.seconds() + PATIENCE  # type: ignore[attr-defined]
    while not condition():
        assert reactor.seconds() < end, what() if callable(what) else what  # type: ignore[attr-defined]
        await deferLater(reactor, 0.01)


async def first_half(gateway: Gateway, crossing: Crossing) -> None:
    """Before the restart: nobody listens where messages are kept; elsewhere they are heard."""
    meeting = Meeting(gateway, crossing)
    try:
        if not crossing.keeps:
            await meeting.listen()
        await meeting.say(1)
        if not crossing.keeps:
            await meeting.hear(bodies(crossing, 1))
        else:
            end = len(bodies(crossing, 1))
            await until(lambda: len(accepted(gateway, crossing)) >= end, "not all is accepted")
    finally:
        await meeting.end()


def accepted(gateway: Gateway, crossing: Crossing) -> list[dict[str, Any]]:
    """What the log has of messages at the address that the consumer reads."""
    return [
        row
        for row in gateway.rows
        if (row["event"], row["address_kind"], row["address"])
        == ("accepted", crossing.target, crossing.name)
    ]


@pytest_twisted.async_fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    made = Gateway(tmp_path_factory.mktemp("crossing"))
    await made.start()
    for crossing in CROSSINGS:
        try:
            await first_half(made, crossing)
        except Exception as error:  # told by the test of this pair
            made.outcomes[crossing] = error
    await made.stop()
    await made.start()
    return made


@pytest.fixture(scope="module", autouse=True)
def ended(gateway: Gateway) -> Any:
    yield
    gateway.process.stop()
    assert "Traceback" not in gateway.process.log.read_text()


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("crossing", CROSSINGS, ids=lambda crossing: crossing.name)
async def test_messages_cross_intact_and_in_order_over_a_restart(
    gateway: Gateway, crossing: Crossing
) -> None:
    if crossing in gateway.outcomes:
        raise gateway.outcomes[crossing]
    meeting = Meeting(gateway, crossing)
    before = len(accepted(gateway, crossing))
    try:
        await meeting.listen()
        expected = bodies(crossing, 1) if crossing.keeps else []
        await meeting.hear(expected)
        publisher = await meeting.say(2)
        await meeting.hear([*expected, *bodies(crossing, 2)])
        count = before + len(bodies(crossing, 2))
        await until(lambda: len(accepted(gateway, crossing)) >= count, "the log lacks some")
    finally:
        await meeting.end()
    sender = sender_of(crossing, publisher)
    row = accepted(gateway, crossing)[-1]
    assert (row["protocol"], row["sender"]) == (crossing.publisher, sender)
    assert ("route" in (row["headers"] or {})) is not crossing.is_direct
    shown = sender if crossing.consumer in SHOWS_SENDER else ""
    assert meeting.heard[-1][0] == shown


def sender_of(crossing: Crossing, publisher: Any) -> str:
    match crossing.publisher:
        case "sk2mq":
            return str(publisher.user)
        case "awcs":
            return "master"
        case "rq":
            return ""
    return USERS[crossing.publisher][0]


def test_every_pair_has_one_entry() -> None:
    pairs = [each[:2] for each in CROSSINGS]
    assert sorted(pairs) == sorted((one, other) for one in PROTOCOLS for other in PROTOCOLS)


def test_the_page_is_what_the_table_says() -> None:
    """`python -m tests.crossing > docs/matrix.md` writes it."""
    assert (ROOT / "docs" / "matrix.md").read_text() == page()
