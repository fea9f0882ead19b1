"""Golden bytes of sk2mq in the upstream dialect: the contract with the public implementation."""

from __future__ import annotations

from protocols.framing import FrameTooLong, WireError
from protocols.sk2mq import wire
from protocols.sk2mq.wire import Create, Delivery, Hello, Join, Quit, Response, Send, State
from tests.protocols.sk2mq.vectors import DUE, packet, words

S = State

CLIENT = b"user-1766395700-5"
MESSAGE = (DUE, CLIENT, b"djibuti", b"hello")
MESSAGE_BYTES = bytes.fromhex(
    "00 0000002d 69490f6c 00000011 00000007 00000005 646a6962757469"
    "757365722d313736363339353730302d35 68656c6c6f"
)

FROM_CLIENT = [
    # facts, section 2
    ("create", S.OPEN, bytes.fromhex("01 0000000c 0c 00000007 646a6962757469"), Create(b"djibuti")),
    ("join", S.OPEN, bytes.fromhex("01 0000000c 0a 00000007 646a6962757469"), Join(b"djibuti")),
    ("quit", S.OPEN, bytes.fromhex("01 0000000c 0b 00000007 646a6962757469"), Quit(b"djibuti")),
    ("send", S.OPEN, MESSAGE_BYTES, Send(*MESSAGE)),
    # facts, section 2, the captured transcript
    ("join-nope", S.OPEN, bytes.fromhex("01 00000009 0a 00000004 6e6f7065"), Join(b"nope")),
    (
        "send-as-lax",
        S.OPEN,
        bytes.fromhex("00 0000001b 6afd3206 00000003 00000007 00000001 646a6962757469 6c6178 78"),
        Send(0x6AFD3206, b"lax", b"djibuti", b"x"),
    ),
    # facts, section 3: bytes behind the last length are ignored
    ("topic-and-more", S.OPEN, packet(1, b"\x0a" + words(1) + b"xy"), Join(b"x")),
    ("message-and-more", S.OPEN, packet(0, words(1, 1, 1, 1) + b"tcm+"), Send(1, b"c", b"t", b"m")),
]
DECODE_ONLY = {"topic-and-more", "message-and-more"}

FROM_SERVER = [
    (
        "hello",
        S.HELLO,
        bytes.fromhex("03 00000011 757365722d313736363339353730302d35"),
        Hello(CLIENT),
    ),
    ("deliver", S.OPEN, MESSAGE_BYTES, Delivery(*MESSAGE)),
    ("ok", S.OPEN, bytes.fromhex("14 00000000"), Response(wire.OK)),
    ("exists", S.OPEN, bytes.fromhex("20 00000000"), Response(wire.FOUND)),
    ("badclient", S.OPEN, bytes.fromhex("29 00000000"), Response(wire.BADCLIENT)),
    ("notfound", S.OPEN, bytes.fromhex("2c 00000000"), Response(wire.NOTFOUND)),
    ("servererror", S.OPEN, bytes.fromhex("32 00000000"), Response(wire.SERVERERROR)),
    # facts, section 4: if a setting allows
    ("badpacket", S.OPEN, bytes.fromhex("28 00000000"), Response(wire.BADPACKET)),
    ("inpast", S.OPEN, bytes.fromhex("2b 00000000"), Response(wire.INPAST)),
]

REJECTED_FROM_CLIENT = [
    # facts, section 4
    ("response", S.OPEN, packet(20, b""), WireError),
    ("hello", S.OPEN, packet(3, b"x"), WireError),
    ("action-short", S.OPEN, packet(1, b"\x0a"), WireError),
    ("message-short", S.OPEN, packet(0, bytes(8)), WireError),
    ("message-64-of-5", S.OPEN, packet(0, words(DUE, 0, 0, 64) + b"hello"), WireError),
    ("create-256-mib", S.OPEN, packet(1, b"\x0c" + words(0x0FFFFFFF) + b"x"), WireError),
    ("endless", S.OPEN, b"\1\xff\xff\xff\xff", FrameTooLong),
    # facts, section 2: actions of the other dialect
    ("action-0", S.OPEN, packet(1, b"\0" + words(1) + b"x"), WireError),
]

REJECTED_FROM_SERVER = [
    ("no-hello", S.HELLO, packet(20, b""), WireError),
    ("code-with-body", S.OPEN, packet(20, b"x"), WireError),
    ("unknown-code", S.OPEN, packet(99, b""), WireError),
    ("response-of-seed", S.OPEN, packet(2, b"\x14"), WireError),
]

# facts, section 2: the captured transcript, A's side
CONVERSATIONS = {
    "captured": [
        ("S", bytes.fromhex("03 00000011 757365722d313739343937383235302d35")),
        ("C", FROM_CLIENT[0][2]),
        ("S", FROM_SERVER[2][2]),
        ("C", FROM_CLIENT[0][2]),
        ("S", FROM_SERVER[3][2]),
        ("C", FROM_CLIENT[4][2]),
        ("S", FROM_SERVER[5][2]),
        ("C", FROM_CLIENT[2][2]),
        ("S", FROM_SERVER[2][2]),
        (
            "C",
            bytes.fromhex(
                "00 0000002d 6afd3206 00000011 00000007 00000005 646a6962757469"
                "757365722d313739343937383235302d35 68656c6c6f"
            ),
        ),
        ("S", FROM_SERVER[2][2]),
        ("C", FROM_CLIENT[5][2]),
        ("S", FROM_SERVER[4][2]),
    ]
}
