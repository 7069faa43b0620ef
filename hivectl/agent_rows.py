"""One agent as a table row. Used by `ps` and `show`, which say a state in the same words and colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hivectl.moments import ago
from hivectl.output import Cell, CellValue, Style, table

HEADER = ("NAME", "PARENT", "STATE", "SINCE", "REASON")
_STYLES = {
    "running": Style.GOOD,
    "starting": Style.WARN,
    "stopping": Style.WARN,
    "removing": Style.WARN,
    "paused": Style.WARN,
    "backoff": Style.WARN,
    "unknown": Style.WARN,
    "crash-looping": Style.BAD,
    "failed": Style.BAD,
    "stopped": Style.FAINT,
    "unspawned": Style.FAINT,
}


def agents_table(agents: list[dict[str, Any]]) -> str:
    """Return the table of `ps`."""
    if not agents:
        return "no agents yet; hivectl init NAME makes one\n"
    return table(HEADER, [_row(agent) for agent in agents])


def state_cell(state: str) -> Cell:
    """Return a state in its colour."""
    return Cell(state, _STYLES.get(state))


def remarks(agent: Mapping[str, Any]) -> str:
    """Return the reason and what else is to be known about an agent, in a few words."""
    said = [str(agent["reason"])] if agent.get("reason") else []
    if agent.get("degraded"):
        said.append("degraded")
    if agent.get("needs_update"):
        said.append("needs update")
    return ", ".join(said)


def _row(agent: dict[str, Any]) -> list[CellValue]:
    state = str(agent["state"])
    return [
        str(agent["name"]),
        str(agent.get("parent") or "-"),
        state_cell(state),
        ago(agent.get("started_at")),
        remarks(agent),
    ]
