"""The directories of each agent on the host: its state, its home, its exported configs, its generated files.

Called by the engine layer when an agent is made, retired, revived or purged, and for the bind sources of its
container. What is in `state` and `home` was written by somebody who is not trusted, so root neither reads nor
walks it: a tree is moved by renaming the root-owned directory above it, and deleted by `tree_removal`.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters.files import (
    check_parent,
    check_source,
    make_dir,
    open_path,
    opened_directory,
    read_regular,
    write_atomic,
)
from hive_core.adapters.mountinfo import read_mounts
from hive_core.adapters.tree_removal import Deadline, empty_directory
from hive_core.domain.errors import Conflict, InvalidRequest, UnsafePath
from hive_core.domain.names import AgentName

RETIRED = ".retired"
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_INCARNATION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_GENERATED_MAX_BYTES = 4096
_PURGE_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True)
class AgentPaths:
    """Where one agent's directories are, whether they exist or not: the bind sources of its container."""

    root: Path

    @property
    def state(self) -> Path:
        """What the agent works in and the hive keeps."""
        return self.root / "state"

    @property
    def home(self) -> Path:
        """The agent's HOME: credentials, conversations, caches. Never granted to anybody."""
        return self.root / "home"

    @property
    def configs(self) -> Path:
        """The parent of all config exports."""
        return self.root / "config"

    def config_dir(self, commit: str) -> Path:
        """Return the export of one commit, a full lower-case object id; else InvalidRequest."""
        if not _COMMIT.fullmatch(commit):
            raise InvalidRequest(f"not a full commit id: {commit[:80]!a}")
        return self.configs / commit

    @property
    def etc(self) -> Path:
        """The parent of the generated files."""
        return self.root / "etc"

    @property
    def passwd(self) -> Path:
        """The container's /etc/passwd."""
        return self.etc / "passwd"

    @property
    def group(self) -> Path:
        """The container's /etc/group."""
        return self.etc / "group"


