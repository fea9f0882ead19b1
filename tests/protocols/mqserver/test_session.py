"""The session of the facts, section 6, with the real server: every byte of it, in any pieces."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from protocols.mqserver import login
from protocols.mqserver.events import Notify, SendToClient
from tests.protocols.mqserver.peers import Listener
from tests.protocols.mqserver.vectors import CONVERSATIONS, SALT
from tests.support import NOW, World

pytestmark = pytest.mark.usefixtures("nothing_breaks")

SESSION = CONVERSATIONS["session"]
BEGIN = 1119400000  # when the first of the two stored messages came


@pytest.fixture(params=[1, 2], ids=["one NUL", "two NULs"])
def nuls(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def listener(nuls: int, monkeypatch: pytest.MonkeyPatch) -> Listener:
    """Where fish has had six messages of wally, has two more stored, and watches two others."""
    listener = Listener(World(later=BEGIN - NOW), nuls=nuls)
    fish, wally = listener.synced("fish", 100), listener.synced("wally", 100)
    fish.tells(Notify, ("+wally", "+anna"))
    for number in range(6):
        wally.tells(SendToClient, "fish", 100, b"%d" % number)
        fish.acks(number + 2)
    fish.hangs_up()
    listener.synced("anna", 200)
    wally.tells(SendToClient, "fish", 100, b"hello")
    listener.clock.advance(1)
    wally.tells(SendToClient, "fish", 100, b"a|\0'")
    listener.clock.advance(1)
    monkeypatch.setattr(login, "token_hex", lambda _: SALT)
    return listener


def said(who: str, nuls: int) -> list[bytes]:
    return [data[:-2] + bytes(nuls) for each, data in SESSION if each == who]


def heard_after(listener: Listener, pieces: Iterable[bytes]) -> bytes:
    """All that the server says to a client that says these pieces."""
    client = listener.connect()
    for piece in pieces:
        client.says(piece)
    assert not client.transport.is_closed
    return client.hears()


def test_frame_by_frame_each_answer_comes_at_its_place(listener: Listener, nuls: int) -> None:
    client, expected = listener.connect(), b""
    for who, data in SESSION:
        frame = data[:-2] + bytes(nuls)
        if who == "C":
            assert client.hears() == expected
            client.says(frame)
            expected = b""
        else:
            expected += frame
    assert client.hears() == expected


def test_byte_by_byte(listener: Listener, nuls: int) -> None:
    pieces = [bytes([byte]) for byte in b"".join(said("C", nuls))]
    assert heard_after(listener, pieces) == b"".join(said("S", nuls))


def test_all_at_once(listener: Listener, nuls: int) -> None:
    pieces = [b"".join(said("C", nuls))]
    assert heard_after(listener, pieces) == b"".join(said("S", nuls))


def test_a_client_ends_its_frames_as_it_likes(listener: Listener, nuls: int) -> None:
    """Whatever number of NULs the server sends."""
    pieces = said("C", 3 - nuls)
    assert heard_after(listener, pieces) == b"".join(said("S", nuls))


def test_the_message_to_wally_arrives(listener: Listener, nuls: int) -> None:
    heard_after(listener, said("C", nuls))
    wally = listener.factory.broker.shared["mqserver"].people.online["wally"]
    assert [handed.message.body for handed in wally.handed.values()] == [b"hi"]
    assert listener.factory.broker.info("user:fish").depth == 0
