"""A deadline that is cheap to move and to lift, as they are all day."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Timer:
    """Does its action once when the time that was last set is over.

    Moving it later or clearing it costs no reactor call: the one that is under way looks, when it
    comes, whether it came too early.
    """

    def __init__(self, clock: IReactorTime, action: Callable[[], object]) -> None:
        self._clock = clock
        self._action = action
        self._deadline: float | None = None
        self._call: IDelayedCall | None = None

    def set(self, seconds: float) -> None:
        self._deadline = deadline = self._clock.seconds() + seconds
        if self._call is not None:
            if self._call.getTime() <= deadline:
                return
            self._call.cancel()
        self._call = self._clock.callLater(seconds, self._look)

    def clear(self) -> None:
        self._deadline = None

    def stop(self) -> None:
        """Clear it and leave nothing with the clock."""
        self._deadline = None
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _look(self) -> None:
        self._call = None
        if self._deadline is None:
            return
        left = self._deadline - self._clock.seconds()
        if left > 0:
            self._call = self._clock.callLater(left, self._look)
        else:
            self._deadline = None
            self._action()
