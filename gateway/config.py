"""The configuration: one YAML file in, one value out, or every mistake in it at once."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gateway.accounts import Secret
from gateway.checks import kind_of, read_yaml
from gateway.interfaces import Rights, Setting, User
from gateway.outlets import OutletChecks, SparkSettings, WebSettings
from gateway.routes import LINES, Route, loops
from gateway.store import Retention

DURABILITIES = ("full", "normal", "memory")
LONGEST_NAME = 31  # bytes; no protocol of ours carries a longer user name
LONGEST_PASSWORD = 71  # bytes; bcrypt reads 72, and with all of them taken no challenge counts
WEAK_PASSWORD = 56  # bytes; beyond that, part of a 16-byte challenge is cut off


class ConfigErrors(Exception):
    """Everything that is wrong, a line each, with its place."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Account(NamedTuple):
    user: User
    password: Secret


class Listener(NamedTuple):
    path: str  # where it is in the file
    protocol: str
    endpoint: str
    max_connections: int
    accounts: list[Account] | None  # its own, instead of everybody's
    guest: Rights  # of clients that do not log in
    settings: dict[str, Any]


class Config(NamedTuple):
    data: Path
    durability: str
    retention: Retention
    accounts: list[Account]
    listeners: list[Listener]
    routes: list[Route]
    sink_lines: str | None
    sink_buffer: int
    sink_replay: str | None
    sink_token: Secret | None
    web: WebSettings | None
    spark: SparkSettings | None
    warnings: list[str]


def load(
    path: Path, protocols: Mapping[str, Any], parse_endpoint: Callable[[str], object]
) -> Config:
    """Read and check the file, or ConfigErrors.

    `protocols` are factories by name: their `settings`, and `read_stanza` for what they allow
    beside.
    """
    return _Reader(path, protocols, parse_endpoint).load()


