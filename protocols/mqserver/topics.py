"""The topic of a message, and the filters by which clients choose among topics."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache

from gateway.interfaces import TOPIC, Message

Accepts = Callable[[str], object]

FILTERS = 1024  # compiled filters that are kept, for all clients together

_is_topic = re.compile(r"[^\x00-\x20|\x7f]{1,31}").fullmatch


def topic_of(message: Message) -> str:
    """The topic that the sender gave it; "" if it has none, or one that is no word."""
    if message.headers is None:
        return ""
    topic = message.headers.get(TOPIC)
    return topic if isinstance(topic, str) and _is_topic(topic) else ""


@lru_cache(FILTERS)
def compiled(pattern: str) -> Accepts | None:
    """A shell pattern as a function of the topic, None if it accepts all; ValueError.

    `translate` makes every star an atomic group, so that no pattern takes longer than its length
    times the topic's, which is a word.
    """
    if not pattern.strip("*"):
        return None
    try:
        return re.compile(translate(pattern)).match
    except re.error as error:
        raise ValueError(str(error)) from None
