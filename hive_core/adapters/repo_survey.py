"""What a config repo's fixed files say: is its layout sound, which commit is main. Runs no git.

Called by `repos`, for every repo in every pass, so it is cheap and nothing in a repo can block it: files are
opened without following links and without waiting, and a repo whose files have not changed since it was
last looked at costs a handful of `lstat`s.
"""

from __future__ import annotations

import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters.files import kind_of
from hive_core.adapters.git_objects import COMMIT_ID

_MAX_PACKED_BYTES = 4 * 1024 * 1024
_SYMBOLIC_HEAD = re.compile(rb"ref: refs/heads/[\w./-]{1,200}\n?")
_DETACHED_HEAD = re.compile(rb"[0-9a-f]{40}\n?")
_FIXED_DIRECTORIES = ("", "/refs", "/refs/heads", "/objects", "/objects/info")
_FIXED_FILES = ("/HEAD", "/config")
_MAIN = "/refs/heads/main"
# A change of any of these shows in one of their inodes' times; `refs` itself shows in `refs/heads`.
_WATCHED = ("", "/HEAD", "/config", "/refs/heads", "/objects", "/objects/info", _MAIN)
_RACY_NS = 100_000_000

_Signature = tuple[tuple[int, int], ...]


class RepoFault(Exception):
    """What is wrong with a repo and the way out, as words."""

    def __init__(self, reason: str, way_out: str) -> None:
        super().__init__(f"{reason}; {way_out}")
        self.reason = reason
        self.way_out = way_out


@dataclass(frozen=True, slots=True)
class _Seen:
    signature: _Signature
    main: str


class RepoSurvey:
    """Looks at repos below one directory and remembers the sound ones until their files change."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[str, _Seen] = {}

    def main(self, root_fd: int, entry: str) -> str:
        """Return the commit that main of a sound repo names. Raises RepoFault."""
        signature = _signature(root_fd, entry)
        seen = self._seen.get(entry)
        if seen is not None and seen.signature == signature:
            return seen.main
        self.check(root_fd, entry)
        main = read_main(root_fd, entry, self._root / entry)
        if signature is not None and not _is_racy(signature):
            self._seen[entry] = _Seen(signature, main)
        else:
            self._seen.pop(entry, None)
        return main

    def check(self, root_fd: int, entry: str) -> None:
        """Raise RepoFault when one of a repo's fixed files is not as only root could have made it."""
        shown = self._root / entry
        for path in _FIXED_DIRECTORIES:
            _check_fixed(root_fd, entry + path, Path(f"{shown}{path}"), stat.S_IFDIR)
        for path in _FIXED_FILES:
            _check_fixed(root_fd, entry + path, Path(f"{shown}{path}"), stat.S_IFREG)
        _check_head(root_fd, entry, shown)
        if _exists(root_fd, f"{entry}/objects/info/alternates"):
            raise RepoFault("borrows its objects from another repo", f"clone it to {shown} without --shared")

    def forget_missing(self, entries: set[str]) -> None:
        """Drop what is remembered of repos that are no longer there."""
        for entry in self._seen.keys() - entries:
            del self._seen[entry]


def _signature(root_fd: int, entry: str) -> _Signature | None:
    """Return what changes with the watched files, None when one is missing or cannot be looked at.

    Every change of content, owner or mode moves the inode's change time, which nobody can set back.
    """
    try:
        found = [os.stat(entry + path, dir_fd=root_fd, follow_symlinks=False) for path in _WATCHED]
    except OSError:
        return None
    return tuple([(each.st_ino, each.st_ctime_ns) for each in found])


def _is_racy(signature: _Signature) -> bool:
    """Whether a file changed so recently that another change could leave the same times behind."""
    return max(changed_ns for _, changed_ns in signature) > time.time_ns() - _RACY_NS


