"""`hivectl ps`: every agent and its state, once or watched."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Annotated, Any

import typer

from hive_api.client import READ_TIMEOUT_S
from hivectl.agent_rows import agents_table
from hivectl.following import EventTail, Following
from hivectl.options import Output
from hivectl.output import Format, emit, json_line, write
from hivectl.session import Session, begin

REFRESH_S = 5  # ages in the table go stale without any event
MIN_PAUSE_S = 0.2  # a storm of events redraws no faster
_CLEAR_SCREEN = "\x1b[H\x1b[2J"
_HOME = "\x1b[H"
_CLEAR_TO_LINE_END = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"

Watch = Annotated[bool, typer.Option("-w", "--watch", help="Keep showing the table as it changes.")]


def ps(context: typer.Context, watch: Watch = False, output: Output = Format.TABLE) -> None:
    """List the agents with their state, since when, and why."""
    session = begin(context, "list the agents")
    if watch:
        _watch(session, output)
    else:
        _emit(session.client().get("/v1/agents"), output)


def _emit(agents: list[dict[str, Any]], output: Format) -> None:
    names = [str(agent["name"]) for agent in agents]
    emit(output, agents, human=lambda: agents_table(agents), names=names)


def _watch(session: Session, output: Format) -> None:
    is_screen = output is Format.TABLE and sys.stdout.isatty()
    if is_screen:
        write(_CLEAR_SCREEN)
    daemon = Following(session)
    events = EventTail(daemon)
    shown = None
    while True:
        agents = daemon.get("/v1/agents", timeout_s=READ_TIMEOUT_S)
        if is_screen:
            write(_screen(agents_table(agents)))
        elif agents != shown:
            _append(agents, output, is_first=shown is None)
        shown = agents
        time.sleep(MIN_PAUSE_S)
        events.fresh(REFRESH_S)


def _append(agents: list[dict[str, Any]], output: Format, *, is_first: bool) -> None:
    if output is Format.JSON:  # a stream of documents: one a line, so that each can be told from the next
        write(json_line(agents))
        return
    if output in (Format.TABLE, Format.NAME) and not is_first:
        write("\n")
    _emit(agents, output)


def _screen(text: str) -> str:
    lines = text.splitlines()
    room = shutil.get_terminal_size().lines - 1
    if len(lines) > room:
        lines = [*lines[: room - 1], f"... {len(lines) - room + 1} more"]
    return _HOME + "".join(f"{line}{_CLEAR_TO_LINE_END}\n" for line in lines) + _CLEAR_BELOW
