"""Where the demo's gateway listens, read from its own configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from twisted.internet.endpoints import TCP4ClientEndpoint

TCP = re.compile(r"tcp:(?P<port>\d+)(:interface=(?P<host>[\d.]+))?")


class BadPlaces(Exception):
    """The configuration is none that the demo can use; the text says why."""


class Places:
    """The listeners of a configuration, by their protocols, and its passwords."""

    def __init__(self, config: Path) -> None:
        try:
            content = yaml.safe_load(config.read_text())
            listeners = {each["protocol"]: each["endpoint"] for each in content["listeners"]}
            users = {each["name"]: each["password"] for each in content["users"]}
            web = content["web"]["endpoint"]
        except OSError as error:
            raise BadPlaces(f"{config}: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise BadPlaces(f"{config} has not the listeners, users and web of a demo") from error
        self.passwords: dict[str, str] = users
        self._listeners = {name: _address(endpoint) for name, endpoint in listeners.items()}
        host, port = _address(web)
        self.dashboard = f"http://{host}:{port}/"

    @property
    def protocols(self) -> list[str]:
        return [*self._listeners]

    def endpoint(self, reactor: Any, protocol: str) -> TCP4ClientEndpoint:
        """For a client of that protocol."""
        return TCP4ClientEndpoint(reactor, *self._listeners[protocol])


def _address(endpoint: str) -> tuple[str, int]:
    found = TCP.fullmatch(endpoint)
    if found is None:
        raise BadPlaces(f"the demo's clients need tcp:PORT:interface=ADDRESS, not {endpoint}")
    return found["host"] or "127.0.0.1", int(found["port"])
