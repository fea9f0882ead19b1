"""The reader's end of the replay sink: blocking, for Spark's driver and tasks.

gateway/requests.py has the frames.  A gateway that cannot be reached may be restarting, so whatever
is asked is asked again, a little later each time, until `retrySeconds` are over.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

VERSION = 1
PORT = 7001
ANSWER_SECONDS = 60.0  # to wait for an answer before the connection is given up
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between two tries
LONGEST_FRAME = 1 << 30  # bytes; a longer one is not from a gateway
MESSAGES_BYTES = 1 << 20  # of bodies in one frame on the way back, and one body more

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode
T = TypeVar("T")


class GatewayError(Exception):
    """What went wrong, in one line; the code is the gateway's."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)  # both, for it is pickled on its way through Spark
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return self.text


class Place(NamedTuple):
    """Where a gateway is, and how to be let in.  Goes to the tasks, so it is plain values."""

    host: str
    port: int
    tls: bool = False
    ca_file: str = ""
    server_name: str = ""
    token: str = ""
    retry_seconds: float = 60.0

    def __str__(self) -> str:
        return f"{'tls' if self.tls else 'tcp'}:{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"<the gateway at {self}>"  # without the token


def place_of(options: Mapping[str, str]) -> Place:
    """From the options of a query; ValueError says which of them is wrong."""
    host, port = options.get("host", "127.0.0.1"), options.get("port", str(PORT))
    tls = is_true(options, "tls", False)
    endpoint = options.get("endpoint")
    if endpoint is not None:
        if "host" in options or "port" in options:
            raise ValueError("give either endpoint, or host and port")
        kind, _, where = endpoint.partition(":")
        host, _, port = where.rpartition(":")
        if kind not in ("tcp", "tls") or not host:
            raise ValueError(f"endpoint {endpoint!r} is neither tcp:host:port nor tls:host:port")
        tls = tls or kind == "tls"
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"port {port!r} is no number from 1 to 65535")
    token = options.get("token", "")
    if "tokenFile" in options:
        if token:
            raise ValueError("give either token or tokenFile")
        try:
            token = Path(options["tokenFile"]).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            raise ValueError(f"tokenFile cannot be read: {error}") from None
    if ("caFile" in options or "serverName" in options) and not tls:
        raise ValueError("caFile and serverName are for tls=true")
    retry = number(options, "retrySeconds", 60, 0)
    return Place(
        host.strip("[]"),
        int(port),
        tls,
        options.get("caFile", ""),
        options.get("serverName", ""),
        token,
        retry,
    )


