"""Golden bytes of qlite: the contract with other people's clients and servers."""

from __future__ import annotations

from protocols.framing import FrameTooLong, WireError
from protocols.qlite.wire import (
    BadLogin,
    BadRequest,
    Delete,
    Fail,
    Greeting,
    Hide,
    Length,
    LongPop,
    Pass,
    Poll,
    PublisherLogin,
    Push,
    ShortPop,
    State,
    SubscriberLogin,
)

S = State

# The captured publisher's login: user `pub`, password `publisher`.
CHALLENGE = bytes.fromhex("cd711bf9e31111f1b0d62acbb5318158")
PROOF = b"$2b$10$2vDhoT68Xp.UG4QUUuQvuOiOmVViGpWpd0FEx2mtRo8xYifCZ8H5q"
UID = bytes.fromhex("cf715009e31111f1bb9e2acbb5318158")

EMPTY = b"cannot pop from empty slice"
TOO_LATE = b"error: no data could be dequeued in the specified time period"


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


FROM_CLIENT = [
    # facts, section 6, publisher
    (
        "login-publisher",
        S.LOGIN,
        bytes.fromhex(
            "41000000 00 707562 3b 24326224313024327644686f54363858702e55473451555575517675"
            "4f694f6d56566947705770643046457832 6d74526f3878596966435a38483571"
        ),
        PublisherLogin(b"pub", PROOF),
    ),
    ("push", S.PUBLISHER, bytes.fromhex("0a000000 505553483b 68656c6c6f"), Push(b"hello")),
    ("push-semicolon", S.PUBLISHER, bytes.fromhex("08000000 505553483b 613b62"), Push(b"a;b")),
    ("len", S.PUBLISHER, bytes.fromhex("04000000 4c454e3b"), Length()),
    ("spop-as-publisher", S.PUBLISHER, bytes.fromhex("05000000 53504f503b"), ShortPop()),
    # facts, section 6, subscriber
    ("login-subscriber", S.LOGIN, frame(b"\x01sub;" + PROOF), SubscriberLogin(b"sub", PROOF)),
    ("spop", S.SUBSCRIBER, bytes.fromhex("05000000 53504f503b"), ShortPop()),
    ("lpop", S.SUBSCRIBER, bytes.fromhex("05000000 4c504f503b"), LongPop()),
    # facts, section 6, HEAD
    ("hide", S.SUBSCRIBER, bytes.fromhex("09000000 484944453b 05000000"), Hide(5)),
    ("del", S.SUBSCRIBER, bytes.fromhex("14000000 44454c3b") + UID, Delete(UID)),
    # facts, section 1
    ("poll", S.SUBSCRIBER, frame(b"POLL;\xff\0\0\0"), Poll(255)),
    ("any-payload", S.PUBLISHER, frame(b"PUSH;\0;\xff\r\n;"), Push(b"\0;\xff\r\n;")),
    ("empty-payload", S.PUBLISHER, frame(b"PUSH;"), Push(b"")),
    ("lower-case", S.PUBLISHER, frame(b"push;x"), Push(b"x")),
    ("long-s", S.SUBSCRIBER, frame("\u017fpop;".encode()), ShortPop()),
    ("spop-with-argument", S.SUBSCRIBER, frame(b"SPOP;ignored"), ShortPop()),
    ("hide-with-more", S.SUBSCRIBER, frame(b"HIDE;\x05\0\0\0rest"), Hide(5)),
    ("push-as-subscriber", S.SUBSCRIBER, frame(b"PUSH;x"), Push(b"x")),
    ("empty-name", S.LOGIN, frame(b"\x00;" + PROOF), PublisherLogin(b"", PROOF)),
]

FROM_SERVER = [
    # facts, section 6
    (
        "greeting",
        S.GREETING,
        bytes.fromhex("1a000000 6772656574696e67733b") + CHALLENGE,
        Greeting(CHALLENGE),
    ),
    ("accepted", S.PUBLISHER_LOGIN, bytes.fromhex("05000000 504153533b"), Pass()),
    ("position", S.PUBLISHER, bytes.fromhex("09000000 504153533b 01000000"), Pass(b"\1\0\0\0")),
    ("message", S.SUBSCRIBER, bytes.fromhex("0a000000 504153533b 68656c6c6f"), Pass(b"hello")),
    (
        "not-for-publishers",
        S.PUBLISHER,
        bytes.fromhex(
            "29000000 4641494c3b 7075626c6973686572732063616e6e6f7420706f702066726f6d20746865207175"
            "657565"
        ),
        Fail("publishers cannot pop from the queue"),
    ),
    ("empty", S.SUBSCRIBER, bytes.fromhex("20000000 4641494c3b") + EMPTY, Fail(EMPTY.decode())),
    (
        "wrong-password",
        S.PUBLISHER_LOGIN,
        bytes.fromhex("1f000000 4641494c3b 6572726f723a2070617373776f726420697320696e76616c6964"),
        Fail("error: password is invalid"),
    ),
    (
        "hidden",
        S.SUBSCRIBER,
        bytes.fromhex("1b000000 504153533b") + UID + bytes.fromhex("3b 68656c6c6f"),
        Pass(UID + b";hello"),
    ),
    # ours: said instead of a greeting when too many have not logged in
    ("full", S.GREETING, frame(b"FAIL;error: full"), Fail("error: full")),
    # facts, section 5, rows 3 and 4: what older servers say at login
    ("pass-without-semicolon", S.PUBLISHER_LOGIN, frame(b"PASS"), Pass()),
    ("pass-in-lower-case", S.SUBSCRIBER_LOGIN, frame(b"pass"), Pass()),
    ("bare-error", S.SUBSCRIBER_LOGIN, frame(b"error: no"), Fail("error: no")),
]

