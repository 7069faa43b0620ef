"""`hivectl spawn`, `start` and `restart`: one request, one verb apart."""

from __future__ import annotations

import typer

from hivectl.asking import ask
from hivectl.options import Names, NoWait, Output
from hivectl.output import Format
from hivectl.session import begin, checked_names
from hivectl.waiting import finish


def spawn(
    context: typer.Context, names: Names, output: Output = Format.TABLE, no_wait: NoWait = False
) -> None:
    """Start agents for the first time."""
    _request(context, "spawn", names, output, no_wait)


def start(
    context: typer.Context, names: Names, output: Output = Format.TABLE, no_wait: NoWait = False
) -> None:
    """Start agents that were stopped or that crash, or unpause them."""
    _request(context, "start", names, output, no_wait)


def restart(
    context: typer.Context, names: Names, output: Output = Format.TABLE, no_wait: NoWait = False
) -> None:
    """Stop agents and start them again."""
    _request(context, "restart", names, output, no_wait)


def _request(context: typer.Context, verb: str, names: list[str], output: Format, no_wait: bool) -> None:
    session = begin(context, f"{verb} {', '.join(names)}")
    body = {"names": checked_names(names), "now": False}
    finish(session, ask(session, "POST", f"/v1/lifecycle/{verb}", body=body), output, no_wait)
