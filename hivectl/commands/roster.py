"""`hivectl roster`: the roster as last published; in JSON the very bytes of topology.json."""

from __future__ import annotations

import json
from typing import Any

import typer

from hivectl.escape import escape
from hivectl.failure import CommandError
from hivectl.options import Output
from hivectl.output import Format, emit, write_bytes
from hivectl.session import begin

INDENT = "  "


def roster(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Show who manages whom.

    With -o json it prints the published file byte for byte.
    """
    session = begin(context, "read the roster")
    published = session.client().get_bytes("/v1/roster")
    if output is Format.JSON:
        write_bytes(published)
        return
    parents = _parents(published)
    rows = [{"name": name, "parent": parent} for name, parent in parents.items()]
    emit(output, rows, human=lambda: _tree(parents), names=list(parents))


def _parents(published: bytes) -> dict[str, str | None]:
    try:
        value: Any = json.loads(published)
    except ValueError:
        raise CommandError("the published roster is not JSON", "hivectl doctor says more") from None
    if isinstance(value, list):
        return {str(name): None for name in value}
    return {str(name): None if parent is None else str(parent) for name, parent in value.items()}


def _tree(parents: dict[str, str | None]) -> str:
    if not parents:
        return "no agents yet; hivectl init NAME makes one\n"
    lines: list[str] = []
    # A stack, not recursion: a chain of agents may be longer than the call stack.
    stack = [(name, 0) for name in sorted(parents, reverse=True) if parents[name] not in parents]
    while stack:
        name, depth = stack.pop()
        lines.append(f"{INDENT * depth}{escape(name)}\n")
        stack += [(child, depth + 1) for child in sorted(parents, reverse=True) if parents[child] == name]
    return "".join(lines)
