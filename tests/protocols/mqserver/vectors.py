"""Golden bytes of MQServer: the facts, section 6, frame by frame; the rest is ours."""

from __future__ import annotations

from zlib import crc32

from protocols.mqserver import encoding
from protocols.mqserver.events import (
    Ack,
    AlterQueue,
    AppId,
    Auth,
    BadCrc,
    BadData,
    BadFrame,
    BadSyntax,
    BadVersion,
    CapsAccepted,
    CapsRefused,
    ClientCaps,
    CreateQueue,
    Error,
    FindQueue,
    FromClient,
    FromQueue,
    GetFromQueue,
    JoinQueue,
    LoginAccepted,
    LoginRefused,
    Notify,
    PartQueue,
    Presence,
    QueueInfo,
    SendToClient,
    SendToQueue,
    ServerCaps,
    State,
    TooBig,
    UnknownType,
)

S = State

SALT = "a1b2c3d4e5f60718"
PROOF = "f785ef2505587fb7a58e876b74dc2a0367c83b0d813e20a75d3adb23636453f8"


def frame(kind: str, data: bytes, mid: int = 7, flags: int = 0) -> bytes:
    """A frame that is right in everything that the test does not say."""
    encoded = encoding.encode(data)
    return raw(kind, encoded, mid=str(mid), flags=str(flags))


def raw(
    kind: str,
    encoded: bytes,
    *,
    mid: str = "7",
    version: str = "1",
    length: str | None = None,
    flags: str = "0",
    crc: str | None = None,
    end: bytes = b"\0\0",
) -> bytes:
    size = str(len(encoded)) if length is None else length
    checksum = str(crc32(encoded)) if crc is None else crc
    return f"{mid}|{kind}|{version}|{size}|{flags}|{checksum}|".encode() + encoded + end


