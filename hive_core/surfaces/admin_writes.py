"""The admin routes that change something: each answers 202 with a change to wait for."""

from __future__ import annotations

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from hive_api.models import (
    ChangeAnswer,
    DryRunAnswer,
    FileBody,
    InitRequest,
    LifecycleRequest,
    PushRequest,
    ReconcileRequest,
)
from hive_core.domain.config_files import ConfigFile, parse_config_files
from hive_core.domain.errors import InvalidRequest
from hive_core.domain.names import parse_name
from hive_core.engine.creation import NewAgent
from hive_core.planning.verbs import Verb
from hive_core.surfaces import encode
from hive_core.surfaces.threads import hive_of, in_thread

_OPERATOR = "the operator"


def _files(bodies: list[FileBody]) -> tuple[ConfigFile, ...]:
    return parse_config_files((body.path, body.content, body.executable) for body in bodies)


async def init(request: Request, body: InitRequest) -> ChangeAnswer:
    """Create an agent from a template or from files."""
    hive = hive_of(request)
    if body.top_level and body.parent is not None:
        raise InvalidRequest("cannot create: 'parent' and 'top_level' exclude each other", "send one of them")
    asked = NewAgent(
        name=parse_name(body.name),
        parent=None if body.parent is None else parse_name(body.parent),
        is_top_level=body.top_level,
        adopts_state=body.adopt_state,
        files=None if body.files is None else _files(body.files),
    )
    return encode.change(await in_thread(lambda: hive.creation.init(asked, _OPERATOR)))


async def push(request: Request, name: str, body: PushRequest) -> ChangeAnswer:
    """Put files on an agent's main branch."""
    hive = hive_of(request)
    files = _files(body.files)
    return encode.change(await in_thread(lambda: hive.creation.push(name, files, _OPERATOR)))


async def remove(request: Request, name: str, purge: bool = False) -> ChangeAnswer:
    """End an agent; its data is retired, or deleted with `purge`."""
    hive = hive_of(request)
    return encode.change(
        await in_thread(lambda: hive.lifecycle.remove(name, purge=purge, asked_by=_OPERATOR))
    )


async def _verb(request: Request, verb: Verb, body: LifecycleRequest) -> ChangeAnswer:
    hive = hive_of(request)
    work = lambda: hive.lifecycle.run(verb, body.names, now=body.now, asked_by=_OPERATOR)  # noqa: E731  # one call, named for the thread
    return encode.change(await in_thread(work))


async def spawn(request: Request, body: LifecycleRequest) -> ChangeAnswer:
    """Run agents for the first time."""
    return await _verb(request, Verb.SPAWN, body)


async def start(request: Request, body: LifecycleRequest) -> ChangeAnswer:
    """Start stopped agents, resume paused ones, forgive crashes."""
    return await _verb(request, Verb.START, body)


async def stop(request: Request, body: LifecycleRequest) -> ChangeAnswer:
    """Stop agents; their state is kept."""
    return await _verb(request, Verb.STOP, body)


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
        answer: DryRunAnswer | ChangeAnswer = encode.dry_run(await in_thread(hive.preview))
        return JSONResponse(answer.model_dump(), 200)
    answer = encode.change(await in_thread(hive.reconcile))
    return JSONResponse(answer.model_dump(), 202)
