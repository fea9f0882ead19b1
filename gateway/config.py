"""The configuration: one YAML file in, one value out, or every mistake in it at once."""

from __future__ import annotations

import re
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
    """YAML, but it remembers which keys are there twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.twice: list[tuple[yaml.Mark, str]] = []

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    name = repr(key.value) if key.value.isalpha() else "a key"
                    self.twice.append((key.start_mark, f"{name} is there twice"))
                seen.add((key.tag, key.value))
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except yaml.YAMLError:
            raise
        except Exception:  # a date that is none, a `!!bool` that is none: each fails in its way
            problem = "this cannot be read; if it is text, put it in quotes"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None


def read_yaml(path: Path) -> tuple[Any, list[str]]:
    """The content of a YAML file, and what is there twice; ValueError in one line."""
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        content = loader.get_single_data()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ValueError(f"{path}: not UTF-8 text") from None
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        # `password: *word` names the password: of what is quoted, only YAML's own words are shown.
        problem = re.sub(r"(['\"])(?![<\\]).{2,}\1", "'...'", error.problem or "no YAML")
        raise ValueError(f"{_place(path, error.problem_mark)}: {problem}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())}") from None
    return content, [f"{_place(path, mark)}: {problem}" for mark, problem in loader.twice]


def _place(path: Path, mark: yaml.Mark | None) -> str:
    return f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)


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
            content = self._read(self._path)
        except ValueError as error:
            raise ConfigErrors([str(error)]) from None
        if content is None:
            content = {}
        known = ["data", "durability", "retention", "users", "listeners", "sink"]
        top = self._mapping(content, "", known)
        if not isinstance(content, dict):
            raise ConfigErrors(self._problems)
        retention = self._mapping(top.get("retention", {}), "retention", ["seconds", "bytes"])
        sink = self._mapping(top.get("sink", {}), "sink", ["lines", "bufferBytes"])
        lines = sink.get("lines")
        if lines is not None:
            self._endpoint(lines, "sink.lines")
        config = Config(
            data=Path(self._value(top, "", "data", Setting("data"))),
            durability=self._durability(top),
            retention=Retention(
                self._value(retention, "retention", "seconds", Setting(86_400, 1, 1 << 32)),
                self._value(retention, "retention", "bytes", Setting(1 << 30, 1 << 20)),
            ),
            accounts=self._users(top.get("users", []), "users"),
            listeners=self._listeners(top.get("listeners")),
            sink_lines=lines,
            sink_buffer=self._value(sink, "sink", "bufferBytes", Setting(8 << 20, 1 << 16)),
            warnings=self._warnings,
        )
        if self._problems:
            raise ConfigErrors(self._problems)
        return config

    def _read(self, path: Path) -> Any:
        content, twice = read_yaml(path)
        self._problems += twice
        if _has_users(content) and path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            self._warnings.append(f"{path} has passwords and others can read it (chmod 600 {path})")
        return content

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
        for key, content in value.items():
            if key not in known:
                place, problem = _join(path, key), "unknown"
                if "password" in known and (content is None or not str(key).isalpha()):
                    # `{name: a, password:word}` has a key that is nobody's business.
                    place, problem = path, "has a key that is unknown"
                self._wrong(place, f"{problem}; known are {', '.join(known)}")
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
        least: Any = setting.least
        most: Any = setting.most
        place = _join(path, key)
        if type(value) is not wanted and not (wanted is float and type(value) is int):
            self._wrong(place, f"must be {_KINDS[wanted]}, not {_kind(value)}")
        elif wanted is str and not value:
            self._wrong(place, "must not be empty")
        elif wanted is str and not value.isprintable():
            self._wrong(place, "must not have characters that cannot be printed")
        elif setting.choices and value not in setting.choices:
            self._wrong(place, f"must be one of {', '.join(setting.choices)}")
        elif least is not None and not value >= least:  # so that a NaN is refused
            self._wrong(place, f"must be at least {least}")
        elif most is not None and value > most:
            self._wrong(place, f"must be at most {most}")
        else:
            return wanted(value)
        return setting.default

    def _endpoint(self, value: Any, path: str) -> None:
        if not isinstance(value, str):
            self._wrong(path, f"must be an endpoint such as tcp:8080, not {_kind(value)}")
            return
        try:
            endpoint = self._parse_endpoint(value)
            if not 0 <= getattr(endpoint, "_port", 0) < 1 << 16:  # Twisted finds out at the start
                raise ValueError("a port is at most 65535")
        except Exception as error:  # each kind of endpoint has its own way to fail
            reason = re.sub(r"^_\w+\(\) ", "", str(error))  # not the name of Twisted's function
            if isinstance(error, LookupError):
                reason = "no such socket was passed"
            self._wrong(path, f"{value!r} is no endpoint: {reason}")

    def _users(self, value: Any, path: str) -> list[Account]:
        accounts = []
        names: set[str] = set()
        for number, item in enumerate(self._list(value, path)):
            place = f"{path}[{number}]"
            user = self._mapping(item, place, ["name", "password", "publisher", "subscriber"])
            if not isinstance(item, dict):
                continue
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
            self._wrong(path, f"must be a mapping, not {_kind(item)}")
            return None
        protocol = item.get("protocol")
        factory = self._protocols.get(protocol) if isinstance(protocol, str) else None
        known = ["protocol", "endpoint", "maxConnections", "users"]
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


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return {dict: "a mapping", list: "a list", **_KINDS}.get(type(value), type(value).__name__)


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _has_users(content: Any) -> bool:
    """Whether it is a file with passwords in it: users of its own, or of a listener."""
    if not isinstance(content, dict):
        return False
    listeners = content.get("listeners")
    stanzas = listeners if isinstance(listeners, list) else []
    return any(isinstance(part, dict) and part.get("users") for part in [content, *stanzas])
