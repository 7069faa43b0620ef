"""`hivectl status`: is the daemon well, and what does it complain about."""

from __future__ import annotations

from typing import Any

import typer

from hivectl.moments import span
from hivectl.options import Output
from hivectl.output import Cell, CellValue, Format, Style, emit, table
from hivectl.session import begin

_PHASES = {"running": Style.GOOD, "recovering": Style.WARN, "paused": Style.WARN, "stopping": Style.WARN}
_MS_BELOW_S = 10.0


def status(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Show the daemon's phase, engine, roster and problems."""
    session = begin(context, "read the status")
    answer = session.client().get("/v1/status")
    emit(output, answer, human=lambda: _human(answer), names=[str(answer.get("hive") or "")])


def _human(answer: dict[str, Any]) -> str:
    phase = str(answer["phase"])
    rows: list[list[CellValue]] = [
        ["hive", str(answer.get("hive") or "-")],
        ["daemon", Cell(phase, _PHASES.get(phase, Style.BAD))],
        ["", f"hived {answer.get('version') or '?'}, pid {answer['pid']}"],
        ["engine", _engine(answer["engine"])],
        ["roster", _roster(answer["roster"])],
        ["last pass", _last_pass(answer.get("last_pass"))],
        ["disk", _disk(answer.get("disk"))],
        ["problems", _count(answer["problems"])],
    ]
    return table((), rows) + _problems(answer["problems"])


def _engine(engine: dict[str, Any]) -> Cell:
    state = str(engine["state"])
    version = f", version {engine['version']}" if engine.get("version") else ""
    return Cell(f"{state}{version}", Style.GOOD if state == "ok" else Style.BAD)


def _roster(roster: dict[str, Any]) -> Cell:
    count = roster.get("agents")
    agents = "unknown" if count is None else f"{count} agent{'' if count == 1 else 's'}"
    state = str(roster["state"])
    text = f"{state}, {agents}, {roster.get('shape') or 'unknown'} shape"
    return Cell(text, None if state == "present" else Style.BAD)


def _last_pass(last_pass: dict[str, Any] | None) -> str:
    if not last_pass or last_pass.get("age_s") is None:
        return "none yet"
    actions = last_pass.get("actions") or 0
    took_s = float(last_pass.get("duration_s") or 0)
    took = f"{took_s * 1000:.0f} ms" if took_s < _MS_BELOW_S else span(took_s)
    done = "nothing to do" if not actions else f"{actions} action{'' if actions == 1 else 's'}"
    return f"{span(float(last_pass['age_s']))} ago, took {took}, {done}"


def _disk(disk: dict[str, Any] | None) -> Cell:
    if not disk:
        return Cell("unknown")
    own = int(disk["store_bytes"]) + int(disk["audit_bytes"])
    text = f"{int(disk['free_bytes']) / 1024**3:.1f} GiB free; records of hive {own / 1024**2:.1f} MiB"
    return Cell(text, Style.BAD if disk["is_low"] else None)


def _count(problems: list[Any]) -> Cell:
    return Cell(str(len(problems)), Style.BAD) if problems else Cell("none", Style.GOOD)


def _problems(problems: list[dict[str, Any]]) -> str:
    rows: list[list[CellValue]] = [
        [f"  {problem.get('agent') or '-'}", str(problem["code"]), str(problem["text"])]
        for problem in problems
    ]
    return table((), rows)
