"""The bare responder, a process: `python -m bench.bare --protocol qlite --reactor uvloop --port N`.

It is what Twisted can do on this machine when there is no broker: the ceiling for the gateway.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from twisted.application.reactors import installReactor
from twisted.internet.protocol import Factory


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bare")
    parser.add_argument("--protocol", required=True, help="whose Responder: a module of bench")
    parser.add_argument("--reactor", default="uvloop")
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    reactor: Any = installReactor(options.reactor)
    factory = Factory.forProtocol(import_module(f"bench.{options.protocol}").Responder)
    factory.noisy = False
    reactor.listenTCP(options.port, factory, interface="127.0.0.1")
    reactor.run()


if __name__ == "__main__":
    main()
