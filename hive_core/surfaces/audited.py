"""Auditing of what the admin routes change: recorded before it is done, and again with its answer.

A dependency of every route whose operation mutates. What cannot be recorded is not done.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from fastapi import Request

from hive_core.domain.errors import HiveError
from hive_core.domain.operations import Operation
from hive_core.surfaces.gate import caller_of
from hive_core.surfaces.threads import hive_of, in_thread

_MAX_TARGET = 200
_TARGETS = ("name", "names")


def audited(operation: Operation) -> Callable[[Request], AsyncIterator[None]]:
    """Return the dependency that audits one operation."""

    async def record(request: Request) -> AsyncIterator[None]:
        audit, caller = hive_of(request).audit, caller_of(request.scope)
        target = await _target(request)
        detail = _detail(request)
        await in_thread(lambda: audit.asked(caller, operation.name, target, **detail))
        try:
            yield
        except HiveError as fault:
            code = fault.code.value
            await in_thread(lambda: audit.answered(caller, operation.name, target, "refused", code=code))
            raise
        else:
            change_id = getattr(request.state, "change_id", None)
            done = partial(audit.answered, caller, operation.name, target, "accepted", change=change_id)
            await in_thread(done)

    return record


async def _target(request: Request) -> str | None:
    """Return whom a request is about, as it was written: from the path, else from the body."""
    named = request.path_params.get("name")
    if named is None and request.headers.get("content-type", "").startswith("application/json"):
        named = _named_in(await request.body())
    return None if named is None else ascii(named)[1:-1][:_MAX_TARGET]


def _named_in(untrusted_body: bytes) -> str | None:
    try:
        untrusted_document: Any = json.loads(untrusted_body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(untrusted_document, dict):
        return None
    for key in _TARGETS:
        value = untrusted_document.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return ",".join(str(one) for one in value)
    return None


def _detail(request: Request) -> dict[str, str | bool | None]:
    return {"query": request.url.query or None, "key": request.headers.get("idempotency-key")}
