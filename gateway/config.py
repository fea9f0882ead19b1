"""The configuration: one YAML file in, one value out, or every mistake in it at once."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gateway.accounts import Secret
from gateway.interfaces import Setting, User
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
    settings: dict[str, Any]


class Config(NamedTuple):
    data: Path
    durability: str
    retention: Retention
    accounts: list[Account]
    listeners: list[Listener]
    sink_lines: str | None
    sink_buffer: int
    warnings: list[str]


def load(
    path: Path, protocols: Mapping[str, Any], parse_endpoint: Callable[[str], object]
) -> Config:
    """Read and check the file, or ConfigErrors.

    `protocols` are factories by name: their `settings`, and `read_stanza` for what they allow
    beside.
    """
    return _Reader(path, protocols, parse_endpoint).load()


class _Loader(yaml.SafeLoader):
    """YAML, but a key that is there twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key, (key_node, _) in zip(keys, node.value, strict=True):
            if keys.count(key) > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"{key!r} is there twice", problem_mark=key_node.start_mark
                )
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; ValueError in one line."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506, it is a SafeLoader
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ValueError(f"{place}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from error


class _Reader:
    """Reads one file; collects problems instead of stopping at the first."""

    def __init__(
        self, path: Path, protocols: Mapping[str, Any], parse_endpoint: Callable[[str], object]
    ) -> None:
        self._path = path
        self._protocols = protocols
        self._parse_endpoint = parse_endpoint
        self._problems: list[str] = []
        self._warnings: list[str] = []

    def load(self) -> Config:
        try:
            content = read_yaml(self._path)
        except ValueError as error:
            raise ConfigErrors([str(error)]) from None
        top = self._mapping(
            {} if content is None else content,
            "",
            ["data", "durability", "retention", "users", "listeners", "sink"],
        )
        retention = self._mapping(top.get("retention", {}), "retention", ["seconds", "bytes"])
        sink = self._mapping(top.get("sink", {}), "sink", ["lines", "bufferBytes"])
        lines = sink.get("lines")
        if lines is not None:
            self._endpoint(lines, "sink.lines")
        config = Config(
            data=Path(self._value(top, "", "data", Setting("data"))),
            durability=self._durability(top),
            retention=Retention(
                self._value(retention, "retention", "seconds", Setting(86_400, 1)),
                self._value(retention, "retention", "bytes", Setting(1 << 30, 1 << 20)),
            ),
            accounts=self._users(top.get("users", []), "users"),
            listeners=self._listeners(top.get("listeners")),
            sink_lines=lines,
            sink_buffer=self._value(sink, "sink", "bufferBytes", Setting(8 << 20, 1 << 16)),
            warnings=self._warnings,
        )
        self._warn_if_readable(config)
        if self._problems:
            raise ConfigErrors(self._problems)
        return config

    def _wrong(self, path: str, problem: str) -> None:
        self._problems.append(f"{path or self._path}: {problem}")

    def _durability(self, top: dict[str, Any]) -> str:
        durability: str = self._value(top, "", "durability", Setting("full"))
        if durability not in DURABILITIES:
            self._wrong("durability", f"must be one of {', '.join(DURABILITIES)}")
        return durability

    def _mapping(self, value: Any, path: str, known: list[str]) -> dict[str, Any]:
        """The value, if it is a mapping of known keys; what is wrong with it is noted."""
        if not isinstance(value, dict):
            self._wrong(path, f"must be a mapping, not {_kind(value)}")
            return {}
        for key in value:
            if key not in known:
                self._wrong(_join(path, key), f"unknown; known are {', '.join(known)}")
        return value

    def _list(self, value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            self._wrong(path, f"must be a list, not {_kind(value)}")
            return []
        return value

    def _value(self, mapping: dict[str, Any], path: str, key: str, setting: Setting) -> Any:
        """The value of a key, checked; its default if it is not there or wrong."""
        value: Any = mapping.get(key, setting.default)
        wanted: Any = type(setting.default)
        if wanted is float and type(value) is int:
            value = float(value)
        least: Any = setting.least
        most: Any = setting.most
        place = _join(path, key)
        if type(value) is not wanted:
            self._wrong(place, f"must be {_KINDS[wanted]}, not {_kind(value)}")
        elif wanted is str and not value:
            self._wrong(place, "must not be empty")
        elif least is not None and value < least:
            self._wrong(place, f"must be at least {least}")
        elif most is not None and value > most:
            self._wrong(place, f"must be at most {most}")
        else:
            return value
        return setting.default

    def _endpoint(self, value: Any, path: str) -> None:
        if not isinstance(value, str):
            self._wrong(path, f"must be an endpoint such as tcp:8080, not {_kind(value)}")
            return
        try:
            self._parse_endpoint(value)
        except Exception as error:  # each kind of endpoint has its own way to fail
            reason = "no socket was passed" if isinstance(error, IndexError) else error
            self._wrong(path, f"{value!r} is no endpoint: {reason}")

    def _users(self, value: Any, path: str) -> list[Account]:
        accounts = []
        names: set[str] = set()
        for number, item in enumerate(self._list(value, path)):
            place = f"{path}[{number}]"
            user = self._mapping(item, place, ["name", "password", "publisher", "subscriber"])
            name = self._name(user.get("name"), place, names)
            password = self._password(user.get("password"), place)
            publisher = self._value(user, place, "publisher", Setting(False))
            subscriber = self._value(user, place, "subscriber", Setting(False))
            if not publisher and not subscriber:
                self._wrong(place, "is neither publisher nor subscriber")
            accounts.append(Account(User(name, publisher, subscriber), password))
        return accounts

    def _name(self, name: Any, path: str, taken: set[str]) -> str:
        if not isinstance(name, str) or not name:
            self._wrong(f"{path}.name", "must be there, and be text")
            return ""
        if len(name.encode()) > LONGEST_NAME or not name.isprintable() or set(name) & set(" |;"):
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
        size = len(password.encode())
        if size > LONGEST_PASSWORD:
            self._wrong(path, f"must be at most {LONGEST_PASSWORD} bytes long")
        elif size > WEAK_PASSWORD:
            self._warnings.append(f"{path}: over {WEAK_PASSWORD} bytes weaken a qlite login")
        return Secret(password.encode())

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
        return [listener for listener in found if listener is not None]

    def _listener(self, item: Any, path: str) -> Listener | None:
        if not isinstance(item, dict):
            self._wrong(path, f"must be a mapping, not {_kind(item)}")
            return None
        protocol = item.get("protocol")
        factory = self._protocols.get(protocol) if isinstance(protocol, str) else None
        if factory is None:
            self._wrong(f"{path}.protocol", f"must be one of {', '.join(self._protocols)}")
            return None
        try:
            item = factory.read_stanza(item, lambda name: read_yaml(self._path.parent / name))
        except ValueError as error:
            self._wrong(path, str(error))
            return None
        known = ["protocol", "endpoint", "maxConnections", "users", *factory.settings]
        stanza = self._mapping(item, path, known)
        self._endpoint(stanza.get("endpoint"), f"{path}.endpoint")
        return Listener(
            path,
            str(protocol),
            stanza.get("endpoint", ""),
            self._value(stanza, path, "maxConnections", Setting(1000, 1)),
            self._users(stanza["users"], f"{path}.users") if "users" in stanza else None,
            {
                name: self._value(stanza, path, name, setting)
                for name, setting in factory.settings.items()
            },
        )

    def _warn_if_readable(self, config: Config) -> None:
        secrets = config.accounts or any(listener.accounts for listener in config.listeners)
        if secrets and self._path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            self._warnings.append(
                f"{self._path} has passwords and others can read it (chmod 600 {self._path})"
            )


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return {dict: "a mapping", list: "a list", **_KINDS}.get(type(value), type(value).__name__)


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
