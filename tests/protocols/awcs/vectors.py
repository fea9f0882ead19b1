"""Golden bytes of aWCS: the contract with other people's clients and masters."""

from __future__ import annotations

from protocols.awcs.wire import (
    Alive,
    Broadcast,
    Connected,
    Disconnected,
    Elapsed,
    FloodOff,
    FloodOn,
    Initialize,
    Join,
    Kick,
    Kicked,
    Multicast,
    Relay,
    Report,
    State,
    Text,
)
from protocols.framing import FrameTooLong, FramingLost, WireError

S = State

FROM_CLIENT = [
    # facts, section 1
    ("initialize", S.UNKNOWN, bytes.fromhex("36 20 00"), Initialize()),
    ("join", S.UNKNOWN, bytes.fromhex("61 57 43 53 00"), Join()),
    ("initialize-again", S.MASTER, b"6 \0", Initialize()),
    # facts, sections 2 and 4
    ("text", S.CLIENT, b"hello\0", Text(b"hello")),
    ("empty-text", S.CLIENT, b"\0", Text(b"")),
    ("any-text", S.CLIENT, b"\xff\n\x01\0", Text(b"\xff\n\x01")),
    ("initialize-is-text", S.CLIENT, b"6 \0", Text(b"6 ")),
    ("join-is-text", S.CLIENT, b"aWCS\0", Text(b"aWCS")),
    ("forged-prefix", S.CLIENT, b"0003 0 fake\0", Text(b"0003 0 fake")),
    # the document's own examples
    ("broadcast", S.MASTER, b"0 Hallo Welt\0", Broadcast(b"Hallo Welt")),
    ("multicast", S.MASTER, b"1 0001,0004,0006 Gruezi!\0", Multicast((1, 4, 6), b"Gruezi!")),
    ("report", S.MASTER, b"2 \0", Report()),
    ("kick", S.MASTER, b"3 0003,0004\0", Kick((3, 4))),
    ("flood-off", S.MASTER, b"4 0004,0016\0", FloodOff((4, 16))),
    ("flood-on-short-digits", S.MASTER, b"5 0001,005\0", FloodOn((1, 5))),
    # facts, section 5
    ("broadcast-empty", S.MASTER, b"0 \0", Broadcast(b"")),
    ("multicast-spaces", S.MASTER, b"1 0003 a b  c\0", Multicast((3,), b"a b  c")),
    ("multicast-empty", S.MASTER, b"1 0003 \0", Multicast((3,), b"")),
    ("multicast-duplicates", S.MASTER, b"1 0006,06,6 dup\0", Multicast((6, 6, 6), b"dup")),
    ("multicast-five-digits", S.MASTER, b"1 12345 x\0", Multicast((12345,), b"x")),
    ("report-without-space", S.MASTER, b"2\0", Report()),
    ("report-with-junk", S.MASTER, b"2 junk\0", Report()),
    ("kick-with-reason", S.MASTER, b"3 0003 some reason\0", Kick((3,))),
    ("kick-with-comma", S.MASTER, b"3 0003,\0", Kick((3,))),
    ("kick-with-space-in-list", S.MASTER, b"3 0003, 0004\0", Kick((3,))),
    # ours: a number that Python would refuse to read
    ("kick-many-digits", S.MASTER, b"3 " + b"9" * 5000 + b",0003\0", Kick((0, 3))),
    ("kick-many-zeroes", S.MASTER, b"3 " + b"0" * 5000 + b"3\0", Kick((3,))),
    ("flood-on", S.MASTER, b"5 0001\0", FloodOn((1,))),
]

FROM_SERVER = [
    # facts, section 4
    ("relay", S.MASTER, bytes.fromhex("30303033 20 68656c6c6f 00"), Relay(3, b"hello")),
    ("relay-empty", S.MASTER, b"0003 \0", Relay(3, b"")),
    ("relay-forged", S.MASTER, b"0003 0003 0 fake\0", Relay(3, b"0003 0 fake")),
    ("relay-unpadded", S.MASTER, b"6 hello\0", Relay(6, b"hello")),
    # facts, section 6, with the prefix of the document
    (
        "connected",
        S.MASTER,
        b"0000 0 0003 127.0.0.1:39122\0",
        Connected(3, "127.0.0.1:39122"),
    ),
    ("disconnected", S.MASTER, b"0000 1 0003 1\0", Disconnected(3)),
    ("disconnected-well", S.MASTER, b"0000 1 0003 0\0", Disconnected(3, 0)),
    ("kicked-flooding", S.MASTER, b"0000 2 0003 0\0", Kicked(3, 0)),
    ("kicked-overflow", S.MASTER, b"0000 2 0003 1\0", Kicked(3, 1)),
    ("alive", S.MASTER, b"0000 3 42\0", Alive()),
    ("elapsed", S.MASTER, b"0000 4 42\0", Elapsed()),
    # facts, section 6: with the master's number a status is a text to who does not know it
    (
        "connected-self-of-old",
        S.MASTER,
        bytes.fromhex("30303032 20 30 20 30303032 20 3132372e302e302e313a3339313230 00"),
        Relay(2, b"0 0002 127.0.0.1:39120"),
    ),
    ("alive-of-old", S.MASTER, bytes.fromhex("30303032 20 33 20 3432 00"), Relay(2, b"3 42")),
    ("told", S.CLIENT, b"Gruezi!\0", Text(b"Gruezi!")),
]

