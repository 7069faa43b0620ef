"""`hivectl rm NAME`: retire an agent, or with --purge delete all of it. Says what it will do, and asks."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from hive_api.client import segment
from hive_api.errors import EXIT_FAILED
from hivectl.escape import escape
from hivectl.failure import UsageError
from hivectl.options import Name, NoWait, Output
from hivectl.output import Format, note
from hivectl.session import begin, checked_name
from hivectl.waiting import finish

Purge = Annotated[bool, typer.Option("--purge", help="Delete its state, home and config repo for good.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def rm(
    context: typer.Context,
    name: Name,
    purge: Purge = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    no_wait: NoWait = False,
) -> None:
    """Retire an agent, or with --purge delete it.

    Its container goes; its state, home and config repo are kept aside unless --purge is given.
    """
    session = begin(context, f"remove {name}")
    path = f"/v1/agents/{segment(checked_name(name))}"
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("it has to be confirmed, and there is no terminal to ask on", "add --yes")
        _confirm(session.client().get(path), purge)
    finish(session, session.client().delete(path, {"purge": purge}), output, no_wait)


def _confirm(agent: dict[str, Any], purge: bool) -> None:
    sys.stderr.write("".join(f"{escape(line)}\n" for line in _consequences(agent, purge)))
    sys.stderr.write("Go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        note(f"{agent['name']} was left as it is")
        raise typer.Exit(EXIT_FAILED)


def _consequences(agent: dict[str, Any], purge: bool) -> list[str]:
    name = str(agent["name"])
    lines = [f"rm {name} will", f"  stop {name}, now {agent['state']}, and remove its container"]
    if purge:
        lines.append("  DELETE its state, home and config repo; there is no way back")
    else:
        lines.append("  keep its state, home and config repo aside")
        lines.append(f"  (hivectl init {name} --adopt-state takes the state back)")
    children = ", ".join(map(str, agent.get("children") or []))
    if children:
        parent = agent.get("parent")
        lines.append(f"  put {children} under {parent}" if parent else f"  make {children} top-level")
    return lines
