"""Golden bytes of RQ: captures of the real rqd and librq, and what we decided where they abort."""

from __future__ import annotations

from protocols.framing import FrameTooLong, WireError
from protocols.rq.wire import (
    Announcement,
    Broadcast,
    Cancel,
    Closing,
    Consume,
    Consuming,
    Delivered,
    Ping,
    Pong,
    Reply,
    Request,
    ServerFull,
    Shutdown,
    State,
    Task,
    Undelivered,
)

S = State
raw = bytes.fromhex


FROM_CLIENT = [
    # facts, section 7, by number
    ("1-consume", S.OPEN, raw("01 a00171 620005 4014 14"), Consume(b"q", 5, 20)),
    (
        "2-consume-exclusive",
        S.OPEN,
        raw("01 20 a00171 62012c 401e 14"),
        Consume(b"q", 300, 30, exclusive=True),
    ),
    (
        "4-request",
        S.OPEN,
        raw("01 8000000000 a00171 e000000003616263 0a"),
        Request(0, b"q", b"abc"),
    ),
    ("6-delivered", S.OPEN, raw("01 8000000000 0d"), Delivered(0)),
    ("7-delivered", S.DRAINING, raw("01 8000000000 0d"), Delivered(0)),
    (
        "7-reply",
        S.OPEN,
        raw("01 8000000000 e00000000672653a616263 0b"),
        Reply(0, b"re:abc"),
    ),
    ("11-refusal", S.OPEN, raw("01 8000000003 10"), Undelivered(3)),
    (
        "12-broadcast",
        S.OPEN,
        raw("01 8000000000 a00171 e000000003616263 21 0e"),
        Broadcast(b"q", b"abc", id=0, noreply=True),
    ),
    ("13-closing", S.OPEN, raw("16"), Closing()),
    ("13-ping", S.OPEN, raw("05"), Ping()),
    ("13-pong", S.OPEN, raw("06"), Pong()),
    (
        "14-link",
        S.OPEN,
        raw("01 a00473766378 620001 400a 20 14"),
        Consume(b"svcx", 1, 10, exclusive=True),
    ),
    ("16-cancel-by-id", S.OPEN, raw("01 600001 15"), Cancel(queue_id=1)),
    ("empty-reply", S.OPEN, raw("01 8000000001 0b"), Reply(1, b"")),
    # facts, section 3: the order is free, the verb is last
    (
        "3-noreply",
        S.OPEN,
        raw("01 8000000007 a00171 e000000003616263 21 0a"),
        Request(7, b"q", b"abc", noreply=True),
    ),
    ("15-link-shared", S.OPEN, raw("01 a00171 620001 400a 14"), Consume(b"q", 1, 10)),
    (
        "request-any-order",
        S.OPEN,
        raw("01 21 e000000003616263 4103 a00171 61000a 80ffffffff 0a"),
        Request(0xFFFFFFFF, b"q", b"abc", True, retries=3, timeout=10),
    ),
    # the original document's fields
    (
        "request-all",
        S.OPEN,
        raw("01 8000000007 a00171 e000000003616263 21 4102 61003c 0a"),
        Request(7, b"q", b"abc", True, retries=2, timeout=60),
    ),
    (
        "request-by-id",
        S.OPEN,
        raw("01 8000000007 607fff e000000003616263 0a"),
        Request(7, b"", b"abc", queue_id=0x7FFF),
    ),
    ("consume-bare", S.OPEN, raw("a00171 14"), Consume(b"q")),
    ("cancel-by-name", S.OPEN, raw("01 a00171 15"), Cancel(b"q")),
    ("broadcast-seed", S.OPEN, raw("01 a00171 e00000000162 0e"), Broadcast(b"q", b"b")),
    ("broadcast-by-id", S.OPEN, raw("01 600001 e00000000162 0e"), Broadcast(b"", b"b", 1)),
    ("reply-zero-length", S.OPEN, raw("01 8000000001 e000000000 0b"), Reply(1, b"")),
    # ours: what is missing is not the wire's to refuse if there is an id to refuse it by
    ("request-no-queue", S.OPEN, raw("01 8000000007 e00000000161 0a"), Request(7, b"", b"a")),
    ("request-no-payload", S.OPEN, raw("01 8000000007 a00171 0a"), Request(7, b"q", b"")),
    ("request-empty-queue", S.OPEN, raw("01 8000000007 a000 0a"), Request(7, b"", b"")),
    (
        "request-both-names",
        S.OPEN,
        raw("01 8000000007 600002 a00171 e00000000161 0a"),
        Request(7, b"q", b"a", queue_id=2),
    ),
    ("request-while-draining", S.DRAINING, raw("01 8000000007 0a"), Request(7, b"", b"")),
    ("consume-name-255", S.OPEN, raw("01 a0ff") + b"n" * 255 + raw("14"), Consume(b"n" * 255)),
]

