"""sessions: who was connected from where, from when to when.

A session begins with `connected` and ends with `disconnected`, of one protocol and client address.
Its `state` is open or closed.  One that was never closed, because the gateway was killed, is lost
when the same client address comes again, or is given up after a week: it was over by `ended`, and
how long it lasted nobody knows, so that it has no `seconds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pandas  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql.functions import (
    col,
    collect_list,
    explode,
    get_json_object,
    struct,
    timestamp_micros,
    udf,
    unix_micros,
)
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from gateway.record import CONNECTED, DISCONNECTED, LOGGED_IN
from spark.jobs.description import Job

EVENTS = (CONNECTED, LOGGED_IN, DISCONNECTED)
LONGEST = 7 * 86_400_000_000  # microseconds until a session without an end is given up
# Late rows are not seen.  The log is in order, so this only forgives a clock that was set back; it
# holds nothing up, for results are given at once.
LATENESS = "1 hour"

RESULT = (
    "protocol string, user string, client string, "
    "started timestamp, ended timestamp, seconds double, state string"
)
STATE = "started long, user string"


class Event(NamedTuple):
    """One row about a connection; the time is in microseconds."""

    sequence: int
    time: int
    event: str
    sender: str


class Session(NamedTuple):
    """One connection, from when to when in microseconds; without an end it is open.

    Of a lost one nobody saw the end; it was before `ended`.
    """

    started: int
    user: str
    ended: int | None = None
    lost: bool = False

    @property
    def seconds(self) -> float | None:
        if self.ended is None or self.lost:
            return None
        return (self.ended - self.started) / 1e6

    @property
    def state(self) -> str:
        return "open" if self.ended is None else "lost" if self.lost else "closed"


def follow(
    session: Session | None, events: Iterable[Event]
) -> tuple[Session | None, list[Session]]:
    """What is open after these events of one client, and all sessions that they changed."""
    changed: dict[int, Session] = {}
    for event in sorted(events):
        if event.event == CONNECTED:
            if session is not None:
                changed[session.started] = session._replace(ended=event.time, lost=True)
            session = Session(event.time, event.sender)
        elif session is None:
            continue  # it began before the log does
        elif event.event == LOGGED_IN:
            session = session._replace(user=event.sender)
        else:
            ended = session._replace(user=event.sender or session.user, ended=event.time)
            changed[session.started] = ended
            session = None
        if session is not None:
            changed[session.started] = session
    return session, list(changed.values())


def sessions(rows: DataFrame) -> DataFrame:
    """Sessions as they are after each batch; of rows that do not stream, as they are at last."""
    events = (
        rows.where(col("event").isin(*EVENTS))
        .withWatermark("time", LATENESS)
        .select(
            "protocol",
            get_json_object("headers", "$.detail").alias("client"),
            "sequence",
            unix_micros("time").alias("microseconds"),
            "event",
            "sender",
            "time",  # with the watermark in it
        )
    )
    if not rows.isStreaming:
        return _follow_all(events)
    return events.groupBy("protocol", "client").applyInPandasWithState(
        _follow_stream, RESULT, STATE, "update", GroupStateTimeout.EventTimeTimeout
    )


def _follow_all(events: DataFrame) -> DataFrame:
    """The same without a stream, which Spark has another way for."""
    follow_rows = udf(
        lambda rows: [
            (each.started, each.user, each.ended, each.seconds, each.state)
            for each in follow(None, [Event(*row) for row in rows])[1]
        ],
        "array<struct<started: long, user: string, ended: long, seconds: double, state: string>>",
    )
    event = struct("sequence", "microseconds", "event", "sender")
    return (
        events.groupBy("protocol", "client")
        .agg(collect_list(event).alias("events"))
        .select("protocol", "client", explode(follow_rows("events")).alias("session"))
        .select(
            "protocol",
            "session.user",
            "client",
            timestamp_micros("session.started").alias("started"),
            timestamp_micros("session.ended").alias("ended"),
            "session.seconds",
            "session.state",
        )
    )


def _follow_stream(
    key: Any, frames: Iterator[pandas.DataFrame], state: GroupState
) -> Iterator[pandas.DataFrame]:
    session = Session(*state.get) if state.exists else None
    if state.hasTimedOut:
        state.remove()
        if session is not None:
            yield _results(key, [session._replace(ended=session.started + LONGEST, lost=True)])
        return
    session, changed = follow(session, (event for frame in frames for event in _events(frame)))
    if session is None:
        if state.exists:
            state.remove()
    else:
        state.update((session.started, session.user))
        limit = max(session.started + LONGEST, state.getCurrentWatermarkMs() * 1000 + 1000)
        state.setTimeoutTimestamp(limit // 1000)
    yield _results(key, changed)


def _events(frame: pandas.DataFrame) -> Iterator[Event]:
    columns = ("sequence", "microseconds", "event", "sender")
    return map(Event, *(frame[name] for name in columns))


def _results(key: Any, changed: list[Session]) -> pandas.DataFrame:
    protocol, client = key
    ends = [session.ended for session in changed]
    return pandas.DataFrame(
        {
            "protocol": protocol,
            "user": [session.user for session in changed],
            "client": client,
            "started": _times([session.started for session in changed]),
            "ended": _times(ends),
            "seconds": pandas.Series([session.seconds for session in changed], dtype="float64"),
            "state": [session.state for session in changed],
        }
    )


def _times(microseconds: list[int] | list[int | None]) -> pandas.Series[Any]:
    whole = pandas.Series(microseconds, dtype="Int64")
    return pandas.to_datetime(whole, unit="us", utc=True)


JOB = Job(
    name="sessions",
    about="who was connected from where, from when to when",
    function=sessions,
    events=EVENTS,
    bodies=False,
    keys=("client", "started"),
    order="started",
)
