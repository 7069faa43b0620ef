"""`hivectl show NAME`: everything the daemon knows about one agent."""

from __future__ import annotations

from typing import Any

import typer

from hive_api.client import segment
from hivectl.agent_rows import remarks, state_cell
from hivectl.escape import clip, escape
from hivectl.moments import ago
from hivectl.options import Name, Output
from hivectl.output import Cell, CellValue, Format, Style, emit, table
from hivectl.session import begin, checked_name

SHOWN_TEXT_CHARS = 300
SHOWN_HASH_CHARS = 12
SHOWN_EXITS = 5
_UNITS = (("g", 1 << 30), ("m", 1 << 20), ("k", 1 << 10))


def show(context: typer.Context, name: Name, output: Output = Format.TABLE) -> None:
    """Show one agent in full."""
    session = begin(context, f"show {name}")
    agent = session.client().get(f"/v1/agents/{segment(checked_name(name))}")
    emit(output, agent, human=lambda: _human(agent), names=[str(agent["name"])])


def _human(agent: dict[str, Any]) -> str:
    rows: list[list[CellValue]] = [["name", Cell(str(agent["name"]), Style.HEAD)], *_state_rows(agent)]
    rows += _config_rows(agent)
    shown = [row for row in rows if row[1] not in ("", "-")]
    return table((), shown) + _exits(agent.get("exits") or [])


def _state_rows(agent: dict[str, Any]) -> list[list[CellValue]]:
    started = agent.get("started_at")
    desired = str(agent["desired"])
    if agent.get("desired_reason"):
        desired += f" ({agent['desired_reason']})"
    return [
        ["description", _short(agent.get("description"))],
        ["state", state_cell(str(agent["state"]))],
        ["since", f"{ago(started)} ({started})" if started else ""],
        ["reason", _short(remarks(agent))],
        ["desired", desired],
        ["parent", str(agent.get("parent") or "none")],
        ["children", ", ".join(map(str, agent.get("children") or []))],
        ["degraded", Cell(_short(agent.get("degraded_reason")), Style.BAD) if agent.get("degraded") else ""],
        ["differs in", ", ".join(map(str, agent.get("differing") or []))],
    ]


def _config_rows(agent: dict[str, Any]) -> list[list[CellValue]]:
    applied, main = agent.get("applied_commit"), agent.get("main_commit")
    commit = _hash(applied)
    if main and main != applied:
        commit += f" (main is at {_hash(main)})"
    return [
        ["image", str(agent.get("image") or "")],
        ["command", _short(" ".join(map(str, agent.get("command") or [])))],
        ["config", commit],
        ["limits", _limits(agent.get("limits") or {})],
        ["disk", _disk(agent)],
        ["network", str(agent.get("network") or "")],
        ["uid", str(agent.get("uid") or "")],
        ["container", _container(agent)],
        ["incarnation", str(agent.get("incarnation") or "")],
        ["created", ago(agent.get("created_at"))],
        ["spec", str(agent.get("spec") or "")],
    ]


def _container(agent: dict[str, Any]) -> str:
    name, identity = agent.get("container_name"), agent.get("container_id")
    return f"{name or '-'} ({_hash(identity)})" if identity else ""


def _disk(agent: dict[str, Any]) -> str:
    if agent.get("disk_bytes") is None:
        return "-"
    return f"{int(agent['disk_bytes']) / 1024**2:.1f} MiB in {agent['disk_inodes']} files"


def _limits(limits: dict[str, Any]) -> str:
    said = [
        f"memory {_size(limits['memory_bytes'])}" if limits.get("memory_bytes") else "",
        f"cpus {limits['cpus']:g}" if limits.get("cpus") else "",
        f"pids {limits['pids']}" if limits.get("pids") else "",
        f"/tmp {_size(limits['tmp_bytes'])}" if limits.get("tmp_bytes") else "",
    ]
    return ", ".join(filter(None, said))


def _size(size_bytes: int) -> str:
    for unit, factor in _UNITS:
        if size_bytes >= factor and size_bytes % factor == 0:
            return f"{size_bytes // factor}{unit}"
    return f"{size_bytes} bytes"


def _hash(value: object) -> str:
    return str(value or "-")[:SHOWN_HASH_CHARS]


def _short(text: object) -> str:
    return clip(escape(str(text or "")), SHOWN_TEXT_CHARS)


def _exits(exits: list[dict[str, Any]]) -> str:
    if not exits:
        return ""
    rows: list[list[CellValue]] = [
        [ago(end.get("finished_at")), _exit_code(end), str(end.get("kind") or "-"), _short(end.get("text"))]
        for end in exits[-SHOWN_EXITS:]
    ]
    return "\n" + table(("ENDED", "CODE", "KIND", "WHY"), rows)


def _exit_code(end: dict[str, Any]) -> str:
    code = "-" if end.get("exit_code") is None else str(end["exit_code"])
    return f"{code} (out of memory)" if end.get("oom_killed") else code
