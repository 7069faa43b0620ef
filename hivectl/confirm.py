"""The question before something that is hard to take back.

Used by `rm`, `stop --all`, `quarantine --subtree` and `restore`; no other command asks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from hive_api.errors import EXIT_FAILED
from hivectl.escape import escape
from hivectl.failure import UsageError
from hivectl.output import note


def require_terminal() -> None:
    """Refuse where nobody can be asked; called before anything is read, so that nothing is done."""
    if not sys.stdin.isatty():
        raise UsageError("it has to be confirmed, and there is no terminal to ask on", "add --yes")


def confirm(consequences: Sequence[str], refused: str) -> None:
    """Say what will happen, a line each, and ask; without a yes say `refused` and end the command."""
    sys.stderr.write("".join(f"{escape(line)}\n" for line in consequences))
    sys.stderr.write("Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        note(refused)
        raise typer.Exit(EXIT_FAILED)
