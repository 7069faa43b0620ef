"""How much an agent's tree holds, measured without following anything in it.

Used by `engine.disk`. Root walks directories that agents write, so each is opened by descriptor without
following links, never crossing to another file system, and the walk as a whole is bounded.
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters.files import opened_directory

_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_DEPTH = 256
_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes on disk (blocks, so holes are free) and inodes.

    `is_complete` is False when time ran out or something was too deep: it is then at least so much.
    """

    used_bytes: int
    inodes: int
    is_complete: bool
    is_too_deep: bool = False


class _Walk:
    """One bounded walk; a file with several names counts once."""

    def __init__(self, device: int, deadline: float) -> None:
        self._device = device
        self._deadline = deadline
        self._linked: set[int] = set()
        self.used_bytes = 0
        self.inodes = 0
        self.is_complete = True
        self.is_too_deep = False

    def into(self, fd: int, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self.is_too_deep = True
            return
        with os.scandir(fd) as entries:
            for entry in entries:
                if time.monotonic() > self._deadline:
                    self.is_complete = False
                    return
                self._count(fd, entry.name, depth)

    def _count(self, fd: int, name: str, depth: int) -> None:
        try:
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except OSError:
            return  # gone between the listing and the look
        if found.st_dev != self._device or found.st_ino in self._linked:
            return
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            self._linked.add(found.st_ino)
        self.used_bytes += found.st_blocks * _BLOCK_BYTES
        self.inodes += 1
        if stat.S_ISDIR(found.st_mode):
            self._descend(fd, name, depth)

    def _descend(self, fd: int, name: str, depth: int) -> None:
        try:
            inner = os.open(name, _FLAGS, dir_fd=fd)
        except OSError:
            return
        try:
            self.into(inner, depth + 1)
        finally:
            os.close(inner)


def measure(directories: tuple[Path, ...], limit_s: float) -> Usage:
    """Return what directories hold together, each walked on its own file system only."""
    deadline = time.monotonic() + limit_s
    used_bytes = inodes = 0
    is_complete, is_too_deep = True, False
    for directory in directories:
        with opened_directory(directory) as fd:
            walk = _Walk(os.fstat(fd).st_dev, deadline)
            walk.into(fd, 0)
        used_bytes += walk.used_bytes
        inodes += walk.inodes
        is_complete = is_complete and walk.is_complete
        is_too_deep = is_too_deep or walk.is_too_deep
    return Usage(used_bytes, inodes, is_complete and not is_too_deep, is_too_deep)


@dataclass(frozen=True, slots=True)
class Free:
    """What root may still use of a file system."""

    free_bytes: int
    inodes: int


def free_space(path: Path) -> Free:
    """Return the space left where a path is. A file system without a count of inodes has enough."""
    found = os.statvfs(path)
    inodes = found.f_favail if found.f_files else 1 << 62
    return Free(found.f_bavail * found.f_frsize, inodes)
