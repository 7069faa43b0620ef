"""What one run of hivectl knows: the socket to call, and what it is about to do.

Made by hivectl.application, handed to each command in the context, and read again when the command has
failed: `purpose` completes the sentence "cannot …".
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from hive_api.client import READ_TIMEOUT_S, AdminClient
from hivectl.failure import UsageError

DEFAULT_SOCKET = "/run/hive/admin.sock"
SOCKET_VARIABLE = "HIVE_ADMIN_SOCKET"


@dataclass(slots=True)
class Session:
    """One run of the CLI."""

    socket_path: str = DEFAULT_SOCKET
    purpose: str = "run hivectl"
    # Set by a command whose own exit status must stay apart from its subject's.
    failure_status: int | None = None

    def client(self, timeout_s: float = READ_TIMEOUT_S) -> AdminClient:
        """Return a client of the daemon this run speaks to."""
        return AdminClient(self.socket_path, timeout_s)


def begin(context: typer.Context, purpose: str) -> Session:
    """Return the run's session, now about to do `purpose`."""
    session = context.find_object(Session)
    if session is None:  # only when a command is called without the application
        session = Session(os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET)
    session.purpose = purpose
    return session


def checked_name(untrusted_name: str) -> str:
    """Return a name that can be sent; whether it is a good one only the daemon decides."""
    try:
        untrusted_name.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError("the name is not valid UTF-8", "see hivectl ps -o name") from None
    if not untrusted_name:
        raise UsageError("the name is empty", "see hivectl ps -o name")
    return untrusted_name


def checked_names(untrusted_names: Sequence[str]) -> list[str]:
    """Return the names in the order given, each once."""
    return list(dict.fromkeys(map(checked_name, untrusted_names)))


def checked_choice(untrusted_names: Sequence[str] | None, *, is_all: bool) -> list[str]:
    """Return the names of a command that takes names or --all: one of the two, and none with --all."""
    if is_all and untrusted_names:
        raise UsageError("names and --all exclude each other", "give one of them")
    if not is_all and not untrusted_names:
        raise UsageError("missing argument 'NAME'", "name the agents, or say --all")
    return checked_names(untrusted_names or ())
