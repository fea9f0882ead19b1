"""The import rule: who may know whom.  It is read from the source, so that nothing need run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

REACTOR = "twisted.internet.reactor"
SHARED = [
    f"protocols.{name}"
    for name in (
        *("asking", "backlog", "base", "conversation", "framing", "names", "outbox", "strangers"),
        "timer",
    )
]
VOCABULARY = ["gateway.interfaces", "gateway.record"]
OURS = ("gateway", "protocols", "mqgateway", "spark")
# What the command line may know of a protocol: its client, and never its server.
OF_A_CLIENT = ("client", "link", "wire", "events")
# What bytes mean, in one module or in several: these know nothing but each other.
OF_A_WIRE = ("wire", "encoding", "events", "reading")


def imports(source: str, path: str) -> Iterator[str]:
    """The full name of everything that a source imports, wherever in it that is written."""
    package = path.split("/")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Name) and node.id == "__import__":
            yield "importlib"


def is_part_of(name: str, modules: list[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def may_import(path: str, name: str) -> bool:
    """Whether the module at a path of the checkout may import that name."""
    top, *_ = name.split(".")
    parts = path.split("/")
    if name in ("importlib", "importlib.import_module"):
        return False  # it would get round everything below
    if is_part_of(name, [REACTOR]):
        return path in ("gateway/tap.py", "mqgateway/__main__.py")
    if parts[0] == "mqgateway":
        protocol = name.split(".")
        is_of_client = len(protocol) > 2 and protocol[2] in OF_A_CLIENT
        if top == "protocols" and is_of_client:
            return True
        known = ["mqgateway", "protocols.names", "protocols.framing", *VOCABULARY]
        return top not in (*OURS, "tests", "bench") or is_part_of(name, known)
    if parts[0] == "gateway":
        return top not in ("mqgateway", "spark", "tests", "bench") and (
            top != "protocols" or path == "gateway/tap.py"
        )
    if parts[0] == "spark":
        return top not in ("protocols", "mqgateway", "tests", "bench") and (
            top != "gateway" or is_part_of(name, ["gateway.record"])
        )
    if parts[0] == "protocols":
        if top in sys.stdlib_module_names:
            return True
        if parts[-1].removesuffix(".py") in OF_A_WIRE:
            own = [f"protocols.{parts[1]}.{module}" for module in OF_A_WIRE]
            return is_part_of(name, ["msgspec", "protocols.framing", *own])
        if len(parts) == 2:  # the shared modules themselves
            return is_part_of(name, [*SHARED, *VOCABULARY, "twisted", "zope.interface"])
        own = f"protocols.{parts[1]}"
        if path == "protocols/qlite/proof.py" and top == "bcrypt":
            return True
        return is_part_of(name, [own, *SHARED, *VOCABULARY, "twisted"])
    return top not in OURS  # the plugin names modules as text; twistd reads it at every start


def offences(source: str, path: str) -> list[str]:
    return [name for name in imports(source, path) if not may_import(path, name)]


def modules() -> list[Path]:
    found = [path for top in (*OURS, "twisted") for path in (ROOT / top).rglob("*.py")]
    return [path.relative_to(ROOT) for path in sorted(found)]


@pytest.mark.parametrize("module", modules(), ids=str)
def test_a_module_imports_only_what_it_may_know(module: Path) -> None:
    """Every module that is installed keeps the import rule."""
    assert offences((ROOT / module).read_text(), str(module)) == []


def test_all_modules_are_looked_at() -> None:
    """The test above sees the five kinds of module that the rule is about."""
    seen = {str(module) for module in modules()}
    assert seen >= {
        "protocols/qlite/wire.py",
        "protocols/qlite/server.py",
        "protocols/base.py",
        "gateway/tap.py",
        "spark/__init__.py",
        "twisted/plugins/mqgateway_plugin.py",
    }


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("protocols/qlite/wire.py", "import twisted"),
        ("protocols/qlite/wire.py", "from twisted.python import log"),
        ("protocols/qlite/wire.py", "from gateway.interfaces import Message"),
        ("protocols/qlite/wire.py", "from protocols import framing, base"),
        ("protocols/qlite/wire.py", "from .server import QliteServer"),
        ("protocols/mqserver/encoding.py", "from protocols.mqserver import server"),
        ("protocols/mqserver/events.py", "from gateway.interfaces import Message"),
        ("protocols/qlite/server.py", "from twisted.internet import defer, reactor"),
        ("protocols/qlite/server.py", "import twisted.internet.reactor as r"),
        ("protocols/qlite/server.py", "def f():\n    from twisted.internet import reactor"),
        ("protocols/qlite/server.py", "if 0:\n    from protocols.rq import wire"),
        ("protocols/qlite/server.py", "from ..rq import wire"),
        ("protocols/qlite/server.py", "from .. import rq"),
        ("protocols/qlite/server.py", "import protocols.rq.wire"),
        ("protocols/qlite/server.py", "from gateway import broker"),
        ("protocols/qlite/server.py", "from gateway.broker import Broker"),
        ("protocols/qlite/server.py", "import gateway"),
        ("protocols/qlite/server.py", "import bcrypt"),
        ("protocols/qlite/server.py", "from importlib import import_module"),
        ("protocols/qlite/server.py", "__import__('protocols.rq')"),
        ("protocols/rq/proof.py", "import bcrypt"),
        ("protocols/base.py", "from protocols.qlite import wire"),
        ("protocols/base.py", "from protocols import *"),
        ("gateway/broker.py", "from protocols.framing import WireError"),
        ("gateway/service.py", "def f():\n    from twisted.internet import reactor"),
        ("gateway/web/page.py", "import protocols"),
        ("gateway/tap.py", "from mqgateway import options"),
        ("protocols/base.py", "from mqgateway.speakers import base"),
        ("mqgateway/commands.py", "from twisted.internet import reactor"),
        ("mqgateway/commands.py", "from protocols.rq.server import RqFactory"),
        ("mqgateway/commands.py", "from protocols.rq import server"),
        ("mqgateway/commands.py", "from gateway.broker import Broker"),
        ("mqgateway/commands.py", "from tests import support"),
        ("spark/source.py", "from gateway import record, store"),
        ("spark/source.py", "from gateway.broker import Broker"),
        ("spark/source.py", "from protocols.base import WireFactory"),
        ("twisted/plugins/mqgateway_plugin.py", "from gateway import tap"),
    ],
)
def test_the_check_finds_an_import_that_is_not_allowed(path: str, source: str) -> None:
    """Each of these lines breaks the rule, and is found."""
    assert offences(source, path) != []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("protocols/qlite/wire.py", "import re, struct\nfrom msgspec import Struct"),
        ("protocols/qlite/wire.py", "from protocols.framing import WireError"),
        ("protocols/mqserver/wire.py", "from protocols.mqserver import encoding, events"),
        ("protocols/mqserver/events.py", "from msgspec import Struct"),
        ("protocols/qlite/wire.py", "from protocols import framing"),
        ("protocols/rq/server.py", "from protocols.rq import wire\nfrom . import client"),
        ("protocols/rq/server.py", "from protocols.base import WireFactory"),
        ("protocols/rq/server.py", "from gateway.interfaces import Message"),
        ("protocols/rq/client.py", "from twisted.internet.defer import Deferred"),
        ("protocols/qlite/proof.py", "import bcrypt"),
        ("gateway/tap.py", "from protocols.qlite.server import QliteFactory"),
        ("gateway/tap.py", "def f():\n    from twisted.internet import reactor"),
        ("mqgateway/__main__.py", "def f():\n    from twisted.internet import reactor"),
        ("mqgateway/commands.py", "from protocols.rq.client import Node"),
        ("mqgateway/commands.py", "from gateway.record import ACCEPTED"),
        ("spark/source.py", "from gateway.record import Record\nfrom gateway import record"),
    ],
)
def test_the_check_lets_through_what_is_allowed(path: str, source: str) -> None:
    """None of these lines breaks the rule."""
    assert offences(source, path) == []
