"""Who is online, who wants to hear of whom, and the mailboxes of those who are not.

A user's mailbox is `user:NAME` of the Broker; his notify list is among its options.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from gateway.interfaces import Broker, NoSuchAddress
from protocols.mqserver.ids import change, ours
from protocols.mqserver.queues import Queues
from protocols.names import to_name

if TYPE_CHECKING:
    from protocols.mqserver.mail import Correspondent

Change = tuple[str, tuple[int, ...]]  # as PRESENCE has it


def mailbox(user: str) -> str:
    return f"user:{to_name(user.encode())}"


class People:
    """Once for all listeners at a Broker: a user may be logged in at one of them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.online: dict[str, Correspondent] = {}
        self._watchers: dict[str, dict[Correspondent, None]] = {}  # by who or what is on their list

    def come(self, user: str, server: Correspondent) -> bool:
        """False if he is here already."""
        if user in self.online:
            return False
        self.online[user] = server
        for name in server.notify_list:
            self._watch(server, name)
        return True

    def go(self, user: str) -> None:
        server = self.online.pop(user)
        for name in server.notify_list:
            self._unwatch(server, name)
        if server.is_present:
            self.tell(user, (f"-{user}", ()))

    # Notify lists.

    def notify_list(self, user: str) -> list[str]:
        try:
            options = self._broker.info(mailbox(user)).options
        except NoSuchAddress:
            return []
        return list(ours(options).get("notify", ()))

    def set_notify_list(self, server: Correspondent, names: list[str]) -> None:
        """Overloaded, if it cannot be kept."""
        change(self._broker, mailbox(server.peer.user), {"notify": names})
        for name in server.notify_list:
            self._unwatch(server, name)
        server.notify_list = names
        for name in names:
            self._watch(server, name)

    def _watch(self, server: Correspondent, name: str) -> None:
        self._watchers.setdefault(name, {})[server] = None

    def _unwatch(self, server: Correspondent, name: str) -> None:
        watchers = self._watchers[name]
        del watchers[server]
        if not watchers:
            del self._watchers[name]

    # Presence.

    def tell(self, name: str, news: Change) -> None:
        """Tell those who have that user, or `#` and that queue, on their list."""
        for watcher in [*self._watchers.get(name, ())]:
            watcher.hear_of(news)

    def present(self, names: Iterable[str], queues: Queues) -> tuple[Change, ...]:
        """Those of a notify list who are there."""
        found: list[Change] = []
        for name in names:
            if name[0] == "#":
                if queues.has(name[1:]):
                    found.append((name, ()))
            elif name in self.online and self.online[name].is_present:
                found.append((f"+{name}", self.online[name].app_ids))
        return tuple(found)

    # Mailboxes.

    def open_mailbox(self, user: str, limit: int) -> str:
        """His mailbox, made if need be; Overloaded."""
        address = mailbox(user)
        try:
            options = self._broker.info(address).options
        except NoSuchAddress:
            options = {}
        if options.get("limit") != limit:
            change(self._broker, address, {}, limit=limit)
        return address


class Common:
    """What all MQServer listeners at a Broker share."""

    def __init__(self, broker: Broker) -> None:
        self.queues = Queues(broker)
        self.people = People(broker)


def common_at(broker: Broker) -> Common:
    found = broker.shared.get("mqserver")
    if found is None:
        found = broker.shared["mqserver"] = Common(broker)
    return cast(Common, found)
