"""The command table and the run of one command. Called by hivectl.main; read by the reference generator.

A command is a function in `hivectl.commands`, loaded only when it is called or listed: that, and the lean
conversion of values, keep `hivectl ps` fast.
"""

from __future__ import annotations

import difflib
import itertools
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer

from hive_api.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, ErrorCode
from hivectl.failure import Failure, describe
from hivectl.lean import LeanCommand, LeanGroup
from hivectl.output import write
from hivectl.session import DEFAULT_SOCKET, SOCKET_VARIABLE, Session

# Title -> command -> module and function, in the order of `hivectl --help`.
SECTIONS = {
    "Look": {
        "status": "status:status",
        "ps": "ps:ps",
        "show": "show:show",
        "logs": "logs:logs",
        "why": "why:why",
        "events": "events:events",
        "changes": "changes:changes",
        "wait": "wait:wait",
        "roster": "roster:roster",
        "explain": "explain:explain",
        "audit": "audit:audit",
        "doctor": "doctor:doctor",
    },
    "Make and change": {
        "init": "configure:init",
        "push": "configure:push",
        "update": "update:update",
        "rm": "rm:rm",
    },
    "Run": {
        "spawn": "lifecycle:spawn",
        "start": "lifecycle:start",
        "stop": "stop:stop",
        "kill": "stop:kill",
        "restart": "lifecycle:restart",
        "exec": "exec:execute",
        "shell": "shell:shell",
    },
    "Control": {
        "pause": "pause:pause",
        "resume": "pause:resume",
        "quarantine": "quarantine:quarantine",
        "release": "quarantine:release",
        "reconcile": "reconcile:reconcile",
        "backup": "backup:backup",
        "restore": "restore:restore",
    },
}
COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}

SHORT_HELP_CHARS = 66


class CommandTable(LeanGroup):
    """The group `hivectl`: finds commands in the table and loads the one that is wanted."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of that name; None if there is none."""
        return load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands in its sections, all in the same columns."""
        size = max(map(len, COMMANDS))
        for title, section in SECTIONS.items():
            rows = [(name.ljust(size), load(name).get_short_help_str(SHORT_HELP_CHARS)) for name in section]
            with formatter.section(title):
                formatter.write_dl(rows)


def load(name: str) -> Any:
    """Import one command of the table and return it as Typer's command object."""
    module, function = COMMANDS[name].split(":")
    callback = getattr(import_module(f"hivectl.commands.{module}"), function)
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    single.command(name, cls=LeanCommand)(callback)
    return typer.main.get_command(single)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            write(f"hivectl {version('hive-daemon')}\n")
        except PackageNotFoundError:
            write("hivectl (not installed)\n")
        raise typer.Exit


def _begin(
    context: typer.Context,
    socket: Annotated[
        str,
        typer.Option("--socket", metavar="PATH", envvar=SOCKET_VARIABLE, help="The daemon's admin socket."),
    ] = DEFAULT_SOCKET,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """Drive a hive: containerised AI agents kept running on this host by the daemon hived."""
    session = context.find_object(Session)
    if session is not None:
        session.socket_path = socket


def build() -> Any:
    """Return the whole CLI as one command object."""
    application = typer.Typer(
        cls=CommandTable,
        callback=_begin,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    return typer.main.get_command(application)


def run(arguments: list[str]) -> int:
    """Run one command line and return the process's exit status; every error is one line on stderr."""
    session = Session()
    try:
        status = build().main(
            args=arguments or ["--help"], prog_name="hivectl", standalone_mode=False, obj=session
        )
    except typer.Abort:
        return EXIT_FAILED
    except typer.TyperException as error:
        return _fail(_usage(error), arguments)
    except Exception as error:  # the last line of defence: no traceback reaches an operator
        if os.environ.get("HIVECTL_TRACEBACK"):
            raise
        return _fail(_with_status(describe(error, session.purpose), session.failure_status), arguments)
    return status if isinstance(status, int) else EXIT_OK


def _with_status(failure: Failure, status: int | None) -> Failure:
    if status is None or failure.status == EXIT_USAGE:
        return failure
    return Failure(status, failure.code, failure.message, failure.hint)


def _usage(error: Any) -> Failure:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "hivectl"
    said = " ".join(error.format_message().split())
    hint = _nearest(said) or f"see {command} --help"
    message = f"cannot run {command}: {said[:1].lower()}{said[1:].rstrip('.')}"
    return Failure(error.exit_code, ErrorCode.INVALID_REQUEST, message, hint)


def _nearest(said: str) -> str:
    if not said.startswith("No such command"):
        return ""
    near = difflib.get_close_matches(said.removeprefix("No such command").strip(" .'\""), COMMANDS, n=1)
    return f"did you mean {near[0]}? see hivectl --help" if near else ""


def _fail(failure: Failure, arguments: list[str]) -> int:
    line = failure.json_line() if _wants_json(arguments) else failure.line()
    sys.stderr.write(line + "\n")
    return failure.status


def _wants_json(arguments: list[str]) -> bool:
    """Whether JSON was asked for; read from the raw words, since the error may be in how they are written."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    pairs = itertools.pairwise(own)
    split = any(flag in ("-o", "--output") and value in ("json", "jsonl") for flag, value in pairs)
    return split or any(word in _JOINED_JSON for word in own)


_JOINED_JSON = frozenset({"-ojson", "-ojsonl", "--output=json", "--output=jsonl"})
