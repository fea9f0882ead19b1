"""Connections that have not logged in: how many there may be, and for how long."""

from __future__ import annotations

from protocols.base import WireProtocol
from protocols.timer import Timer


class Stranger:
    """One connection until it has logged in."""

    def __init__(self, strangers: Strangers, connection: WireProtocol, seconds: float) -> None:
        self._strangers = strangers
        self._seconds = seconds
        self._is_one = True
        self._timer = Timer(connection.clock, lambda: connection.abort("no login in time"))
        connection.add_cleanup(self.no_more)
        self.wait()

    def wait(self) -> None:
        """Until it tries to log in."""
        self._timer.set(self._seconds)

    def is_checked(self) -> None:
        """It is we who take the time now."""
        self._timer.clear()

    def no_more(self) -> None:
        """It has logged in, or has gone."""
        self._timer.stop()
        if self._is_one:
            self._is_one = False
            self._strangers.count -= 1


class Strangers:
    """Those of a listener."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0

    def admit(self, connection: WireProtocol, seconds: float) -> Stranger | None:
        """Let it try to log in; None, and a note of it, if too many do so already."""
        if self.count >= self._most:
            connection.note_refusal("too many logins under way")
            return None
        self.count += 1
        return Stranger(self, connection, seconds)
