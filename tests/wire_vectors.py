"""The checker of golden bytes, for any protocol that names its package.

A package `protocols/<name>` has beside its tests a module `vectors` with rows
`(name, state, bytes, event)` in FROM_CLIENT and FROM_SERVER, rows `(name, state, bytes, error)` in
REJECTED_FROM_CLIENT and REJECTED_FROM_SERVER, and conversations, lists of `(who, bytes)` with "S"
or "C" for who, in CONVERSATIONS.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tap import PROTOCOLS
from protocols.conversation import Conversation
from protocols.framing import Framer, WireError

SIDES = {"client": "FROM_CLIENT", "server": "FROM_SERVER"}


def rows(vectors: Any, prefix: str = "") -> list[tuple[str, tuple[Any, ...]]]:
    """All rows of a kind, each with the side that it comes from."""
    return [
        (side, row) for side, name in SIDES.items() for row in getattr(vectors, prefix + name, [])
    ]


class WireVectors:
    """Subclass it, name the package, and every row becomes several tests."""

    package: str

    @classmethod
    def load(cls) -> None:
        cls.wire = import_module(f"protocols.{cls.package}.wire")
        cls.vectors = import_module(f"tests.protocols.{cls.package}.vectors")
        cls.server = PROTOCOLS[cls.package].protocol

    @classmethod
    def parameters(cls, fixture: str) -> tuple[list[Any], list[str]]:
        """What conftest.py gives the tests below."""
        cls.load()
        if fixture == "conversation":
            found = cls.vectors.CONVERSATIONS
            return list(found.values()), list(found)
        found = rows(cls.vectors, "REJECTED_" if fixture == "rejected" else "")
        return found, [f"{side}-{row[0]}" for side, row in found]

    def decoder(self, side: str) -> Any:
        return self.wire.decode_client if side == "client" else self.wire.decode_server

    def decode_all(self, side: str, state: Any, pieces: list[bytes]) -> list[Any]:
        """The events in the pieces, all decoded in one state."""
        framer, decode, events = Framer(self.wire.cut, self.wire.LIMIT), self.decoder(side), []
        for piece in pieces:
            framer.feed(piece)
            while (frame := framer.next_frame()) is not None:
                events.append(decode(state, frame))
        return events

    def test_a_row_decodes_whole(self, vector: Any) -> None:
        side, (_, state, data, event) = vector
        assert self.decode_all(side, state, [data]) == [event]

    def test_a_row_decodes_byte_by_byte(self, vector: Any) -> None:
        side, (_, state, data, event) = vector
        assert self.decode_all(side, state, [bytes([byte]) for byte in data]) == [event]

    def test_a_row_decodes_doubled_with_an_unfinished_third(self, vector: Any) -> None:
        side, (_, state, data, event) = vector
        assert self.decode_all(side, state, [data + data + data[:-1]]) == [event, event]

    def test_a_row_is_what_its_event_encodes_to(self, vector: Any) -> None:
        _, (name, _, data, event) = vector
        if name not in getattr(self.vectors, "DECODE_ONLY", ()):
            assert self.wire.encode(event) == data

    def test_the_table_allows_what_a_row_says(self, vector: Any) -> None:
        _, (name, state, _, event) = vector
        if name not in getattr(self.vectors, "OUT_OF_TURN", ()):
            assert type(event) in self.wire.TABLE[state]

    def test_a_rejected_row_raises_its_error_and_nothing_else(self, rejected: Any) -> None:
        side, (_, state, data, error) = rejected
        for pieces in ([data], [bytes([byte]) for byte in data]):
            with pytest.raises(error):
                self.decode_all(side, state, pieces)
        assert issubclass(error, WireError)

    def test_every_event_has_a_row(self) -> None:
        shown = {type(row[3]) for _, row in rows(self.vectors)}
        assert {event for row in self.wire.TABLE.values() for event in row} <= shown

    def test_every_event_of_a_client_has_a_handler(self) -> None:
        sent = {type(row[3]) for side, row in rows(self.vectors) if side == "client"}
        assert sent == set(self.server._handlers)

    def test_a_conversation_runs_through_both_ends(self, conversation: Any) -> None:
        """Captured bytes are events to the end that hears them, and bytes again to the end that
        says them."""
        ends = {
            "C": Conversation(self.wire, "server"),  # a client talks to a server
            "S": Conversation(self.wire, "client"),
        }
        for who, data in conversation:
            hearer, sayer = ends["S" if who == "C" else "C"], ends[who]
            for byte in data:
                assert hearer.framer.held() < len(data)
                hearer.feed(bytes([byte]))
            try:
                event = hearer.next_event()
            except WireError:
                assert (who, data) in self.vectors.WRONG
                continue
            assert event is not None
            assert hearer.next_event() is None
            assert sayer.send(event) == data
            assert ends["C"].state is ends["S"].state

    def test_any_bytes_in_any_pieces_raise_only_wire_errors(self) -> None:
        states = list(self.wire.TABLE)

        @settings(max_examples=300, deadline=None, print_blob=True)
        @given(
            state=st.sampled_from(states),
            side=st.sampled_from(list(SIDES)),
            pieces=st.lists(self.plausible(), max_size=8),
        )
        def check(state: Any, side: str, pieces: list[bytes]) -> None:
            with suppress(WireError):
                self.decode_all(side, state, pieces)

        check()

    def plausible(self) -> Any:
        """Random bytes, and pieces of true ones with random tails."""
        true = st.sampled_from([row[2] for _, row in rows(self.vectors)])
        cut_true = st.builds(
            lambda data, at: data[: at % (len(data) + 1)], true, st.integers(0, 99)
        )
        return st.one_of(
            st.binary(max_size=64), true, cut_true, st.builds(bytes.__add__, cut_true, st.binary())
        )
