"""Agents' names for the shell's completion. Used by the NAME arguments, while the user waits for the daemon.

So it has a budget a person does not notice, and every failure is silence: a completion that complains would
write into the middle of the command line.
"""

from __future__ import annotations

import os
from typing import Any

import typer

from hive_api.client import AdminClient, ClientError
from hivectl.session import DEFAULT_SOCKET, SOCKET_VARIABLE

BUDGET_S = 0.15


def complete_name(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names that begin with what was typed and are not on the line yet."""
    socket_path = ctx.find_root().params.get("socket") or os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET
    try:
        untrusted_names = AdminClient(str(socket_path), BUDGET_S).get("/v1/names")
    except ClientError:
        return []
    if not isinstance(untrusted_names, list):
        return []
    already = ctx.params.get("names") or ()
    return [name for name in untrusted_names if _fits(name, incomplete) and name not in already]


def _fits(untrusted_name: Any, incomplete: str) -> bool:
    return (
        isinstance(untrusted_name, str)
        and untrusted_name.replace("-", "").isalnum()
        and untrusted_name.isascii()
        and untrusted_name.startswith(incomplete)
    )
