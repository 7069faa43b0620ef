"""The files of a bare repo on disk: made, taken over and removed by root without following a link.

Called by `repos`. A repo is shared between two accounts that do not trust each other: root owns what says
which commit counts and how git behaves, git's account owns only what holds objects. Every step is by
directory fd, so that nothing git's account puts in a repo can lead root elsewhere.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hive_core.adapters.files import kind_of, write_atomic
from hive_core.domain.errors import HiveError, UnsafePath

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_ROUNDS = 100_000
_FAN_OUT = re.compile(r"[0-9a-f]{2}|pack")
HEAD = b"ref: refs/heads/main\n"
CONFIG = b"""\
[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
\thooksPath = /dev/null
\tfsmonitor = false
[gc]
\tauto = 0
"""


@contextmanager
def opened(parent_fd: int, name: str) -> Iterator[int]:
    """Hold a directory open; raises UnsafePath when it is a link or no directory."""
    try:
        fd = os.open(name, _DIRECTORY_FLAGS, dir_fd=parent_fd)
    except NotADirectoryError as fault:
        found = kind_of(os.stat(name, dir_fd=parent_fd, follow_symlinks=False).st_mode)
        raise UnsafePath(f"cannot use {name}: it is {found}, not a directory") from fault
    try:
        yield fd
    finally:
        os.close(fd)


def lay_out(repos_fd: int, git_dir: Path, git_uid: int, git_gid: int) -> None:
    """Give a repo its directories with the right owners; makes what is missing, keeps what is there.

    Sticky `objects/`: without it the account that may add to the directory could also replace `info`, and
    with it say where else objects are to be found.
    """
    _own_directory(repos_fd, git_dir.name, 0, 0, 0o755)
    with opened(repos_fd, git_dir.name) as repo_fd:
        _own_directory(repo_fd, "objects", 0, git_gid, 0o1775)
        _own_directory(repo_fd, "refs", 0, 0, 0o755)
        with opened(repo_fd, "objects") as objects_fd:
            _own_directory(objects_fd, "info", 0, 0, 0o755)
            _own_directory(objects_fd, "pack", git_uid, git_gid, 0o755)
        with opened(repo_fd, "refs") as refs_fd:
            _own_directory(refs_fd, "heads", 0, 0, 0o755)
            with opened(refs_fd, "heads") as heads_fd:
                _own_directory(heads_fd, "proposal", git_uid, git_gid, 0o755)
                os.fsync(heads_fd)
            os.fsync(refs_fd)
    write_atomic(git_dir / "HEAD", HEAD, 0o644)
    write_atomic(git_dir / "config", CONFIG, 0o644)


def is_laid_out(repos_fd: int, entry: str, git_gid: int) -> bool:
    """Whether git's account can add objects to a repo; one that was placed by hand does not let it."""
    found = os.stat(f"{entry}/objects", dir_fd=repos_fd, follow_symlinks=False)
    return found.st_gid == git_gid and stat.S_IMODE(found.st_mode) == 0o1775


def _own_directory(parent_fd: int, name: str, uid: int, gid: int, mode: int) -> int:
    """Make a directory or set its owner and mode; return whose it was."""
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent_fd)
    with opened(parent_fd, name) as fd:
        found = os.fstat(fd)
        if found.st_uid not in (0, uid):
            raise UnsafePath(
                f"cannot use {name}: it belongs to uid {found.st_uid}", "look at it, then chown it to root"
            )
        os.fchown(fd, uid, gid)
        os.fchmod(fd, mode)
    return found.st_uid


def hand_over_objects(repos_fd: int, entry: str, git_uid: int, git_gid: int) -> None:
    """Let git's account read the objects of a repo that was placed by hand, and add to its directories.

    The files stay root's: what is there was put there by root, and git never changes an object.
    """
    with opened(repos_fd, entry) as repo_fd, opened(repo_fd, "objects") as objects_fd:
        for name in sorted(os.listdir(objects_fd)):
            if not _FAN_OUT.fullmatch(name):
                continue
            if _own_directory(objects_fd, name, git_uid, git_gid, 0o755) != 0:
                # git's account could have put a link to some file of root's into a directory of its own.
                continue
            with opened(objects_fd, name) as fan_fd:
                _make_readable(fan_fd)


def _make_readable(directory_fd: int) -> None:
    for name in os.listdir(directory_fd):
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory_fd)
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode) and found.st_uid == 0 and found.st_mode & 0o444 != 0o444:
                os.fchmod(fd, 0o444)
        finally:
            os.close(fd)


def sync_objects(repos_fd: int, entry: str, ids: Iterable[str]) -> None:
    """Make the directory entries of loose objects durable; git itself syncs only the files."""
    with opened(repos_fd, entry) as repo_fd, opened(repo_fd, "objects") as objects_fd:
        for prefix in sorted({each[:2] for each in ids}):
            # An object that was in a pack already has no directory here.
            with suppress(FileNotFoundError), opened(objects_fd, prefix) as fan_fd:
                os.fsync(fan_fd)
        os.fsync(objects_fd)


def drop_loose(repos_fd: int, entry: str, ids: Iterable[str]) -> None:
    """Remove loose objects, so that damaged ones can be written anew: git keeps any file of that name."""
    with opened(repos_fd, entry) as repo_fd, opened(repo_fd, "objects") as objects_fd:
        for each in ids:
            with suppress(FileNotFoundError), opened(objects_fd, each[:2]) as fan_fd:
                os.unlink(each[2:], dir_fd=fan_fd)


def remove_tree(parent_fd: int, name: str) -> None:
    """Remove a directory and all in it, following no link, however deep it is; a missing one is fine.

    Every round empties the directory's children and moves their own directories up beside them: so depth
    costs rounds, neither recursion nor open files.
    """
    with suppress(FileNotFoundError), opened(parent_fd, name) as top_fd:
        for _ in range(_MAX_ROUNDS):
            directories = _remove_files(top_fd)
            if not directories:
                os.rmdir(name, dir_fd=parent_fd)
                return
            for directory in directories:
                _flatten(top_fd, directory)
        raise HiveError(
            f"cannot remove {name}: it keeps filling up", "see which process of hive-git writes to it"
        )


def _remove_files(directory_fd: int) -> list[str]:
    """Unlink all that is no directory and return the names of those that are."""
    directories = []
    with os.scandir(directory_fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                directories.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=directory_fd)
    return directories


def _flatten(top_fd: int, directory: str) -> None:
    with opened(top_fd, directory) as fd:
        for below in _remove_files(fd):
            os.rename(below, f".{secrets.token_hex(8)}", src_dir_fd=fd, dst_dir_fd=top_fd)
    # Something may have been put into it since; then the next round has it.
    with suppress(OSError):
        os.rmdir(directory, dir_fd=top_fd)
