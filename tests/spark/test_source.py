"""Tests for spark.source: `format("mqgateway")` on a real gateway."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from gateway.record import Record, pack, row
from spark.arrow import ARROW_SCHEMA, records_of, to_arrow
from spark.schema import SCHEMA
from spark.source import LogStreamReader, divide, reading_of
from tests.integration.peers import Gateway, QlitePeer, gateway
from tests.support import free_port

COUNT = 500


@pytest.fixture(scope="module")
def running(tmp_path_factory: Any) -> Iterator[Gateway]:
    """A gateway with a log of at least COUNT rows."""
    with gateway(tmp_path_factory.mktemp("gateway")) as started:
        push(started, COUNT)
        yield started


def push(running: Gateway, count: int) -> None:
    publisher = QlitePeer(running.port, "pub")
    publisher.say(*[b"PUSH;\0%d" % number for number in range(count)])
    for _ in range(count):
        assert publisher.hear()[:5] == b"PASS;"
    publisher.close()


def table(spark: SparkSession, running: Gateway, **options: Any) -> DataFrame:
    options = {"endpoint": f"tcp:127.0.0.1:{running.replay}", "retrySeconds": 1, **options}
    return spark.read.format("mqgateway").options(**options).load()


def stream(spark: SparkSession, running: Gateway, **options: Any) -> DataFrame:
    options = {"host": "127.0.0.1", "port": running.replay, "retrySeconds": 1, **options}
    return spark.readStream.format("mqgateway").options(**options).load()


def run(frame: DataFrame, place: Path) -> list[Any]:
    """All that is there now, through a checkpoint; what each batch had."""
    batches: list[Any] = []

    def note(batch: DataFrame, _: int) -> None:
        batches.append([row.sequence for row in batch.select("sequence").collect()])

    query = frame.writeStream.option("checkpointLocation", str(place)).foreachBatch(note)
    query.trigger(availableNow=True).start().awaitTermination()
    return batches


class TestArrow:
    RECORDS = [
        Record("queue:a:b", b"\0\xff", "bob", "qlite", sequence=7, time=1.654321, due=9.5),
        Record("queue:a:b", kind="settled", sequence=8, message=7, latency=0.25, receiver="ann"),
        Record(kind="connected", sequence=9, headers={"detail": "127.0.0.1:9"}),
        Record("hub:x", b"", sequence=10),
    ]

    def test_a_batch_has_what_a_row_has(self) -> None:
        """Column by column the same as record.row, which the line sink shows."""
        found = to_arrow(self.RECORDS).to_pylist()
        for each, record in zip(found, self.RECORDS, strict=True):
            wanted = row(record)
            assert {**each, "time": 0, "due": 0, "headers": 0} == {
                **wanted,
                "time": 0,
                "due": 0,
                "headers": 0,
            }
        assert found[0]["time"].timestamp() == 1.654321
        assert [each["due"] and each["due"].timestamp() for each in found] == [
            9.5,
            None,
            None,
            None,
        ]
        assert found[2]["headers"] == '{"detail":"127.0.0.1:9"}'

    def test_it_is_what_spark_makes_of_the_schema(self) -> None:
        assert to_arrow_schema(SCHEMA, timezone="UTC") == ARROW_SCHEMA

    def test_records_outside_the_range_are_cut_off(self) -> None:
        rows = [memoryview(pack(self.RECORDS[:3])), memoryview(pack(self.RECORDS[3:]))]
        assert [r.sequence for r in records_of(rows, 8, 10)] == [8, 9]


class TestPlanning:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"endpoint": "udp:1"}, "neither tcp:host:port nor tls:host:port"),
            ({"port": "x"}, "port 'x' is no number"),
            ({"startingOffsets": "soon"}, "earliest, latest or a number"),
            ({"maxRowsPerBatch": "0"}, "maxRowsPerBatch must be a whole number from 1 on"),
            ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
            ({"partitions": "2", "rowsPerPartition": "3"}, "either partitions or rowsPerPartition"),
            ({"tokenFile": "/nowhere"}, "tokenFile cannot be read"),
            ({"caFile": "x"}, "are for tls=true"),
            (
                {"events": "accepted,taken away"},
                "events: taken away is none of accepted, connected",
            ),
            ({"colour": "red"}, "colour: no such option"),
        ],
    )
    def test_a_wrong_option_is_named(self, options: dict[str, str], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            reading_of(options)

    def test_parts_cover_a_range_without_a_gap(self) -> None:
        parts = [p.value for p in divide(10, 31, reading_of({"rowsPerPartition": "10"}))]
        assert parts == [(10, 17), (17, 24), (24, 31)]
        assert [p.value for p in divide(5, 7, reading_of({"partitions": "9"}))] == [(5, 6), (6, 7)]
        assert divide(5, 5, reading_of({})) == []

    def test_a_reader_is_pickled_without_its_connection_or_a_token_in_its_repr(self) -> None:
        reading = reading_of({"token": "secret"})
        copy = pickle.loads(pickle.dumps(LogStreamReader(reading)))
        assert copy._reading == reading
        assert "secret" not in repr(reading)


class TestBatch:
    def test_the_whole_log_is_a_table(self, spark: SparkSession, running: Gateway) -> None:
        rows = table(spark, running, rowsPerPartition=100).orderBy("sequence").collect()
        assert [r.sequence for r in rows] == [*range(1, len(rows) + 1)]
        bodies = [bytes(r.body) for r in rows if r.event == "accepted"]
        assert bodies[:COUNT] == [b"\0%d" % number for number in range(COUNT)]

    def test_it_may_begin_anywhere(self, spark: SparkSession, running: Gateway) -> None:
        assert table(spark, running, startingOffsets="latest").count() == 0
        lowest = table(spark, running, startingOffsets="100").agg({"sequence": "min"}).collect()
        assert lowest[0][0] == 100

    def test_what_is_not_wanted_is_left_out(self, spark: SparkSession, running: Gateway) -> None:
        """Other events do not count as lost rows; a body that is not read still has its size."""
        wanted = table(spark, running, events="logged-in,accepted", bodies="false").collect()
        whole = table(spark, running).where("event in ('logged-in', 'accepted')").collect()
        assert len(wanted) == len(whole) > COUNT
        assert {row.event for row in wanted} == {"logged-in", "accepted"}
        assert {row.body for row in wanted} == {None}
        assert [row.size for row in wanted] == [row.size for row in whole]

    def test_a_gateway_that_is_not_there_is_named(self, spark: SparkSession) -> None:
        frame = spark.read.format("mqgateway").options(port=1, retrySeconds=0).load()
        with pytest.raises(PySparkException, match=r"tcp:127\.0\.0\.1:1 cannot be reached"):
            frame.count()


class TestStream:
    def test_a_query_goes_on_from_its_checkpoint_with_each_row_once(
        self, spark: SparkSession, running: Gateway, tmp_path: Path
    ) -> None:
        """Batches are no bigger than asked for, and together they are the log."""
        frame = stream(spark, running, maxRowsPerBatch=200, rowsPerPartition=70, cursor="test")
        batches = run(frame, tmp_path)
        assert max(map(len, batches)) <= 200
        push(running, 150)
        batches += run(frame, tmp_path)
        found = sorted(sequence for batch in batches for sequence in batch)
        assert found == [*range(1, len(found) + 1)]
        assert len(found) >= COUNT + 150

    def test_latest_is_what_comes_from_now_on(
        self, spark: SparkSession, running: Gateway, tmp_path: Path
    ) -> None:
        frame = stream(spark, running, startingOffsets="latest")
        assert not any(run(frame, tmp_path))
        push(running, 3)
        (batch,) = run(frame, tmp_path)
        assert len(batch) >= 3


class TestLoss:
    def test_rows_that_were_trimmed_are_missed_aloud_or_skipped(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """A query without a cursor was away while its rows went over the retention.  It ends with a
        reason, or goes on with what there is if it was told to."""
        small = {"retention": {"seconds": 3600, "bytes": 1 << 20}}
        with gateway(tmp_path, settings=small) as running:
            push(running, 50)
            run(stream(spark, running), tmp_path / "checkpoint")
            publisher = QlitePeer(running.port, "pub")
            for _ in range(100):
                assert publisher.ask(b"PUSH;" + bytes(50_000)).startswith(b"PASS;")
            publisher.close()
            with pytest.raises(PySparkException, match="are trimmed and were not read"):
                run(stream(spark, running), tmp_path / "checkpoint")
            batches = run(stream(spark, running, failOnDataLoss="false"), tmp_path / "checkpoint")
            found = sorted(sequence for batch in batches for sequence in batch)
            assert found == [*range(found[0], found[-1] + 1)]
            assert found[0] > 60


class TestTls:
    def test_the_log_is_read_over_tls_from_whom_somebody_vouches_for(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        """By whom, and the name in the certificate, are options."""
        key, certificate = certified(tmp_path, "gateway.example")
        port = free_port()
        endpoint = f"ssl:{port}:privateKey={key}:certKey={certificate}:interface=127.0.0.1"
        with gateway(tmp_path, replaySink={"replay": endpoint}):
            reader = spark.read.format("mqgateway").option("endpoint", f"tls:127.0.0.1:{port}")
            reader = reader.option("retrySeconds", 0).option("caFile", str(certificate))
            assert reader.option("serverName", "gateway.example").load().count() > 0
            with pytest.raises(
                PySparkException, match="is not who it should be: Hostname mismatch"
            ):
                reader.option("serverName", "other.example").load().count()


def certified(place: Path, name: str) -> tuple[Path, Path]:
    """A key, and a certificate that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = place / "key.pem", place / "certificate.pem"
    form = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    paths[0].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    paths[1].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return paths
