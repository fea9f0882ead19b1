"""`twistd mqgateway` without the process: its options, and the service that they make."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from twisted.application.service import IServiceMaker
from twisted.internet.address import IPv4Address
from twisted.internet.error import ReactorNotRunning
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import globalLogPublisher
from twisted.plugin import getPlugins
from twisted.python.usage import UsageError

from gateway.broker import Broker
from gateway.service import CannotStart, Gateway
from gateway.tap import Options, gateway, makeService
from tests.support import ROOT, Wired

SECRET = "hunter2"
LISTENER = {"protocol": "qlite", "endpoint": "tcp:8080:interface=127.0.0.1"}
GOOD = {
    "durability": "memory",
    "users": [{"name": "pub", "password": SECRET, "publisher": True}],
    "listeners": [LISTENER],
}
CLIENT = IPv4Address("TCP", "192.0.2.1", 4000)
GREETING = b"\x1a\x00\x00\x00greetings;"


def write(directory: Path, **changes: Any) -> Path:
    path = directory / "gateway.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **changes}))
    path.chmod(0o600)
    return path


def options(path: Path, *flags: str) -> Options:
    found = Options()
    found.parseOptions(["--config", str(path), *flags])
    return found


def made(path: Path) -> tuple[Gateway, MemoryReactorClock]:
    reactor = MemoryReactorClock()
    return gateway(options(path).loaded, reactor), reactor


def start(root: Gateway) -> None:
    root.privilegedStartService()
    root.startService()


def broker_of(root: Gateway) -> Broker:
    (broker,) = root.services
    assert isinstance(broker, Broker)
    return broker


class TestThePlugin:
    def test_twistd_finds_the_service_and_what_makes_it(self) -> None:
        """The plugin is found by name, and its module has the two names that twistd wants."""
        (maker,) = [each for each in getPlugins(IServiceMaker) if each.tapname == "mqgateway"]
        assert maker.options is Options
        assert maker.makeService is makeService

    def test_the_plugin_shares_twisteds_package(self) -> None:
        """An __init__.py beside the plugin would hide Twisted itself."""
        assert [*(ROOT / "twisted").rglob("__init__.py")] == []


class TestOptions:
    def test_a_right_file_is_loaded(self, tmp_path: Path) -> None:
        assert [each.protocol for each in options(write(tmp_path)).loaded.listeners] == ["qlite"]

    def test_check_config_says_that_the_file_is_right(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """It ends with status 0, and there is nothing but the file."""
        path = write(tmp_path)
        with pytest.raises(SystemExit) as ended:
            options(path, "--check-config")
        assert ended.value.code == 0
        assert capsys.readouterr() == (f"{path} is right\n", "")
        assert [*tmp_path.iterdir()] == [path]

    def test_check_config_tells_warnings_too(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A file that others can read is right all the same."""
        path = write(tmp_path)
        path.chmod(0o644)
        with pytest.raises(SystemExit) as ended:
            options(path, "--check-config")
        assert ended.value.code == 0
        warning, verdict = capsys.readouterr().out.splitlines()
        assert "others can read it" in warning
        assert verdict == f"{path} is right"

    @pytest.mark.parametrize("flags", [[], ["--check-config"]])
    def test_mistakes_end_it_with_one_line_each(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
    ) -> None:
        """They are on stderr, the status is 1, and no password is among them."""
        path = write(tmp_path, data=5, users=[{"name": "a", "password": SECRET}])
        with pytest.raises(SystemExit) as ended:
            options(path, *flags)
        assert ended.value.code == 1
        assert capsys.readouterr() == (
            "",
            "data: must be text, not a whole number\n"
            "users[0]: is neither publisher nor subscriber\n",
        )

    def test_an_unknown_option_is_a_usage_error(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError):
            options(write(tmp_path), "--fast")

    def test_options_do_not_show_a_password(self, tmp_path: Path) -> None:
        found = options(write(tmp_path))
        assert SECRET not in f"{found!r} {vars(found)!r}"


