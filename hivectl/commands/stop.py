"""`hivectl stop` and `kill`, which are the same: some agents, or with --all the whole hive."""

from __future__ import annotations

from typing import Annotated

import typer

from hivectl.asking import ask
from hivectl.confirm import confirm, require_terminal
from hivectl.options import NoWait, OptionalNames, Output, Yes
from hivectl.output import Format
from hivectl.session import Session, begin, checked_choice
from hivectl.waiting import finish

Now = Annotated[bool, typer.Option("--now", help="Kill at once, without the time to end in peace.")]
All = Annotated[bool, typer.Option("--all", help="Every agent that was ever spawned; asks first.")]


def stop(
    context: typer.Context,
    names: OptionalNames = None,
    everyone: All = False,
    now: Now = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    no_wait: NoWait = False,
) -> None:
    """Stop agents, or all of them, until they are started again."""
    _stop(context, names, everyone, now, yes, output, no_wait)


def kill(
    context: typer.Context,
    names: OptionalNames = None,
    everyone: All = False,
    now: Now = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    no_wait: NoWait = False,
) -> None:
    """Stop agents: another word for stop."""
    _stop(context, names, everyone, now, yes, output, no_wait)


def _stop(
    context: typer.Context,
    names: list[str] | None,
    everyone: bool,
    now: bool,
    yes: bool,
    output: Format,
    no_wait: bool,
) -> None:
    session = begin(context, f"stop {'all agents' if everyone else ', '.join(names or ())}".rstrip())
    chosen = checked_choice(names, is_all=everyone)
    if everyone:
        if not yes:
            require_terminal()
            confirm(_consequences(session, now), "no agent was stopped")
        change = ask(session, "POST", "/v1/lifecycle/stop-all", body={"now": now})
    else:
        change = ask(session, "POST", "/v1/lifecycle/stop", body={"names": chosen, "now": now})
    finish(session, change, output, no_wait)


def _consequences(session: Session, now: bool) -> list[str]:
    rows = session.client().get("/v1/agents")
    running = [str(row["name"]) for row in rows if row["desired"] == "running"]
    how = "kill" if now else "stop"
    whom = f"{len(running)} of {len(rows)}: {', '.join(running)}" if running else "nobody: no agent is to run"
    return ["stop --all will", f"  {how} {whom}", "  keep every agent down until it is started again"]