def _exists(root_fd: int, path: str) -> bool:
    try:
        os.stat(path, dir_fd=root_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _check_fixed(root_fd: int, path: str, shown: Path, wanted: int) -> None:
    try:
        found = os.stat(path, dir_fd=root_fd, follow_symlinks=False)
    except OSError as fault:
        word = "is missing" if isinstance(fault, FileNotFoundError) else f"cannot be read: {fault.strerror}"
        raise RepoFault(f"{shown.name} {word}", "restore the repo from a backup, or rm the agent") from fault
    if stat.S_IFMT(found.st_mode) != wanted:
        raise RepoFault(f"{shown.name} is {kind_of(found.st_mode)}", f"put what belongs there at {shown}")
    _check_owner(found, shown)


def _check_owner(found: os.stat_result, shown: Path) -> None:
    if found.st_uid != 0:
        raise RepoFault(
            f"{shown.name} belongs to uid {found.st_uid}, not root", f"look at it, then chown root {shown}"
        )
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    # The one directory that git's account adds to; sticky, so that it cannot replace what is not its own.
    if shown.name == "objects" and found.st_mode & stat.S_ISVTX:
        writable &= stat.S_IWOTH
    if writable:
        raise RepoFault(f"{shown.name} can be written by others", f"look at it, then chmod go-w {shown}")


def _read_owned(root_fd: int, path: str, shown: Path, max_bytes: int) -> bytes:
    """Return a file of root's. Raises FileNotFoundError, RepoFault; never waits for a writer of a FIFO."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        fd = os.open(path, flags, dir_fd=root_fd)
    except FileNotFoundError:
        raise
    except OSError as fault:
        reason = f"{shown.name} cannot be read: {(fault.strerror or str(fault)).lower()}"
        raise RepoFault(reason, f"remove {shown} and push again") from fault
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise RepoFault(f"{shown.name} is {kind_of(found.st_mode)}", f"remove {shown} and push again")
        _check_owner(found, shown)
        content = b""
        while len(content) <= max_bytes and (chunk := os.read(fd, max_bytes + 1 - len(content))):
            content += chunk
    finally:
        os.close(fd)
    if len(content) > max_bytes:
        raise RepoFault(f"{shown.name} is larger than {max_bytes} bytes", f"remove {shown} and push again")
    return content


def _check_head(root_fd: int, entry: str, shown: Path) -> None:
    content = _read_owned(root_fd, f"{entry}/HEAD", shown / "HEAD", 4096)
    if not _SYMBOLIC_HEAD.fullmatch(content) and not _DETACHED_HEAD.fullmatch(content):
        raise RepoFault("HEAD is damaged", f"write 'ref: refs/heads/main' into {shown}/HEAD")


def read_main(root_fd: int, entry: str, shown: Path) -> str:
    """Return the commit main names, from its own file or from packed-refs. Raises RepoFault."""
    try:
        content = _read_owned(root_fd, entry + _MAIN, Path(f"{shown}{_MAIN}"), 4096)
    except FileNotFoundError:
        return _packed_main(root_fd, entry, shown)
    main = content.decode("ascii", "replace").removesuffix("\n")
    if not COMMIT_ID.fullmatch(main):
        raise RepoFault("refs/heads/main holds no commit id", "push a config again")
    return main


def _packed_main(root_fd: int, entry: str, shown: Path) -> str:
    for line in packed_refs(root_fd, entry, shown):
        commit, _, name = line.partition(" ")
        if name == "refs/heads/main":
            if COMMIT_ID.fullmatch(commit):
                return commit
            raise RepoFault("packed-refs holds no commit id for main", "push a config again")
    raise RepoFault("has no main branch yet", "push a config to it")


def packed_refs(root_fd: int, entry: str, shown: Path) -> list[str]:
    """Return the lines of packed-refs, none when there is no such file. Raises RepoFault."""
    try:
        content = _read_owned(root_fd, f"{entry}/packed-refs", shown / "packed-refs", _MAX_PACKED_BYTES)
    except FileNotFoundError:
        return []
    return content.decode("utf-8", "surrogateescape").splitlines()