FROM_CLIENT = [
    # facts, section 6
    (
        "clntcap",
        S.CAPS,
        b"1|CLNTCAP|1|7|0|1925279371|\x0104\x1fRSC\0\0",
        ClientCaps(1, 15, "STD"),
    ),
    (
        "auth",
        S.LOGIN,
        b"2|AUTH|1|70|0|519347208|\x01ehrg\x1f"
        b"e674de14/4476ea6`47d765a63cb1`/256b72a/c702d1/`64c2`ca12525342e7\0\0",
        Auth(2, "fish", PROOF),
    ),
    ("appid", S.IN, b"3|APPID|1|8|0|547272905|\x010//\x1f1//\0\0", AppId(3, (100, 200))),
    ("ack", S.SYNCING, b"1|ACK|1|1|0|2363233923|x\0\0", Ack(1)),
    (
        "notify",
        S.SYNCED,
        b"4|NOTIFY|1|12|0|1086104659|\x01*v`kkx\x1f,ana\0\0",
        Notify(4, ("+wally", "-bob")),
    ),
    ("findqueue", S.SYNCED, b"5|FINDQUEUE|1|5|0|3640509808|\x01mnod\0\0", FindQueue(5, ("nope",))),
    (
        "createqueue",
        S.SYNCED,
        b"6|CREATEQUEUE|1|27|0|4250668969|\x01sdrsptdtd\x1f0\x1f/\x1f/\x1fcdln\x1fptdtd\0\0",
        CreateQueue(6, "testqueue", 1, 0, 0, "demo queue"),
    ),
    (
        "joinqueue",
        S.SYNCED,
        b"7|JOINQUEUE|1|12|0|2119650905|\x01sdrsptdtd\x1f/\0\0",
        JoinQueue(7, "testqueue"),
    ),
    (
        "sendtoqueue",
        S.SYNCED,
        b"8|SENDTOQUEUE|1|26|1|1707048245|\x01sdrsptdtd\x1f4\x1fLxsnohb\x1fgdkkn\0\0",
        SendToQueue(8, "testqueue", "Mytopic", b"hello", 1),
    ),
    (
        "getfromqueue",
        S.SYNCED,
        b"9|GETFROMQUEUE|1|12|0|4083106732|\x01sdrsptdtd\x1f0\0\0",
        GetFromQueue(9, "testqueue"),
    ),
    (
        "alterqueue",
        S.SYNCED,
        b"10|ALTERQUEUE|1|18|0|3978944998|\x01sdrsptdtd\x1fEK@FR<8\0\0",
        AlterQueue(10, "testqueue", flags=9),
    ),
    (
        "sendtoclnt",
        S.SYNCED,
        b"11|SENDTOCLNT|1|15|0|1357818159|\x01v`kkx\x1f0//\x1f1\x1fgh\0\0",
        SendToClient(11, "wally", 100, b"hi"),
    ),
    (
        "partqueue",
        S.SYNCED,
        b"12|PARTQUEUE|1|10|0|878395711|\x01sdrsptdtd\0\0",
        PartQueue(12, "testqueue"),
    ),
    # facts, section 4: an Ack or an Error may come at any time
    ("error", S.BANNER, frame("ERROR", b"ESYNTAX what?"), Error(7, "ESYNTAX", "what?")),
    ("early-ack", S.CHECKING, frame("ACK", b"1"), Ack(7, "1")),
    ("no-apps", S.IN, frame("APPID", b""), AppId(7, ())),
    ("list", S.IN, frame("NOTIFY", b""), Notify(7)),
    ("notify-queue", S.IN, frame("NOTIFY", b"+#news -#a"), Notify(7, ("+#news", "-#a"))),
    ("find-two", S.IN, frame("FINDQUEUE", b"a b"), FindQueue(7, ("a", "b"))),
    ("join-deaf", S.IN, frame("JOINQUEUE", b"q 1 news.*"), JoinQueue(7, "q", 1, "news.*")),
    ("get-some", S.IN, frame("GETFROMQUEUE", b"q 5 [ab]?"), GetFromQueue(7, "q", 5, "[ab]?")),
    ("create-bare", S.IN, frame("CREATEQUEUE", b"q 2 10 60"), CreateQueue(7, "q", 2, 10, 60)),
    (
        "alter-all",
        S.IN,
        frame(
            "ALTERQUEUE",
            b"q FLAGS=33 MAXMSGS=5 TTL=0 OWNER=anna ALLOW=+bob ALLOW=-eve INFO=a b TTL=1",
        ),
        AlterQueue(7, "q", 33, 5, 0, "anna", ("+bob", "-eve"), "a b TTL=1"),
    ),
    ("alter-info", S.IN, frame("ALTERQUEUE", b"q INFO="), AlterQueue(7, "q", info="")),
    ("no-topic", S.IN, frame("SENDTOQUEUE", b"q 2 - a "), SendToQueue(7, "q", "", b"a ")),
    ("empty", S.IN, frame("SENDTOQUEUE", b"q 0 t "), SendToQueue(7, "q", "t", b"")),
    (
        "all-bytes",
        S.IN,
        frame("SENDTOQUEUE", b"q 256 t " + bytes(range(256)), flags=3),
        SendToQueue(7, "q", "t", bytes(range(256)), 3),
    ),
    ("utf-8", S.IN, frame("PARTQUEUE", "köln".encode()), PartQueue(7, "köln")),
    ("largest-mid", S.IN, frame("PARTQUEUE", b"q", 2**32 - 1), PartQueue(2**32 - 1, "q")),
    # facts, section 4: what is accepted and not sent
    ("small-type", S.IN, frame("partQueue", b"q"), PartQueue(7, "q")),
    ("number-type", S.IN, frame("11", b"q"), PartQueue(7, "q")),
    ("v1", S.IN, raw("PARTQUEUE", b"\x01p", version="V1"), PartQueue(7, "q")),
    ("one-nul", S.IN, b"\0" + raw("PARTQUEUE", b"\x01p", end=b"\0"), PartQueue(7, "q")),
    ("many-nuls", S.IN, raw("PARTQUEUE", b"\x01p", end=bytes(84)), PartQueue(7, "q")),
    ("hex-crc", S.IN, raw("PARTQUEUE", b"\x01p", crc=hex(crc32(b"\x01p"))), PartQueue(7, "q")),
    ("other-offset", S.IN, raw("PARTQUEUE", b"\x70\x01\x02"), PartQueue(7, "q")),
    ("nothing", S.IN, raw("NOTIFY", b""), Notify(7)),
    (
        "unknown-flags",
        S.IN,
        frame("SENDTOQUEUE", b"q 0 t ", flags=9),
        SendToQueue(7, "q", "t", b"", 9),
    ),
    ("bare-join", S.IN, frame("JOINQUEUE", b"q"), JoinQueue(7, "q")),
    ("deaf", S.IN, frame("JOINQUEUE", b"q DEAF"), JoinQueue(7, "q", 1)),
    ("bare-get", S.IN, frame("GETFROMQUEUE", b"q"), GetFromQueue(7, "q")),
    ("bare-create", S.IN, frame("CREATEQUEUE", b"q"), CreateQueue(7, "q")),
    ("bare-caps", S.CAPS, frame("CLNTCAP", b"15"), ClientCaps(7, 15, "")),
]