class AgentDirs:
    """The agents directory of one hive, by default /var/lib/hive/agents."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def paths(self, name: AgentName) -> AgentPaths:
        """Return where an agent's directories are."""
        return AgentPaths(self.root / name)

    def create(self, name: AgentName, uid: int) -> AgentPaths:
        """Make an agent's directories and generated files; idempotent, and never looks into state or home.

        Raises UnsafePath, leaving everything as it is, for a directory that is a link or somebody else's.
        """
        check_parent(self.root)
        make_dir(self.root, mode=0o700)
        paths = self.paths(name)
        make_dir(paths.root, mode=0o755)
        for private in (paths.state, paths.home):
            make_dir(private, mode=0o700, uid=uid, gid=uid)
        self.refresh(name, uid)
        return paths

    def refresh(self, name: AgentName, uid: int) -> None:
        """Make again what hive can make again: generated files and the place of exports; idempotent.

        State and home are not among that: a missing one is lost data or an unmounted disk, and an empty one
        in its place would hide it. Raises UnsafePath when the agent has no directory.
        """
        paths = self.paths(name)
        check_source(paths.root, directory=True, owner=0)
        for public in (paths.configs, paths.etc):
            make_dir(public, mode=0o755)
        _write_if_changed(paths.passwd, _passwd(uid))
        _write_if_changed(paths.group, _group(uid))

    def retire(self, name: AgentName, incarnation: str) -> None:
        """Move an agent's tree aside under its incarnation; one that is moved already, or never was, is fine.

        Raises Conflict when both places are taken.
        """
        if not self.root.is_dir():
            return
        make_dir(self.root / RETIRED, mode=0o700)
        self._move(self.paths(name).root, self._retired(name, incarnation), f"cannot retire {name}")

    def revive(self, name: AgentName, incarnation: str) -> None:
        """Move a retired tree back in place; one that is back already is fine.

        Raises Conflict when the agent has a tree, or when there is no such retired one.
        """
        target, source = self.paths(name).root, self._retired(name, incarnation)
        if not source.exists() and not target.exists():
            raise Conflict(f"cannot revive {name}: its state is not kept", f"look into {self.root / RETIRED}")
        self._move(source, target, f"cannot revive {name}")

    def _retired(self, name: AgentName, incarnation: str) -> Path:
        if not _INCARNATION.fullmatch(incarnation):
            raise InvalidRequest(f"not an incarnation: {incarnation[:80]!a}")
        return self.root / RETIRED / f"{name}-{incarnation}"

    def _move(self, source: Path, target: Path, deed: str) -> None:
        with opened_directory(source.parent) as from_fd, opened_directory(target.parent) as to_fd:
            if not _is_entry(from_fd, source.name):
                return
            # A rename would silently replace an empty directory.
            if _is_entry(to_fd, target.name):
                raise Conflict(f"{deed}: {target} exists", "move one of the two away")
            os.rename(source.name, target.name, src_dir_fd=from_fd, dst_dir_fd=to_fd)
            os.fsync(from_fd)
            os.fsync(to_fd)

    def purge(self, name: AgentName, uid: int, *, limit_s: float = _PURGE_LIMIT_S) -> None:
        """Delete an agent's tree; what is gone already is fine, and an interrupted one can be repeated.

        State and home are emptied as `uid`. Raises Conflict while anything is mounted in the tree, UnsafePath
        when a part of it is not what it must be or cannot be deleted, TimedOut after `limit_s`.
        """
        paths = self.paths(name)
        if not os.path.lexists(paths.root):
            return
        _refuse_mounts(paths.root, f"cannot purge {name}")
        deadline = Deadline(limit_s)
        for private in (paths.state, paths.home):
            _remove_directory(private, uid, deadline)
        # Whatever else is in here was made by root, and so was the directory.
        _remove_directory(paths.root, 0, deadline)
        with opened_directory(self.root) as parent:
            os.fsync(parent)

    def exported(self, name: AgentName) -> frozenset[str]:
        """Return the commits of which a config export exists."""
        try:
            with opened_directory(self.paths(name).configs) as directory:
                return frozenset(entry for entry in os.listdir(directory) if _COMMIT.fullmatch(entry))
        except FileNotFoundError:
            return frozenset()

    def drop_config(self, name: AgentName, keep: set[str]) -> None:
        """Delete the config exports of all commits but these; anything that is no export stays."""
        paths = self.paths(name)
        deadline = Deadline(_PURGE_LIMIT_S)
        for commit in sorted(self.exported(name) - keep):
            export = paths.config_dir(commit)
            _refuse_mounts(export, f"cannot drop config {commit[:12]} of {name}")
            _remove_directory(export, 0, deadline)


def _is_entry(directory: int, entry: str) -> bool:
    try:
        os.lstat(entry, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True


def _refuse_mounts(path: Path, deed: str) -> None:
    table = read_mounts()
    at = table.find(path)
    held = table.below(path) + ((at,) if at else ())
    if held:
        raise Conflict(f"{deed}: {held[0].target} is a mount", "its grants are revoked first; see findmnt")


def _remove_directory(path: Path, uid: int, deadline: Deadline) -> None:
    """Empty a directory as a uid, then remove it; one that is gone is fine."""
    try:
        fd = open_path(path, directory=True)
    except FileNotFoundError:
        return
    try:
        owner = os.fstat(fd).st_uid
        if owner not in (0, uid):
            raise UnsafePath(
                f"cannot delete {path}: it belongs to uid {owner}, not {uid}", "look at what is in it first"
            )
        empty_directory(fd, path, owner, deadline)
    finally:
        os.close(fd)
    with opened_directory(path.parent) as parent:
        os.rmdir(path.name, dir_fd=parent)


def _write_if_changed(path: Path, content: bytes) -> None:
    """Leave an equal file alone: a running container keeps seeing the file that was there when it started."""
    try:
        if read_regular(path, _GENERATED_MAX_BYTES) == content:
            return
    except FileNotFoundError:
        pass
    write_atomic(path, content, 0o644)


def _passwd(uid: int) -> bytes:
    return (
        "root:x:0:0:root:/root:/bin/sh\n"
        f"agent:x:{uid}:{uid}:agent:/home/agent:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    ).encode()


def _group(uid: int) -> bytes:
    return f"root:x:0:\nagent:x:{uid}:\nnogroup:x:65534:\n".encode()
