"""The token that whoever posts results must know: configured, or made at the first start."""

from __future__ import annotations

import os
import secrets
from hmac import compare_digest
from pathlib import Path

from gateway.accounts import Secret

BYTES = 24  # which are 32 characters
LONGEST = 512  # characters; a file with more is something else


class TokenRefused(Exception):
    """The token cannot be read or kept; the text says why, for the operator."""


class Token:
    """A token that is known when it is first asked for."""

    def __init__(self, given: Secret | None, path: Path | None) -> None:
        """`path`: where it is kept if none is given; with no path it is gone at the end."""
        self._secret = given
        self._path = path

    def reveal(self) -> str:
        """The token, or TokenRefused."""
        if self._secret is None:
            self._secret = Secret((_kept(self._path) if self._path else _new()).encode())
        return self._secret.reveal().decode()

    def is_in(self, header: str | None) -> bool:
        """Whether an Authorization header has it; how long that takes tells nothing about it."""
        wanted = f"Bearer {self.reveal()}".encode()
        return compare_digest(wanted, (header or "").encode("utf-8", "replace"))


def _new() -> str:
    return secrets.token_urlsafe(BYTES)


def _kept(path: Path) -> str:
    """What the file has, or a new one that it has from now on."""
    try:
        known = path.read_text(encoding="ascii")[: LONGEST + 1].strip() if path.exists() else ""
        if not known:  # new, or we died between making the file and writing it
            known = _new()
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(known + "\n")
    except OSError as error:
        raise TokenRefused(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise TokenRefused(f"{path}: has no token in it") from None
    if len(known) > LONGEST or not known.isprintable() or " " in known:
        raise TokenRefused(f"{path}: has no token in it")
    return known
