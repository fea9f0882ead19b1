"""The web server: what is where, who may post, and what every answer says to a browser."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import msgspec
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from gateway.interfaces import Run
from gateway.service import refuse_to_start
from gateway.web.assets import page_files
from gateway.web.board import Board
from gateway.web.metrics import exposition
from gateway.web.queries import Query
from gateway.web.tables import Refused, Results
from gateway.web.token import Token, TokenRefused

log = Logger()

BIGGEST_BODY = 1 << 20  # bytes; a job's batch of 500 rows has about 60,000
DISCARDED = 8 << 20  # bytes of a body that is too big, before we hang up instead of answering
IDLE = 60.0  # seconds without a byte while a request is expected
MOST_CONNECTIONS = 100  # browsers open up to six each, Spark one for each job

HEADERS = {
    # plotly sets styles from its script and makes pictures of what it draws.
    b"Content-Security-Policy": b"default-src 'self'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'",
    b"X-Content-Type-Options": b"nosniff",
    b"X-Frame-Options": b"DENY",
    b"Referrer-Policy": b"no-referrer",
    b"Cross-Origin-Resource-Policy": b"same-origin",
    b"Server": b"mqgateway",
}

_encode = msgspec.json.Encoder().encode


class BoundedRequest(Request):
    """A request whose body is kept up to a limit, and whose answer has our headers."""

    content: BytesIO
    channel: Any

    def gotLength(self, length: int | None) -> None:
        self.content = BytesIO()
        self.body_size = 0

    def handleContentChunk(self, data: bytes) -> None:
        self.body_size += len(data)
        if self.body_size <= BIGGEST_BODY:
            super().handleContentChunk(data)
        elif self.body_size > DISCARDED:
            self.channel.transport.abortConnection()

    def setHeader(self, name: Any, value: Any) -> None:
        if name.lower() != b"server":  # Twisted would tell its version
            super().setHeader(name, value)

    def process(self) -> None:
        for name, value in HEADERS.items():
            self.responseHeaders.setRawHeaders(name, [value])
        super().process()


def answer(request: Request, code: int, text: str = "") -> bytes:
    """A short answer in words."""
    request.setResponseCode(code)
    if not text:
        return b""
    request.setHeader(b"content-type", b"text/plain; charset=utf-8")
    return text.encode(errors="replace") + b"\n"


class Place(Resource):
    """Something at a path, with nothing below it but what is put there."""

    def getChild(self, path: bytes, request: Request) -> Resource:
        return NotFound()

    def render(self, request: Request) -> Any:
        allowed = [name for name in ("GET", "POST") if hasattr(self, f"render_{name}")]
        method = "GET" if request.method == b"HEAD" else request.method.decode("ascii", "replace")
        if method not in allowed:
            if "GET" in allowed:
                allowed.append("HEAD")
            request.setHeader(b"allow", ", ".join(allowed).encode())
            return answer(request, 405, "not allowed here")
        request.setHeader(b"cache-control", b"no-store")
        return getattr(self, f"render_{method}")(request)


class NotFound(Place):
    isLeaf = True

    def render(self, request: Request) -> bytes:
        return answer(request, 404, "not found")


class Json(Place):
    """A value, as JSON."""

    def __init__(self, value: Callable[[], Any]) -> None:
        super().__init__()
        self._value = value

    def render_GET(self, request: Request) -> bytes:
        request.setHeader(b"content-type", b"application/json")
        return _encode(self._value())


class Metrics(Place):
    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board

    def render_GET(self, request: Request) -> bytes:
        request.setHeader(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
        return exposition(self._board.pulse.look())


class Events(Place):
    """What happens, as server-sent events."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board

    def render_GET(self, request: Request) -> bytes | int:
        if self._board.readers.is_full:
            request.setHeader(b"retry-after", b"10")
            return answer(request, 503, "too many browsers follow already")
        request.setHeader(b"content-type", b"text/event-stream")
        request.setHeader(b"x-accel-buffering", b"no")  # a proxy must not collect them
        if request.method == b"HEAD":
            return b""
        self._board.follow(request)
        return NOT_DONE_YET


class Inbox(Place):
    """Where Spark posts: a token, a type, and who is given what was posted."""

    def __init__(self, token: Token, kind: Any, give: Callable[[Any], None]) -> None:
        super().__init__()
        self._token = token
        self._decode = msgspec.json.Decoder(kind).decode
        self._give = give

    def render_POST(self, request: BoundedRequest) -> bytes:
        if not self._token.is_in(request.getHeader("authorization")):
            request.setHeader(b"www-authenticate", b"Bearer")
            return answer(request, 401, "this needs the gateway's token")
        if request.body_size > BIGGEST_BODY:
            return answer(request, 413, f"at most {BIGGEST_BODY} bytes")
        try:
            self._give(self._decode(request.content.getvalue()))
        except (msgspec.MsgspecError, Refused, UnicodeDecodeError, RecursionError) as error:
            return answer(request, 400, str(error))
        return answer(request, 204)


class WebServer(Site):
    """A port's factory, as the Gateway wants one: it starts and ends with it."""

    requestFactory = BoundedRequest
    noisy = False

    def __init__(
        self, clock: IReactorTime, board: Board, token: Token, run: Run, where: Callable[[], str]
    ) -> None:
        """`run` does a job in a thread; `where` tells a person where to look."""
        super().__init__(Place(), timeout=IDLE, reactor=clock, parsePOSTFormSubmission=False)
        self._board = board
        self._token = token
        self._where = where
        page, files = page_files(run)
        board.has_charts = "plotly.min.js" in files
        api, static = Place(), Place()
        api.putChild(b"results", Inbox(token, Results, board.results))
        api.putChild(b"queries", Inbox(token, Query, board.query))
        api.putChild(b"state", Json(board.state))
        api.putChild(b"events", Events(board))
        for name, asset in files.items():
            static.putChild(name.encode(), asset)
        for path, resource in {
            b"": page,
            b"static": static,
            b"api": api,
            b"metrics": Metrics(board),
        }.items():
            self.resource.putChild(path, resource)

    def log(self, request: Any) -> None:
        """A line for each request of each browser would hide what matters."""

    def started(self) -> None:
        try:
            self._token.reveal()
        except TokenRefused as refused:
            refuse_to_start([f"web: {refused}"])
        self._board.start()
        log.info("the dashboard is at {where}", where=self._where())

    def finish(self) -> None:
        """Browsers are told that it is over; there is nothing to wait for."""
        self._board.stop()

    def farewell(self) -> bytes:
        return b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
