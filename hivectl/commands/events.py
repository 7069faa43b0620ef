"""`hivectl events`: what happened, oldest first; with -f also what happens from now on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from hivectl.escape import clip, escape
from hivectl.failure import UsageError
from hivectl.following import EventTail, Following
from hivectl.moments import ago, clock
from hivectl.options import Output
from hivectl.output import CellValue, Format, emit, json_line, table, write
from hivectl.session import Session, begin

LONG_POLL_S = 25
SHOWN_TEXT_CHARS = 2000
HEADER = ("WHEN", "AGENT", "KIND", "TEXT")
_AGENT_COLUMNS = 9  # the longest agent name
_KIND_COLUMNS = 16

Follow = Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new events.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="How many of the latest to show.")]


def events(
    context: typer.Context, follow: Follow = False, limit: Limit = 50, output: Output = Format.TABLE
) -> None:
    """Show the latest events with their reasons."""
    session = begin(context, "read the events")
    if follow:
        _follow(session, limit, _writer(output))
        return
    latest = session.client().get("/v1/events", {"limit": limit}) if limit else []
    emit(output, latest, human=lambda: _human(latest), names=_agents(latest))


def _follow(session: Session, limit: int, show: Callable[[list[dict[str, Any]]], None]) -> None:
    # One is always asked for: its number is where following begins.
    daemon = Following(session)
    latest = daemon.get("/v1/events", {"limit": max(limit, 1)})
    show(latest if limit else [])
    tail = EventTail(daemon, int(latest[-1]["seq"]) if latest else 0)
    while True:
        show(tail.fresh(LONG_POLL_S))


def _writer(output: Format) -> Callable[[list[dict[str, Any]]], None]:
    match output:
        case Format.TABLE:
            return lambda batch: write("".join(map(_line, batch)))
        case Format.JSONL:
            return lambda batch: write("".join(map(json_line, batch)))
        case Format.JSON | Format.NAME:
            raise UsageError(f"-f has no end, and -o {output} needs one", "use -o jsonl")


def _human(latest: list[dict[str, Any]]) -> str:
    if not latest:
        return "no events yet\n"
    rows: list[list[CellValue]] = [
        [ago(event.get("at")), str(event.get("agent") or "-"), str(event["kind"]), _text(event)]
        for event in latest
    ]
    return table(HEADER, rows)


def _line(event: dict[str, Any]) -> str:
    agent = escape(str(event.get("agent") or "-")).ljust(_AGENT_COLUMNS)
    kind = escape(str(event["kind"])).ljust(_KIND_COLUMNS)
    return f"{clock(event.get('at'))}   {agent}   {kind}   {_text(event)}".rstrip() + "\n"


def _text(event: dict[str, Any]) -> str:
    return clip(escape(str(event.get("text") or "")), SHOWN_TEXT_CHARS)


def _agents(latest: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(str(event["agent"]) for event in latest if event.get("agent")))