# Rows that say the same as another, in other bytes than we would choose.
DECODE_ONLY = {
    "lower-case",
    "long-s",
    "spop-with-argument",
    "hide-with-more",
    "pass-without-semicolon",
    "pass-in-lower-case",
    "bare-error",
}
# Rows that decode but are not allowed: the server answers them and goes on.
OUT_OF_TURN = {"spop-as-publisher", "push-as-subscriber"}

REJECTED_FROM_CLIENT = [
    # facts, section 2
    ("login-empty", S.LOGIN, frame(b""), BadLogin),
    ("login-no-semicolon", S.LOGIN, frame(b"\x00pub"), BadLogin),
    ("login-two-semicolons", S.LOGIN, frame(b"\x00pub;" + PROOF + b";"), BadLogin),
    ("no-semicolon", S.PUBLISHER, bytes.fromhex("04000000 50555348"), BadRequest),
    ("empty", S.PUBLISHER, frame(b""), BadRequest),
    ("no-name", S.SUBSCRIBER, frame(b";"), BadRequest),
    ("unknown", S.SUBSCRIBER, frame(b"JUMP;high"), BadRequest),
    ("too-long", S.PUBLISHER, (10 * 1024 * 1024 + 1).to_bytes(4, "little"), FrameTooLong),
    ("endless", S.LOGIN, b"\xff\xff\xff\xff", FrameTooLong),
    # facts, section 5, row 6
    ("login-role-2", S.LOGIN, frame(b"\x02pub;" + PROOF), BadLogin),
    # facts, section 3.5: this crashed the server
    ("hide-short", S.SUBSCRIBER, frame(b"HIDE;\1\2\3"), BadRequest),
    ("poll-empty", S.SUBSCRIBER, frame(b"POLL;"), BadRequest),
    ("del-short", S.SUBSCRIBER, frame(b"DEL;short"), BadRequest),
    # ours: what a server says is nothing that a client may say
    ("pass-from-client", S.PUBLISHER, frame(b"PASS;"), BadRequest),
    ("fail-from-client", S.SUBSCRIBER, frame(b"FAIL;x"), BadRequest),
]

REJECTED_FROM_SERVER = [
    ("no-greeting", S.GREETING, frame(b"HTTP/1.1 200 OK"), WireError),
    ("short-challenge", S.GREETING, frame(b"greetings;" + CHALLENGE[1:]), WireError),
    ("neither", S.PUBLISHER, frame(b"MAYBE;"), WireError),
]

PUBLISHER = [
    ("S", FROM_SERVER[0][2]),
    ("C", FROM_CLIENT[0][2]),
    ("S", bytes.fromhex("05000000 504153533b")),
    ("C", bytes.fromhex("0a000000 505553483b 68656c6c6f")),
    ("S", bytes.fromhex("09000000 504153533b 01000000")),
    ("C", bytes.fromhex("08000000 505553483b 613b62")),
    ("S", bytes.fromhex("09000000 504153533b 02000000")),
    ("C", bytes.fromhex("04000000 4c454e3b")),
    ("S", bytes.fromhex("09000000 504153533b 02000000")),
    ("C", bytes.fromhex("05000000 53504f503b")),
    ("S", FROM_SERVER[4][2]),
    ("C", bytes.fromhex("04000000 50555348")),
    (
        "S",
        bytes.fromhex(
            "21000000 4641494c3b 6e6f2073656d69636f6c6f6e2064656c696d6974657220666f756e64"
        ),
    ),
]
SUBSCRIBER = [  # what follows its login
    ("C", bytes.fromhex("05000000 53504f503b")),
    ("S", bytes.fromhex("0a000000 504153533b 68656c6c6f")),
    ("C", bytes.fromhex("05000000 53504f503b")),
    ("S", bytes.fromhex("08000000 504153533b 613b62")),
    ("C", bytes.fromhex("05000000 53504f503b")),
    ("S", bytes.fromhex("20000000 4641494c3b") + EMPTY),
    ("C", bytes.fromhex("05000000 4c504f503b")),
    ("S", bytes.fromhex("42000000 4641494c3b") + TOO_LATE),
]
WRONG_PASSWORD = [
    ("S", FROM_SERVER[0][2]),
    ("C", frame(b"\0pub;" + PROOF[:-1] + b".")),
    ("S", FROM_SERVER[6][2]),
]

# facts, section 6: complete conversations
CONVERSATIONS = {
    "publisher": PUBLISHER,
    "subscriber": [
        PUBLISHER[0],
        ("C", frame(b"\1sub;" + PROOF)),
        PUBLISHER[2],
        *SUBSCRIBER,
    ],
    "wrong-password": WRONG_PASSWORD,
}
# What in them is wrong, and answered with FAIL.
WRONG = [PUBLISHER[9], PUBLISHER[11]]
