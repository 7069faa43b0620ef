"""The one place that writes results: text for people, JSON for programs. Every command prints through it.

Formats: `table` (for people), `json` (one ASCII document), `jsonl` (one document a line), `name` (the bare
names). Text is escaped here, and colour appears only on a terminal that wants it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import typer

from hivectl.escape import clip, escape, width
from hivectl.failure import UsageError

EXIT_PIPE_CLOSED = 141  # what a shell shows for a program that SIGPIPE ended
MIN_LAST_COLUMN = 20
GAP = "   "


class Format(StrEnum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    NAME = "name"


class Style(StrEnum):
    """What a colour means; the value is the terminal's parameter."""

    GOOD = "32"
    BAD = "31"
    WARN = "33"
    FAINT = "2"
    HEAD = "1"


@dataclass(frozen=True, slots=True)
class Cell:
    """A piece of text with a meaning; `text` is raw and is escaped when it is written."""

    text: str
    style: Style | None = None


CellValue = Cell | str


def emit(output: Format, value: Any, *, human: Callable[[], str], names: Iterable[str] | None = None) -> None:
    """Write `value` in the format asked for; `human` makes the text, `names` what `-o name` lists."""
    match output:
        case Format.TABLE:
            write(human())
        case Format.JSON:
            write(json.dumps(value, indent=2) + "\n")
        case Format.JSONL:
            write("".join(map(json_line, value if isinstance(value, list) else [value])))
        case Format.NAME:
            if names is None:
                raise UsageError("there are no names to list here", "use -o table, json or jsonl")
            write("".join(f"{escape(name)}\n" for name in names))


def json_line(value: Any) -> str:
    """Return `value` as one line of ASCII JSON."""
    return json.dumps(value, separators=(",", ":")) + "\n"


def write(text: str) -> None:
    """Write to stdout; a reader that went away ends the command quietly."""
    with_closed_pipe_quiet(lambda: _write(text))


def write_bytes(content: bytes) -> None:
    """Write bytes to stdout exactly, at once."""

    def send() -> None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()

    with_closed_pipe_quiet(send)


def note(text: str) -> None:
    """Say something that is not the result: one line on stderr."""
    sys.stderr.write(f"hivectl: {escape(text)}\n")


def with_closed_pipe_quiet(send: Callable[[], None]) -> None:
    """Run `send`; end the command without a word if nobody reads stdout any more."""
    try:
        send()
    except BrokenPipeError:
        # The interpreter flushes stdout once more at its end, and would complain then.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise typer.Exit(EXIT_PIPE_CLOSED) from None


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def table(header: Sequence[str], rows: Sequence[Sequence[CellValue]]) -> str:
    """Return aligned columns. Under a header the last one is clipped to the terminal, else nothing is."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        return ""
    titles = [Cell(title, Style.HEAD) for title in header]
    lines = [titles, *cells] if header else cells
    widths = [max(width(line[column].text) for line in lines) for column in range(len(lines[0]))]
    room = _room(widths) if header else None
    return "".join(_line(line, widths, room) for line in lines)


def paint(cell: Cell) -> str:
    """Return an escaped cell with its colour, where colour is wanted."""
    text = escape(cell.text)
    if cell.style is None or not text or not is_coloured():
        return text
    return f"\x1b[{cell.style}m{text}\x1b[0m"


def is_coloured() -> bool:
    """Whether stdout is a terminal that wants colour."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _cell(value: CellValue) -> Cell:
    raw = value if isinstance(value, Cell) else Cell(value)
    return Cell(escape(raw.text), raw.style)


def _room(widths: Sequence[int]) -> int | None:
    if not sys.stdout.isatty():
        return None
    taken = sum(widths[:-1]) + len(GAP) * (len(widths) - 1)
    return max(MIN_LAST_COLUMN, shutil.get_terminal_size().columns - taken)


def _line(cells: Sequence[Cell], widths: Sequence[int], room: int | None) -> str:
    padded = [
        paint(cell) + " " * (size - width(cell.text))
        for cell, size in zip(cells[:-1], widths[:-1], strict=True)
    ]
    last = cells[-1]
    text = last.text if room is None else clip(last.text, room)
    return GAP.join([*padded, paint(Cell(text, last.style))]).rstrip(" ") + "\n"