# Rows that say the same as another, in other bytes than we would choose.
DECODE_ONLY = {
    "flood-on-short-digits",
    "multicast-duplicates",
    "multicast-five-digits",
    "report-without-space",
    "report-with-junk",
    "kick-with-reason",
    "kick-with-comma",
    "kick-with-space-in-list",
    "kick-many-digits",
    "kick-many-zeroes",
    "relay-unpadded",
}

REJECTED_FROM_CLIENT = [
    ("neither", S.UNKNOWN, b"awcs\0", FramingLost),
    # facts, section 5 and section 10, rows 14 and 16: ignored
    ("empty", S.MASTER, b"\0", WireError),
    ("unknown-command", S.MASTER, b"7 x\0", WireError),
    ("no-command", S.MASTER, b"x\0", WireError),
    ("space-first", S.MASTER, b" 0 hello\0", WireError),
    ("broadcast-without-space", S.MASTER, b"0Xhello\0", WireError),
    ("broadcast-twice-zero", S.MASTER, b"00 hello\0", WireError),
    ("broadcast-of-nothing", S.MASTER, b"0\0", WireError),
    ("multicast-of-nothing", S.MASTER, b"1 0003\0", WireError),
    ("multicast-to-nobody", S.MASTER, b"1  x\0", WireError),
    ("multicast-bad-token", S.MASTER, b"1 0003,x x\0", WireError),
    ("kick-nobody", S.MASTER, b"3 \0", WireError),
    ("kick-comma", S.MASTER, b"3 ,\0", WireError),
    ("kick-two-commas", S.MASTER, b"3 0003,,\0", WireError),
    ("kick-letters", S.MASTER, b"3 abcd\0", WireError),
    ("kick-sign", S.MASTER, b"3 +3\0", WireError),
    ("kick-other-digits", S.MASTER, "3 \u0663\0".encode(), WireError),
    ("flood-off-bad-token", S.MASTER, b"4 0003,-1\0", WireError),
    ("flood-on-without-space", S.MASTER, b"50003\0", WireError),
    # facts, section 9: as many as the limit may wait, one more may not
    ("too-long", S.MASTER, b"0 " + b"x" * (131_072 - 1), FrameTooLong),
]

REJECTED_FROM_SERVER = [
    ("spoke-first", S.UNKNOWN, b"hello\0", WireError),
    ("no-number", S.MASTER, b"hello you\0", WireError),
    ("no-space", S.MASTER, b"0003\0", WireError),
    # facts, section 6: types of later servers, which a master ignores
    ("resolved", S.MASTER, b"0000 5 0006 localhost\0", WireError),
    ("user-name", S.MASTER, b"0000 6 0006 somebody\0", WireError),
    ("no-client", S.MASTER, b"0000 0 x y\0", WireError),
]

MASTER = [
    ("C", b"6 \0"),
    ("S", b"0000 0 0002 127.0.0.1:39120\0"),
    ("S", b"0000 0 0003 127.0.0.1:39122\0"),
    ("S", b"0003 hello\0"),
    ("C", b"0 Hallo Welt\0"),
    ("C", b"1 0003,0005 Gruezi!\0"),
    ("C", b"2 \0"),
    ("S", b"0000 3 42\0"),
    ("C", b"7 x\0"),
    ("C", b"4 0003\0"),
    ("C", b"5 0003\0"),
    ("S", b"0000 2 0003 0\0"),
    ("S", b"0000 1 0003 1\0"),
    ("S", b"0000 4 42\0"),
    ("C", b"3 0004\0"),
    ("S", b"0000 1 0004 1\0"),
]
CLIENT = [
    ("C", b"aWCS\0"),
    ("C", b"hello\0"),
    ("S", b"Hallo Welt\0"),
    ("S", b"\0"),
]
CONVERSATIONS = {"master": MASTER, "client": CLIENT}
# What in them is wrong, and ignored.
WRONG = [("C", b"7 x\0")]
