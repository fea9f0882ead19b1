"""The web server's API: what it takes, what it refuses, what it tells, and its limits."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.address import IPv4Address

from gateway.accounts import Secret
from gateway.interfaces import Message, Peer
from gateway.journal import at_once
from gateway.web import site
from gateway.web.board import Board
from gateway.web.pulse import Pulse
from gateway.web.readers import MOST_READERS, MOST_WAITING, PATIENCE
from gateway.web.site import BIGGEST_BODY, WebServer
from gateway.web.tables import LONGEST_TEXT, MOST_JOBS, MOST_ORDERED, MOST_ROWS
from gateway.web.token import Token, TokenRefused
from tests.support import NOW, Wired, World

TOKEN = "the-token-of-these-tests"
RESULTS: dict[str, Any] = {"job": "rates", "keys": ["a"], "rows": [{"a": 1, "n": 2}]}
QUERY: dict[str, Any] = {"job": "rates", "state": "running", "newest": 0}


class Answer:
    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        self.status = int(first.split()[1])
        self.headers = dict(line.lower().split(": ", 1) for line in lines)


class Web:
    """A server on a real Broker and a Clock, and browsers in memory."""

    def __init__(self) -> None:
        self.world = World()
        self.clock = self.world.clock
        self.broker = self.world.broker
        pulse = Pulse(self.clock, self.broker, self.world.journal, lambda: {"qlite": 3})
        self.board = Board(self.clock, pulse, self.broker.count, lambda: {"state": "off"})
        token = Token(Secret(TOKEN.encode()), None)
        self.server = WebServer(self.clock, self.board, token, at_once, lambda: "here")
        self.server.started()

    def connect(self) -> Wired:
        return Wired(self.server.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1)))

    def ask(self, path: str, method: str = "GET", body: bytes = b"", **headers: str) -> Answer:
        headers = {"host": "here", "content-length": str(len(body)), **headers}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        client = self.connect()
        client.says("\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + body)
        return Answer(client.hears())

    def post(self, path: str, content: Any, token: str = TOKEN) -> Answer:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.ask(path, "POST", body, authorization=f"Bearer {token}")

    def results(self, **content: Any) -> Answer:
        return self.post("/api/results", {**RESULTS, **content})

    def state(self) -> Any:
        return json.loads(self.ask("/api/state").body)

    def rows(self, job: str = "rates") -> Any:
        return self.state()["tables"][job]["rows"]

    def follow(self) -> Wired:
        client = self.connect()
        client.says(b"GET /api/events HTTP/1.1\r\nhost: here\r\n\r\n")
        return client


def events(client: Wired) -> list[tuple[str, Any]]:
    """What a follower has been told; a chunk of HTTP is a block of lines that begin so."""
    found, name = [], ""
    for line in client.hears().decode().splitlines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            found.append((name, json.loads(line[6:])))
    return found


@pytest.fixture
def web() -> Web:
    return Web()


class TestPages:
    def test_the_page_and_its_files_are_there(self, web: Web) -> None:
        """All that the page names is served, with its type, and packed if the browser likes."""
        page = web.ask("/")
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        for name in ("app.js", "cards.js", "charts.js", "store.js", "text.js", "style.css"):
            plain = web.ask(f"/static/{name}")
            packed = web.ask(f"/static/{name}", accept_encoding="gzip, br")
            assert plain.status == 200
            assert packed.headers["content-encoding"] == "gzip"
            assert gzip.decompress(packed.body) == plain.body

    def test_plotly_comes_from_the_python_package(self, web: Web) -> None:
        """It is cached for a day, and not sent to a browser that has it."""
        answer = web.ask("/static/plotly.min.js", accept_encoding="gzip")
        assert answer.headers["cache-control"] == "max-age=86400"
        assert b"plotly.js" in gzip.decompress(answer.body)[:2000]
        again = web.ask("/static/plotly.min.js", if_none_match=answer.headers["etag"])
        assert (again.status, again.body) == (304, b"")

    def test_without_plotly_the_page_is_told_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gateway.web.assets.plotly_script", lambda: None)
        web = Web()
        assert web.state()["charts"] is False
        assert web.ask("/static/plotly.min.js").status == 404

    @pytest.mark.parametrize(
        "path",
        ["/x", "/static", "/static/", "/static/../app.py", "/static/app.js/x", "/api", "/api/x/y"],
    )
    def test_what_is_not_there_is_not_found(self, web: Web, path: str) -> None:
        assert web.ask(path).status in (404, 405)
        assert b"import" not in web.ask(path).body

    def test_every_answer_keeps_browsers_strict(self, web: Web) -> None:
        """Also a refusal: nothing from elsewhere, no framing, no guessing of types."""
        for answer in (web.ask("/"), web.ask("/none"), web.ask("/api/state", "PUT")):
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["server"] == "mqgateway"

    @pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/state", "/metrics"])
    def test_head_is_get_without_the_body(self, web: Web, path: str) -> None:
        answer = web.ask(path, "HEAD")
        assert (answer.status, answer.body) == (200, b"")

    def test_a_head_does_not_follow(self, web: Web) -> None:
        assert web.ask("/api/events", "HEAD").status == 200
        assert len(web.board.readers) == 0

    @pytest.mark.parametrize(
        ("path", "method", "allowed"),
        [
            ("/api/results", "GET", "post"),
            ("/api/state", "POST", "get, head"),
            ("/metrics", "DELETE", "get, head"),
        ],
    )
    def test_another_method_is_not_allowed(
        self, web: Web, path: str, method: str, allowed: str
    ) -> None:
        answer = web.ask(path, method)
        assert (answer.status, answer.headers["allow"]) == (405, allowed)


class TestPosting:
    @pytest.mark.parametrize("path", ["/api/results", "/api/queries"])
    def test_it_needs_the_token(self, web: Web, path: str) -> None:
        assert web.post(path, RESULTS, token="another").status == 401
        assert web.ask(path, "POST", b"{}").status == 401
        assert web.state()["tables"] == {}

    def test_rows_are_put_in_by_their_keys(self, web: Web) -> None:
        """The same key again is the same row, with the new values."""
        assert web.results().status == 204
        web.results(rows=[{"a": 1, "n": 5}, {"a": 2, "n": 6}])
        assert web.rows() == [{"a": 1, "n": 5}, {"a": 2, "n": 6}]

    def test_replace_swaps_the_whole_table(self, web: Web) -> None:
        web.results()
        web.results(keys=[], replace=True, rows=[{"x": 1}, {"x": 2}])
        assert web.rows() == [{"x": 1}, {"x": 2}]

    def test_of_an_ordered_table_the_newest_are_kept(self, web: Web) -> None:
        rows = [{"a": number} for number in range(MOST_ORDERED + 5)]
        web.results(order="a", rows=rows[::-1])
        web.results(order="a", rows=[{"a": 3}])
        assert min(row["a"] for row in web.rows()) == 5
        assert len(web.rows()) == MOST_ORDERED

    def test_of_another_those_that_came_last_are_kept(self, web: Web) -> None:
        web.results(rows=[{"a": number} for number in range(MOST_ROWS)])
        web.results(rows=[{"a": 0}, {"a": "new"}])
        assert len(web.rows()) == MOST_ROWS
        assert [row["a"] for row in web.rows()][-2:] == [0, "new"]
        assert {"a": 1} not in web.rows()

    def test_a_long_name_is_cut(self, web: Web) -> None:
        """Names come from messages; a refusal would let a sender stop the dashboard."""
        web.results(rows=[{"a": "x" * 5000}])
        assert len(web.rows()[0]["a"]) == LONGEST_TEXT

    def test_there_are_only_so_many_jobs(self, web: Web) -> None:
        for number in range(MOST_JOBS):
            assert web.results(job=f"job{number}").status == 204
        answer = web.results(job="more")
        assert answer.status == 400
        assert answer.body == b"there are 32 jobs already, and no room for more\n"
        assert web.results(job="job0").status == 204

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (b"", b"Input data was truncated"),
            (b"{", b"Input data was truncated"),
            (b"\xff", b"JSON is malformed"),
            (b"[" * 100_000, b"Expected `object`, got `array`"),
            ([], b"Expected `object`, got `array`"),
            ({}, b"Object missing required field `job`"),
            ({**RESULTS, "job": "<b>"}, b"Expected `str` matching regex"),
            ({**RESULTS, "job": 5}, b"Expected `str`, got `int` - at `$.job`"),
            ({**RESULTS, "rows": [[1]]}, b"Expected `object`, got `array` - at `$.rows[0]`"),
            ({**RESULTS, "rows": [{"a": [1]}]}, b"got `array`"),
            ({**RESULTS, "rows": [{"b": 1}]}, b"rows[0]: has no a"),
            ({**RESULTS, "rows": [{"a": "x"}], "order": "a"}, b"rows[0].a: must be a number"),
            ({**RESULTS, "keys": []}, b"keys: must name a column"),
            ({**RESULTS, "rows": [{f"c{n}": n for n in range(40)}]}, b"rows[0]: has more than 32"),
            (b'{"job":"a","keys":["a"],"rows":[{"a":NaN}]}', b"JSON is malformed"),
        ],
    )
    def test_what_is_wrong_is_refused_with_the_reason(
        self, web: Web, content: Any, reason: bytes
    ) -> None:
        """And nothing of it is kept."""
        answer = web.post("/api/results", content)
        assert answer.status == 400
        assert reason in answer.body
        assert web.state()["tables"] == {}

    def test_a_body_that_is_too_big_is_refused(self, web: Web) -> None:
        answer = web.post("/api/results", b" " * (BIGGEST_BODY + 1))
        assert (answer.status, answer.body) == (413, b"at most 1048576 bytes\n")

    def test_one_that_never_ends_is_hung_up_on(
        self, web: Web, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = web.connect()
        client.says(b"POST /api/results HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n")
        for _ in range(site.DISCARDED // BIGGEST_BODY + 1):
            client.says(b" " * BIGGEST_BODY)
        assert client.transport.aborted


class TestQueries:
    def test_a_query_is_shown_with_how_far_it_is_behind(self, web: Web) -> None:
        web.broker.declare("queue:a")
        for _ in range(4):
            web.broker.push(Message("queue:a", b"x", "bob", "test"))
        web.clock.advance(0)
        assert web.post("/api/queries", {**QUERY, "newest": 2}).status == 204
        (query,) = web.state()["gateway"]["queries"]
        assert (query["state"], query["lag"]) == ("running", 3)

    def test_one_that_is_not_heard_of_is_silent(self, web: Web) -> None:
        """Until it speaks again; one that has stopped may be silent."""
        web.post("/api/queries", QUERY)
        web.post("/api/queries", {**QUERY, "job": "ended", "state": "stopped"})
        web.clock.pump([1.0] * 16)
        assert [each["state"] for each in web.state()["gateway"]["queries"]] == [
            *("silent", "stopped")
        ]
        web.post("/api/queries", QUERY)
        assert web.state()["gateway"]["queries"][0]["state"] == "running"

    def test_an_error_is_one_line_that_ends(self, web: Web) -> None:
        web.post("/api/queries", {**QUERY, "state": "failed", "error": "a\n  b" * 5000})
        (query,) = web.state()["gateway"]["queries"]
        assert query["error"].startswith("a ba b")
        assert len(query["error"]) <= 500

    def test_a_state_that_does_not_exist_is_refused(self, web: Web) -> None:
        answer = web.post("/api/queries", {**QUERY, "state": "well"})
        assert answer.status == 400
        assert b"$.state" in answer.body


class TestPulse:
    def test_it_counts_what_is_safe(self, web: Web) -> None:
        """Rates are an average of five seconds; totals are since the start."""
        web.broker.declare("queue:a")
        for _ in range(10):
            web.broker.push(Message("queue:a", b"x", "bob", "qlite"))
        web.broker.take("queue:a", Peer("rq", "ann"))
        web.clock.pump([0, 1.0, 1.0, 1.0, 1.0, 1.0])
        now = web.state()["gateway"]
        assert now["rates"]["qlite"]["accepted"] == 2.0
        assert now["rates"]["rq"]["delivered"] == 0.2
        assert now["totals"]["qlite"] == {"accepted": 10}
        assert (now["waiting"], now["addresses"], now["newest"]) == (9, 1, 12)
        assert now["deepest"] == [
            {"address": "queue:a", "depth": 9, "outstanding": 0, "consumers": 0}
        ]
        assert now["connections"] == {"qlite": 3}
        assert (now["uptime"], now["failing"]) == (5.0, "")
        assert now["time"] == NOW + 5
        web.clock.pump([1.0] * 6)
        assert web.state()["gateway"]["rates"]["qlite"]["accepted"] == 0.0

    def test_prometheus_can_read_it(self, web: Web) -> None:
        """Labels from messages cannot break out of their quotes."""
        web.broker.declare("queue:a")
        web.broker.push(Message("queue:a", b"x", "bob", "qlite"))
        web.broker.count("refused", "qlite", 'a"\nb')
        web.clock.advance(0)
        lines = web.ask("/metrics").body.decode().splitlines()
        assert 'mqgateway_events_total{protocol="qlite",event="accepted"} 1' in lines
        assert 'mqgateway_counted_total{what="refused",labels="qlite/a\\"\\nb"} 1' in lines
        assert "mqgateway_messages_waiting 1" in lines
        assert 'mqgateway_connections{protocol="qlite"} 3' in lines


class TestEvents:
    def test_a_browser_is_told_all_and_then_what_is_new(self, web: Web) -> None:
        web.results()
        client = web.follow()
        (name, state), *rest = events(client)
        assert (name, rest) == ("state", [])
        assert state["tables"]["rates"]["rows"] == RESULTS["rows"]
        web.post("/api/queries", QUERY)
        web.clock.advance(0.5)
        web.results()
        assert [name for name, _ in events(client)] == ["query", "result"]
        web.clock.advance(0.5)
        assert [name for name, _ in events(client)] == ["gateway"]

    def test_results_of_a_job_are_told_at_once_and_then_together(self, web: Web) -> None:
        """A job that posts often is told of a few times a second, with its last values."""
        client = web.follow()
        for number in range(50):
            web.results(rows=[{"a": 1, "n": number}])
        web.clock.pump([0.3] * 3)
        told = [data for name, data in events(client) if name == "result"]
        assert [each["rows"] for each in told] == [[{"a": 1, "n": 0}], [{"a": 1, "n": 49}]]

    def test_there_are_only_so_many_followers(self, web: Web) -> None:
        clients = [web.follow() for _ in range(MOST_READERS)]
        assert Answer(web.follow().hears()).status == 503
        clients[0].hangs_up()
        assert Answer(web.follow().hears()).status == 200

    def test_one_that_does_not_read_is_dropped(self, web: Web) -> None:
        """When too much waits for it, or for too long; others are told on."""
        much, long, good = (web.follow() for _ in range(3))
        for client in (much, long):
            client.transport.producer.pauseProducing()
        reader = next(iter(web.board.readers._readers))
        reader.tell(b"x" * (MOST_WAITING + 1))
        assert (much.transport.aborted, long.transport.aborted) == (True, False)
        web.clock.pump([1.0] * int(PATIENCE + 2))
        assert long.transport.aborted
        assert not good.transport.aborted
        assert web.broker.counts["web-dropped", "does not read"] == 2

    def test_one_that_reads_on_in_time_misses_nothing(self, web: Web) -> None:
        client = web.follow()
        client.hears()
        client.transport.producer.pauseProducing()
        web.clock.pump([1.0] * 3)
        assert client.hears() == b""
        client.transport.producer.resumeProducing()
        assert [name for name, _ in events(client)] == ["gateway"] * 3

    def test_followers_hear_the_end_of_the_gateway(self, web: Web) -> None:
        client = web.follow()
        web.server.finish()
        assert client.hears().endswith(b"0\r\n\r\n")
        assert len(web.board.readers) == 0


class TestToken:
    def test_it_is_made_once_and_kept_for_us_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "data" / "token"
        token = Token(None, path).reveal()
        assert len(token) == 32
        assert path.stat().st_mode & 0o777 == 0o600
        assert Token(None, path).reveal() == token

    def test_a_file_that_was_never_written_is_written_now(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.touch(0o600)
        assert Token(None, path).reveal() == path.read_text().strip() != ""

    @pytest.mark.parametrize("content", [b"\xff\xfe", b"two words", b"x" * 2000])
    def test_a_file_with_something_else_is_refused(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "token"
        path.write_bytes(content)
        with pytest.raises(TokenRefused, match="has no token in it"):
            Token(None, path).reveal()

    def test_a_file_that_cannot_be_read_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(TokenRefused, match="Is a directory"):
            Token(None, tmp_path).reveal()
