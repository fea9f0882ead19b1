"""What crosses from each protocol to each other, as data: tests and docs/matrix.md are made of it.

`python -m tests.crossing > docs/matrix.md` writes the page.
"""

from __future__ import annotations

from typing import NamedTuple

PROTOCOLS = ("qlite", "rq", "mqserver", "sk2mq", "awcs")
TITLES = {"qlite": "qlite", "rq": "RQ", "mqserver": "MQServer", "sk2mq": "sk2mq", "awcs": "aWCS"}
WAITING = ("queue", "user")  # kinds where a message waits for one consumer

# What a message of a publisher has that no other protocol knows of.
ONLY_SENT: dict[str, str] = {
    "qlite": "the position in the queue, which is only the publisher's",
    "rq": "the reply, retries and priority: it is sent with NOREPLY",
    "mqserver": "flags: REQUIREACKPROCESS has no meaning elsewhere",
    "sk2mq": "",
    "awcs": "the client's number, as a number",
}
# What a consumer's protocol cannot show.
NOT_SHOWN: dict[str, str] = {
    "qlite": "the sender; the due time (what is over is gone before it is popped)",
    "rq": "the sender; the due time",
    "mqserver": "the due time",
    "sk2mq": "",
    "awcs": "the sender; the due time; a body with a NUL, which ends a text, is not told",
}
SENDERS = {
    "qlite": "its user",
    "rq": "nobody: RQ has no names for nodes",
    "mqserver": "its user",
    "sk2mq": "the name that it was given",
    "awcs": "`master` or the client's number",
}
SHOWS_SENDER = ("mqserver", "sk2mq")
SENDS_EMPTY = ("mqserver", "sk2mq", "awcs")  # qlite and RQ refuse an empty message
TAKES_EMPTY = ("qlite", "mqserver", "sk2mq", "awcs")


class Crossing(NamedTuple):
    """One publisher and one consumer, and where they meet."""

    publisher: str
    consumer: str
    source: str  # the kind of address that the publisher sends to
    target: str  # and the one that the consumer reads
    keeps: bool  # what was accepted waits for the consumer, also over a restart of the gateway
    remark: str = ""

    @property
    def name(self) -> str:
        """Of its addresses in the tests; and the name of the test."""
        return f"{self.publisher}-{self.consumer}"

    @property
    def is_direct(self) -> bool:
        return self.source == self.target

    @property
    def route(self) -> dict[str, str | bool] | None:
        """What the configuration must have so that they meet."""
        if self.is_direct:
            return None
        ends: dict[str, str | bool] = {
            "from": f"{self.source}:{self.name}",
            "to": f"{self.target}:{self.name}",
        }
        return {**ends, "move": True} if self.source in WAITING else ends

    @property
    def carries_nul(self) -> bool:
        return "awcs" not in (self.publisher, self.consumer)

    @property
    def carries_empty(self) -> bool:
        return self.publisher in SENDS_EMPTY and self.consumer in TAKES_EMPTY

    @property
    def lost(self) -> str:
        if self.publisher == self.consumer:
            parts = [self.remark]
        else:
            shown = NOT_SHOWN[self.consumer]
            if self.publisher != "sk2mq":  # the only one that says when a message is due
                shown = "; ".join(part for part in shown.split("; ") if "due" not in part)
            parts = [ONLY_SENT[self.publisher], shown, self.remark]
        return "; ".join(part for part in parts if part) or "nothing"


LIVE = "who is not there when it is said does not hear it"

