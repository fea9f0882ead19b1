"""qlite's login proof: the bcrypt hash of a password and the server's challenge."""

from __future__ import annotations

import re

import bcrypt

COST = 10  # as the document says; each step doubles the work, and 31 would take weeks

_HASH = re.compile(rb"\$2[aby]?\$10\$[./A-Za-z0-9]{53}")


def prove(password: bytes, challenge: bytes) -> bytes:
    """Takes about a tenth of a second: not for the reactor's thread."""
    return bcrypt.hashpw(_secret(password, challenge), bcrypt.gensalt(COST))


def is_plausible(proof: bytes) -> bool:
    """A hash of the right cost, so that checking it is worth the time."""
    return _HASH.match(proof) is not None


def is_proved(password: bytes, challenge: bytes, proof: bytes) -> bool:
    """Takes as long as `prove`.  Bytes after the 60th of the hash do not count, and `$2$` is `$2b$`
    for what passwords can be here, as in the servers of old."""
    claimed = proof[:60] if proof[:3] != b"$2$" else b"$2b$" + proof[3:59]
    try:
        return bcrypt.checkpw(_secret(password, challenge), claimed)
    except ValueError:  # no hash after all
        return False


def _secret(password: bytes, challenge: bytes) -> bytes:
    return (password + challenge)[:72]  # bcrypt takes no more
