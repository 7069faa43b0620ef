"""Markdown that stays what it is: tables whose cells hold any text. Used by every generated page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def page(title: str, *parts: str) -> str:
    """Return a whole page, marked as generated so that nobody edits it by hand."""
    head = f"# {title}\n\n<!-- Written by scripts/generate-reference; do not edit. -->\n"
    return "\n".join([head, *(part.strip("\n") + "\n" for part in parts)])


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; a row has as many values as the header."""
    lines = [_row(header), "|" + "---|" * len(header)]
    lines += [_row(row) for row in rows]
    return "\n".join(lines) + "\n"


def _row(values: Sequence[object]) -> str:
    return "| " + " | ".join(_cell(value) for value in values) + " |"


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ").strip()


def code(text: object) -> str:
    """Return text set as code; nothing for nothing."""
    return f"`{text}`" if str(text) else ""


def codes(words: Iterable[object]) -> str:
    """Return several words set as code, separated by commas."""
    return ", ".join(code(word) for word in words)
