"""`hivectl changes`: what was asked of the daemon lately, and how each request ended or goes on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hive_api.client import segment
from hivectl.moments import ago, clock
from hivectl.options import Output
from hivectl.output import Cell, CellValue, Format, Style, emit, table
from hivectl.session import begin
from hivectl.waiting import agent_sentence

HEADER = ("ID", "KIND", "STATE", "STARTED", "AGENTS")
STEP_HEADER = ("WHEN", "AGENT", "STEP", "TEXT")
_STYLES = {"done": Style.GOOD, "failed": Style.BAD, "running": Style.WARN}

ChangeId = Annotated[
    str | None, typer.Argument(metavar="ID", help="One change, in full, with what was done for it.")
]


def changes(context: typer.Context, change_id: ChangeId = None, output: Output = Format.TABLE) -> None:
    """List recent changes, newest first, or show one with its steps."""
    session = begin(context, f"read change {change_id}" if change_id else "list the changes")
    client = session.client()
    if change_id is None:
        recent = client.get("/v1/changes")
        emit(output, recent, human=lambda: _list(recent), names=[str(change["id"]) for change in recent])
        return
    change = client.get(f"/v1/changes/{segment(change_id)}")
    emit(output, change, human=lambda: _one(change), names=[str(change["id"])])


def _list(recent: list[dict[str, Any]]) -> str:
    if not recent:
        return "no changes yet\n"
    return table(HEADER, [_row(change) for change in recent])


def _row(change: dict[str, Any]) -> list[CellValue]:
    agents = ", ".join(str(agent["name"]) for agent in change["agents"])
    return [
        str(change["id"]),
        str(change["kind"]),
        _state(change),
        ago(change.get("started_at")),
        agents or "-",
    ]


def _one(change: dict[str, Any]) -> str:
    rows: list[list[CellValue]] = [
        ["id", str(change["id"])],
        ["kind", str(change["kind"])],
        ["state", _state(change)],
        ["started", ago(change.get("started_at"))],
    ]
    if change.get("finished_at"):
        rows.append(["finished", ago(change["finished_at"])])
    rows += [["agent", agent_sentence(agent)] for agent in change["agents"]]
    error = change.get("error")
    if error:
        rows.append(["error", Cell(str(error["message"]), Style.BAD)])
        if error.get("hint"):
            rows.append(["hint", str(error["hint"])])
    return table((), rows) + _steps(change.get("steps") or [])


def _steps(steps: list[dict[str, Any]]) -> str:
    if not steps:
        return ""
    rows: list[list[CellValue]] = [
        [clock(step.get("at")), str(step.get("agent") or "-"), str(step["kind"]), str(step["text"])]
        for step in steps
    ]
    return "\n" + table(STEP_HEADER, rows)


def _state(change: dict[str, Any]) -> Cell:
    return Cell(str(change["state"]), _STYLES.get(str(change["state"])))
