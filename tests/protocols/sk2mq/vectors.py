"""Golden bytes of sk2mq in the seed dialect: the contract with the document."""

from __future__ import annotations

from protocols.framing import FrameTooLong, WireError
from protocols.sk2mq import wire
from protocols.sk2mq.wire import Create, Delivery, Hello, Join, Quit, Response, Send, State

S = State

DUE = 1766395756  # 2025-12-22 09:29:16 UTC
MESSAGE = (DUE, b"yyz", b"djibuti", b"hello")
MESSAGE_BYTES = bytes.fromhex(
    "00 0000001f 69490f6c 00000003 00000007 00000005 79797a 646a6962757469 68656c6c6f"
)


def packet(tag: int, body: bytes) -> bytes:
    return bytes([tag]) + len(body).to_bytes(4, "big") + body


def words(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)


FROM_CLIENT = [
    # facts, section 2; the document, "flow"
    ("create", S.OPEN, bytes.fromhex("01 0000000c 02 00000007 646a6962757469"), Create(b"djibuti")),
    ("join", S.OPEN, bytes.fromhex("01 0000000c 00 00000007 646a6962757469"), Join(b"djibuti")),
    ("quit", S.OPEN, bytes.fromhex("01 0000000c 01 00000007 646a6962757469"), Quit(b"djibuti")),
    ("send", S.OPEN, MESSAGE_BYTES, Send(*MESSAGE)),
    # facts, section 3
    ("empty-topic", S.OPEN, packet(1, b"\2" + words(0)), Create(b"")),
    ("any-topic", S.OPEN, packet(1, b"\0" + words(3) + b"\0\xff%"), Join(b"\0\xff%")),
    ("all-empty", S.OPEN, packet(0, words(0, 0, 0, 0)), Send(0, b"", b"", b"")),
    (
        "due-in-2106",
        S.OPEN,
        packet(0, words(0xFFFFFFFF, 1, 1, 0) + b"ct"),
        Send(0xFFFFFFFF, b"c", b"t", b""),
    ),
]

FROM_SERVER = [
    ("hello", S.HELLO, bytes.fromhex("03 00000007 00000003 79797a"), Hello(b"yyz")),
    ("deliver", S.OPEN, MESSAGE_BYTES, Delivery(*MESSAGE)),
    ("ok", S.OPEN, bytes.fromhex("02 00000001 14"), Response(wire.OK)),
    ("found", S.OPEN, bytes.fromhex("02 00000001 20"), Response(wire.FOUND)),
    ("badpacket", S.OPEN, bytes.fromhex("02 00000001 28"), Response(wire.BADPACKET)),
    ("badclient", S.OPEN, bytes.fromhex("02 00000001 29"), Response(wire.BADCLIENT)),
    ("inpast", S.OPEN, bytes.fromhex("02 00000001 2b"), Response(wire.INPAST)),
    ("notfound", S.OPEN, bytes.fromhex("02 00000001 2c"), Response(wire.NOTFOUND)),
    ("servererror", S.OPEN, bytes.fromhex("02 00000001 32"), Response(wire.SERVERERROR)),
]

REJECTED_FROM_CLIENT = [
    # facts, section 4: most of these ended the public server
    ("response", S.OPEN, packet(2, b"\x14"), WireError),
    ("hello", S.OPEN, packet(3, words(0)), WireError),
    ("tag-255", S.OPEN, packet(255, b"any"), WireError),
    ("action-empty", S.OPEN, packet(1, b""), WireError),
    ("action-short", S.OPEN, packet(1, b"\0"), WireError),
    ("message-empty", S.OPEN, packet(0, b""), WireError),
    ("message-short", S.OPEN, packet(0, bytes(8)), WireError),
    ("message-64-of-5", S.OPEN, packet(0, words(DUE, 0, 0, 64) + b"hello"), WireError),
    ("message-2-gib", S.OPEN, packet(0, words(DUE, 0, 0, 0x7FFFFFFF) + b"hello"), WireError),
    ("create-256-mib", S.OPEN, packet(1, b"\2" + words(0x0FFFFFFF) + b"x"), WireError),
    ("join-9999", S.OPEN, packet(1, b"\0" + words(9999) + b"x"), WireError),
    ("endless", S.OPEN, b"\0\xff\xff\xff\xff", FrameTooLong),
    # ours: lengths whose sum would fit if it were cut to 32 bits
    ("sum", S.OPEN, packet(0, words(DUE, 0x80000000, 0x80000000, 5) + b"hello"), WireError),
    # facts, section 3: unknown actions, and bytes behind the last length
    ("action-3", S.OPEN, packet(1, b"\3" + words(1) + b"x"), WireError),
    ("action-10", S.OPEN, packet(1, b"\x0a" + words(1) + b"x"), WireError),
    ("topic-and-more", S.OPEN, packet(1, b"\0" + words(1) + b"xy"), WireError),
    ("message-and-more", S.OPEN, packet(0, words(DUE, 0, 1, 1) + b"xyz"), WireError),
    ("too-long", S.OPEN, b"\0" + words(wire.LIMIT - 4), FrameTooLong),
]

REJECTED_FROM_SERVER = [
    ("no-hello", S.HELLO, packet(2, b"\x14"), WireError),
    ("bare-hello", S.HELLO, packet(3, b"user-1-5"), WireError),
    ("short-hello", S.HELLO, packet(3, b"abc"), WireError),
    ("second-hello", S.OPEN, packet(3, words(1) + b"x"), WireError),
    ("bare-code", S.OPEN, packet(20, b""), WireError),
    ("unknown-code", S.OPEN, packet(2, b"\x15"), WireError),
    ("long-code", S.OPEN, packet(2, b"\x14\x14"), WireError),
]

# the document, "flow"
CONVERSATIONS = {
    "flow": [
        ("S", FROM_SERVER[0][2]),
        ("C", FROM_CLIENT[0][2]),
        ("S", FROM_SERVER[2][2]),
        ("C", FROM_CLIENT[1][2]),
        ("S", FROM_SERVER[2][2]),
        ("C", MESSAGE_BYTES),
        ("S", MESSAGE_BYTES),
        ("S", FROM_SERVER[2][2]),
    ]
}
