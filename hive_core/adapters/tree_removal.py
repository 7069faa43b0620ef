"""Deletes what untrusted agents left behind, with no more rights than they had.

Called by `agent_dirs`. A tree an agent could write may hold links, hard links, devices, unreadable
directories, names no terminal survives and paths longer than any path may be. A process with the agent's own
uid, started inside the directory, can at worst delete what the agent itself could have deleted.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from hive_core.domain.errors import HostUnsuitable, TimedOut, UnsafePath

_INSIDE = (".", "-xdev", "-mindepth", "1")
_DELETE = (*_INSIDE, "-delete")
# Its owner may have taken its own right to list a directory away; -execdir also reaches what is too deep for
# any path. Directories only: a mode change on a file would reach its hard links elsewhere.
_OPEN_UP = (*_INSIDE, "-type", "d", "!", "-perm", "-u=rwx", "-execdir", "chmod", "u+rwx", "{}", ";")
# A process for each directory: a tree made to use that up is left to root.
_OPEN_UP_LIMIT_S = 30.0


class Deadline:
    """A moment after which a deletion gives up."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._end = time.monotonic() + limit_s

    def left_s(self, path: Path) -> float:
        """Return the time left; raises TimedOut when there is none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimedOut(
                f"cannot delete {path}: it took longer than {self._limit_s:g} s",
                "repeat it: what is gone stays gone",
            )
        return left


def empty_directory(fd: int, path: Path, uid: int, deadline: Deadline) -> None:
    """Delete everything in an open directory that belongs to `uid`; never follows a link, never leaves its
    filesystem. Nothing may be mounted below it and no process of the agent may run: the caller sees to both.

    What that uid cannot delete because root put it there (a restored backup) root deletes, by directory fd.
    `path` is for messages. Raises UnsafePath when something stays, TimedOut.
    """
    os.fchmod(fd, 0o700)
    stages = (
        (uid, _DELETE, math.inf),
        (uid, _OPEN_UP, _OPEN_UP_LIMIT_S),
        (uid, _DELETE, math.inf),
        (0, _DELETE, math.inf),
    )
    for rights, what, limit_s in stages:
        if not os.listdir(fd):
            return
        _find(fd, rights, what, min(limit_s, deadline.left_s(path)))
    deadline.left_s(path)
    left = os.listdir(fd)
    if left:
        raise UnsafePath(
            f"cannot delete {path}: {ascii(left[0])[:80]} cannot be removed",
            f"see lsattr -d {path}/* and delete it by hand",
        )


def _find(fd: int, uid: int, what: tuple[str, ...], limit_s: float) -> None:
    """Run find inside a directory. Neither its exit status nor its end in time matters: what is left does."""
    program = shutil.which("find")
    if program is None:
        raise HostUnsuitable("cannot delete an agent's files: no 'find' on this host", "install findutils")
    process = subprocess.Popen(
        (program, *what),
        # Entered by fd before the rights are given up: the way to here is closed to the agent's uid.
        cwd=f"/proc/self/fd/{fd}",
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        user=uid,
        group=uid,
        extra_groups=[],
        start_new_session=True,
    )
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=limit_s)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
