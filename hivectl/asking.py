"""Sends the requests that change something. Used by every mutating command.

Each carries a key of its own. When the connection is cut nobody knows whether the request was taken, so it is
made once more under the same key: the daemon, also one that was restarted in between, does it only once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hive_api.client import Absent, AdminClient, ApiError, ClientError, Cut
from hive_api.errors import ErrorCode
from hivectl.output import note
from hivectl.session import Session

PATIENCE_S = 30.0  # what a restart of the daemon may take
PAUSE_S = 0.2


def ask(
    session: Session,
    method: str,
    path: str,
    *,
    query: Mapping[str, object] | None = None,
    body: object = None,
    timeout_s: float | None = None,
) -> Any:
    """Make one mutating request and return its answer; a cut connection is answered by asking again, once."""
    from uuid import uuid4

    key = uuid4().hex
    client = session.client()
    try:
        return client.send(method, path, query=query, body=body, timeout_s=timeout_s, key=key)
    except Cut:
        note("the connection to hived was cut; asking again, which does nothing twice")
    _await_daemon(client)
    return client.send(method, path, query=query, body=body, timeout_s=timeout_s, key=key)


def is_restarting(fault: Exception) -> bool:
    """Whether an error is what a daemon that stops or is not back yet looks like."""
    is_stopping = isinstance(fault, ApiError) and fault.code is ErrorCode.STOPPING
    return is_stopping or isinstance(fault, (Absent, Cut))


def _await_daemon(client: AdminClient) -> None:
    """Return when the daemon answers and does not stop, or when a restart would be over.

    Only then is a request worth its second try: one queued at a daemon that ends would be cut again.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if client.get("/v1/status")["phase"] != "stopping":
                return
        except ClientError as fault:
            if not is_restarting(fault):
                return
        time.sleep(PAUSE_S)