FROM_SERVER = [
    # facts, section 6
    (
        "srvcap",
        S.BANNER,
        b"0|SRVCAP|1|41|0|1490294405|\x01`0a1b2c3d4e5/607\x1f04\x1fRSC\x1fG@RG<GL@B,RG@145\0\0",
        ServerCaps(SALT, 15, "STD HASH=HMAC-SHA256"),
    ),
    ("caps-ack", S.CAPS_ASKED, b"1|ACK|1|2|0|2115703570|\x010\0\0", CapsAccepted(1)),
    ("login-ack", S.CHECKING, b"2|ACK|1|2|0|2115703570|\x010\0\0", LoginAccepted(2)),
    (
        "msgfromclnt",
        S.SYNCING,
        b"1|MSGFROMCLNT|1|31|1|3776069924|\x01v`kkx\x1f0//\x1f6\x1f00083/////\x1f4\x1fgdkkn\0\0",
        FromClient(1, "wally", 100, 7, 1119400000, b"hello"),
    ),
    (
        "msgfromclnt-2",
        S.SYNCING,
        b"2|MSGFROMCLNT|1|30|1|3944903075|\x01v`kkx\x1f0//\x1f7\x1f00083////0\x1f3\x1f`{\xff&\0\0",
        FromClient(2, "wally", 100, 8, 1119400001, b"a|\0'"),
    ),
    (
        "presence",
        S.SYNCING,
        b"3|PRESENCE|1|21|0|4159079464|\x01*v`kkx\x1f0//\x1f*`mm`\x1f1//\0\0",
        Presence(3, (("+wally", (100,)), ("+anna", (200,)))),
    ),
    ("ack-empty", S.SYNCED, b"4|ACK|1|1|0|2363233923|x\0\0", Ack(4)),
    (
        "enoqueue",
        S.SYNCED,
        b"5|ERROR|1|14|0|2723357454|\x01DMNPTDTD\x1fmnod\0\0",
        Error(5, "ENOQUEUE", "nope"),
    ),
    ("created", S.SYNCED, b"6|ACK|1|2|0|2115703570|\x010\0\0", Ack(6, "1")),
    (
        "queueinfo",
        S.SYNCED,
        b"7|QUEUEINFO|1|32|0|1486447816|\x01sdrsptdtd\x1f0\x1fehrg\x1f0\x1f/\x1fcdln\x1fptdtd\0\0",
        QueueInfo(7, "testqueue", 1, "fish", 1, 0, "demo queue"),
    ),
    (
        "msgfromqueue",
        S.SYNCED,
        b"4|MSGFROMQUEUE|1|44|0|3992119029|"
        b"\x01sdrsptdtd\x1fLxsnohb\x1f0\x1f00083////1\x1fehrg\x1f4\x1fgdkkn\0\0",
        FromQueue(4, "testqueue", "Mytopic", 1, 1119400002, "fish", b"hello"),
    ),
    ("sent", S.SYNCED, b"8|ACK|1|4|0|1443914715|\x010\x1f0\0\0", Ack(8, "1 1")),
    ("none", S.SYNCED, b"9|ACK|1|2|0|4078116583|\x01/\0\0", Ack(9, "0")),
    (
        "altered",
        S.SYNCED,
        b"5|ALTERQUEUE|1|18|0|3978944998|\x01sdrsptdtd\x1fEK@FR<8\0\0",
        AlterQueue(5, "testqueue", flags=9),
    ),
    ("alter-ack", S.SYNCED, b"10|ACK|1|2|0|2115703570|\x010\0\0", Ack(10, "1")),
    ("part-ack", S.SYNCED, b"12|ACK|1|2|0|2115703570|\x010\0\0", Ack(12, "1")),
    ("ecrc", S.SYNCED, b"12|ERROR|1|5|0|2807563456|\x01DBQB\0\0", Error(12, "ECRC")),
    ("login-no", S.CHECKING, b"2|ACK|1|2|0|4078116583|\x01/\0\0", LoginRefused(2)),
    (
        "login-locked",
        S.CHECKING,
        b"2|ACK|1|18|0|2588431852|\x01,0{`bbntms\x1fknbjdc\0\0",
        LoginRefused(2, "account locked"),
    ),
    # ours
    ("caps-no", S.CAPS_ASKED, frame("ACK", b"0"), CapsRefused(7)),
    ("caps-why", S.CAPS_ASKED, frame("ACK", b"-1|no PULL"), CapsRefused(7, "no PULL")),
    ("error-early", S.CHECKING, frame("ERROR", b"ESTATE x"), Error(7, "ESTATE", "x")),
    ("nobody", S.SYNCING, frame("PRESENCE", b""), Presence(7)),
    (
        "signs",
        S.SYNCED,
        frame("PRESENCE", b"-bob +anna #news"),
        Presence(7, (("-bob", ()), ("+anna", ()), ("#news", ()))),
    ),
    ("no-owner", S.SYNCED, frame("QUEUEINFO", b"q 2 - 0 5"), QueueInfo(7, "q", 2, "", 0, 5)),
    (
        "from-pull",
        S.IN,
        frame("MSGFROMQUEUE", b"q - 3 5 x 0 ", flags=1),
        FromQueue(7, "q", "", 3, 5, "x", b"", 1),
    ),
    # ours: a peer may say more after the 1
    ("login-more", S.CHECKING, frame("ACK", b"1 welcome"), LoginAccepted(7)),
]

