"""Routes: what comes to one address goes to another too, once, however they are linked."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.interfaces import ROUTE, TOPIC, Message

KINDS = ("queue", "user", "topic", "hub")
LINES = ("queue", "user")  # where a message waits for one consumer


class Route(NamedTuple):
    """A link between two addresses.  The source keeps its message, unless the route `moves` it."""

    source: str
    target: str
    moves: bool = False

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


class Routes:
    """The routes by their source."""

    def __init__(self, routes: Iterable[Route] = ()) -> None:
        self._routes: dict[str, list[Route]] = {}
        for route in routes:
            self._routes.setdefault(route.source, []).append(route)
        self.any = bool(self._routes)
        self._refused: set[Route] = set()  # and it has been said

    def targets(self) -> list[str]:
        return [route.target for routes in self._routes.values() for route in routes]

    def of(self, message: Message) -> list[Route] | None:
        """Where a message goes on to; not to where it has been.  None if no route begins here."""
        routes = self._routes.get(message.address)
        if routes is None:
            return None
        path = path_of(message)
        return [route for route in routes if route.target not in path] if path else routes

    def places(
        self, address: str, path: tuple[str, ...] = (), must_fit: bool = True
    ) -> Iterator[tuple[str, bool]]:
        """Where a message for an address comes to lie, and whether it is refused if that is full:
        so it is where it stays, or is moved to; a copy is merely not made.

        `path`: the addresses that it has passed.
        """
        routes = [route for route in self._routes.get(address, []) if route.target not in path]
        moves = any(route.moves for route in routes)
        if not moves:
            yield address, must_fit
        for route in routes:
            yield from self.places(route.target, (*path, address), must_fit and moves)

    def is_news(self, route: Route, refused: bool) -> bool:
        """Whether it was otherwise the last time."""
        if refused == (route in self._refused):
            return False
        (self._refused.add if refused else self._refused.discard)(route)
        return True


def path_of(message: Message) -> list[str]:
    """The addresses that a message has passed, the first first."""
    return message.headers.get(ROUTE, []) if message.headers else []


def copy_for(route: Route, message: Message) -> Message:
    """What the target gets.  What a protocol has noted beside the body stays with the original."""
    headers = {ROUTE: [*path_of(message), message.address]}
    if message.headers and TOPIC in message.headers:
        headers[TOPIC] = message.headers[TOPIC]
    return Message(
        route.target,
        message.body,
        message.sender,
        message.protocol,
        due=message.due,
        headers=headers,
    )


def loops(routes: Iterable[Route]) -> list[str]:
    """The loops that routes make, each once, as text.  Each address is passed once."""
    following: dict[str, list[str]] = {}
    for route in routes:
        following.setdefault(route.source, []).append(route.target)
    found: dict[frozenset[str], str] = {}
    for source in following:
        loop = _way_back(source, following)
        if loop:
            found.setdefault(frozenset(loop), " -> ".join(loop))
    return [*found.values()]


def _way_back(start: str, following: dict[str, list[str]]) -> list[str]:
    """The shortest way from an address back to itself, or nothing."""
    ways, seen = deque([[start]]), {start}
    while ways:
        way = ways.popleft()
        for target in following.get(way[-1], []):
            if target == start:
                return [*way, start]
            if target not in seen:
                seen.add(target)
                ways.append([*way, target])
    return []
