"""Tests for protocols.names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.names import to_name, to_raw

NAMES = {
    b"jobs": "jobs",
    "żółw".encode(): "żółw",
    b"a b/c": "a b/c",
    b"\xff": "%FF",
    b"a\0b\n": "a%00b%0A",
    b"\x7f\xc2\x85": "%7F%C2%85",
    b"100%": "100%",
    b"%zz %4": "%zz %4",
    b"%41": "%2541",
    b"%\xff": "%%FF",
    b"%25": "%2525",
    b"\xed\xa0\x80": "%ED%A0%80",  # a surrogate is no UTF-8
}


@pytest.mark.parametrize(("raw", "name"), NAMES.items())
def test_a_name_reads_as_it_should(raw: bytes, name: str) -> None:
    assert to_name(raw) == name
    assert to_raw(name) == raw


@given(st.one_of(st.binary(), st.text("%0A1FZ\xff").map(str.encode)))
def test_any_bytes_come_back(raw: bytes) -> None:
    """Two names on a wire are never one address."""
    assert to_raw(to_name(raw)) == raw
    to_name(raw).encode()  # valid text, for a journal and for JSON
