"""The harness: runs the manifest's command and stands in for it before the engine.

Called by `/usr/local/bin/hive-agent` (the entry point of every container) and
by `python3 -m hive_agent`. It exists because the engine talks to one process
only, while an agent's command may be a whole group: a stop has to reach all of
them, and the code the container exits with has to be the command's own, since
the daemon tells a crash from a clean end by it.

In a container PID 1 is the engine's init. That one adopts orphans, so the
harness waits for its own child alone; when the harness ends, init ends, and the
kernel removes whatever the command left behind.

Exit codes follow the shell: the command's own, 128+N if signal N ended it, 127
not found, 126 found but not runnable, 64 for wrong usage.
"""

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Sequence
from enum import IntEnum

USAGE = "usage: hive-agent COMMAND [ARGUMENT...]"

FORWARDED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2})

# The kernel lets nobody change what these do, and asking for it is an error.
FIXED = frozenset({signal.SIGKILL, signal.SIGSTOP})

# A name longer than this is a mistake in a manifest; the whole of it helps nobody in a log.
SHOWN_NAME_CHARS = 200


class ExitCode(IntEnum):
    """Codes that are the harness's own answer, not the command's."""

    OK = 0
    USAGE = 64
    NOT_RUNNABLE = 126
    NOT_FOUND = 127


class CannotStart(Exception):
    """The command could not be started; `code` is what the harness exits with."""

    def __init__(self, code: ExitCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def main(arguments: Sequence[str]) -> int:
    """Run `arguments` as a command until it ends and return the code to exit with."""
    if not arguments:
        print(f"hive-agent: no command given\n{USAGE}", file=sys.stderr)
        return ExitCode.USAGE
    if list(arguments) in (["-h"], ["--help"]):
        print(USAGE)
        return ExitCode.OK
    hold_signals()
    try:
        child = start(arguments)
    except CannotStart as error:
        # Only the program is named: arguments may hold what does not belong in a log.
        print(f"hive-agent: cannot start {shown(arguments[0])}: {error}", file=sys.stderr)
        return error.code
    return exit_code(forward_until_exit(child))


def hold_signals() -> None:
    """Make every signal we act on wait in the kernel until it is asked for.

    From here on nothing interrupts the harness, so a signal that arrives while
    the child is being made stays pending and is forwarded once it exists. A
    signal from before this call ends the harness as it would end any process,
    which is what its sender wants of an agent that has not started anything.

    SIGCHLD is put back to its default first: under an inherited "ignore" the
    kernel would reap the child itself and its exit code would be lost.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})


def start(command: Sequence[str]) -> int:
    """Start `command` as the leader of a session of its own and return its pid.

    posix_spawn makes and executes the child in one step in C: no Python runs
    between fork and exec, and a failed exec is an error here instead of a child
    to be waited for. The child gets an empty signal mask and default actions,
    not ours nor those Python changes (SIGPIPE ignored).

    Raises CannotStart.
    """
    if not command[0]:
        raise CannotStart(ExitCode.NOT_FOUND, "the name is empty")
    try:
        return os.posix_spawnp(
            command[0],
            list(command),
            os.environ,
            setsid=True,
            setsigmask=(),
            setsigdef=signal.valid_signals() - FIXED,
        )
    except OSError as error:
        raise cannot_start(command[0], error) from error


def cannot_start(program: str, error: OSError) -> CannotStart:
    """Say in words, with the shell's code, why `program` did not start."""
    match error.errno:
        case errno.ENOENT if is_there(program):
            return CannotStart(ExitCode.NOT_FOUND, "the interpreter named in its first line is missing")
        case errno.ENOENT if "/" in program:
            return CannotStart(ExitCode.NOT_FOUND, "there is no such file")
        case errno.ENOENT:
            return CannotStart(ExitCode.NOT_FOUND, "not found in PATH")
        case errno.EACCES if os.path.isdir(program):
            return CannotStart(ExitCode.NOT_RUNNABLE, "it is a directory")
        case errno.EACCES:
            return CannotStart(ExitCode.NOT_RUNNABLE, "it is not executable")
        case errno.ENOEXEC:
            return CannotStart(ExitCode.NOT_RUNNABLE, "it is neither a program nor a script with a #! line")
        case errno.ENOTDIR:
            return CannotStart(ExitCode.NOT_FOUND, "part of its path is not a directory")
        case _:
            return CannotStart(ExitCode.NOT_RUNNABLE, error.strerror or "the kernel gives no reason")


def is_there(program: str) -> bool:
    """Tell whether exec found a file for `program`, which it reports no differently."""
    if "/" in program:
        return os.path.exists(program)
    return any(os.path.isfile(os.path.join(folder, program)) for folder in os.get_exec_path())


def forward_until_exit(child: int) -> int:
    """Pass signals on to the child's group until the child ends; return its wait status.

    The child is reaped in the same loop that sends, so its pid, which is also
    its group's number, cannot have been given to another process when it is used.
    """
    while True:
        received = signal.sigwaitinfo(FORWARDED | {signal.SIGCHLD}).si_signo
        if received != signal.SIGCHLD:
            send(child, received)
            continue
        reaped, status = os.waitpid(child, os.WNOHANG)
        if reaped == child:
            return status


def send(group: int, number: int) -> None:
    """Send one signal to a process group, which may have ended a moment ago."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def exit_code(status: int) -> int:
    """Translate a wait status into the code a shell would report for it."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def shown(name: str) -> str:
    """Return `name` quoted, on one line and bounded, fit to be printed to a terminal."""
    quoted = ascii(name)
    return quoted if len(quoted) <= SHOWN_NAME_CHARS else quoted[:SHOWN_NAME_CHARS] + "...'"