class _Reader(OutletChecks):
    """Reads one file."""

    def __init__(
        self, path: Path, protocols: Mapping[str, Any], parse_endpoint: Callable[[str], object]
    ) -> None:
        super().__init__(path, parse_endpoint)
        self._protocols = protocols

    def load(self) -> Config:
        try:
            content = self._read(self._path)
        except ValueError as error:
            raise ConfigErrors([str(error)]) from None
        if content is None:
            content = {}
        known = ["data", "durability", "retention", "users", "listeners", "routes"]
        known += ["sink", "web", "spark"]
        top = self._mapping(content, "", known)
        if not isinstance(content, dict):
            raise ConfigErrors(self._problems)
        retention = self._mapping(top.get("retention", {}), "retention", ["seconds", "bytes"])
        known = ["lines", "bufferBytes", "replay", "token"]
        sink = self._mapping(top.get("sink", {}), "sink", known)
        for name in ("lines", "replay"):
            if sink.get(name) is not None:
                self._endpoint(sink[name], f"sink.{name}")
        config = Config(
            data=Path(self._value(top, "", "data", Setting("data"))),
            durability=self._durability(top),
            retention=Retention(
                self._value(retention, "retention", "seconds", Setting(86_400, 1, 1 << 32)),
                self._value(retention, "retention", "bytes", Setting(1 << 30, 1 << 20)),
            ),
            accounts=self._users(top.get("users", []), "users"),
            listeners=self._listeners(top.get("listeners")),
            routes=self._routes(top.get("routes", [])),
            sink_lines=sink.get("lines"),
            sink_buffer=self._value(sink, "sink", "bufferBytes", Setting(8 << 20, 1 << 16)),
            sink_replay=sink.get("replay"),
            sink_token=self._token(sink),
            web=self._web(top.get("web", {})),
            spark=self._spark(top, sink),
            warnings=self._warnings,
        )
        if self._problems:
            raise ConfigErrors(self._problems)
        return config

    def _read(self, path: Path) -> Any:
        content, twice = read_yaml(path)
        self._problems += twice
        if _has_secrets(content) and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            self._warnings.append(f"{path} has passwords and others can read it (chmod 600 {path})")
        return content

    def _durability(self, top: dict[str, Any]) -> str:
        durability: str = self._value(top, "", "durability", Setting("full"))
        if durability not in DURABILITIES:
            self._wrong("durability", f"must be one of {', '.join(DURABILITIES)}")
        return durability

    def _users(self, value: Any, path: str) -> list[Account]:
        accounts = []
        names: set[str] = set()
        for number, item in enumerate(self._list(value, path)):
            place = f"{path}[{number}]"
            known = ["name", "password", "publisher", "subscriber", "may"]
            user = self._mapping(item, place, known)
            if not isinstance(item, dict):
                continue
            name = self._name(user.get("name"), place, names)
            password = self._password(user.get("password"), place)
            publisher = self._value(user, place, "publisher", Setting(False))
            subscriber = self._value(user, place, "subscriber", Setting(False))
            if not publisher and not subscriber:
                self._wrong(place, "is neither publisher nor subscriber")
            rights = self._rights(user.get("may", {}), f"{place}.may")
            accounts.append(Account(User(name, publisher, subscriber, rights), password))
        return accounts

    def _rights(self, value: Any, path: str) -> Rights:
        """What somebody may do, each a list of addresses with * and ?; all, if it is not there."""
        rights = self._mapping(value, path, list(Rights._fields))
        found = {}
        for deed in Rights._fields:
            if deed in rights:
                place = f"{path}.{deed}"
                patterns = self._list(rights[deed], place)
                for number, pattern in enumerate(patterns):
                    self._address(pattern, f"{place}[{number}]", "*?[")
                found[deed] = tuple(map(str, patterns))
        return Rights(**found)

    def _routes(self, value: Any) -> list[Route]:
        routes: list[Route] = []
        for number, item in enumerate(self._list(value, "routes")):
            path = f"routes[{number}]"
            stanza = self._mapping(item, path, ["from", "to", "move"])
            if not isinstance(item, dict):
                continue
            route = Route(
                self._address(stanza.get("from"), f"{path}.from"),
                self._address(stanza.get("to"), f"{path}.to"),
                self._value(stanza, path, "move", Setting(False)),
            )
            if route.source and route.source == route.target:
                self._wrong(path, "leads to where it begins")
            elif any(route[:2] == other[:2] for other in routes):
                self._wrong(path, f"{route} is there twice")
            if route.moves and route.source.partition(":")[0] not in LINES:
                self._wrong(f"{path}.move", f"is for {' and '.join(LINES)}: others keep nothing")
            routes.append(route)
        self._warnings += [
            f"routes: {loop} is a loop; a message passes each address of it once"
            for loop in loops(route for route in routes if route.source != route.target)
        ]
        return routes

    def _name(self, name: Any, path: str, taken: set[str]) -> str:
        if not isinstance(name, str) or not name:
            self._wrong(f"{path}.name", "must be there, and be text")
            return ""
        if not name.isprintable() or len(name.encode()) > LONGEST_NAME or set(name) & set(" |;"):
            self._wrong(
                f"{path}.name", f"must be up to {LONGEST_NAME} bytes without space, ';', '|'"
            )
        if name in taken:
            self._wrong(f"{path}.name", f"there are two users {name!r}")
        taken.add(name)
        return name

    def _password(self, password: Any, path: str) -> Secret:
        path += ".password"
        if not isinstance(password, str) or not password:
            self._wrong(path, "must be there, and be text (in quotes if it looks like a number)")
            return Secret(b"")
        secret = password.encode(errors="replace")
        size = len(secret)
        if secret.decode() != password:
            self._wrong(path, "must be text that UTF-8 has")
        elif size > LONGEST_PASSWORD:
            self._wrong(path, f"must be at most {LONGEST_PASSWORD} bytes long")
        elif size > WEAK_PASSWORD:
            self._warnings.append(f"{path}: over {WEAK_PASSWORD} bytes weaken a login by challenge")
        return Secret(secret)

    def _listeners(self, value: Any) -> list[Listener]:
        if value is None:
            self._wrong("listeners", "must be there: a list with at least one listener")
            return []
        found = [
            self._listener(item, f"listeners[{number}]")
            for number, item in enumerate(self._list(value, "listeners"))
        ]
        if value == []:
            self._wrong("listeners", "must have at least one listener")
        listeners = [listener for listener in found if listener is not None]
        self._check_unique(listeners)
        return listeners

    def _check_unique(self, listeners: list[Listener]) -> None:
        first: dict[tuple[str, str, Any], str] = {}
        for listener in listeners:
            for name, value in listener.settings.items():
                if self._protocols[listener.protocol].settings[name].unique:
                    other = first.setdefault((listener.protocol, name, value), listener.path)
                    if other != listener.path:
                        self._wrong(f"{listener.path}.{name}", f"{other} has {value!r} too")

    def _listener(self, item: Any, path: str) -> Listener | None:
        if not isinstance(item, dict):
            self._wrong(path, f"must be a mapping, not {kind_of(item)}")
            return None
        protocol = item.get("protocol")
        factory = self._protocols.get(protocol) if isinstance(protocol, str) else None
        known = ["protocol", "endpoint", "maxConnections", "users", "guests"]
        settings: dict[str, Setting] = {}
        if factory is None:
            self._wrong(f"{path}.protocol", f"must be one of {', '.join(self._protocols)}")
            stanza = item  # what else it may say, nobody knows
        else:
            settings = factory.settings
            stanza = self._stanza(item, path, factory, [*known, *settings])
        self._endpoint(stanza.get("endpoint"), f"{path}.endpoint")
        return Listener(
            path,
            str(protocol),
            stanza.get("endpoint", ""),
            self._value(stanza, path, "maxConnections", Setting(1000, 1)),
            self._users(stanza["users"], f"{path}.users") if "users" in stanza else None,
            self._rights(stanza.get("guests", {}), f"{path}.guests"),
            {name: self._value(stanza, path, name, setting) for name, setting in settings.items()},
        )

    def _stanza(
        self, item: dict[str, Any], path: str, factory: Any, known: list[str]
    ) -> dict[str, Any]:
        """A listener's stanza, with what a file that it names adds to it."""
        try:
            item = factory.read_stanza(item, lambda name: self._read(self._path.parent / name))
        except ValueError as error:
            for problem in error.args:
                self._wrong(f"{path}.config", str(problem))
            # Go on and see what else is wrong.  Its endpoint may be in that file.
            known = [*known, "config"]
            item = {"endpoint": "tcp:0", **item}
        return self._mapping(item, path, known)


def _has_secrets(content: Any) -> bool:
    """Whether it is a file with secrets: users of its own or of a listener, or a token."""
    if not isinstance(content, dict):
        return False
    listeners = content.get("listeners")
    stanzas = listeners if isinstance(listeners, list) else []
    parts = [content, *stanzas, content.get("sink"), content.get("web")]
    return any(
        isinstance(part, dict) and (part.get("users") or part.get("token")) for part in parts
    )
