"""`hivectl exec NAME -- CMD`: run a command in an agent's container as its user, and be its terminal.

`hivectl shell` is the same with a shell, by way of `run`.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from typing import Annotated, Protocol

import typer

from hive_api.errors import EXIT_EXEC_FAILED
from hivectl.control_strings import ControlStringFilter
from hivectl.escape import StreamEscaper
from hivectl.options import Name
from hivectl.output import with_closed_pipe_quiet
from hivectl.session import Session, begin, checked_name

Command = Annotated[list[str], typer.Argument(metavar="CMD", help="The command and its arguments.")]
Tty = Annotated[bool, typer.Option("-t", "--tty", help="Give it a terminal.")]
Raw = Annotated[bool, typer.Option("--raw", help="Pass its output on to this terminal as it is.")]


def execute(context: typer.Context, name: Name, command: Command, tty: Tty = False, raw: Raw = False) -> None:
    """Run a command in an agent's container.

    For example: hivectl exec bob -- ls -l /state. Exits with the command's code, or 125 if hive failed.

    What it writes reaches a file or pipe unchanged; on a terminal it is escaped, or with -t freed of what
    could drive the terminal program itself.
    """
    session = begin(context, f"run {command[0]} in {name}")
    run(session, name, tuple(command), tty=tty, raw=raw)


def run(
    session: Session,
    name: str,
    argv: tuple[str, ...],
    *,
    tty: bool,
    raw: bool = False,
    rescue: bool = False,
) -> None:
    """Run a command in an agent's container and end this process with its code, or 125 if hive failed.

    `rescue`: in a container like the agent's, made for it, in which its program does not run.
    """
    session.failure_status = EXIT_EXEC_FAILED
    checked_name(name)
    from hivectl.conversation import Request, converse, dial
    from hivectl.terminal import raw_terminal

    outlets = _Outlets(has_tty=tty, raw=raw)
    with dial(session.socket_path, name) as connection, raw_terminal() if tty else nullcontext():
        status = converse(connection, Request(name, argv, tty, rescue), outlets.deliver)
        outlets.finish()
    raise typer.Exit(status)


class _Filter(Protocol):
    def feed(self, piece: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


class _Outlets:
    """stdout and stderr, each with the filter that its reader needs."""

    def __init__(self, *, has_tty: bool, raw: bool) -> None:
        self._filters = {channel: _filter(channel, has_tty=has_tty, raw=raw) for channel in (1, 2)}

    def deliver(self, channel: int, piece: bytes) -> None:
        chosen = self._filters[channel]
        _write_all(channel, chosen.feed(piece) if chosen else piece)

    def finish(self) -> None:
        for channel, chosen in self._filters.items():
            if chosen:
                _write_all(channel, chosen.finish())


def _filter(descriptor: int, *, has_tty: bool, raw: bool) -> _Filter | None:
    if raw or not os.isatty(descriptor):
        return None
    return ControlStringFilter() if has_tty else StreamEscaper()


def _write_all(descriptor: int, content: bytes) -> None:
    def send() -> None:
        left = content
        while left:
            left = left[os.write(descriptor, left) :]

    with_closed_pipe_quiet(send)
