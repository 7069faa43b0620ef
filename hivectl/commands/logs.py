"""`hivectl logs NAME`: what an agent's program wrote, harmless unless it goes raw into a file or pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from hive_api.client import segment
from hivectl.escape import StreamEscaper
from hivectl.failure import UsageError
from hivectl.options import Name
from hivectl.output import write_bytes
from hivectl.session import begin, checked_name

Follow = Annotated[bool, typer.Option("-f", "--follow", help="Keep printing what it writes.")]
Tail = Annotated[int, typer.Option("--tail", metavar="N", help="How many of the last lines to begin with.")]
Previous = Annotated[
    bool, typer.Option("--previous", help="What the container before this one wrote last, as it was kept.")
]
Raw = Annotated[bool, typer.Option("--raw", help="The exact bytes; not to a terminal.")]


def logs(
    context: typer.Context,
    name: Name,
    follow: Follow = False,
    tail: Tail = 100,
    previous: Previous = False,
    raw: Raw = False,
) -> None:
    """Show an agent's log.

    Control characters and invalid bytes are made visible.
    """
    session = begin(context, f"read the log of {name}")
    if raw and sys.stdout.isatty():
        raise UsageError("raw bytes could drive this terminal", "leave out --raw, or write to a file or pipe")
    if previous and follow:
        raise UsageError("what a removed container wrote has no more to follow", "leave out -f or --previous")
    escaper = None if raw else StreamEscaper()
    path = f"/v1/agents/{segment(checked_name(name))}/logs"
    query: dict[str, object] = {"previous": True} if previous else {"tail": tail, "follow": follow}
    with session.client().stream(path, query) as pieces:
        for piece in _last_lines(pieces, tail) if previous else pieces:
            write_bytes(escaper.feed(piece) if escaper else piece)
    if escaper:
        write_bytes(escaper.finish())


def _last_lines(pieces: Iterable[bytes], count: int) -> Iterator[bytes]:
    """Yield the last lines of a log that is kept whole (the daemon keeps about a MiB)."""
    lines = b"".join(pieces).splitlines(keepends=True)
    yield b"".join(lines[max(0, len(lines) - count) :])
