"""How fast Spark reads the log: as Arrow from the replay sink, and as JSON through its own socket
source, in turn, the same rows in the same Spark."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic, sleep, time
from typing import Any

from bench import qlite
from bench.load import PATIENCE, READ, LoadError, dial
from bench.measure import Finding, Progress
from bench.server import Lab, free_port

ROWS = 400_000
LINES = 100_000  # of the same, for its own socket source, which takes longer
PIECE = 1000  # lines that are sent at once
WAITING = 20_000  # lines that are sent and not yet read; with half or twice as many it is slower
ARROW_AIM, TIMES_JSON_AIM = 150_000, 3.0
MOST_PENDING = 1 << 30  # bytes of lines that may wait for us: all of them

QueryProgress = dict[str, Any]


class Lines:
    """What a line sink says, kept as it comes."""

    def __init__(self, port: int) -> None:
        self._connection = dial(port)
        self._chunks: list[bytes] = []
        self._count = 0
        self._thread = Thread(target=self._hear, daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        while data := self._connection.recv(READ):
            self._chunks.append(data)
            self._count += data.count(b"\n")

    def first(self, count: int) -> list[bytes]:
        """The first so many lines, in pieces that are good to send."""
        end = monotonic() + PATIENCE
        while self._count < count:
            if monotonic() > end:
                raise LoadError(f"the line sink said {self._count} lines, not {count}")
            sleep(0.05)
        self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()
        lines = b"".join(self._chunks).split(b"\n")[:count]
        return [b"\n".join(lines[at : at + PIECE]) + b"\n" for at in range(0, count, PIECE)]


@contextmanager
def listening() -> Iterator[tuple[int, Callable[[], socket.socket]]]:
    """A port, and who has connected to it."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as context:
        server.settimeout(PATIENCE)

        def connected() -> socket.socket:
            return context.enter_context(server.accept()[0])

        yield server.getsockname()[1], connected


def read_arrow(session: Any, port: int) -> float:
    """Rows a second of a query over all that there is, without the time that it takes to start."""
    rows = session.readStream.format("mqgateway").option("endpoint", f"tcp:127.0.0.1:{port}").load()
    with TemporaryDirectory() as checkpoint:
        writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        batches = [batch for batch in query.recentProgress if batch["numInputRows"]]
    found = sum(batch["numInputRows"] for batch in batches)
    if found < ROWS:
        raise LoadError(f"Spark read {found} rows, not {ROWS}")
    return float(found / sum(batch["durationMs"]["triggerExecution"] / 1000 for batch in batches))


def read_lines(session: Any, pieces: list[bytes]) -> float:
    """The same of the line sink's JSON, said again: what is measured is Spark, and not how fast a
    gateway is given messages.

    Spark's socket source takes a time that grows with the square of what waits for it, so it is
    given no more than is good for it.
    """
    from spark.schema import parse_lines

    with listening() as (port, connected), TemporaryDirectory() as checkpoint:
        lines = session.readStream.format("socket").options(host="127.0.0.1", port=port).load()
        writer = parse_lines(lines).writeStream.format("noop")
        query = writer.option("checkpointLocation", checkpoint).start()
        connection = connected()
        sent = done = 0
        start = time()
        try:
            while done < LINES:
                if not query.isActive or time() > start + 3 * PATIENCE:
                    raise LoadError(f"Spark read {done} lines of {LINES}")
                while sent < min(done + WAITING, LINES):
                    connection.sendall(pieces[sent // PIECE])
                    sent += PIECE
                sleep(0.01)
                done = sum(batch["numInputRows"] for batch in query.recentProgress)
            return done / (time() - start)
        finally:
            query.stop()


def read(lab: Lab, count: int, progress: Progress) -> list[Finding]:
    from spark.session import start

    progress("Spark reads: storing the log")
    with ExitStack() as context:
        ports = {name: free_port() for name in ("replay", "lines")}
        sink = {name: f"tcp:{port}:interface=127.0.0.1" for name, port in ports.items()}
        server = lab.gateway(
            context,
            "normal",
            qlite.LISTENER,
            qlite.USERS,
            sink={**sink, "bufferBytes": MOST_PENDING},
        )
        said = Lines(ports["lines"])
        with closing(qlite.connect(server, 4)) as clients:
            clients.fill(ROWS)
        pieces = said.first(LINES)
        progress("Spark reads: starting Spark")
        session = start("local[*]", [f"spark.local.dir={Path(lab.directory) / 'spark'}"])
        context.callback(session.stop)
        arrow, lines = [], []
        for number in range(count + 1):
            progress(f"Spark reads {ROWS:,} rows: round {number} of {count}")
            arrow.append(read_arrow(session, ports["replay"]))
            lines.append(read_lines(session, pieces))
        del arrow[0], lines[0]  # to warm up
    ratios = [one / other for one, other in zip(arrow, lines, strict=True)]
    return [
        Finding.of('rows/s, format("mqgateway")', arrow, least=ARROW_AIM),
        Finding.of("rows/s, line sink, Spark's socket", lines),
        Finding.of("times the line sink", ratios, least=TIMES_JSON_AIM),
    ]
