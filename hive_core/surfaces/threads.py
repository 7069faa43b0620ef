"""Threads behind the async routes: who may use how many, so that waiters never starve workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import Request, WebSocket

from hive_core.engine.hive import Hive

T = TypeVar("T")


class Lane:
    """A bound on how many threads one kind of work may hold; made on first use, inside the loop."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._limiter: CapacityLimiter | None = None

    @property
    def limiter(self) -> CapacityLimiter:
        """The limiter of the running loop."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._width)
        return self._limiter


WORK = Lane(16)
WAITERS = Lane(128)
STREAMS = Lane(128)


async def in_thread(work: Callable[[], T], lane: Lane = WORK) -> T:
    """Run blocking work on a thread of its lane. A caller that goes away does not wait for it to end."""
    return await run_sync(work, limiter=lane.limiter, abandon_on_cancel=True)


def hive_of(request: Request | WebSocket) -> Hive:
    """Return the hive the app was made for."""
    return cast(Hive, request.app.state.hive)
