"""The admin route that reads everything at once: the backup, streamed as it is made.

Bound in `bindings`. It changes nothing and is audited all the same, before its first byte and at its end: who
has a backup has every agent's state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial

from anyio import CancelScope
from anyio.to_thread import run_sync
from fastapi import Request
from fastapi.responses import StreamingResponse

from hive_core.domain.errors import HiveError, InvalidRequest
from hive_core.engine.audit import Audit
from hive_core.surfaces.gate import caller_of
from hive_core.surfaces.threads import STREAMS, hive_of, in_thread

_OPERATION = "backup"


async def backup(request: Request, state: bool = True, with_secrets: bool = False) -> StreamingResponse:
    """The whole hive as one tar archive; `state=false` leaves the agents' state and home out."""
    hive, caller = hive_of(request), caller_of(request.scope)
    audit = hive.audit
    await in_thread(partial(audit.asked, caller, _OPERATION, None, state=state))
    try:
        if with_secrets:
            raise InvalidRequest("cannot back up secrets: no secrets exist yet", "leave with_secrets out")
        pieces = hive.backup.pieces(with_state=state)
        # Begun here: a failure needs a status of its own.
        first = await _next(pieces)
    except HiveError as fault:
        code = fault.code.value
        await in_thread(lambda: audit.answered(caller, _OPERATION, None, "refused", code=code))
        raise
    return StreamingResponse(_told(audit, caller, first, pieces), media_type="application/x-tar")


async def _told(
    audit: Audit, caller: str, first: bytes | None, pieces: Iterator[bytes]
) -> AsyncIterator[bytes]:
    """Yield the archive, and record whether it was read to its end."""
    outcome = "interrupted"
    try:
        piece = first
        while piece is not None:
            yield piece
            piece = await _next(pieces)
        outcome = "accepted"
    finally:
        # A client that goes away cancels this; the record is made all the same.
        with CancelScope(shield=True):
            await in_thread(lambda: audit.answered(caller, _OPERATION, None, outcome))


async def _next(pieces: Iterator[bytes]) -> bytes | None:
    """Return the next piece. Waited for even when the client is gone: it is short, and then all is closed."""
    return await run_sync(lambda: next(pieces, None), limiter=STREAMS.limiter)
