"""`hivectl shell NAME`: a login shell in an agent's container, as its user and in its state folder."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from hivectl.commands.exec import run
from hivectl.failure import UsageError
from hivectl.options import Name
from hivectl.session import begin

# An image need not have bash; every one that runs an agent has a shell.
LOGIN_SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash -l || exec sh -l")


Rescue = Annotated[
    bool,
    typer.Option("--rescue", help="For an agent that does not run: the same container without its program."),
]


def shell(context: typer.Context, name: Name, rescue: Rescue = False) -> None:
    """Open a shell in an agent's container.

    It begins in /state, as the agent's own user. The same as hivectl exec -t NAME -- with a login shell.
    """
    session = begin(context, f"open a shell in {name}")
    if not (sys.stdin.isatty() and os.isatty(sys.stdout.fileno())):
        hint = f"for a command without one: hivectl exec {name} -- CMD"
        raise UsageError("a shell needs a terminal, and here is none", hint)
    run(session, name, LOGIN_SHELL, tty=True, rescue=rescue)
