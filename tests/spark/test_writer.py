"""Tests for spark.writer: rows from Spark become messages of a real gateway, each once."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark.jobs.archive import JOB
from spark.session import read_log
from spark.writer import writing_of
from tests.integration.peers import Gateway, QlitePeer, gateway

COLUMNS = "address string, body string"


def rows(running: Gateway, spark: SparkSession, event: str) -> list[Any]:
    log = read_log(spark, f"tcp:127.0.0.1:{running.replay}", JOB)
    return log.where(log.event == event).orderBy("sequence").collect()


class Files:
    """A streaming query of lines in files, as messages to a gateway."""

    def __init__(self, spark: SparkSession, place: Path, running: Gateway, **options: str) -> None:
        self._input = place / "input"
        self._input.mkdir(exist_ok=True)
        self._checkpoint = place / "checkpoint"
        options |= {"endpoint": f"tcp:127.0.0.1:{running.replay}", "retrySeconds": "1"}
        lines = spark.readStream.schema(COLUMNS).json(str(self._input))
        self._writer = lines.writeStream.format("mqgateway").options(**options)

    def add(self, *messages: tuple[str, str]) -> None:
        number = len([*self._input.iterdir()])
        lines = [f'{{"address": "{address}", "body": "{body}"}}' for address, body in messages]
        (self._input / f"{number}.json").write_text("\n".join(lines))

    def run(self) -> None:
        """All that there is, in one batch."""
        writer = self._writer.option("checkpointLocation", str(self._checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def forget_that_it_is_done(self) -> None:
        """As if Spark had died before it could note that."""
        for commit in (self._checkpoint / "commits").glob("*0*"):
            commit.unlink()


def test_what_a_query_writes_reaches_a_client_of_a_protocol(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Into a queue that is there and a topic that is made; the log has them like all others, with
    who sent them and when they are due."""
    with gateway(tmp_path) as running:
        query = Files(spark, tmp_path, running, create="true", sender="job")
        query.add(("queue:qlite", "first"), ("topic:new", "news"), ("queue:qlite", "second"))
        query.run()
        subscriber = QlitePeer(running.port, "sub")
        assert subscriber.ask(b"SPOP;") == b"PASS;first"
        assert subscriber.ask(b"SPOP;") == b"PASS;second"
        subscriber.close()
        found = rows(running, spark, "accepted")
        assert [(row.address_kind, row.address, bytes(row.body)) for row in found] == [
            ("queue", "qlite", b"first"),
            ("topic", "new", b"news"),
            ("queue", "qlite", b"second"),
        ]
        assert {(row.protocol, row.sender) for row in found} == {("spark", "job")}


def test_a_batch_that_is_done_again_is_not_published_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark died after the gateway had the batch and before its own checkpoint said so; the gateway
    may have been started again, too."""
    with gateway(tmp_path) as running:
        query = Files(spark, tmp_path, running)
        query.add(("queue:qlite", "one"), ("queue:qlite", "two"))
        query.run()
        query.forget_that_it_is_done()
        query.run()
        assert len(rows(running, spark, "accepted")) == 2
        assert running.process.stop() == 0
    with gateway(tmp_path) as running:
        again = Files(spark, tmp_path, running)
        again.forget_that_it_is_done()
        again.run()
        assert len(rows(running, spark, "accepted")) == 2
        again.add(("queue:qlite", "three"))
        again.run()
        assert [bytes(row.body) for row in rows(running, spark, "accepted")] == [
            *(b"one", b"two", b"three")
        ]


def test_a_batch_that_does_not_fit_is_refused_as_a_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The query ends with the gateway's reason, and goes on when there is room."""
    with gateway(tmp_path, maxMessages=2) as running:
        query = Files(spark, tmp_path, running)
        query.add(*[("queue:qlite", str(number)) for number in range(3)])
        with pytest.raises(PySparkException, match="room for 2 messages, not for 3"):
            query.run()
        assert rows(running, spark, "accepted") == []
        query.add(("queue:other", "x"))
        with pytest.raises(PySparkException, match="room for 2"):
            query.run()


def test_a_table_is_written_once_if_it_says_which_batch_it_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What is due already is skipped, and what is due later expires like any message."""
    now = datetime.datetime.fromtimestamp(time.time(), datetime.UTC)
    later = now + datetime.timedelta(days=1)
    frame = spark.createDataFrame(
        [
            ("queue:qlite", b"late", now),
            ("queue:qlite", b"kept", later),
            ("queue:qlite", b"", None),
        ],
        "address string, body binary, due timestamp",
    )
    with gateway(tmp_path) as running:
        options = {"endpoint": f"tcp:127.0.0.1:{running.replay}", "query": "mine", "batch": 7}
        for _ in range(2):
            frame.write.format("mqgateway").options(**options).mode("append").save()
        found = rows(running, spark, "accepted")
        assert {bytes(row.body): row.due and row.due.timestamp() for row in found} == {
            b"kept": later.timestamp(),
            b"": None,
        }
        assert len(found) == 2
        del options["query"], options["batch"]
        lost = spark.createDataFrame([("queue:nowhere", "x")], COLUMNS).write.format("mqgateway")
        with pytest.raises(PySparkException, match="there is no queue:nowhere"):
            lost.options(**options).mode("append").save()


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("body string", {}, "there is no column address"),
        ("address string, body int", {}, "column body must be binary or string, not int"),
        ("address string, body string, colour string", {}, "only address, body and due"),
        (COLUMNS, {"query": "q"}, "query and batch go together"),
        (COLUMNS, {"colour": "red"}, "no such option"),
    ],
)
def test_a_wrong_column_or_option_is_named(
    columns: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        writing_of(options, StructType.fromDDL(columns))