DECODE_ONLY = {
    *["small-type", "number-type", "v1", "one-nul", "many-nuls", "hex-crc", "other-offset"],
    *["nothing", "bare-join", "deaf", "bare-get", "bare-create", "login-more"],
}

REJECTED_FROM_CLIENT = [
    # facts, section 4: the connection is kept
    ("crc", S.IN, raw("PARTQUEUE", b"\x01p", crc="1"), BadCrc),
    ("crc-first", S.IN, raw("NOSUCH", b"\x01\x01", crc="1"), BadCrc),
    ("escape", S.IN, raw("NOTIFY", b"\x01\x01\x04"), BadData),
    ("escape-cut", S.IN, raw("NOTIFY", b"\x01\x01"), BadData),
    ("offset-0", S.IN, raw("NOTIFY", b"\0a"), BadData),
    ("type", S.IN, frame("NOSUCH", b""), UnknownType),
    ("type-20", S.IN, frame("20", b""), UnknownType),
    ("type-empty", S.IN, frame("", b""), UnknownType),
    ("type-of-server", S.IN, frame("QUEUEINFO", b"q 1 - 0 0"), UnknownType),
    ("auth-alone", S.LOGIN, frame("AUTH", b"fish"), BadSyntax),
    ("auth-signed", S.LOGIN, frame("AUTH", b"+fish x"), BadSyntax),
    ("auth-latin", S.LOGIN, frame("AUTH", b"f\xefsh x"), BadSyntax),
    ("caps-word", S.CAPS, frame("CLNTCAP", b"STD"), BadSyntax),
    ("app-word", S.IN, frame("APPID", b"100 x"), BadSyntax),
    ("app-spaces", S.IN, frame("APPID", b"100  200"), BadSyntax),
    ("notify-unsigned", S.IN, frame("NOTIFY", b"wally"), BadSyntax),
    ("find-none", S.IN, frame("FINDQUEUE", b""), BadSyntax),
    ("long-name", S.IN, frame("PARTQUEUE", b"q" * 32), BadSyntax),
    ("barred-name", S.IN, frame("PARTQUEUE", b"a|b"), BadSyntax),
    ("nul-name", S.IN, frame("PARTQUEUE", b"a\0b"), BadSyntax),
    ("join-word", S.IN, frame("JOINQUEUE", b"q LOUD"), BadSyntax),
    ("create-word", S.IN, frame("CREATEQUEUE", b"q x"), BadSyntax),
    ("alter-nothing", S.IN, frame("ALTERQUEUE", b"q"), BadSyntax),
    ("alter-key", S.IN, frame("ALTERQUEUE", b"q COLOUR=1"), BadSyntax),
    ("alter-word", S.IN, frame("ALTERQUEUE", b"q FLAGS=x"), BadSyntax),
    ("alter-space", S.IN, frame("ALTERQUEUE", b"q FLAGS=1 "), BadSyntax),
    ("send-short", S.IN, frame("SENDTOQUEUE", b"q 6 t hello"), BadSyntax),
    ("send-long", S.IN, frame("SENDTOQUEUE", b"q 4 t hello"), BadSyntax),
    ("send-huge", S.IN, frame("SENDTOQUEUE", b"q " + b"9" * 5000 + b" t hello"), BadSyntax),
    ("send-minus", S.IN, frame("SENDTOQUEUE", b"q -1 t hello"), BadSyntax),
    ("client-short", S.IN, frame("SENDTOCLNT", b"wally 100 3 hi"), BadSyntax),
    ("error-empty", S.IN, frame("ERROR", b""), BadSyntax),
    # the connection is lost
    ("version", S.IN, raw("PARTQUEUE", b"\x01p", version="2"), BadVersion),
    ("no-nul", S.IN, raw("PARTQUEUE", b"\x01p", end=b"8|"), BadFrame),
    ("length", S.IN, raw("PARTQUEUE", b"\x01p", length="1"), BadFrame),
    ("length-minus", S.IN, raw("PARTQUEUE", b"\x01p", length="-2"), BadFrame),
    ("length-space", S.IN, raw("PARTQUEUE", b"\x01p", length=" 2"), BadFrame),
    ("mid-word", S.IN, raw("PARTQUEUE", b"\x01p", mid="x"), BadFrame),
    ("mid-large", S.IN, raw("PARTQUEUE", b"\x01p", mid=str(2**32)), BadFrame),
    ("digits-of-others", S.IN, raw("PARTQUEUE", b"\x01p", mid="\u0661"), BadFrame),
    ("endless-header", S.IN, b"1|" + b"x" * 126, TooBig),
    ("other-protocol", S.BANNER, b"GET / HTTP/1.1\r\n\r\n\0", BadFrame),
    ("too-big", S.IN, b"1|PARTQUEUE|1|1048577|0|1|", TooBig),
    ("far-too-big", S.IN, b"1|PARTQUEUE|1|9999999999|0|1|", TooBig),
]

