"""How the command ends: its exit codes, and one sentence for a person about what went wrong."""

from __future__ import annotations

from twisted.internet import error as net

from mqgateway.speakers.base import Refused
from protocols.framing import WireError

DONE = 0
FAILED = 1
USAGE = 2
NOTHING_CAME = 3
INTERRUPTED = 130  # 128 and SIGINT, as shells have it
TERMINATED = 143


class Ending(Exception):
    """Stop here, with this exit code and, if there is one, this sentence."""

    def __init__(self, code: int, sentence: str = "") -> None:
        super().__init__(sentence)
        self.code = code


def explain(error: BaseException, at: str) -> str:
    """What went wrong, in a sentence; `at` is the endpoint that was tried."""
    match error:
        case Refused():
            return f"refused: {error}"
        case net.ConnectionRefusedError():
            return f"nothing listens at {at}; is the gateway running?"
        case net.DNSLookupError() | net.UnknownHostError():
            return f"the host of {at} is not known"
        case net.TimeoutError() | net.TCPTimedOutError():
            return f"{at} does not answer"
        case net.ConnectionDone() | net.ConnectionLost() | net.ConnectionAborted():
            return f"the connection to {at} has ended; is that the right protocol for it?"
        case net.ConnectError():
            return f"cannot connect to {at}: {error.osError or error}"
        case WireError():
            return f"{at} does not speak that protocol: {error}"
        case OSError():
            place = f"{error.filename}: " if error.filename else ""
            return f"{place}{error.strerror or error}"
    return f"{type(error).__name__}: {error}"