FROM_SERVER = [
    # facts, section 7, by number
    ("3-consuming", S.OPEN, raw("01 600001 a00171 18"), Consuming(1, b"q")),
    (
        "5-task",
        S.OPEN,
        raw("01 600001 e000000003616263 8000000000 0a"),
        Task(0, 1, b"abc"),
    ),
    ("6-delivered", S.OPEN, raw("01 8000000007 0d"), Delivered(7)),
    ("8-reply", S.OPEN, raw("01 8000000007 e00000000378797a 0b"), Reply(7, b"xyz")),
    (
        "9-task-noreply",
        S.OPEN,
        raw("01 600001 e000000003616263 21 8000000000 0a"),
        Task(0, 1, b"abc", noreply=True),
    ),
    ("10-undelivered", S.OPEN, raw("01 8000000007 10"), Undelivered(7)),
    ("13-shutdown", S.OPEN, raw("01 16"), Shutdown()),
    ("13-ping", S.OPEN, raw("05"), Ping()),
    ("13-pong", S.DRAINING, raw("06"), Pong()),
    ("15-announcement", S.OPEN, raw("01 600001 e00000000162 0e"), Announcement(1, b"b")),
    ("16-server-full", S.OPEN, raw("17"), ServerFull()),
    # the original document's order
    ("consuming-seed", S.OPEN, raw("01 a00171 600001 18"), Consuming(1, b"q")),
    # facts, section 5.3: a later queue of a connection goes by its name
    (
        "task-by-name",
        S.OPEN,
        raw("01 a00171 e000000003616263 8000007fff 0a"),
        Task(0x7FFF, 0, b"abc", queue=b"q"),
    ),
    # facts, section 4.7
    ("reply-empty", S.OPEN, raw("01 8000000007 e000000000 0b"), Reply(7, b"")),
]

# Rows that say the same as another, in other bytes than we would choose.
DECODE_ONLY = {
    "14-link",
    "empty-reply",
    "request-any-order",
    "consume-bare",
    "request-no-queue",
    "request-no-payload",
    "request-empty-queue",
    "request-both-names",
    "request-while-draining",
    "consume-name-255",
    "consuming-seed",
}
# None: after CLOSING, what may not be said is in tests of the server.
OUT_OF_TURN: set[str] = set()

REJECTED_FROM_CLIENT = [
    # facts, section 4.3
    ("consume-by-id", S.OPEN, raw("01 600001 14"), WireError),
    ("consume-nothing", S.OPEN, raw("01 14"), WireError),
    # facts, section 4.1
    ("consume-empty-name", S.OPEN, raw("01 a000 14"), WireError),
    # facts, section 6, "missing field"
    ("request-no-id", S.OPEN, raw("01 a00171 e00000000161 0a"), WireError),
    ("reply-no-id", S.OPEN, raw("01 e00000000161 0b"), WireError),
    ("delivered-no-id", S.OPEN, raw("01 0d"), WireError),
    ("undelivered-no-id", S.OPEN, raw("01 10"), WireError),
    ("broadcast-no-queue", S.OPEN, raw("01 e00000000161 0e"), WireError),
    ("cancel-no-queue", S.OPEN, raw("01 15"), WireError),
    ("cancel-id-0", S.OPEN, raw("01 600000 15"), WireError),
    # facts, section 4.15: what only a controller says
    ("consuming-from-client", S.OPEN, raw("01 18"), WireError),
    ("full-from-client", S.OPEN, raw("17"), WireError),
    # facts, section 1: this killed rqd
    ("endless", S.OPEN, raw("01 e0ffffffff"), FrameTooLong),
    ("too-long", S.OPEN, raw("01 e001000001"), FrameTooLong),
    ("too-long-unknown", S.OPEN, raw("e1fffffffc"), FrameTooLong),
    # ours
    ("nothing-but-nop", S.OPEN, bytes(64), WireError),
]

REJECTED_FROM_SERVER = [
    ("task-no-queue", S.OPEN, raw("01 e00000000161 8000000000 0a"), WireError),
    ("task-no-id", S.OPEN, raw("01 600001 e00000000161 0a"), WireError),
    ("announcement-by-name", S.OPEN, raw("01 a00171 e00000000161 0e"), WireError),
    ("consuming-no-id", S.OPEN, raw("01 a00171 18"), WireError),
    ("consume-from-server", S.OPEN, raw("01 a00171 14"), WireError),
    ("cancel-from-server", S.OPEN, raw("01 600001 15"), WireError),
    ("reply-no-id", S.OPEN, raw("01 0b"), WireError),
]

# facts, section 3, the timeline of a request, at its consumer and at its requester
CONSUMER = [
    ("C", raw("01 a00171 620005 4014 14")),
    ("S", raw("01 600001 a00171 18")),
    ("S", raw("01 600001 e000000003616263 8000000000 0a")),
    ("C", raw("01 8000000000 0d")),
    ("C", raw("01 8000000000 e00000000672653a616263 0b")),
    ("S", raw("05")),
    ("C", raw("06")),
    ("C", raw("16")),
]
REQUESTER = [
    ("C", raw("01 8000000007 a00171 e000000003616263 0a")),
    ("S", raw("01 8000000007 0d")),
    ("S", raw("01 8000000007 e00000000378797a 0b")),
    ("C", raw("01 8000000007 a00171 e000000003616263 21 0a")),
    ("S", raw("01 8000000007 0d")),
    ("S", raw("01 16")),
    ("S", raw("01 8000000007 10")),
]
CONVERSATIONS = {"consumer": CONSUMER, "requester": REQUESTER}
WRONG: list[tuple[str, bytes]] = []
