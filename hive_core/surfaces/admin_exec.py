"""`exec` over a WebSocket: bytes in, bytes out, and the command ends when the client goes.

Binary frames carry a channel byte (0 input, 1 output, 2 errors) and bytes; text frames carry JSON: the
request first, then terminal sizes and the end of input one way, the exit status or an error the other.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from fastapi import WebSocket, WebSocketDisconnect
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hive_core.domain.errors import HiveError, InvalidRequest
from hive_core.domain.ports import ExecSession
from hive_core.surfaces.encode import error
from hive_core.surfaces.gate import caller_of
from hive_core.surfaces.threads import STREAMS, hive_of, in_thread

log = logging.getLogger(__name__)

_STDIN = 0
_PRESENCE_S = 5.0
_Cells = Annotated[int, Field(ge=1, le=10_000)]


class _Opening(BaseModel):
    """The client's first frame."""

    model_config = ConfigDict(extra="forbid")

    argv: list[str] = Field(min_length=1, max_length=4096)
    tty: bool = False
    rows: _Cells = 24
    columns: _Cells = 80
    rescue: bool = False


async def exec_(socket: WebSocket, name: str) -> None:
    """Run a command in an agent's container as that agent."""
    await socket.accept()
    session: ExecSession | None = None
    try:
        opening = _parse_opening(await socket.receive_text())
        hive = hive_of(socket)
        caller = caller_of(socket.scope)
        await in_thread(
            lambda: hive.audit.asked(caller, "exec", ascii(name[:40])[1:-1], rescue=opening.rescue)
        )
        work = partial(
            hive.exec,
            name,
            tuple(opening.argv),
            tty=opening.tty,
            rows=opening.rows,
            columns=opening.columns,
            is_rescue=opening.rescue,
        )
        session = await in_thread(work)
        await socket.send_text('{"started": true}')
        code = await _converse(socket, session)
        if code is not None:
            await socket.send_text(json.dumps({"exit": code}))
            await socket.close()
    except HiveError as fault:
        await _say(socket, fault)
    except (WebSocketDisconnect, KeyError):
        log.info("the client of an exec in %s went away", ascii(name[:40]))
    finally:
        if session is not None:
            await asyncio.shield(in_thread(session.terminate))


def _parse_opening(untrusted_text: str) -> _Opening:
    try:
        return _Opening.model_validate_json(untrusted_text)
    except ValidationError:
        raise InvalidRequest(
            "cannot exec: the opening frame is malformed", "send argv, tty, rows, columns"
        ) from None


async def _converse(socket: WebSocket, session: ExecSession) -> int | None:
    """Carry bytes both ways; return the exit status, or None when the client went first."""
    output = asyncio.create_task(_pump_output(socket, session))
    client = asyncio.create_task(_pump_client(socket, session))
    presence = asyncio.create_task(_watch_presence(socket))
    try:
        await asyncio.wait({output, client, presence}, return_when=asyncio.FIRST_COMPLETED)
        if output.done():
            output.result()
            return await in_thread(session.exit_code)
        if client.done():
            client.result()
        return None
    finally:
        for task in (output, client, presence):
            task.cancel()


async def _watch_presence(socket: WebSocket) -> None:
    """End when the client is gone, also where a command that takes no input keeps us from reading of it."""
    with suppress(WebSocketDisconnect, RuntimeError):
        while True:
            await asyncio.sleep(_PRESENCE_S)
            # No channel and no bytes: a client has nothing to do about it, but it shows that there is one.
            await socket.send_bytes(b"")


async def _pump_output(socket: WebSocket, session: ExecSession) -> None:
    while (found := await in_thread(session.read, STREAMS)) is not None:
        channel, content = found
        await socket.send_bytes(bytes([channel]) + content)


async def _pump_client(socket: WebSocket, session: ExecSession) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        untrusted_bytes = message.get("bytes")
        if untrusted_bytes:
            if untrusted_bytes[0] == _STDIN:
                await in_thread(partial(session.write, untrusted_bytes[1:]), STREAMS)
        else:
            await _control(session, message.get("text") or "")


async def _control(session: ExecSession, untrusted_text: str) -> None:
    try:
        untrusted_order: Any = json.loads(untrusted_text)
    except (ValueError, RecursionError):
        return
    if not isinstance(untrusted_order, dict):
        return
    if untrusted_order.get("stdin") == "eof":
        await in_thread(session.close_stdin)
    size = untrusted_order.get("resize")
    if (
        isinstance(size, list)
        and len(size) == 2
        and all(type(cells) is int and 0 < cells <= 10_000 for cells in size)
    ):
        await in_thread(lambda: session.resize(size[0], size[1]))


async def _say(socket: WebSocket, fault: HiveError) -> None:
    try:
        await socket.send_text(json.dumps(error(fault)))
        await socket.close()
    except (WebSocketDisconnect, RuntimeError):
        log.info("an exec was refused, but its client had gone: %s", fault.message)