CROSSINGS = [
    Crossing("qlite", "qlite", "queue", "queue", True),
    Crossing("qlite", "rq", "queue", "queue", True),
    Crossing("qlite", "mqserver", "queue", "queue", True),
    Crossing("qlite", "sk2mq", "queue", "topic", False, LIVE),
    Crossing("qlite", "awcs", "queue", "hub", False, LIVE),
    Crossing("rq", "qlite", "queue", "queue", True),
    Crossing("rq", "rq", "queue", "queue", True),
    Crossing("rq", "mqserver", "queue", "queue", True),
    Crossing("rq", "sk2mq", "topic", "topic", False, f"BROADCAST is not answered; {LIVE}"),
    Crossing("rq", "awcs", "queue", "hub", False, LIVE),
    Crossing("mqserver", "qlite", "queue", "queue", True),
    Crossing("mqserver", "rq", "queue", "queue", True),
    Crossing("mqserver", "mqserver", "queue", "queue", True),
    Crossing("mqserver", "sk2mq", "topic", "topic", False, f"without STORE, {LIVE}"),
    Crossing("mqserver", "awcs", "queue", "hub", False, LIVE),
    Crossing("sk2mq", "qlite", "topic", "queue", True),
    Crossing("sk2mq", "rq", "topic", "topic", False, f"it comes as a BROADCAST; {LIVE}"),
    Crossing("sk2mq", "mqserver", "topic", "topic", True),
    Crossing("sk2mq", "sk2mq", "topic", "topic", True),
    Crossing("sk2mq", "awcs", "topic", "hub", False, LIVE),
    Crossing("awcs", "qlite", "hub", "queue", True),
    Crossing("awcs", "rq", "hub", "queue", True),
    Crossing("awcs", "mqserver", "hub", "queue", True),
    Crossing("awcs", "sk2mq", "hub", "topic", False, LIVE),
    Crossing("awcs", "awcs", "hub", "hub", False, LIVE),
]

HEAD = """\
# What crosses from one protocol to another

Every pair is a test of the same name in `tests/integration/test_crossing.py`, with real clients
and a real gateway; this page is made of the same table (`python -m tests.crossing >
docs/matrix.md`).

Two protocols with a common kind of address meet by its name: what qlite pushes to `queue:jobs`,
an RQ node consumes from its queue `jobs`. The others meet by a route of the configuration, here
for the name `jobs`. For all pairs:

- The body comes as it was sent, every byte of it. aWCS cannot carry a NUL, which ends its texts:
  its clients refuse to send one, and a message that has one is not told in a room. qlite and RQ
  refuse empty messages, and a message that came empty to an RQ queue is not handed to its
  consumers.
- The order is kept.
- The log, and so Spark, knows the publisher's protocol, and the sender if its protocol has one,
  on both sides of a route. MQServer and sk2mq show the sender to their consumers, too.
- Where "kept" is said, what was acknowledged waits for the consumer and is there after a restart.
- That a consumer has it is known to the gateway (`delivered`, `settled`), and never told to a
  publisher of another protocol.
"""


def page() -> str:
    """docs/matrix.md."""
    lines = [HEAD, "## The way", "", _row("from \\ to", *(TITLES[name] for name in PROTOCOLS))]
    lines.append(_row(*["---"] * (len(PROTOCOLS) + 1)))
    for publisher in PROTOCOLS:
        cells = [_way(find(publisher, consumer)) for consumer in PROTOCOLS]
        lines.append(_row(f"**{TITLES[publisher]}**", *cells))
    lines += ["", "## The sender", "", _row("from", "is known as"), _row("---", "---")]
    lines += [_row(TITLES[name], SENDERS[name]) for name in PROTOCOLS]
    lines += ["", "## What is lost, and the route", ""]
    lines += [_row("from", "to", "route", "lost"), _row("---", "---", "---", "---")]
    for crossing in CROSSINGS:
        names = TITLES[crossing.publisher], TITLES[crossing.consumer]
        lines.append(_row(*names, _route(crossing), crossing.lost))
    return "\n".join(lines) + "\n"


def find(publisher: str, consumer: str) -> Crossing:
    (found,) = [each for each in CROSSINGS if each[:2] == (publisher, consumer)]
    return found


def _way(crossing: Crossing) -> str:
    way = crossing.source if crossing.is_direct else f"{crossing.source} → {crossing.target}"
    return f"{way}, {'kept' if crossing.keeps else 'live'}"


def _route(crossing: Crossing) -> str:
    if crossing.route is None:
        return ""
    move = ", move: true" if "move" in crossing.route else ""
    return f"`{{from: {crossing.source}:jobs, to: {crossing.target}:jobs{move}}}`"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print(page(), end="")
