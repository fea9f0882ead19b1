"""Tests for spark.results: what is posted, and again, to a web server that comes and goes."""

from __future__ import annotations

from typing import Any

import pytest

from spark import results
from spark.jobs.description import Job
from spark.results import Results, Web
from tests.spark.posts import TOKEN, Posts
from tests.support import free_port

WHOLE = Job("whole", "a table", lambda rows: rows, keys=("a",), replace=True, mode="complete")
KEYED = Job("keyed", "rows", lambda rows: rows, keys=("a",), order="a")


class Coming:
    """A web server that is away until it is told to come."""

    def __init__(self, web: Posts) -> None:
        self.now = 0.0
        self.web = Web(f"http://127.0.0.1:{free_port()}", TOKEN, lambda: self.now)
        self._posts = web

    def come(self) -> None:
        self.web._address = self._posts.address
        self.now += results.REST

    def go(self) -> None:
        self.web._address = f"http://127.0.0.1:{free_port()}"


@pytest.fixture
def coming(web: Posts) -> Coming:
    return Coming(web)


def rows(*numbers: int, **more: Any) -> list[dict[str, Any]]:
    return [{"a": number, **more} for number in numbers]


def test_a_web_server_that_is_away_costs_one_line_and_little_time(
    caplog: pytest.LogCaptureFixture, web: Posts
) -> None:
    """It is let be for some seconds, unless it is the last word; when it is back, that is told."""
    now = [0.0]
    away = Web(f"http://127.0.0.1:{free_port()}", TOKEN, lambda: now[0])
    assert not any(away.post("/api/results", {}) for _ in range(5))
    assert len(caplog.records) == 1
    away._address = web.address
    assert not away.post("/api/results", {})
    assert away.post("/api/queries", {}, last=True)
    assert [*web.posts] == [("/api/queries", {})]
    assert "takes results again" in caplog.text
    assert TOKEN not in repr(away)
    assert not Web(web.address, "wrong").post("/api/results", {})


def test_a_table_that_has_become_empty_is_posted(web: Posts) -> None:
    posted = Results(Web(web.address, TOKEN))
    posted.show(WHOLE, 1, rows(1, 2))
    posted.show(WHOLE, 2, [])
    assert [post["rows"] for _, post in web.posts] == [rows(1, 2), []]
    assert web.posts[-1][1]["replace"]


def test_what_could_not_be_posted_is_posted_later(coming: Coming, web: Posts) -> None:
    """Of a whole table the newest alone; of others the newest row of each key."""
    posted = Results(coming.web)
    posted.show(WHOLE, 1, rows(1))
    posted.show(WHOLE, 2, rows(2))
    posted.show(KEYED, 1, rows(1, 2, n=1))
    posted.show(KEYED, 2, rows(2, n=2))
    coming.come()
    posted.resend()
    assert web.rows("whole") == rows(2)
    assert sorted(web.rows("keyed"), key=lambda row: row["a"]) == rows(1, n=1) + rows(2, n=2)
    assert len([post for _, post in web.posts if post["job"] == "whole"]) == 1


def test_all_that_is_kept_is_posted_to_a_server_that_was_away(coming: Coming, web: Posts) -> None:
    """It may have been started again.  What it has is not posted over and over."""
    coming.come()
    posted = Results(coming.web)
    posted.show(KEYED, 1, rows(1))
    coming.go()
    posted.show(KEYED, 2, rows(2))
    web.posts.clear()
    coming.come()
    posted.resend()
    posted.resend()
    assert sorted(row["a"] for row in web.rows("keyed")) == [1, 2]
    count = len(web.posts)
    posted.resend()
    posted.show(KEYED, 3, rows(3))
    assert [post["rows"] for _, post in web.posts[count:]] == [rows(3)]


def test_the_last_word_is_posted_though_the_server_was_away_just_now(
    coming: Coming, web: Posts
) -> None:
    posted = Results(coming.web)
    posted.show(WHOLE, 1, rows(1))
    coming.come()
    coming.now -= results.REST
    posted.resend()
    assert web.rows("whole") == []
    posted.resend(last=True)
    assert web.rows("whole") == rows(1)


def test_no_more_rows_are_kept_than_the_gateway_would(coming: Coming, web: Posts) -> None:
    """The oldest go first; a row without a place in the order is oldest."""
    posted = Results(coming.web)
    posted.show(KEYED, 1, [{"a": None}, *rows(*range(results.ORDERED - 10))])
    posted.show(KEYED, 2, rows(*range(results.ORDERED - 10, results.ORDERED + 10)))
    coming.come()
    posted.resend()
    kept = sorted(row["a"] for row in web.rows("keyed"))
    assert kept == [*range(10, results.ORDERED + 10)]


def test_a_job_whose_results_are_wrong_does_not_hold_up_the_others(
    web: Posts, caplog: pytest.LogCaptureFixture
) -> None:
    """That is said once, and the server is not thought to be away."""
    web.unwanted = "whole"
    posted = Results(Web(web.address, TOKEN))
    for batch in range(3):
        posted.show(WHOLE, batch, rows(batch))
    posted.show(KEYED, 1, rows(1))
    posted.resend()
    assert web.rows("keyed") == rows(1)
    assert len(caplog.records) == 1
    assert "does not want what whole posts: 400" in caplog.text
