"""Checking what a YAML file says: every mistake with its place, and no secret in any message."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from gateway.interfaces import Setting
from gateway.routes import KINDS


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


class Checks:
    """Looks at parts of a file and collects problems, instead of stopping at the first."""

    def __init__(self, path: Path, parse_endpoint: Callable[[str], object]) -> None:
        self._path = path
        self._parse_endpoint = parse_endpoint
        self._problems: list[str] = []
        self._warnings: list[str] = []

    def _wrong(self, path: str, problem: str) -> None:
        self._problems.append(f"{path or self._path}: {problem}")

    def _mapping(self, value: Any, path: str, known: list[str]) -> dict[str, Any]:
        """The value, if it is a mapping of known keys; what is wrong with it is noted."""
        if not isinstance(value, dict):
            self._wrong(path, f"must be a mapping, not {kind_of(value)}")
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
            self._wrong(path, f"must be a list, not {kind_of(value)}")
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
            self._wrong(place, f"must be {_KINDS[wanted]}, not {kind_of(value)}")
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
            self._wrong(path, f"must be an endpoint such as tcp:8080, not {kind_of(value)}")
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

    def _address(self, value: Any, path: str, wild: str = "") -> str:
        """An address, or with the characters of `wild` a pattern for some."""
        kind, colon, name = value.partition(":") if isinstance(value, str) else ("", "", "")
        if not (kind in KINDS and name.isprintable() and name) and not (set(kind) & set(wild)):
            kinds = ", ".join(f"{kind}:name" for kind in KINDS)
            self._wrong(path, f"must be an address: {kinds}")
        return f"{kind}{colon}{name}"


_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def kind_of(value: Any) -> str:
    if value is None:
        return "nothing"
    return {dict: "a mapping", list: "a list", **_KINDS}.get(type(value), type(value).__name__)


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)
