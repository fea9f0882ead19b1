"""A config.yaml of the original qlite server, read as a part of a listener's stanza."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gateway.interfaces import Setting

DEFAULT_PORT = 8080
PORTS = range(1024, 49152)

NUMBERS = (
    "maxSubscriberConnections",
    "maxPublisherConnections",
    "maxMessages",
    # Of later generations:
    "maxMessageSize",
    "maxIoTimeSeconds",
    "maxPollingTimeSeconds",
    "maxHiddenTimeSeconds",
)
IGNORED = ("address", "verbose")  # as the original did, or for its log only
KNOWN = ("users", "port", *NUMBERS, *IGNORED)
USER = ("name", "password", "publisher", "subscriber")

_NAME = re.compile("[A-Za-z0-9]{1,12}")


def read_stanza(
    stanza: dict[str, Any], read: Callable[[str], Any], settings: Mapping[str, Setting]
) -> dict[str, Any]:
    """The stanza and, where it says nothing itself, what the file says that its `config` names.

    ValueError, its arguments being everything that is wrong with the file.
    """
    if "config" not in stanza:
        return stanza
    name = stanza["config"]
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError("must be the path of a qlite server's config.yaml")
    content = read(name)
    if content is None:
        content = {}
    if not isinstance(content, dict):
        raise ValueError(f"{name}: must be a mapping")
    problems = [*_problems(content, settings)]
    if "users" in content or "users" not in stanza:
        problems += _users_problems(content.get("users"))
    if problems:
        raise ValueError(*[f"{name}: {problem}" for problem in problems])
    found = {key: content[key] for key in ("users", *NUMBERS) if content.get(key)}  # 0: the default
    found["endpoint"] = f"tcp:{content.get('port') or DEFAULT_PORT}"
    return found | {key: value for key, value in stanza.items() if key != "config"}


def _problems(content: dict[Any, Any], settings: Mapping[str, Setting]) -> Iterator[str]:
    for key in content:
        if key not in KNOWN:
            yield f"{key}: unknown; known are {', '.join(KNOWN)}"
    port = content.get("port", 0)
    if type(port) is not int or (port and port not in PORTS):
        yield f"port: must be a whole number from {PORTS[0]} to {PORTS[-1]}"
    for key in NUMBERS:
        yield from _number_problems(key, content.get(key, 0), settings[key])


def _number_problems(key: str, value: Any, setting: Setting) -> Iterator[str]:
    least: Any = setting.least
    most: Any = setting.most
    if type(value) is not int and type(value) is not type(setting.default):
        kind = "a number" if type(setting.default) is float else "a whole number"
        yield f"{key}: must be {kind}"
    elif value != 0 and not least <= value <= most:
        yield f"{key}: must be from {least} to {most}, or 0 for the default"


def _users_problems(users: Any) -> Iterator[str]:
    """In words that show neither a password nor a key, which may be one by mistake."""
    if not isinstance(users, list) or not users:
        yield "users: must be there: a list with at least one user"
        return
    names: set[str] = set()
    for number, user in enumerate(users):
        place = f"users[{number}]"
        if not isinstance(user, dict):
            yield f"{place}: must be a mapping"
            continue
        if not user.keys() <= {*USER}:
            yield f"{place}: has a key that is unknown; known are {', '.join(USER)}"
        name, password = user.get("name"), user.get("password")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield f"{place}.name: must be text, 1 to 12 ASCII letters and digits"
        elif name in names:
            yield f"{place}.name: there are two users {name!r}"
        else:
            names.add(name)
        if not isinstance(password, str) or not password:
            yield f"{place}.password: must be text (in quotes if it looks like a number)"
        roles = [user.get(role, False) for role in ("publisher", "subscriber")]
        if any(type(role) is not bool for role in roles):
            yield f"{place}: publisher and subscriber must be true or false"
        elif not any(roles):
            yield f"{place}: is neither publisher nor subscriber"
