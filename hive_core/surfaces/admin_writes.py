"""The admin routes that change something: each answers 202 with a change to wait for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from hive_api.models import (
    ChangeAnswer,
    DryRunAnswer,
    FileBody,
    InitRequest,
    LifecycleRequest,
    PauseAnswer,
    PushRequest,
    QuarantineRequest,
    ReconcileRequest,
    StopAllRequest,
)
from hive_core.domain.changes import Asked, Change
from hive_core.domain.config_files import ConfigFile, parse_config_files
from hive_core.domain.errors import InvalidRequest, StoreUnusable
from hive_core.domain.names import parse_name
from hive_core.engine.creation import NewAgent
from hive_core.planning.verbs import Verb
from hive_core.surfaces import encode
from hive_core.surfaces.threads import hive_of, in_thread

T = TypeVar("T")

_OPERATOR = "the operator"
_MAX_KEY = 200


def _asked(request: Request) -> Asked:
    """Return who asks, with the idempotency key of the request's header if it has one."""
    untrusted_key = request.headers.get("idempotency-key")
    if untrusted_key is not None and not 0 < len(untrusted_key) <= _MAX_KEY:
        raise InvalidRequest(
            f"the idempotency key must have 1 to {_MAX_KEY} characters", "make a shorter one"
        )
    return Asked(_OPERATOR, untrusted_key)


def _told(request: Request, change: Change) -> ChangeAnswer:
    """Return the answer, leaving the change's id where the audit finds it."""
    request.state.change_id = change.id
    return encode.change(change)


async def _done(work: Callable[[], T]) -> T:
    """Do it on a thread; once more where the disk was full and the store has just been given room."""
    try:
        return await in_thread(work)
    except StoreUnusable:
        return await in_thread(work)


def _files(bodies: list[FileBody]) -> tuple[ConfigFile, ...]:
    return parse_config_files((body.path, body.content, body.executable) for body in bodies)


async def init(request: Request, body: InitRequest) -> ChangeAnswer:
    """Create an agent from a template or from files."""
    hive = hive_of(request)
    if body.top_level and body.parent is not None:
        raise InvalidRequest("cannot create: 'parent' and 'top_level' exclude each other", "send one of them")
    new = NewAgent(
        name=parse_name(body.name),
        parent=None if body.parent is None else parse_name(body.parent),
        is_top_level=body.top_level,
        adopts_state=body.adopt_state,
        files=None if body.files is None else _files(body.files),
    )
    return _told(request, await _done(lambda: hive.creation.init(new, _asked(request))))


async def push(request: Request, name: str, body: PushRequest) -> ChangeAnswer:
    """Put files on an agent's main branch."""
    hive = hive_of(request)
    files = _files(body.files)
    return _told(request, await _done(lambda: hive.creation.push(name, files, _asked(request))))


async def remove(request: Request, name: str, purge: bool = False) -> ChangeAnswer:
    """End an agent; its data is retired, or deleted with `purge`."""
    hive = hive_of(request)
    return encode.change(await _done(lambda: hive.lifecycle.remove(name, purge=purge, asked=_asked(request))))


async def _verb(request: Request, verb: Verb, body: LifecycleRequest) -> ChangeAnswer:
    hive = hive_of(request)
    work = lambda: hive.lifecycle.run(verb, body.names, now=body.now, asked=_asked(request))  # noqa: E731  # one call, named for the thread
    return _told(request, await _done(work))


async def spawn(request: Request, body: LifecycleRequest) -> ChangeAnswer:
    """Run agents for the first time."""
    return await _verb(request, Verb.SPAWN, body)


async def start(request: Request, body: LifecycleRequest) -> ChangeAnswer:
    """Start stopped agents, resume paused ones, forgive crashes."""
    return await _verb(request, Verb.START, body)


async def stop(request: Request, body: LifecycleRequest) -> ChangeAnswer:
    """Stop agents; their state is kept."""
    return await _verb(request, Verb.STOP, body)


async def stop_all(request: Request, body: StopAllRequest) -> ChangeAnswer:
    """Stop every agent that was spawned."""
    hive = hive_of(request)
    asked = _asked(request)
    return _told(request, await _done(lambda: hive.lifecycle.stop_all(now=body.now, asked=asked)))


async def quarantine(request: Request, body: QuarantineRequest) -> ChangeAnswer:
    """Freeze agents as they are."""
    hive, asked = hive_of(request), _asked(request)
    work = partial(hive.lifecycle.quarantine, body.names, subtree=body.subtree, asked=asked)
    return _told(request, await _done(work))


async def release(request: Request, body: QuarantineRequest) -> ChangeAnswer:
    """End quarantines."""
    hive, asked = hive_of(request), _asked(request)
    work = partial(hive.lifecycle.release, body.names, subtree=body.subtree, asked=asked)
    return _told(request, await _done(work))


async def pause(request: Request) -> PauseAnswer:
    """Automation off, observation on."""
    hive = hive_of(request)
    await _done(lambda: hive.set_paused(True, _OPERATOR))
    return PauseAnswer(paused=True)


async def resume(request: Request) -> PauseAnswer:
    """Automation on again."""
    hive = hive_of(request)
    await _done(lambda: hive.set_paused(False, _OPERATOR))
    return PauseAnswer(paused=False)


async def restart(request: Request, body: LifecycleRequest) -> ChangeAnswer:
    """Stop and start agents."""
    return await _verb(request, Verb.RESTART, body)


async def update(request: Request, body: LifecycleRequest) -> ChangeAnswer:
    """Apply current config and image in new containers."""
    return await _verb(request, Verb.UPDATE, body)


async def reconcile(request: Request, body: ReconcileRequest) -> Response:
    """Run a pass now (202 and a change), or say what it would do (200)."""
    hive = hive_of(request)
    if body.dry_run:
        answer: DryRunAnswer | ChangeAnswer = encode.dry_run(await _done(hive.preview))
        return JSONResponse(answer.model_dump(), 200)
    answer = _told(request, await _done(lambda: hive.reconcile(_asked(request))))
    return JSONResponse(answer.model_dump(), 202)
