"""Who may use the admin socket, and how much one request may hold.

The kernel tells who connected: the protocol stamps each connection with the peer, the gate judges it before
any route is looked up. Root and members of the operator group may come in, unless they come from one of
this hive's own containers: there the same uid 0 is an agent's.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from hive_core.adapters.sockets import Peer, peer_of
from hive_core.domain.errors import Denied, HiveError, InvalidRequest
from hive_core.engine.hive import Hive
from hive_core.surfaces.encode import error
from hive_core.surfaces.threads import in_thread

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 32 * 1024 * 1024
_PEER = "peer"


class PeerProtocol(H11Protocol):
    """uvicorn's protocol, telling the application who is on the other end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn's own class
        super().connection_made(transport)
        try:
            peer: Peer | None = peer_of(transport.get_extra_info("socket"))
        except OSError:
            peer = None
        self.app_state = {**self.app_state, _PEER: peer}


def judge(peer: Peer | None, operator_gid: int, is_managed: Callable[[str], bool]) -> str:
    """Return why a peer may not use the admin socket; empty when it may."""
    if peer is None:
        return "the kernel does not tell who is asking"
    if peer.cgroup_text is None:
        return "the asking process is gone"
    if is_managed(peer.cgroup_text):
        return "the asking process runs in one of this hive's containers"
    if peer.uid != 0 and not peer.is_in_group(operator_gid):
        return f"uid {peer.uid} is neither root nor a member of the operator group"
    return ""


def caller_of(scope: Scope) -> str:
    """Return how the audit names whoever made a request."""
    peer = scope.get("state", {}).get(_PEER)
    return "unknown" if peer is None else f"uid {peer.uid}"


class Gate:
    """ASGI middleware: refuses peers that may not come in and bodies that are too large."""

    def __init__(self, app: ASGIApp, operator_gid: int, hive: Hive) -> None:
        self._app = app
        self._operator_gid = operator_gid
        self._hive = hive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Judge one request."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = judge(scope.get("state", {}).get(_PEER), self._operator_gid, self._hive.is_managed)
        if refusal:
            log.warning("refused a request on the admin socket: %s", refusal)
            await self._record(scope, refusal)
            fault: HiveError = Denied(
                f"cannot use the admin socket: {refusal}", "run as root, or join the operator group"
            )
            await _refuse(scope, receive, send, 403, fault)
        elif _body_bytes(scope) > MAX_BODY_BYTES:
            fault = InvalidRequest(f"the request is larger than {MAX_BODY_BYTES} bytes", "send less")
            await _refuse(scope, receive, send, 413, fault)
        else:
            await self._app(scope, receive, send)

    async def _record(self, scope: Scope, refusal: str) -> None:
        """Audit a denial; one that cannot be recorded is a denial all the same."""
        asked = f"{scope.get('method', 'GET')} {scope['path']}"[:200]
        try:
            await in_thread(lambda: self._hive.audit.denied(caller_of(scope), asked, None, refusal))
        except HiveError as fault:
            log.error("%s", fault.message)


def _body_bytes(scope: Scope) -> int:
    """Return the announced size; a body without one counts as too large, since it could be any size."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    if b"transfer-encoding" in headers:
        return MAX_BODY_BYTES + 1
    untrusted_length = headers.get(b"content-length", b"0")
    return int(untrusted_length) if untrusted_length.isdigit() else MAX_BODY_BYTES + 1


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, fault: HiveError) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008, "reason": fault.message[:120]})
        return
    body: bytes = json.dumps(error(fault)).encode("ascii")
    headers: list[Any] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
