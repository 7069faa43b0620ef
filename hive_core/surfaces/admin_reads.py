"""The admin routes that only look. Those that answer from memory run on the loop, so nothing delays them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from hive_api.models import (
    AgentAnswer,
    AuditAnswer,
    AuditVerdict,
    ChangeAnswer,
    DoctorAnswer,
    EventBody,
    ExplainAnswer,
    Seconds,
    StatusAnswer,
    WhyAnswer,
)
from hive_core.adapters.audit import AuditDamaged
from hive_core.domain.errors import InvalidRequest
from hive_core.engine.audit import parse_head
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


async def why(request: Request, name: str, limit: Annotated[int, Query(ge=1, le=100)] = 12) -> WhyAnswer:
    """How an agent came to be as it is, in sentences."""
    hive = hive_of(request)
    found = await in_thread(lambda: hive.account(name, limit))
    return WhyAnswer(summary=found.summary, sentences=list(found.sentences))


async def explain(request: Request, caller: str, operation: str, target: str | None = None) -> ExplainAnswer:
    """Whether a caller may do something, by which rule, and what would allow it."""
    hive = hive_of(request)
    found = await in_thread(lambda: hive.explain(caller, operation, target))
    return ExplainAnswer(
        allowed=found.is_allowed,
        decision=found.decision,
        rule=found.rule,
        remedy=found.remedy,
    )


async def audit(
    request: Request,
    after: Annotated[int | None, Query(ge=0)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
) -> AuditAnswer:
    """Audit records, oldest first: the last ones, or those after a number."""
    log = hive_of(request).audit
    found = await in_thread(lambda: log.records(-1 if after is None else after, limit))
    head = log.head
    return AuditAnswer(records=found, head=f"{head.seq}:{head.hash}")


async def audit_verify(request: Request, head: str | None = None) -> AuditVerdict:
    """Whether the audit chain holds, and contains the head that was kept elsewhere, if one is given."""
    log = hive_of(request).audit
    kept = None if head is None else parse_head(head)
    if head is not None and kept is None:
        raise InvalidRequest("cannot verify: a head is written SEQ:HASH", "as hivectl audit prints it")
    try:
        found = await in_thread(lambda: log.verify(kept))
    except AuditDamaged as fault:
        return AuditVerdict(ok=False, records=log.head.seq, start=None, head=None, fault=fault.message)
    return AuditVerdict(
        ok=True,
        records=found.count,
        start=f"{found.start.seq}:{found.start.hash}",
        head=f"{found.head.seq}:{found.head.hash}",
        fault=None,
    )


async def doctor(request: Request) -> DoctorAnswer:
    """Whether the host keeps what hive promises."""
    hive = hive_of(request)
    return await in_thread(lambda: encode.doctor(hive.doctor()))


async def changes(request: Request) -> list[ChangeAnswer]:
    """Recent changes, newest first."""
    known = hive_of(request).changes
    return [encode.change(one) for one in await in_thread(known.recent)]


async def change(request: Request, change_id: str, wait_s: Annotated[Seconds, Query()] = 0) -> ChangeAnswer:
    """One change, waiting for its end if asked."""
    hive = hive_of(request)
    found = await in_thread(lambda: hive.changes.wait(change_id, wait_s), WAITERS)
    return encode.change(found, await in_thread(lambda: hive.events.steps(found.id)))


async def logs(
    request: Request,
    name: str,
    tail: Annotated[int, Query(ge=0, le=10_000)] = 100,
    follow: bool = False,
    previous: bool = False,
) -> StreamingResponse:
    """What an agent's program printed, as raw bytes; `previous`: that of the container removed last."""
    hive = hive_of(request)
    work = partial(hive.previous_log, name) if previous else partial(hive.logs, name, tail, follow)
    chunks = await in_thread(work)
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
