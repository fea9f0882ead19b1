"""A web server in place of the gateway's: it keeps what it is posted."""

from __future__ import annotations

import http.server
import json
from typing import Any

TOKEN = "a token of the test"


class Posts(http.server.ThreadingHTTPServer):
    """A web server that keeps what it is posted by whoever has the token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Post)
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.unwanted = ""  # the job whose results are wrong

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def rows(self, job: str) -> list[dict[str, Any]]:
        """The table of a job, as the gateway would have it."""
        table: dict[tuple[Any, ...], dict[str, Any]] = {}
        for path, post in [*self.posts]:
            if path == "/api/results" and post["job"] == job:
                if post["replace"]:
                    table = {}
                table.update({tuple(row[key] for key in post["keys"]): row for row in post["rows"]})
        return [*table.values()]

    def states(self, state: str) -> dict[str, dict[str, Any]]:
        """The last report of each job that was in that state."""
        return {
            post["job"]: post
            for path, post in [*self.posts]
            if path == "/api/queries" and post["state"] == state
        }


class Post(http.server.BaseHTTPRequestHandler):
    server: Posts

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.headers["Authorization"] == f"Bearer {TOKEN}"
        wanted = content.get("job") != self.server.unwanted
        if known and wanted:
            self.server.posts.append((self.path, content))
        self.send_response(401 if not known else 204 if wanted else 400)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
