"""Users and their passwords, once for all protocols.  A password never leaves this module."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.defer import Deferred

from gateway.interfaces import Broker, Rights, Run, User
from gateway.rights import RestrictedBroker

EVERYTHING = Rights()


class Secret:
    """Something that must not be seen, even in a traceback."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def __repr__(self) -> str:
        return "..."

    def reveal(self) -> bytes:
        return self._value


class PasswordAccounts:
    """interfaces.Accounts, from the configuration."""

    def __init__(
        self, users: Iterable[tuple[User, Secret]], run: Run, guest: Rights = EVERYTHING
    ) -> None:
        """`run` does a job in a thread of a small pool: to check a password may take long.  `guest`
        are the rights of who does not log in."""
        self._users = {user.name: (user, password) for user, password in users}
        self._run = run
        self._guest = guest

    def find(self, name: str) -> User | None:
        found = self._users.get(name)
        return found and found[0]

    def check(self, user: User, proof: Callable[[bytes], bool]) -> Deferred[bool]:
        password = self._users[user.name][1]
        return self._run(lambda: proof(password.reveal()))

    def broker_for(self, user: User | None, broker: Broker) -> Broker:
        rights = self._guest if user is None else user.rights
        return broker if rights == EVERYTHING else RestrictedBroker(broker, rights)
