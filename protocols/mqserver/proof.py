"""MQServer's login proof: the password hashed with the salt of the server's banner."""

from __future__ import annotations

from hmac import compare_digest, digest

HASH = "HASH=HMAC-SHA256"  # as a banner announces it


def prove(password: bytes, salt: str) -> str:
    return digest(password, salt.encode(), "sha256").hex()


def is_proved(password: bytes, salt: str, proof: str) -> bool:
    """In a time that does not tell how much of the proof is right."""
    return compare_digest(prove(password, salt).encode(), proof.encode())
