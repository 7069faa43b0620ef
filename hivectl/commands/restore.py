"""`hivectl restore FILE`: make the hive of a backup here, while no daemon runs.

hived itself does it. Here is what needs the operator's terminal and the socket: the question, and the proof
that no daemon runs.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from hive_api.client import Absent, ClientError
from hive_api.errors import EXIT_CONFLICT, EXIT_DENIED, ErrorCode
from hivectl.confirm import confirm, require_terminal
from hivectl.failure import CommandError, UsageError
from hivectl.options import Yes
from hivectl.session import Session, begin

PROGRAM = "hived"
_END_IT = "end it first: scripts/down, or systemctl stop hived"

File = Annotated[Path, typer.Argument(metavar="FILE", help="An archive that hivectl backup wrote.")]
Settings = Annotated[
    Path | None,
    typer.Option("--settings", metavar="PATH", help="The settings of the hive, if not the usual file."),
]


class DaemonRuns(CommandError):
    """Something answers at the socket."""

    status = EXIT_CONFLICT
    code = ErrorCode.CONFLICT


class NeedsRoot(CommandError):
    """Only root can give files to the agents' users."""

    status = EXIT_DENIED
    code = ErrorCode.DENIED


def restore(context: typer.Context, file: File, settings: Settings = None, yes: Yes = False) -> None:
    """Restore a hive from a backup, while no daemon runs.

    Needs root, and a data folder without a hive. Afterwards the hive starts paused: look around, then hivectl
    resume.
    """
    session = begin(context, f"restore from {file}")
    if not file.is_file():
        raise UsageError("there is no such file", "name an archive that hivectl backup wrote")
    if os.geteuid() != 0:
        raise NeedsRoot("only root can do that", "run it with sudo")
    if not yes:
        require_terminal()
    _require_no_daemon(session)
    program = _hived()
    if not yes:
        confirm(_consequences(file), "nothing was restored")
    _become(program, file, settings)


def _require_no_daemon(session: Session) -> None:
    try:
        session.client().get("/v1/status")
    except Absent:
        return
    except ClientError as fault:  # whatever it says, something is there
        raise DaemonRuns(f"something listens at {session.socket_path}: {fault.message}", _END_IT) from None
    raise DaemonRuns(f"a daemon answers at {session.socket_path}", _END_IT)


def _hived() -> str:
    """Return the daemon's program: the one installed with this one, else the one on PATH."""
    beside = Path(sys.argv[0]).resolve().parent / PROGRAM
    if beside.is_file() and os.access(beside, os.X_OK):
        return str(beside)
    found = shutil.which(PROGRAM)
    if found is None:
        raise CommandError(f"{PROGRAM} is neither beside hivectl nor on PATH", "is hive installed here?")
    return found


def _consequences(file: Path) -> list[str]:
    return [
        f"restore {file} will",
        "  make its agents, with config, state and history, in the data folder, which must have no hive yet",
        "  leave the hive paused when it is started next",
    ]


def _become(program: str, file: Path, settings: Path | None) -> NoReturn:
    chosen = [] if settings is None else ["--settings", str(settings)]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(program, [program, *chosen, "restore", str(file.resolve())])  # noqa: S606  # a list, no shell
    except OSError as fault:
        raise CommandError(f"cannot run {program}: {fault.strerror}", "is hive installed here?") from None
