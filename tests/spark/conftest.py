"""One Spark for all tests that need one: to start it takes seconds."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.posts import Posts


@pytest.fixture(scope="session")
def spark(tmp_path_factory: Any) -> Iterator[SparkSession]:
    """Spark on this machine, with two threads.  What a test starts in it, the test stops.

    An action blocks the thread of the reactor, in which tests run: a gateway that it reads from
    is another process.
    """
    place = tmp_path_factory.mktemp("spark")
    # Else it is whatever python3 is first on the path, which need not have mqgateway.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("mqgateway tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(place / "warehouse"))
        .config("spark.local.dir", str(place / "local"))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.metricsEnabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")  # each query warns of its own checkpoint
    yield session
    session.stop()


@pytest.fixture
def web() -> Iterator[Posts]:
    server = Posts()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
