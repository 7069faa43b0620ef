"""Lays the members of a backup archive out below one directory, and nowhere else.

Called by `engine.restore`. The archive was written by hive and sealed, yet who owned it since may have been
anybody: so every member has to be something a backup holds at that place, each directory is entered by
descriptor without following a link, nothing is overwritten, and links are made when no file is left to write.
"""

from __future__ import annotations

import ctypes
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters.agent_dirs import RETIRED
from hive_core.adapters.archive import MANIFEST, Archive, Member
from hive_core.adapters.archive_trees import MAX_DEPTH
from hive_core.domain.errors import HiveError, InvalidName
from hive_core.domain.names import parse_name

STORE = "hive.db"
META, REPOS, AGENTS, AUDIT, EVIDENCE = "meta", "repos", "agents", "audit", "evidence"
TREES = (META, REPOS, AGENTS, AUDIT, EVIDENCE)
PRIVATE = frozenset({"state", "home"})
_RETIRED_AGENT = re.compile(r"[a-z0-9][A-Za-z0-9_-]{0,127}")
_MAX_PARTS = MAX_DEPTH + 8
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)
_SET_ID = stat.S_ISUID | stat.S_ISGID


@dataclass(frozen=True, slots=True)
class Owners:
    """Whose files may become whose: git's account there and here, and the uids of agents."""

    git_then: tuple[int, int]
    git_now: tuple[int, int]
    uids: range

    def of(self, member: Member) -> tuple[int, int]:
        """Return (uid, gid) of a member here: its own in an agent's tree, git's or root's elsewhere."""
        if _is_private(member):
            return member.uid, member.gid
        if member.parts[0] != REPOS:
            return 0, 0
        uid = self.git_now[0] if member.uid == self.git_then[0] else 0
        gid = self.git_now[1] if member.gid == self.git_then[1] else 0
        return uid, gid

    def mode_of(self, member: Member) -> int:
        """Return a member's mode; what would lend rights that are not an agent's own is taken out."""
        if _is_private(member) and member.uid in self.uids and member.gid in self.uids:
            return member.mode & 0o7777
        return member.mode & 0o7777 & ~_SET_ID


def _is_private(member: Member) -> bool:
    """Whether a member is an agent's own: its state, its home, or something in one of them."""
    depth = 3 if member.parts[1:2] == (RETIRED,) else 2
    return member.parts[0] == AGENTS and len(member.parts) > depth


class Extraction:
    """One archive on its way to one directory. Not thread-safe; `close` it."""

    def __init__(self, archive: Archive, root: Path, owners: Owners) -> None:
        self._archive = archive
        self._owners = owners
        self._root_fd = os.open(root, _DIRECTORY_FLAGS)
        self._open: list[tuple[str, int]] = []

    def close(self) -> None:
        """Release the directories that are held open."""
        self._leave(0)
        os.close(self._root_fd)

    def store(self) -> None:
        """Lay the store out, which has to be the first member after the manifest."""
        for member in self._archive.members():
            if member.parts == (STORE,) and member.kind == stat.S_IFREG:
                self._write(member)
                return
            if member.parts != (MANIFEST,):
                break
        raise self._archive.refused("it does not begin with its store")

    def trees(self) -> None:
        """Lay everything else out: directories and files first, then links."""
        for member in self._archive.members():
            if member.parts in ((MANIFEST,), (STORE,)):
                continue
            self._check_place(member)
            if member.kind == stat.S_IFDIR:
                self._make(member)
            elif member.kind == stat.S_IFREG:
                self._write(member)
        for member in self._archive.members():
            if member.kind == stat.S_IFLNK:
                self._link(member)

    def _check_place(self, member: Member) -> None:
        parts, kind = member.parts, member.kind
        if len(parts) > _MAX_PARTS or parts[0] not in TREES:
            raise self._misplaced(member)
        if len(parts) == 1:
            is_fine = kind == stat.S_IFDIR
        elif parts[0] == AGENTS:
            is_fine = self._is_agents(member)
        else:
            is_fine = kind != stat.S_IFLNK
        if not is_fine:
            raise self._misplaced(member)

    def _is_agents(self, member: Member) -> bool:
        """Whether a member of agents/ is a directory that holds agents' trees, or is in one of those."""
        parts = member.parts[1:]
        if parts[0] == RETIRED:
            parts = parts[1:]
            is_named = not parts or _RETIRED_AGENT.fullmatch(parts[0]) is not None
        else:
            is_named = _is_agent_name(parts[0])
        if len(parts) < 3:
            is_named = is_named and member.kind == stat.S_IFDIR
        return is_named and (len(parts) < 2 or parts[1] in PRIVATE)

    def _misplaced(self, member: Member) -> HiveError:
        return self._archive.refused(f"{member.shown} in it is nothing that a backup holds there")

    def _make(self, member: Member) -> None:
        parent_fd = self._parent(member)
        name = member.parts[-1]
        try:
            os.mkdir(name, 0o700, dir_fd=parent_fd)
        except FileExistsError:
            raise self._twice(member) from None
        fd = os.open(name, _DIRECTORY_FLAGS, dir_fd=parent_fd)
        self._open.append((name, fd))
        os.fchown(fd, *self._owners.of(member))
        os.fchmod(fd, self._owners.mode_of(member))

    def _write(self, member: Member) -> None:
        parent_fd = self._parent(member)
        try:
            fd = os.open(member.parts[-1], _FILE_FLAGS, 0o600, dir_fd=parent_fd)
        except FileExistsError:
            raise self._twice(member) from None
        try:
            for offset, piece in self._archive.content(member):
                _write_at(fd, offset, piece)
            os.ftruncate(fd, member.size)
            # A change of owner takes set-id bits away, so the mode comes after it.
            os.fchown(fd, *self._owners.of(member))
            os.fchmod(fd, self._owners.mode_of(member))
            os.utime(fd, (member.mtime_s, member.mtime_s))
        finally:
            os.close(fd)

    def _link(self, member: Member) -> None:
        parent_fd = self._parent(member)
        name = member.parts[-1]
        try:
            os.symlink(member.link, name, dir_fd=parent_fd)
        except FileExistsError:
            raise self._twice(member) from None
        os.chown(name, *self._owners.of(member), dir_fd=parent_fd, follow_symlinks=False)

    def _twice(self, member: Member) -> HiveError:
        return self._archive.refused(f"{member.shown} is in it twice")

    def _parent(self, member: Member) -> int:
        """Return the directory a member goes into, entered component by component; it must be there."""
        wanted = member.parts[:-1]
        same = 0
        while same < min(len(wanted), len(self._open)) and self._open[same][0] == wanted[same]:
            same += 1
        self._leave(same)
        for part in wanted[same:]:
            above_fd = self._open[-1][1] if self._open else self._root_fd
            try:
                fd = os.open(part, _DIRECTORY_FLAGS, dir_fd=above_fd)
            except (FileNotFoundError, NotADirectoryError):
                raise self._archive.refused(f"{member.shown} in it lies in no directory of its own") from None
            self._open.append((part, fd))
        return self._open[-1][1] if self._open else self._root_fd

    def _leave(self, depth: int) -> None:
        while len(self._open) > depth:
            os.close(self._open.pop()[1])


def make_durable(fd: int) -> None:
    """Write everything of the file system that a descriptor is on to its disk. Raises OSError."""
    if _libc.syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _is_agent_name(untrusted_name: str) -> bool:
    try:
        parse_name(untrusted_name)
    except InvalidName:
        return False
    return True


def _write_at(fd: int, offset: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        written = os.pwrite(fd, left, offset)
        left, offset = left[written:], offset + written
