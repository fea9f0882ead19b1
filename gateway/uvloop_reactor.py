"""Twisted's asyncio reactor on uvloop: `twistd --reactor=uvloop`."""

from __future__ import annotations

import asyncio

import uvloop
from twisted.internet import asyncioreactor


def install() -> None:
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(
        loop
    )  # without it, what asks asyncio for the loop gets another and hangs
    asyncioreactor.install(loop)
