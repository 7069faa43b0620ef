"""`hivectl reconcile`: bring the host in line with what is wanted now, or show what that would do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hivectl.asking import ask
from hivectl.options import NoWait, Output
from hivectl.output import CellValue, Format, emit, note, table
from hivectl.session import Session, begin
from hivectl.waiting import finish

NOTHING = "nothing to do"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the actions and their reasons; do nothing.")]


def reconcile(
    context: typer.Context, dry_run: DryRun = False, output: Output = Format.TABLE, no_wait: NoWait = False
) -> None:
    """Run a reconcile pass and wait until its actions are done."""
    session = begin(context, "reconcile")
    if dry_run:
        _preview(session, output)
    else:
        change = ask(session, "POST", "/v1/reconcile", body={"dry_run": False})
        finish(session, change, output, no_wait, empty=NOTHING)


def _preview(session: Session, output: Format) -> None:
    plan = session.client().post("/v1/reconcile", {"dry_run": True})
    names = list(dict.fromkeys(str(action["agent"]) for action in plan["actions"] if action.get("agent")))
    emit(output, plan, human=lambda: _human(plan["actions"]), names=names)
    if output is Format.TABLE:
        for problem in plan.get("problems") or []:
            subject = f"{problem['agent']}: " if problem.get("agent") else ""
            note(f"problem: {subject}{problem['text']}")


def _word(action: str) -> str:
    """Return the name of an action as words: RecordExit is record exit."""
    return "".join(f" {one.lower()}" if one.isupper() else one for one in action).lstrip()


def _human(actions: list[dict[str, Any]]) -> str:
    if not actions:
        return f"{NOTHING}\n"
    rows: list[list[CellValue]] = [
        [str(action.get("agent") or "-"), _word(str(action["action"])), str(action["reason"])]
        for action in actions
    ]
    return table((), rows)
