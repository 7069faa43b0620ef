"""`hivectl rm NAME`: retire an agent, or with --purge delete all of it. Says what it will do, and asks."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hive_api.client import segment
from hivectl.asking import ask
from hivectl.confirm import confirm, require_terminal
from hivectl.options import Name, NoWait, Output, Yes
from hivectl.output import Format
from hivectl.session import begin, checked_name
from hivectl.waiting import finish

Purge = Annotated[bool, typer.Option("--purge", help="Delete its state, home and config repo for good.")]


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
        require_terminal()
        agent = session.client().get(path)
        confirm(_consequences(agent, purge), f"{agent['name']} was left as it is")
    finish(session, ask(session, "DELETE", path, query={"purge": purge}), output, no_wait)


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
