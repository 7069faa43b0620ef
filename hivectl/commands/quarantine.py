"""`hivectl quarantine NAME` and `release NAME`: freeze agents as evidence, and let them go again."""

from __future__ import annotations

from typing import Annotated

import typer

from hivectl.asking import ask
from hivectl.confirm import confirm, require_terminal
from hivectl.options import Names, NoWait, Output, Yes
from hivectl.output import Format
from hivectl.session import Session, begin, checked_names
from hivectl.waiting import finish

Subtree = Annotated[bool, typer.Option("--subtree", help="Also every agent below them.")]


def quarantine(
    context: typer.Context,
    names: Names,
    subtree: Subtree = False,
    yes: Yes = False,
    output: Output = Format.TABLE,
    no_wait: NoWait = False,
) -> None:
    """Freeze agents as they are, until they are released.

    Their processes stand still, and hive restarts and updates nothing.
    """
    session = begin(context, f"quarantine {', '.join(names)}")
    chosen = checked_names(names)
    if subtree and not yes:
        require_terminal()
        confirm(_consequences(session, chosen), "no agent was put into quarantine")
    body = {"names": chosen, "subtree": subtree}
    finish(session, ask(session, "POST", "/v1/lifecycle/quarantine", body=body), output, no_wait)


def release(
    context: typer.Context,
    names: Names,
    subtree: Subtree = False,
    output: Output = Format.TABLE,
    no_wait: NoWait = False,
) -> None:
    """End the quarantine of agents; they go on where they were."""
    session = begin(context, f"release {', '.join(names)}")
    body = {"names": checked_names(names), "subtree": subtree}
    finish(session, ask(session, "POST", "/v1/lifecycle/release", body=body), output, no_wait)


def _consequences(session: Session, names: list[str]) -> list[str]:
    rows = session.client().get("/v1/agents")
    below = _below(names, {str(row["name"]): row.get("parent") for row in rows})
    lines = [f"quarantine --subtree {' '.join(names)} will", f"  freeze {', '.join(names)}"]
    if below:
        lines.append(f"  freeze {', '.join(below)} below")
    return lines


def _below(names: list[str], parents: dict[str, str | None]) -> list[str]:
    """Return who stands below the named agents, by name."""
    children: dict[str | None, list[str]] = {}
    for name, parent in parents.items():
        children.setdefault(parent, []).append(name)
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        fresh = [child for child in children.get(waiting.pop(), []) if child not in found]
        found.update(fresh)
        waiting += fresh
    return sorted(found - set(names))
