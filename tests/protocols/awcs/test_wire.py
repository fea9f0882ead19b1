"""Tests for protocols.awcs.wire: the golden bytes, and who begins how."""

import pytest

from protocols.awcs.wire import Connected, Initialize, Join, Kicked, decode_status, identify
from tests.wire_vectors import WireVectors


class TestAwcsWire(WireVectors):
    package = "awcs"


@pytest.mark.parametrize(
    ("heard", "role"),
    [
        (b"6 \0", Initialize),
        (b"6 \x002 \0", Initialize),
        (b"aWCS\0", Join),
        (b"aWCS\0hi\0", Join),
        (b"", None),
        (b"6 ", None),
        (b"aWCS", None),
        (b"awcs\0", None),
        (b"awcs\0aWCS\0", None),
        (b"\x006 \0", None),
    ],
)
def test_the_first_bytes_tell_the_role(heard: bytes, role: type | None) -> None:
    assert identify(heard) is role


def test_a_status_with_the_masters_number_is_understood_by_who_knows_it() -> None:
    """facts, section 6: what the servers of old sent."""
    assert decode_status(b"0 0003 127.0.0.1:39122", 2) == Connected(3, "127.0.0.1:39122", 2)
    assert decode_status(b"2 0003 0", 2) == Kicked(3, 0, 2)