class TestTheService:
    def test_it_listens_where_the_file_says(self, tmp_path: Path) -> None:
        """One port for each listener, and one for the sink."""
        other = {**LISTENER, "endpoint": "tcp:8081", "queue": "b"}
        lines = {"lines": "tcp:7000:interface=127.0.0.1"}
        root, reactor = made(write(tmp_path, listeners=[LISTENER, other], sink=lines))
        assert reactor.tcpServers == []  # to make it starts nothing
        start(root)
        assert [(port, interface) for port, _, _, interface in reactor.tcpServers] == [
            (8080, "127.0.0.1"),
            (8081, ""),
            (7000, "127.0.0.1"),
        ]
        assert broker_of(root).info("queue:qlite").options["limit"] == 100
        assert broker_of(root).info("queue:b").options["limit"] == 100

    def test_without_a_sink_nothing_listens_for_it(self, tmp_path: Path) -> None:
        root, reactor = made(write(tmp_path))
        start(root)
        assert len(reactor.tcpServers) == 1

    def test_memory_leaves_nothing_on_disk(self, tmp_path: Path) -> None:
        """With `durability: memory` the data directory is not even made."""
        path = write(tmp_path, data=str(tmp_path / "data"))
        start(made(path)[0])
        assert [*tmp_path.iterdir()] == [path]

    def test_it_greets(self, tmp_path: Path) -> None:
        root, reactor = made(write(tmp_path))
        start(root)
        client = Wired(reactor.tcpServers[0][1].buildProtocol(CLIENT))
        assert client.hears().startswith(GREETING)

    def test_a_listener_has_its_own_users_or_everybodys(self, tmp_path: Path) -> None:
        """A listener with `users` knows only them; another knows those of the file."""
        own = [{"name": "own", "password": SECRET, "subscriber": True}]
        listeners = [LISTENER, {**LISTENER, "users": own}]
        root, reactor = made(write(tmp_path, listeners=listeners))
        start(root)
        first, second = (each[1].wrappedFactory.accounts for each in reactor.tcpServers)
        assert first.find("pub").publisher
        assert first.find("own") is None
        assert second.find("own").subscriber
        assert second.find("pub") is None

    def test_ports_that_cannot_be_had_are_told_all_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A certificate that has gone since the check is told like a taken port."""
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)
        listeners = [{**LISTENER, "queue": name} for name in "abc"]
        path = write(tmp_path, listeners=listeners, sink={"lines": "tcp:7000"})
        config = options(path).loaded
        gone = [each._replace(endpoint="ssl:1:privateKey=/gone") for each in config.listeners[1:]]
        config = config._replace(listeners=[config.listeners[0], *gone])
        with pytest.raises(CannotStart) as refused:
            gateway(config, MemoryReactorClock()).privilegedStartService()
        one, two = str(refused.value).split("; ")
        assert one.startswith("listeners[1].endpoint: [Errno 2] No such file")
        assert two.startswith("listeners[2].endpoint: [Errno 2] No such file")

    def test_it_warns_in_the_log(self, tmp_path: Path) -> None:
        """What --check-config warns of is in the log of a gateway that is started."""
        path = write(tmp_path)
        path.chmod(0o644)
        events: list[Any] = []
        globalLogPublisher.addObserver(events.append)
        try:
            start(made(path)[0])
        finally:
            globalLogPublisher.removeObserver(events.append)
        warnings = [event["warning"] for event in events if "warning" in event]
        assert len(warnings) == 1
        assert "others can read it" in warnings[0]
        assert SECRET not in repr(events)

    def test_it_stops_its_ports_then_its_broker(self, tmp_path: Path) -> None:
        """The end of the service is an orderly one, whatever signal asked for it."""
        root, reactor = made(write(tmp_path))
        start(root)
        reactor._exitSignal = 15
        ended: list[Any] = []
        root.stopService().addBoth(ended.append)
        assert ended == [None]
        assert not broker_of(root).running
        assert reactor._exitSignal is None

    def test_a_fatal_failure_stops_the_reactor_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A disk that breaks while the gateway is ending is no new reason to end."""
        at_exit: list[Any] = []
        monkeypatch.setattr(atexit, "register", at_exit.append)
        root, reactor = made(write(tmp_path))

        def not_running() -> None:
            raise ReactorNotRunning

        reactor.stop()
        monkeypatch.setattr(reactor, "stop", not_running)
        root.fail("the disk is gone")
        assert len(at_exit) == 1


class TestMaxConnections:
    def test_one_too_many_is_closed_and_counted(self, tmp_path: Path) -> None:
        """It hears no greeting; when one of the others has left, the next is served."""
        root, reactor = made(write(tmp_path, listeners=[{**LISTENER, "maxConnections": 2}]))
        start(root)
        factory = reactor.tcpServers[0][1]
        first, second = (Wired(factory.buildProtocol(CLIENT)) for _ in range(2))
        third = Wired(factory.buildProtocol(CLIENT))
        assert first.hears().startswith(GREETING)
        assert second.hears().startswith(GREETING)
        assert third.hears() == b""
        assert third.transport.is_closed
        assert broker_of(root).counts["refused", "qlite", "too many connections"] == 1
        first.hangs_up()
        fourth, fifth = (Wired(factory.buildProtocol(CLIENT)) for _ in range(2))
        assert fourth.hears().startswith(GREETING)
        assert fifth.transport.is_closed
        assert broker_of(root).counts["refused", "qlite", "too many connections"] == 2

    def test_listeners_do_not_share_their_places(self, tmp_path: Path) -> None:
        """A full listener leaves the other's places alone."""
        listeners = [{**LISTENER, "maxConnections": 1, "queue": name} for name in "ab"]
        root, reactor = made(write(tmp_path, listeners=listeners))
        start(root)
        for server in reactor.tcpServers:
            assert Wired(server[1].buildProtocol(CLIENT)).hears().startswith(GREETING)
