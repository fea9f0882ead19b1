"""A gateway with Spark beside it, as `make run` has it: how long a message takes to be seen on the
page, and what Spark costs the gateway."""

from __future__ import annotations

import json
import os
import signal
import socket
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from statistics import quantiles
from threading import Event, Thread
from time import monotonic, perf_counter, sleep
from typing import Any

from bench import qlite
from bench.load import READ, LoadError
from bench.measure import Finding, Progress, Sample
from bench.server import Lab, Server, free_port

RATE = 5000  # messages a second, of 100 bytes, while freshness is measured
TICK = 0.01  # seconds between two portions of them
WARM, MEASURED = 30.0, 30.0  # seconds of that
FRESH_AIM = 2.0  # seconds, of the 95th percentile
COST_AIM = 0.85  # of what the gateway does without Spark
LOAD = 2.0  # seconds of a turn
START = 120.0  # seconds until all queries must run, and in which they must have caught up
JOBS = 6


class Page:
    """The gateway's web server, as a browser asks it."""

    def __init__(self, port: int) -> None:
        self._port = port

    def state(self) -> dict[str, Any]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=20)
        with closing(connection):
            connection.request("GET", "/api/state")
            found: dict[str, Any] = json.loads(connection.getresponse().read())
        return found

    def wait(self, is_so: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        """Until it is so of Spark's queries."""
        end = monotonic() + START
        while not is_so(self.state()["gateway"]["queries"]):
            if monotonic() > end:
                raise LoadError(f"{what}: {self.state()['gateway']['queries']}")
            sleep(0.2)

    def wait_until_running(self) -> None:
        self.wait(
            lambda queries: sum(query["state"] == "running" for query in queries) == JOBS,
            "Spark's queries do not run",
        )

    def wait_until_read(self) -> None:
        self.wait(
            lambda queries: all(
                query["lag"] is not None and query["lag"] < 100 for query in queries
            ),
            "Spark's queries do not catch up",
        )

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Server-sent events, as they come."""
        with socket.create_connection(("127.0.0.1", self._port), 20) as connection:
            connection.sendall(b"GET /api/events HTTP/1.0\r\n\r\n")
            stream = connection.makefile("rb")
            name = ""
            for line in stream:
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line.startswith(b"data: "):
                    yield name, json.loads(line[6:])


@contextmanager
def with_spark(lab: Lab, progress: Progress) -> Iterator[tuple[Server, Page]]:
    """A gateway that is safe from a power cut, and all jobs."""
    progress("Spark beside the gateway: starting both")
    ports = {name: free_port() for name in ("replay", "web")}
    where = {name: f"tcp:{port}:interface=127.0.0.1" for name, port in ports.items()}
    with ExitStack() as context:
        server = lab.gateway(
            context,
            "full",
            qlite.LISTENER,
            qlite.USERS,
            sink={"replay": where["replay"]},
            web={"endpoint": where["web"]},
            spark={"enabled": True},
        )
        page = Page(ports["web"])
        page.wait_until_running()
        yield server, page


class Seen:
    """How many messages the page has been told of, and when."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._rows: dict[tuple[Any, ...], int] = {}
        self.times: list[float] = []
        self.totals: list[int] = []
        self._thread = Thread(target=self._follow, daemon=True)
        self._over = Event()
        self._thread.start()

    def _follow(self) -> None:
        for name, data in self._page.events():
            if self._over.is_set():
                return
            if name == "state":
                self._take(data["tables"].get("rates", {}).get("rows", []))
            elif name == "result" and data["job"] == "rates":
                self._take(data["rows"])

    def _take(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            key = row["window_start"], row["protocol"], row["address"]
            self._rows[key] = row["accepted"]
        self.times.append(perf_counter())
        self.totals.append(sum(self._rows.values()))

    def stop(self) -> None:
        """The gateway says something every second."""
        self._over.set()
        self._thread.join(5)

    def wait_for(self, total: int) -> None:
        end = monotonic() + START
        while not self.totals or self.totals[-1] < total:
            if monotonic() > end:
                raise LoadError(f"the page was told of {self.totals[-1:]} messages, not {total}")
            sleep(0.05)

    def at(self, total: int) -> float:
        """When the page had been told of so many."""
        return self.times[bisect_left(self.totals, total)]


def publish_steadily(connection: socket.socket, seconds: float) -> list[tuple[float, int]]:
    """So many messages a second; when how many had been acknowledged."""
    acknowledged: list[tuple[float, int]] = []
    sent = 0

    def hear() -> None:
        heard = 0
        while not (over.is_set() and heard >= sent * qlite.NUMBER_SIZE):
            heard += len(connection.recv(READ))
            acknowledged.append((perf_counter(), heard // qlite.NUMBER_SIZE))

    over = Event()
    thread = Thread(target=hear, daemon=True)
    thread.start()
    start = perf_counter()
    while (now := perf_counter()) < start + seconds:
        due = int((now - start) * RATE) - sent
        if due:
            connection.sendall(qlite.PUSH * due)
            sent += due
        sleep(TICK)
    over.set()
    connection.sendall(qlite.PUSH)  # whose answer lets it look whether it is over
    sent += 1
    thread.join()
    return acknowledged


def fresh(page: Page, clients: qlite.QliteClients) -> Finding:
    """From the acknowledgement of a message until the page has been told of it."""
    seen = Seen(page)
    seen.wait_for(0)
    before = seen.totals[-1]
    acknowledged = publish_steadily(clients.publishers[0], WARM + MEASURED)
    count = acknowledged[-1][1]
    seen.wait_for(before + count)
    seen.stop()
    clients.drain(count, qlite.FILL_WINDOW)
    after = acknowledged[0][0] + WARM
    delays = [
        seen.at(before + total) - time for time, total in acknowledged if time > after and total
    ]
    cuts = quantiles(delays, n=100)
    return Finding(
        f"seconds to the page, 95th of 100, at {RATE}/s",
        cuts[94],
        most=FRESH_AIM,
        about=f"median {cuts[49]:.2f}, 99th {cuts[98]:.2f}",
    )


def descendants(pid: int) -> list[int]:
    """Its children, theirs, and so on."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split() if task.exists() else []:
            found += [int(child), *descendants(int(child))]
    return found


def cost(
    server: Server, page: Page, clients: qlite.QliteClients, count: int, progress: Progress
) -> list[Finding]:
    """As many pushes as the gateway takes, in turn with a Spark that stands still and with one
    that reads."""
    rates, costs = [], []
    for number in range(count):
        progress(f"what Spark costs the gateway: round {number + 1} of {count}")
        spark = descendants(server.pid)
        _send(spark, signal.SIGSTOP)
        try:
            alone = _push(clients)
        finally:
            _send(spark, signal.SIGCONT)
        page.wait_until_read()
        beside = _push(clients)
        page.wait_until_read()
        rates.append(beside.rate / alone.rate)
        costs.append(beside.cost / alone.cost)
    return [
        Finding.of("throughput beside a Spark that reads", rates, least=COST_AIM),
        Finding.of("processor time for a message, likewise", costs),
    ]


def _push(clients: qlite.QliteClients) -> Sample:
    return clients.push(LOAD, 8, qlite.WINDOW)


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def beside(lab: Lab, count: int, progress: Progress) -> list[Finding]:
    with (
        with_spark(lab, progress) as (server, page),
        closing(qlite.connect(server, 8)) as clients,
    ):
        progress(f"Spark beside the gateway: {WARM + MEASURED:.0f} s at {RATE} messages/s")
        found = fresh(page, clients)
        page.wait_until_read()
        return [found, *cost(server, page, clients, count, progress)]
