"""The replay sink: the committed log, read by range as often as wanted, and the way back.

requests.py has what is said.  A cursor keeps the rows that its reader has not read from being
trimmed, see cursors.py; publishing.py takes in what comes back.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IDelayedCall,
    IHalfCloseableProtocol,
    IPushProducer,
    IReactorTime,
    ISSLTransport,
    ITCPTransport,
)
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from gateway.accounts import Secret
from gateway.broker import Broker
from gateway.chunks import Chunk, Missing
from gateway.interfaces import BrokerError, Overloaded, Peer, Run
from gateway.journal import Journal
from gateway.publishing import MOST_BYTES, MOST_MESSAGES, Batch, Publishing
from gateway.record import REFUSED
from gateway.requests import (
    VERSION,
    Commit,
    Hello,
    Messages,
    Move,
    Publish,
    Range,
    Read,
    decode,
    frame,
)

log = Logger()

LONGEST_TEXT = 200  # characters, of what a refusal tells the log
MOST_READERS = 256  # connections; a Spark has one for each task and one for each query
HELLO_BYTES = 4096  # of a frame from somebody who has not said hello
FRAME_BYTES = 18 << 20  # of any other: the biggest body of any protocol is 16 MiB
FRAME_SECONDS = 30.0  # to say hello, and to finish a frame, from its first byte on
LINGER = 10.0  # seconds to end a frame that we do not want, and to read why, before we hang up


class WrongRequest(Exception):
    """The peer broke the rules of requests.py."""


class BatchTooBig(BrokerError):
    """A batch that is not kept, not even in part."""


@implementer(IPushProducer, IHalfCloseableProtocol)
class ReplayReader(Protocol):
    """One connection.  It is read from only as fast as it reads: one chunk waits for it at most."""

    factory: ReplaySink
    transport: Any

    def connectionMade(self) -> None:
        self._limit = HELLO_BYTES
        self._heard = bytearray()  # of a frame that is not finished
        self._greeted = False
        self._closing = False
        self._at_work: Deferred[None] | None = None
        self._room: Deferred[None] | None = None
        self._blocked = False
        self._batch: Batch | None = None
        self._noted: set[str] = set()
        self._timer: IDelayedCall | None = None
        self._set_timer(FRAME_SECONDS, self._too_late)
        host = self.transport.getPeer()
        self._address = f"{host.host}:{host.port}" if hasattr(host, "port") else str(host)
        if ITCPTransport.providedBy(self.transport):
            self.transport.setTcpKeepAlive(True)  # a machine that was switched off says nothing
        self.transport.registerProducer(self, True)
        self.factory.readers[self] = None

    def _set_timer(self, seconds: float, call: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.factory.clock.callLater(seconds, call)

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _too_late(self) -> None:
        self._refuse("wrong", f"nothing whole came in {FRAME_SECONDS:.0f} seconds")

    def dataReceived(self, data: bytes) -> None:
        """Only what must be finished is timed; between two requests a reader may take its time."""
        if self._closing:
            return
        self._heard += data
        while (request := self._cut()) is not None:
            self._stop_timer()
            self._hear(request)
        if self._timer is None and self._heard and not self._closing:
            self._set_timer(FRAME_SECONDS, self._too_late)

    def _cut(self) -> bytes | None:
        """The next frame, when it is here."""
        if self._closing or len(self._heard) < 4:
            return None
        end = 4 + int.from_bytes(self._heard[:4], "big")
        if end - 4 > self._limit:
            self._refuse("wrong", f"a frame of {end - 4} bytes, and {self._limit} is the most")
        if self._closing or len(self._heard) < end:
            return None
        request = bytes(self._heard[4:end])
        del self._heard[:end]
        return request

    def _hear(self, data: bytes) -> None:
        if self._at_work is not None:
            self._refuse("wrong", "a request before the last one was answered")
            return
        try:
            request = decode(data)
            if self._greeted == isinstance(request, Hello):
                raise WrongRequest("hello comes first, and once")
            answer = getattr(self, f"on_{type(request).__name__}")(request)
        # Text that is no UTF-8 and arrays in arrays in arrays are not MsgspecErrors.
        except (msgspec.MsgspecError, UnicodeError, RecursionError, WrongRequest) as error:
            self._refuse("wrong", str(error))
        except BrokerError as error:
            self._say_refusal(error)
        except Exception:
            self._broke(Failure())
        else:
            if answer is not None:
                self._work(answer)

    def _work(self, job: Coroutine[Any, Any, None]) -> None:
        def done(_: object) -> None:
            self._at_work = None

        self._at_work = working = Deferred.fromCoroutine(job)
        working.addErrback(self._failed)
        working.addBoth(done)
        if working.called:
            self._at_work = None

    def _failed(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, Missing):
            self._say("error", "missing", str(error))
        elif isinstance(error, BrokerError):
            self._say_refusal(error)
        else:
            self._broke(failure)

    def _broke(self, failure: Failure) -> None:
        log.failure("the replay sink broke for {address}", failure, address=self._address)
        self.factory.broker.count("bugs", "replay")
        self.abort()

    def _say(self, *content: Any) -> None:
        if not self._closing:
            self.transport.write(frame(*content))

    def _say_refusal(self, error: BrokerError) -> None:
        self._end_batch()
        self._note(type(error).__name__, str(error))
        code = "overloaded" if isinstance(error, Overloaded) else "refused"
        self._say("error", code, str(error))

    def _refuse(self, code: str, text: str) -> None:
        """Say why, hang up, and read nothing more."""
        self._note("wrong token" if code == "token" else "wrong request", text)
        self._say("error", code, text)
        self._hang_up()

    def _note(self, reason: str, text: str) -> None:
        """Count a refusal; record and log it if it is the first of its kind on this connection."""
        broker = self.factory.broker
        if reason in self._noted:
            broker.count("refused", "replay", reason)
            return
        self._noted.add(reason)
        text = f"{self._address}: {text}"[:LONGEST_TEXT]
        broker.note(REFUSED, Peer("replay", ""), reason=reason, detail=text)
        log.info("replay {text}", text=text)

    def _hang_up(self) -> None:
        """Half-close, and let the peer read our last words: to close with its bytes unread would
        make the kernel reset the connection."""
        self._closing = True
        self._heard.clear()
        self._end_batch()
        self._set_timer(LINGER, self.abort)
        self.transport.unregisterProducer()  # else what waits for a producer is not closed
        if ISSLTransport.providedBy(self.transport):
            self.transport.loseConnection()
        else:
            self.transport.loseWriteConnection()

    def abort(self) -> None:
        self._closing = True
        self.transport.abortConnection()

    # What each request means.

    def on_Hello(self, request: Hello) -> None:
        if not self.factory.is_token(request.token):
            self._refuse("token", "the token is wrong")
        elif request.version != VERSION:
            self._refuse("wrong", f"this gateway speaks version {VERSION}, not {request.version}")
        else:
            self._greeted = True
            self._limit = FRAME_BYTES
            self._say("ready", VERSION)

    def on_Range(self, request: Range) -> None:
        self._say("range", *self.factory.journal.range())

    def on_Read(self, request: Read) -> Coroutine[Any, Any, None] | None:
        oldest, end = self.factory.journal.range()
        if request.end > end:
            self._say("error", "ahead", f"the log ends at {end}, before {request.end}")
        elif request.start < oldest and request.start < request.end:
            self._say("error", "missing", str(Missing(request.start, oldest)))
        else:
            return self._show(request.start, request.end)
        return None

    async def _show(self, start: int, end: int) -> None:
        chunk = self.factory.journal.store.chunk

        def read() -> tuple[int, bytes]:
            found: Chunk = chunk(start, end)
            return found.end, frame("rows", *found)

        while start < end:
            if self._blocked:
                self._room = Deferred()
                await self._room
            if self._closing:
                return  # nothing may be read from here on
            start, data = await self.factory.run(read)
            if self._closing:
                return
            self.transport.write(data)
        self._say("done")

    async def on_Move(self, request: Move) -> None:
        await self.factory.journal.move(request.cursor, request.position)
        self._say("done")

    def on_Publish(self, request: Publish) -> Coroutine[Any, Any, None] | None:
        self._end_batch()
        batch = Batch(request.query, request.batch, request.sender, request.create)
        if self.factory.publishing.is_known(batch):
            return self._accept(batch)  # it may not be on disk yet
        self._batch = batch
        self._say("done")
        return None

    def on_Messages(self, request: Messages) -> None:
        batch = self._batch
        if batch is None:
            raise WrongRequest("messages of no batch")
        before = batch.size
        for address, body, due in request.rows:
            batch.add(address, body, due)
        self.factory.waiting += batch.size - before
        if len(batch.messages) > MOST_MESSAGES:
            raise BatchTooBig(f"a batch has at most {MOST_MESSAGES} messages")
        if batch.size > MOST_BYTES:
            raise BatchTooBig(f"a batch has at most {MOST_BYTES} bytes")
        if self.factory.waiting > MOST_BYTES:
            raise Overloaded("too many batches are on their way in")
        self._say("done")

    def on_Commit(self, request: Commit) -> Coroutine[Any, Any, None]:
        if self._batch is None:
            raise WrongRequest("a commit of no batch")
        batch = self._batch
        self._end_batch()
        return self._accept(batch)

    async def _accept(self, batch: Batch) -> None:
        self._say("published", *await self.factory.publishing.accept(batch))

    def _end_batch(self) -> None:
        if self._batch is not None:
            self.factory.waiting -= self._batch.size
            self._batch = None

    # The transport's side.

    def pauseProducing(self) -> None:
        self._blocked = True

    def resumeProducing(self) -> None:
        self._blocked = False
        room, self._room = self._room, None
        if room is not None:
            room.callback(None)

    def stopProducing(self) -> None:
        """The connection is going."""

    def readConnectionLost(self) -> None:
        """The peer asks nothing more, and one that has been answered wants nothing more."""
        if not self._closing:
            self._hang_up()
        self.transport.loseConnection()

    def writeConnectionLost(self) -> None:
        """Our last words are on their way."""

    def connectionLost(self, reason: Any = None) -> None:
        self._closing = True
        self._stop_timer()
        self._end_batch()
        self.factory.readers.pop(self, None)
        self.resumeProducing()  # so that what waits for it ends; a batch goes on to its own end


class ReplaySink(ServerFactory):
    """What all connections share."""

    protocol: Any = ReplayReader
    noisy = False

    def __init__(
        self, clock: IReactorTime, broker: Broker, journal: Journal, run: Run, token: Secret | None
    ) -> None:
        """`run` does a job in the one thread that reads the log."""
        self.clock = clock
        self.broker = broker
        self.journal = journal
        self.run = run
        self.publishing = Publishing(broker, journal)
        self.readers: dict[ReplayReader, None] = {}
        self.waiting = 0  # bytes of batches that are not complete
        self._token = token

    def is_token(self, given: str) -> bool:
        if self._token is None:
            return True
        # As long for a token that is nearly right as for one that is not.
        return hmac.compare_digest(self._token.reveal(), given.encode(errors="replace"))

    def farewell(self) -> bytes:
        return frame("error", "overloaded", f"all {MOST_READERS} connections are taken")

    def finish(self) -> Deferred[Any]:
        """Readers come again; what is being read must be over before the journal is closed."""
        for reader in [*self.readers]:
            reader.abort()
        return self.run(lambda: None)