REJECTED_FROM_SERVER = [
    ("type-of-client", S.SYNCED, frame("PARTQUEUE", b"q"), UnknownType),
    ("login-what", S.CHECKING, frame("ACK", b"2"), BadSyntax),
    ("caps-empty", S.CAPS_ASKED, frame("ACK", b""), BadSyntax),
    ("banner-short", S.BANNER, frame("SRVCAP", b"salt"), BadSyntax),
    ("apps-of-nobody", S.SYNCED, frame("PRESENCE", b"100"), BadSyntax),
    ("apps-of-the-gone", S.SYNCED, frame("PRESENCE", b"-bob 100"), BadSyntax),
    ("plus-alone", S.SYNCED, frame("PRESENCE", b"+"), BadSyntax),
    ("info-short", S.SYNCED, frame("QUEUEINFO", b"q 1 -"), BadSyntax),
    ("delivery-short", S.SYNCED, frame("MSGFROMQUEUE", b"q - 1 1 x 2 a"), BadSyntax),
    ("mail-short", S.SYNCED, frame("MSGFROMCLNT", b"x 1 1 1 2 a"), BadSyntax),
]

_BYTES = {name: data for name, _, data, _ in [*FROM_CLIENT, *FROM_SERVER]}
_SESSION = [
    *["S srvcap", "C clntcap", "S caps-ack", "C auth", "S login-ack", "C appid"],
    *["S msgfromclnt", "C ack", "S msgfromclnt-2", "C ack-2", "S presence", "C notify"],
    *["S ack-empty", "C findqueue", "S enoqueue", "C createqueue", "S created"],
    *["C joinqueue", "S queueinfo", "C sendtoqueue", "S msgfromqueue", "S sent"],
    *["C getfromqueue", "S none", "C alterqueue", "S altered", "S alter-ack", "C sendtoclnt"],
    *["C partqueue", "S part-ack"],
]
_BYTES["ack-2"] = b"2|ACK|1|1|0|2363233923|x\0\0"

# facts, section 6
CONVERSATIONS = {
    "session": [(said[0], _BYTES[said[2:]]) for said in _SESSION],
    "refused": [
        ("S", _BYTES["srvcap"]),
        ("C", _BYTES["clntcap"]),
        ("S", _BYTES["caps-ack"]),
        ("C", _BYTES["auth"]),
        ("S", _BYTES["login-no"]),
        ("C", _BYTES["auth"]),
        ("S", _BYTES["login-locked"]),
        ("C", _BYTES["auth"]),
        ("S", _BYTES["login-ack"]),
    ],
}
