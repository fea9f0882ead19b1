"""The fields of DATA, as they are read: one reader for each type.

A reader gives None if the fields are not those of its type; a ValueError, as of what is no UTF-8,
is the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from protocols.mqserver.events import (
    DEAF,
    FILTER,
    Ack,
    AlterQueue,
    AppId,
    Auth,
    ClientCaps,
    CreateQueue,
    Error,
    FindQueue,
    FromClient,
    FromQueue,
    GetFromQueue,
    JoinQueue,
    Notify,
    PartQueue,
    Presence,
    QueueInfo,
    SendToClient,
    SendToQueue,
    ServerCaps,
)

# Of a MID, FLAGS and DATA: the event, or None.
Reader = Callable[[int, int, bytes], Any]

_NAME = rb"([^\x00-\x20|\x7f]{1,31})"
_USER = rb"([^\x00-\x20|\x7f+#-][^\x00-\x20|\x7f]{0,30})"
_WORD = rb"([^\x00-\x20|\x7f]{1,255})"  # who sent it may come from elsewhere, and have a long name
_FILTER = rb"([^\x00-\x20\x7f]{1,%d})" % FILTER
_INT = rb"([0-9]{1,10})"
_ID = rb"([0-9]{1,19})"
_REST = rb"(?: ((?s:.*)))?"  # a free text, which may be missing
_NO_MORE = rb"(?: |\Z)"  # before a payload

_caps = re.compile(_INT + _REST).fullmatch
_server_caps = re.compile(_WORD + b" " + _INT + _REST).fullmatch
_auth = re.compile(_USER + b" " + _WORD).fullmatch
_error = re.compile(_WORD + _REST).fullmatch
_numbers = re.compile(rb"(?:[0-9]{1,10}(?: (?!\Z)|\Z))*").fullmatch
_signed = re.compile(rb"[+-]" + _USER).fullmatch
_watched = re.compile(rb"[+-]#?" + _USER).fullmatch
_name = re.compile(_NAME).fullmatch
_join = re.compile(_NAME + b"(?: (DEAF|[0-9]{1,10})(?: " + _FILTER + b")?)?").fullmatch
_create = re.compile(
    _NAME + b"(?: " + _INT + b"(?: " + _INT + b"(?: " + _INT + _REST + b")?)?)?"
).fullmatch
_info = re.compile(b" ".join([_NAME, _INT, _WORD, _INT, _INT]) + _REST).fullmatch
_get = re.compile(_NAME + b"(?: " + _INT + b"(?: " + _FILTER + b")?)?").fullmatch
_send = re.compile(b" ".join([_NAME, _INT, _NAME]) + _NO_MORE).match
_deliver = re.compile(b" ".join([_NAME, _NAME, _ID, _INT, _WORD, _INT]) + _NO_MORE).match
_send_client = re.compile(b" ".join([_USER, _INT, _INT]) + _NO_MORE).match
_deliver_client = re.compile(b" ".join([_WORD, _INT, _ID, _INT, _INT]) + _NO_MORE).match


def _text(raw: bytes | None) -> str:
    return "" if raw is None else raw.decode()


def _or_none(raw: bytes) -> str:
    """A topic or an owner."""
    return "" if raw == b"-" else raw.decode()


def _read_server_caps(mid: int, flags: int, data: bytes) -> ServerCaps | None:
    found = _server_caps(data)
    return found and ServerCaps(found[1].decode(), int(found[2]), _text(found[3]), mid)


def _read_client_caps(mid: int, flags: int, data: bytes) -> ClientCaps | None:
    found = _caps(data)
    return found and ClientCaps(mid, int(found[1]), _text(found[2]))


def _read_auth(mid: int, flags: int, data: bytes) -> Auth | None:
    found = _auth(data)
    return found and Auth(mid, found[1].decode(), found[2].decode())


def _read_ack(mid: int, flags: int, data: bytes) -> Ack:
    return Ack(mid, data.decode())


def _read_error(mid: int, flags: int, data: bytes) -> Error | None:
    found = _error(data)
    return found and Error(mid, found[1].decode(), _text(found[2]))


def _read_app_id(mid: int, flags: int, data: bytes) -> AppId | None:
    return AppId(mid, tuple(map(int, data.split()))) if _numbers(data) else None


def _read_notify(mid: int, flags: int, data: bytes) -> Notify | None:
    words = data.split(b" ") if data else []
    return Notify(mid, tuple(map(bytes.decode, words))) if all(map(_watched, words)) else None


def _read_find(mid: int, flags: int, data: bytes) -> FindQueue | None:
    words = data.split(b" ")
    return FindQueue(mid, tuple(map(bytes.decode, words))) if all(map(_name, words)) else None


def _read_presence(mid: int, flags: int, data: bytes) -> Presence | None:
    changes: list[tuple[str, tuple[int, ...]]] = []
    for word in data.split(b" ") if data else []:
        if word[:1] in (b"+", b"-", b"#") and len(word) > 1:
            changes.append((word.decode(), ()))
        elif changes and changes[-1][0][0] == "+" and _INT_ONLY(word):
            name, app_ids = changes[-1]
            changes[-1] = (name, (*app_ids, int(word)))
        else:
            return None
    return Presence(mid, tuple(changes))


_INT_ONLY = re.compile(_INT).fullmatch


def _read_join(mid: int, flags: int, data: bytes) -> JoinQueue | None:
    found = _join(data)
    if found is None:
        return None
    queue, how, topics = found.groups()
    number = DEAF if how == b"DEAF" else int(how or 0)
    return JoinQueue(mid, queue.decode(), number, _text(topics) or "*")


def _read_part(mid: int, flags: int, data: bytes) -> PartQueue | None:
    return PartQueue(mid, data.decode()) if _name(data) else None


def _read_create(mid: int, flags: int, data: bytes) -> CreateQueue | None:
    found = _create(data)
    if found is None:
        return None
    queue, kind, most, ttl, info = found.groups()
    return CreateQueue(
        mid, queue.decode(), int(kind or 0), int(most or 0), int(ttl or 0), _text(info)
    )


def _read_info(mid: int, flags: int, data: bytes) -> QueueInfo | None:
    found = _info(data)
    if found is None:
        return None
    queue, kind, owner, members, depth, info = found.groups()
    return QueueInfo(
        mid, queue.decode(), int(kind), _or_none(owner), int(members), int(depth), _text(info)
    )


def _read_alter(mid: int, flags: int, data: bytes) -> AlterQueue | None:
    queue, _, rest = data.partition(b" ")
    if not rest or not _name(queue):
        return None
    values: dict[str, Any] = {}
    while rest:
        if rest.startswith(b"INFO="):
            values["info"] = rest[5:].decode()
            break
        word, space, rest = rest.partition(b" ")
        if space and not rest:
            return None
        key, _, value = word.partition(b"=")
        field = _NUMBERS_OF_A_QUEUE.get(key)
        if field is not None and _INT_ONLY(value):
            values[field] = int(value)
        elif key == b"OWNER" and _name(value):
            values["owner"] = _or_none(value)
        elif key == b"ALLOW" and _signed(value):
            values["allow"] = (*values.get("allow", ()), value.decode())
        else:
            return None
    return AlterQueue(mid, queue.decode(), **values)


_NUMBERS_OF_A_QUEUE = {b"FLAGS": "flags", b"MAXMSGS": "max_messages", b"TTL": "ttl"}


def _read_send(mid: int, flags: int, data: bytes) -> SendToQueue | None:
    found = _send(data)
    if found is None:
        return None
    queue, length, topic = found.groups()
    payload = data[found.end() :]
    if len(payload) != int(length):
        return None
    return SendToQueue(mid, queue.decode(), _or_none(topic), payload, flags)


def _read_get(mid: int, flags: int, data: bytes) -> GetFromQueue | None:
    found = _get(data)
    if found is None:
        return None
    queue, count, topics = found.groups()
    return GetFromQueue(
        mid, queue.decode(), 1 if count is None else int(count), _text(topics) or "*"
    )


def _read_delivery(mid: int, flags: int, data: bytes) -> FromQueue | None:
    found = _deliver(data)
    if found is None:
        return None
    queue, topic, number, time, sender, length = found.groups()
    payload = data[found.end() :]
    if len(payload) != int(length):
        return None
    return FromQueue(
        mid,
        queue.decode(),
        _or_none(topic),
        int(number),
        int(time),
        sender.decode(),
        payload,
        flags,
    )


def _read_send_client(mid: int, flags: int, data: bytes) -> SendToClient | None:
    found = _send_client(data)
    if found is None:
        return None
    user, app_id, length = found.groups()
    payload = data[found.end() :]
    if len(payload) != int(length):
        return None
    return SendToClient(mid, user.decode(), int(app_id), payload, flags)


def _read_from_client(mid: int, flags: int, data: bytes) -> FromClient | None:
    found = _deliver_client(data)
    if found is None:
        return None
    sender, app_id, number, time, length = found.groups()
    payload = data[found.end() :]
    if len(payload) != int(length):
        return None
    return FromClient(mid, sender.decode(), int(app_id), int(number), int(time), payload, flags)


FROM_CLIENT: dict[bytes, Reader] = {
    b"ACK": _read_ack,
    b"ERROR": _read_error,
    b"CLNTCAP": _read_client_caps,
    b"AUTH": _read_auth,
    b"APPID": _read_app_id,
    b"NOTIFY": _read_notify,
    b"FINDQUEUE": _read_find,
    b"JOINQUEUE": _read_join,
    b"PARTQUEUE": _read_part,
    b"CREATEQUEUE": _read_create,
    b"ALTERQUEUE": _read_alter,
    b"SENDTOQUEUE": _read_send,
    b"GETFROMQUEUE": _read_get,
    b"SENDTOCLNT": _read_send_client,
}
FROM_SERVER: dict[bytes, Reader] = {
    b"ACK": _read_ack,
    b"ERROR": _read_error,
    b"SRVCAP": _read_server_caps,
    b"PRESENCE": _read_presence,
    b"QUEUEINFO": _read_info,
    b"ALTERQUEUE": _read_alter,
    b"MSGFROMQUEUE": _read_delivery,
    b"MSGFROMCLNT": _read_from_client,
}
