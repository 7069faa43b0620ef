"""`hivectl spawn`, `start`, `stop`, `kill`, `restart` and `update`: one request, one verb apart."""

from __future__ import annotations

from typing import Annotated

import typer

from hivectl.options import Names, NoWait, Output
from hivectl.output import Format
from hivectl.session import begin, checked_names
from hivectl.waiting import finish

Now = Annotated[bool, typer.Option("--now", help="Kill at once, without the time to end in peace.")]


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


def stop(
    context: typer.Context,
    names: Names,
    now: Now = False,
    output: Output = Format.TABLE,
    no_wait: NoWait = False,
) -> None:
    """Stop agents until they are started again."""
    _request(context, "stop", names, output, no_wait, now=now)


def kill(
    context: typer.Context,
    names: Names,
    now: Now = False,
    output: Output = Format.TABLE,
    no_wait: NoWait = False,
) -> None:
    """Stop agents: another word for stop."""
    _request(context, "stop", names, output, no_wait, now=now)


def restart(
    context: typer.Context, names: Names, output: Output = Format.TABLE, no_wait: NoWait = False
) -> None:
    """Stop agents and start them again."""
    _request(context, "restart", names, output, no_wait)


def update(
    context: typer.Context, names: Names, output: Output = Format.TABLE, no_wait: NoWait = False
) -> None:
    """Give agents a container of their current config and image."""
    _request(context, "update", names, output, no_wait)


def _request(
    context: typer.Context, verb: str, names: list[str], output: Format, no_wait: bool, *, now: bool = False
) -> None:
    session = begin(context, f"{verb} {', '.join(names)}")
    body = {"names": checked_names(names), "now": now}
    finish(session, session.client().post(f"/v1/lifecycle/{verb}", body), output, no_wait)
