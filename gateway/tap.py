"""`twistd mqgateway`: its options, and the service that they make."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.endpoints import serverFromString
from twisted.python import usage

from gateway.accounts import PasswordAccounts
from gateway.broker import Broker
from gateway.config import Config, ConfigErrors, load
from gateway.interfaces import Run
from gateway.journal import Journal, at_once
from gateway.memory import MemoryStore
from gateway.replay import MOST_READERS, ReplaySink
from gateway.service import Gateway, Port, Threads
from gateway.sink import LineSink
from gateway.store import SqliteStore, Store
from gateway.supervisor import Supervisor, command, no_spark
from gateway.web.board import Board
from gateway.web.pulse import Pulse
from gateway.web.site import MOST_CONNECTIONS, WebServer
from gateway.web.token import Token
from protocols.awcs.server import AwcsFactory
from protocols.mqserver.server import MqServerFactory
from protocols.qlite.server import QliteFactory
from protocols.rq.server import RqFactory
from protocols.sk2mq.server import Sk2mqFactory

PROTOCOLS = {
    "qlite": QliteFactory,
    "sk2mq": Sk2mqFactory,
    "awcs": AwcsFactory,
    "rq": RqFactory,
    "mqserver": MqServerFactory,
}

PASSWORD_THREADS = 2  # each check takes a tenth of a second of a core


class Options(usage.Options):
    """What stands behind `mqgateway` on the command line."""

    optParameters = [["config", "c", "etc/mqgateway.yaml", "The configuration."]]
    optFlags = [["check-config", None, "Only check the configuration; say what is wrong with it."]]
    longdesc = "A durable gateway for five message-queue protocols."

    def postOptions(self) -> None:
        from twisted.internet import reactor

        try:
            self.loaded = load(
                Path(self["config"]), PROTOCOLS, lambda text: serverFromString(reactor, text)
            )
        except ConfigErrors as errors:
            print("\n".join(errors.problems), file=sys.stderr)
            raise SystemExit(1) from None
        if self["check-config"]:
            print("\n".join([*self.loaded.warnings, f"{self['config']} is right"]))
            raise SystemExit(0)


def makeService(options: Options) -> MultiService:
    """The whole gateway, as `twistd` runs it."""
    from twisted.internet import reactor

    # Messages and events cannot be part of a cycle, and are not tracked; what is tracked seldom is.
    # Without any collecting, pushes on 8 connections were a tenth faster; this comes near that.
    gc.set_threshold(20_000, 20, 20)
    return gateway(options.loaded, reactor)


def gateway(config: Config, reactor: Any) -> Gateway:
    """The whole gateway, for a reactor."""
    root = Gateway(reactor)
    writer, hashers, readers = (
        Threads(reactor, 1, "journal"),
        Threads(reactor, PASSWORD_THREADS, "passwords"),
        Threads(reactor, 1, "replay"),
    )
    root.add_threads(writer, hashers, readers)
    store: Store
    read: Run = readers.run
    if config.durability == "memory":
        store, read = MemoryStore(), at_once
        journal = Journal(reactor, store, at_once)
    else:
        store = SqliteStore(config.data, config.durability.upper(), config.retention)
        journal = Journal(reactor, store, writer.run)
    journal.on_fatal = root.fail
    broker = Broker(reactor, journal)
    broker.set_routes(config.routes)
    broker.setServiceParent(root)  # first in: it runs before anybody can connect
    for listener in config.listeners:
        accounts = config.accounts if listener.accounts is None else listener.accounts
        factory = PROTOCOLS[listener.protocol](
            broker,
            PasswordAccounts(accounts, hashers.run, listener.guest),
            reactor,
            **listener.settings,
        )
        root.add_port(
            Port(f"{listener.path}.endpoint", listener.protocol, listener.endpoint, factory),
            broker,
            listener.max_connections,
        )
    if config.sink_lines is not None:
        sink = LineSink(broker, config.sink_buffer)
        root.add_port(Port("sink.lines", "the line sink", config.sink_lines, sink), broker)
    if config.sink_replay is not None:
        replay = ReplaySink(reactor, broker, journal, read, config.sink_token)
        port = Port("sink.replay", "the replay sink", config.sink_replay, replay)
        root.add_port(port, broker, MOST_READERS)
    if config.web is not None:
        add_web(root, reactor, config, broker, journal, hashers.run)
    root.warnings = config.warnings
    return root


def add_web(
    root: Gateway, reactor: Any, config: Config, broker: Broker, journal: Journal, run: Run
) -> None:
    """The dashboard, and Spark beside the gateway to feed it."""
    web, spark = config.web, config.spark
    assert web is not None
    token = Token(web.token, None if config.durability == "memory" else config.data / "token")
    spark_state = no_spark
    if spark is not None:

        def line() -> list[str]:
            places = [root.where(path) or "" for path in ("sink.replay", "web.endpoint")]
            return command(spark, *places)

        def secrets() -> dict[str, str]:
            sink = config.sink_token
            known = {"MQGATEWAY_TOKEN": token.reveal()}
            return (
                known if sink is None else {**known, "MQGATEWAY_SINK_TOKEN": sink.reveal().decode()}
            )

        supervisor = Supervisor(reactor, line, secrets)
        supervisor.setServiceParent(root)
        spark_state = supervisor.state
    pulse = Pulse(reactor, broker, journal, root.connections)
    board = Board(reactor, pulse, broker.count, spark_state)
    server = WebServer(
        reactor, board, token, run, lambda: f"http://{root.where('web.endpoint') or web.endpoint}/"
    )
    port = Port("web.endpoint", "the dashboard", web.endpoint, server)
    root.add_port(port, broker, MOST_CONNECTIONS)
