"""The admin routes that only look. Those that answer from memory run on the loop, so nothing delays them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from hive_api.models import (
    AgentAnswer,
    ChangeAnswer,
    DoctorAnswer,
    EventBody,
    Seconds,
    StatusAnswer,
)
from hive_core.engine.event_log import MAX_PAGE
from hive_core.surfaces import encode
from hive_core.surfaces.threads import STREAMS, WAITERS, hive_of, in_thread

_JSON = "application/json"


async def status(request: Request) -> StatusAnswer:
    """How the daemon, its engine and its roster are."""
    return encode.status(hive_of(request))


async def agents(request: Request) -> Response:
    """The agents and their run states, in name order."""
    views = hive_of(request).snapshot.views
    rows = [encode.row(views[name]) for name in sorted(views)]
    return Response(json.dumps(rows), media_type=_JSON)


async def names(request: Request) -> list[str]:
    """The names of all agents."""
    return list(hive_of(request).names())


async def roster(request: Request) -> Response:
    """The published roster, byte for byte."""
    return Response(hive_of(request).published(), media_type=_JSON)


async def show(request: Request, name: str) -> AgentAnswer:
    """Everything known about one agent."""
    hive = hive_of(request)
    return await in_thread(lambda: encode.portrait(hive.portrait(name)))


async def events(
    request: Request,
    after: Annotated[int | None, Query(ge=0)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
    wait_s: Annotated[Seconds, Query()] = 0,
) -> list[EventBody]:
    """Events, oldest first: the last ones, or those after a number, waiting for one if asked."""
    log = hive_of(request).events
    if after is None:
        found = await in_thread(lambda: log.last(limit))
    else:
        seq = after
        found = await in_thread(lambda: log.after(seq, limit, wait_s), WAITERS)
    return [encode.event(one) for one in found]


async def doctor(request: Request) -> DoctorAnswer:
    """Whether the host keeps what hive promises."""
    hive = hive_of(request)
    return await in_thread(lambda: encode.doctor(hive.doctor()))


async def changes(request: Request) -> list[ChangeAnswer]:
    """Recent changes, newest first."""
    return [encode.change(one) for one in hive_of(request).changes.recent()]


async def change(request: Request, change_id: str, wait_s: Annotated[Seconds, Query()] = 0) -> ChangeAnswer:
    """One change, waiting for its end if asked."""
    known = hive_of(request).changes
    return encode.change(await in_thread(lambda: known.wait(change_id, wait_s), WAITERS))


async def logs(
    request: Request,
    name: str,
    tail: Annotated[int, Query(ge=0, le=10_000)] = 100,
    follow: bool = False,
) -> StreamingResponse:
    """What an agent's program printed, as raw bytes."""
    hive = hive_of(request)
    chunks = await in_thread(lambda: hive.logs(name, tail, follow))
    # A failure needs a status, so what ends by itself is begun first. A silent agent's follower is not: only
    # an answer that has begun notices that its client went, and until then it holds a thread.
    first = None if follow else await in_thread(lambda: next(chunks, None), STREAMS)
    return StreamingResponse(_stream(first, chunks), media_type="application/octet-stream")


async def _stream(first: bytes | None, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield what was read already, then chunks read on a thread until they end or the client goes."""
    try:
        if first is not None:
            yield first
        while (chunk := await in_thread(lambda: next(chunks, None), STREAMS)) is not None:
            yield chunk
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            close()
