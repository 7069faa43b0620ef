"""What /proc tells about the host's processes; a process that is gone is an empty answer, never an error."""

from __future__ import annotations

import os
from pathlib import Path

_STATE, _PARENT, _STARTED = 0, 1, 19  # fields of /proc/PID/stat, counted after the command name


def all_pids() -> list[int]:
    """Return the pids there are now."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def command_line(pid: int) -> list[str]:
    """Return the arguments a process was started with, its program first."""
    try:
        content = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [os.fsdecode(argument) for argument in content.rstrip(b"\0").split(b"\0")]


def parent(pid: int) -> int:
    """Return the parent's pid, 0 for none."""
    return _stat_number(pid, _PARENT)


def started_at(pid: int) -> int:
    """Return when the process started, in ticks since boot: with its pid that names one process for good."""
    return _stat_number(pid, _STARTED)


def is_alive(pid: int) -> bool:
    """Whether the process still runs; one that only waits to be reaped does not."""
    fields = _stat(pid)
    return bool(fields) and fields[_STATE] != b"Z"


def _stat_number(pid: int, index: int) -> int:
    fields = _stat(pid)
    return int(fields[index]) if fields else 0


def _stat(pid: int) -> list[bytes]:
    """The command name in parentheses may itself hold anything, so fields are counted from its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
