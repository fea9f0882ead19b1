"""Where connections come from: who may be master, and how it reads in a status."""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Any

ANYBODY = "any"

Network = IPv4Network | IPv6Network


def networks(text: str) -> list[Network] | None:
    """Addresses and networks, with commas between them; None is anybody.  ValueError."""
    if text.strip() == ANYBODY:
        return None
    return [ip_network(part.strip(), strict=False) for part in text.split(",")]


def place(peer: Any) -> str:
    """Where a connection comes from, as a status has it: no spaces, and always a port."""
    address = _ip_address(peer)
    if address is None:
        return "0.0.0.0:0"  # it came by a socket in the file system
    return f"[{address}]:{peer.port}" if address.version == 6 else f"{address}:{peer.port}"


def is_among(peer: Any, allowed: list[Network]) -> bool:
    """Whether a connection comes from one of these networks."""
    address = _ip_address(peer)
    return address is not None and any(address in network for network in allowed)


def _ip_address(peer: Any) -> IPv4Address | IPv6Address | None:
    """None if it has none; an IPv4 address that came by IPv6 is itself again."""
    try:
        address = ip_address(getattr(peer, "host", "").partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