def is_true(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise ValueError(f"{name} must be true or false, not {value!r}")
    return value == "true"


def number(options: Mapping[str, str], name: str, default: int, least: int) -> int:
    value = options.get(name, str(default))
    if not value.isdecimal() or int(value) < least:
        raise ValueError(f"{name} must be a whole number from {least} on, not {value!r}")
    return int(value)


class Client:
    """One connection, made when it is first needed and again when it breaks."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._socket: socket.socket | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # What can be asked.

    def range(self) -> tuple[int, int]:
        """The first row that can be read, and the one behind the last."""
        _, oldest, end = self._persist(lambda: self._ask("range"))
        return oldest, end

    def move(self, cursor: str, position: int) -> None:
        """The rows before `position` are no longer needed by that reader."""
        self._persist(lambda: self._ask("move", cursor, position))

    def rows(self, start: int, end: int) -> Iterator[tuple[int, list[memoryview]]]:
        """Packed rows with the records [start, end), in order, each with the sequence behind it.

        If the connection breaks, it goes on where it was.
        """
        tries = _Tries(self._place)
        while start < end:
            try:
                self._send("read", start, end)
                while (answer := self._receive())[0] == "rows":
                    _, start, sizes, data = answer
                    yield start, list(_cut(data, sizes))
                    tries = _Tries(self._place)
                start = end
            except (OSError, GatewayError) as error:
                self._after(error, tries)
            except GeneratorExit:  # in the middle of an answer that nobody wants
                self.close()
                raise

    def publish(
        self,
        query: str,
        batch: int,
        rows: list[tuple[str, bytes, float | None]],
        sender: str,
        create: bool,
    ) -> tuple[int, int]:
        """Have a batch accepted: how many were, and how many were due before they came.

        With a `query` it may be sent any number of times, and is accepted once.
        """

        def send() -> tuple[int, int]:
            answer = self._ask("publish", query, batch, sender, create)
            if answer[0] == "done":
                for some in _portions(rows):
                    self._ask("messages", some)
                answer = self._ask("commit")
            return answer[1], answer[2]

        return self._persist(send) if query else send()

    # How it is asked.

    def _persist(self, ask: Callable[[], T]) -> T:
        tries = _Tries(self._place)
        while True:
            try:
                return ask()
            except (OSError, GatewayError) as error:
                self._after(error, tries)

    def _after(self, error: Exception, tries: _Tries) -> None:
        """Wait, and let it be tried again; or raise what it came to."""
        if isinstance(error, GatewayError) and error.code != "overloaded":
            if error.code in ("token", "wrong"):
                self.close()
            raise error
        self.close()
        if isinstance(error, ssl.SSLCertVerificationError):
            text = f"{self._place} is not who it should be: {error.verify_message}"
            raise GatewayError("tls", text) from None
        tries.wait(error)

    def _ask(self, *request: Any) -> list[Any]:
        self._send(*request)
        return self._receive()

    def _send(self, *request: Any) -> None:
        if self._socket is None:
            self._socket = self._connect()
            self._write("hello", VERSION, self._place.token)
            self._receive()
        self._write(*request)

    def _connect(self) -> socket.socket:
        place = self._place
        plain = socket.create_connection((place.host, place.port), ANSWER_SECONDS)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if not place.tls:
                return plain
            context = ssl.create_default_context(cafile=place.ca_file or None)
            return context.wrap_socket(plain, server_hostname=place.server_name or place.host)
        except BaseException:
            plain.close()
            raise

    def _write(self, *request: Any) -> None:
        assert self._socket is not None
        data = _encode(request)
        self._socket.sendall(struct.pack(">I", len(data)) + data)

    def _receive(self) -> list[Any]:
        (size,) = struct.unpack(">I", self._read(4))
        if size > LONGEST_FRAME:
            raise GatewayError("wrong", f"{self._place} is no replay sink of mqgateway")
        try:
            answer = _decode(self._read(size))
            if not answer:
                raise msgspec.ValidationError("an empty answer")
        except (msgspec.MsgspecError, UnicodeError):
            raise GatewayError("wrong", f"{self._place} is no replay sink of mqgateway") from None
        if answer[0] == "error":
            raise GatewayError(answer[1], f"{self._place}: {answer[2]}")
        return answer

    def _read(self, size: int) -> bytearray:
        assert self._socket is not None
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            count = self._socket.recv_into(view[at:])
            if not count:
                raise ConnectionError("the gateway hung up")
            at += count
        return data


class _Tries:
    """Pauses that get longer, within a bound."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._until = time.monotonic() + place.retry_seconds
        self._pause = FIRST_PAUSE

    def wait(self, error: Exception) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            if isinstance(error, GatewayError):
                raise error
            reason = f"cannot be reached in {self._place.retry_seconds:.0f} seconds: {error}"
            raise GatewayError("unreachable", f"{self._place} {reason}") from None
        time.sleep(min(self._pause, left))
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def _cut(data: bytes, sizes: list[int]) -> Iterator[memoryview]:
    view, at = memoryview(data), 0
    for size in sizes:
        yield view[at : at + size]
        at += size


def _portions(rows: list[tuple[str, bytes, float | None]]) -> Iterator[list[Any]]:
    """Rows in portions that are good to send."""
    some: list[Any] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row[1]) + 64
        if size >= MESSAGES_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
