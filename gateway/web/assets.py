"""The page's own files, and plotly's script out of the Python package, as web resources."""

from __future__ import annotations

import gzip
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import CACHED
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from gateway.interfaces import Run

log = Logger()

PAGE = Path(__file__).with_name("page")
TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
ASK_AGAIN = b"no-cache"  # but an unchanged file is not sent again
A_DAY = b"max-age=86400"  # for what changes only with the Python package


class Content(NamedTuple):
    """A file in memory, both ways that a browser may want it."""

    plain: bytes
    zipped: bytes
    tag: bytes


def read(path: Path) -> Content:
    plain = path.read_bytes()
    zipped = gzip.compress(plain, 6, mtime=0)
    return Content(plain, zipped, b'"' + sha256(plain).hexdigest()[:20].encode() + b'"')


def plotly_script() -> Path | None:
    """Where plotly's script is, if plotly is installed.  To import plotly would take a second."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("package_data") / "plotly.min.js"
    return path if path.is_file() else None


class Asset(Resource):
    """One file, read and packed when it is first asked for: in a thread, because plotly's script
    has 5 MB and packing them takes a third of a second."""

    isLeaf = True

    def __init__(self, path: Path, run: Run, caching: bytes = ASK_AGAIN) -> None:
        super().__init__()
        self._path = path
        self._run = run
        self._caching = caching
        self._content: Content | None = None

    def render_GET(self, request: Request) -> bytes | int:
        if request.postpath not in ([], [b""]):
            request.setResponseCode(404)
            return b"not found\n"
        if self._content is not None:
            return self._answer(request, self._content)
        gone: list[object] = []
        request.notifyFinish().addErrback(gone.append)

        def answer(content: Content) -> None:
            self._content = content
            if not gone:
                body = self._answer(request, content)
                request.write(b"" if request.method == b"HEAD" else body)
                request.finish()

        def failed(failure: Failure) -> None:
            log.failure("{path} cannot be read", failure, path=self._path)
            if not gone:
                request.setResponseCode(500)
                request.finish()

        self._run(lambda: read(self._path)).addCallback(answer).addErrback(failed)
        return NOT_DONE_YET

    def _answer(self, request: Request, content: Content) -> bytes:
        request.setHeader(b"content-type", TYPES[self._path.suffix])
        request.setHeader(b"cache-control", self._caching)
        request.setHeader(b"vary", b"Accept-Encoding")
        if request.setETag(content.tag) == CACHED:
            return b""
        body = content.plain
        if b"gzip" in (request.getHeader(b"accept-encoding") or b""):
            request.setHeader(b"content-encoding", b"gzip")
            body = content.zipped
        request.setHeader(b"content-length", b"%d" % len(body))
        return body


def page_files(run: Run) -> tuple[Asset, dict[str, Asset]]:
    """The page, and what it loads, by name."""
    files = {
        path.name: Asset(path, run)
        for path in sorted(PAGE.iterdir())
        if path.suffix in TYPES and path.name != "index.html"
    }
    script = plotly_script()
    if script is not None:
        files["plotly.min.js"] = Asset(script, run, A_DAY)
    return Asset(PAGE / "index.html", run), files
