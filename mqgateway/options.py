"""The command line: what may be said on it, and what each word means."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from mqgateway.speakers.base import Access
from mqgateway.speakers.table import SPEAKERS

PASSWORD = "MQGATEWAY_PASSWORD"  # noqa: S105  the variable's name
SINK_PORT = 7000  # of etc/mqgateway.yaml

DESCRIPTION = "Send, receive and watch messages of a running mqgateway, in any of its protocols."
EXAMPLES = """\
examples:
  export MQGATEWAY_PASSWORD="$(cat secret)"
  mqgateway send --protocol qlite --user pub "first job" "second job"
  mqgateway recv --protocol rq --name qlite --count 2       # the same queue, in another protocol
  ls | mqgateway send --protocol sk2mq --name listing       # a message a line
  mqgateway recv --protocol sk2mq --name listing --wait 2 --json
  mqgateway tail --event accepted --address 'queue:*'

exit codes:
  0 done   1 refused or failed, with the reason   2 usage   3 nothing came in time   130 Ctrl-C
"""
NAMES = "\n".join(
    f"  {name:9}at tcp:127.0.0.1:{speaker.port:<6}"
    + ("a name is " + speaker.names if speaker.names else "no names: its listener has one place")
    + (", wants a user" if speaker.asks_who else "")
    for name, speaker in SPEAKERS.items()
)


class Parser(argparse.ArgumentParser):
    """argparse, which already ends with 2 for a mistake."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)  # an abbreviation today is ambiguous tomorrow
        super().__init__(*arguments, **options)


def parser() -> Parser:
    top = Parser(prog="mqgateway", description=DESCRIPTION, epilog=EXAMPLES)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_send(commands)
    _add_recv(commands)
    _add_tail(commands)
    return top


def _add_send(commands: Any) -> None:
    send = commands.add_parser(
        "send",
        help="send messages, and say what was acknowledged",
        description="Send messages, and say of each how it was acknowledged.",
        epilog=f"protocols:\n{NAMES}",
    )
    _add_connection(send)
    send.add_argument("body", nargs="*", help="a message each; none: standard input")
    send.add_argument("--file", type=Path, metavar="PATH", help="read messages from this file")
    send.add_argument("--whole", action="store_true", help="the input is one message, not a line")
    send.add_argument("--quiet", action="store_true", help="say nothing of what went well")
    send.add_argument("--json", action="store_true", help="say it in JSON, an object a line")


def _add_recv(commands: Any) -> None:
    recv = commands.add_parser(
        "recv",
        help="print the messages that come",
        description="Print the messages that come.  What is taken from a queue is gone from it.",
        epilog=f"protocols:\n{NAMES}",
    )
    _add_connection(recv)
    _add_limits(recv, "messages")
    recv.add_argument("--senders", action="store_true", help="print who sent it, and a tab, first")
    recv.add_argument(
        "--json",
        action="store_true",
        help="print objects: body, or body_base64 if it is not UTF-8, sender, size",
    )


def _add_tail(commands: Any) -> None:
    tail = commands.add_parser(
        "tail",
        help="follow what happens in the gateway",
        description="Follow the gateway's line sink: every event, as it becomes safe.",
    )
    tail.add_argument("--at", metavar="ENDPOINT", default=f"tcp:127.0.0.1:{SINK_PORT}")
    _add_limits(tail, "events")
    for what, example in [
        ("event", "accepted"),
        ("protocol", "rq"),
        ("address", "queue:jobs or 'queue:*'"),
    ]:
        tail.add_argument(
            f"--{what}",
            action="append",
            metavar="PATTERN",
            help=f"only this one, such as {example}; may be said again",
        )
    tail.add_argument("--json", action="store_true", help="print the sink's own lines")


def _add_connection(command: Any) -> None:
    command.add_argument("--protocol", required=True, choices=SPEAKERS)
    command.add_argument("--at", metavar="ENDPOINT", help="such as tcp:127.0.0.1:8080")
    command.add_argument("--name", default="", help="of the queue or topic, see below")
    command.add_argument("--user", default="", help="for a protocol that has logins")
    command.add_argument(
        "--password-file", type=Path, metavar="PATH", help=f"else ${PASSWORD} has the password"
    )
    command.add_argument(
        "--as",
        dest="role",
        choices=["master", "client"],
        help="awcs only; who sends is a client and who receives is master, if nothing is said",
    )


def _add_limits(command: Any, what: str) -> None:
    command.add_argument("--count", type=_count, metavar="N", help=f"end after so many {what}")
    command.add_argument(
        "--wait", type=_positive, metavar="SECONDS", help="end when nothing has come for so long"
    )


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("must be a number above 0")
    return number


def parse(arguments: list[str]) -> argparse.Namespace:
    """What was asked; SystemExit after --help or a mistake."""
    top = parser()
    options = top.parse_args(arguments)
    if options.command in ("send", "recv"):
        speaker = SPEAKERS[options.protocol]
        options.at = options.at or f"tcp:127.0.0.1:{speaker.port}"
        if speaker.names and not options.name:
            top.error(f"{options.protocol} wants a --name: {speaker.names}")
        if options.role and options.protocol != "awcs":
            top.error("--as is for awcs only")
        options.access = _access(top, options) if speaker.asks_who else Access()
    if options.command == "send" and options.body and options.file:
        top.error("messages come from the command line or from a --file, not both")
    return options


def _access(top: Parser, options: argparse.Namespace) -> Access:
    password = os.environ.get(PASSWORD)
    if options.password_file is not None:
        try:
            password = options.password_file.read_text().removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not text"
            top.error(f"--password-file {options.password_file}: {reason}")
    if not options.user or password is None:
        top.error(f"{options.protocol} wants a --user, and --password-file or ${PASSWORD}")
    return Access(options.user, password)
