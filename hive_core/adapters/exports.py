"""Immutable exports: the files of one commit of a config repo, as a directory a container mounts read-only.

Called by the engine layer before a container is created. git never checks anything out on the host: a
checkout runs filters, follows what a repo says about its work tree, and writes links. Here root writes
plain files, from content that was checked against the commit id, into a directory nobody else can reach.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hive_core.adapters.files import kind_of, opened_directory
from hive_core.adapters.repo_tree import opened, remove_tree
from hive_core.adapters.repos import ConfigRepos
from hive_core.domain.config_files import ConfigFile
from hive_core.domain.errors import UnsafePath
from hive_core.domain.names import AgentName

_PARTIAL = ".partial-"
_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def export_commit(repos: ConfigRepos, name: AgentName, commit: str, into: Path) -> None:
    """Make `into` the export of a commit; one that is there already is complete, and kept.

    Its parent must exist. Directories and executable files are root's 0755, files 0644. Raises RepoDamaged
    when the commit holds what no config may, TimedOut, UnsafePath, OSError; then `into` does not exist.
    """
    with _held(into.parent) as parent_fd:
        if _is_complete(parent_fd, into):
            return
        _sweep(parent_fd)
        files = repos.read_all(name, commit)
        partial = _PARTIAL + into.name
        try:
            _write_all(parent_fd, partial, files)
            os.rename(partial, into.name, src_dir_fd=parent_fd, dst_dir_fd=parent_fd)
        except BaseException:
            remove_tree(parent_fd, partial)
            raise
        os.fsync(parent_fd)


@contextmanager
def _held(directory: Path) -> Iterator[int]:
    """Hold the directory locked: then what is half done in it is a crash's, not another thread's."""
    with opened_directory(directory) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield fd


def _is_complete(parent_fd: int, into: Path) -> bool:
    try:
        found = os.stat(into.name, dir_fd=parent_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        owner = f"{kind_of(found.st_mode)} of uid {found.st_uid}"
        raise UnsafePath(f"cannot export to {into}: {owner} is in its place", "move it away and try again")
    return True


def _sweep(parent_fd: int) -> None:
    for name in os.listdir(parent_fd):
        if name.startswith(_PARTIAL):
            remove_tree(parent_fd, name)


def _write_all(parent_fd: int, top: str, files: Iterable[ConfigFile]) -> None:
    """Write the files below a new directory and make all of it durable before anybody can see it as whole."""
    made = [""]
    _make_directory(parent_fd, top)
    with opened(parent_fd, top) as top_fd:
        known = set(made)
        for file in files:
            for directory in _above(file.path):
                if directory not in known:
                    _make_directory(top_fd, directory)
                    known.add(directory)
                    made.append(directory)
            _write_file(top_fd, file)
        for directory in reversed(made):
            with opened(top_fd, directory or ".") as fd:
                os.fsync(fd)


def _above(path: str) -> list[str]:
    """Return the directories a path lies in, outermost first."""
    return [path[:end] for end, character in enumerate(path) if character == "/"]


def _make_directory(parent_fd: int, path: str) -> None:
    os.mkdir(path, 0o700, dir_fd=parent_fd)
    os.chmod(path, 0o755, dir_fd=parent_fd)


def _write_file(top_fd: int, file: ConfigFile) -> None:
    fd = os.open(file.path, _FILE_FLAGS, 0o600, dir_fd=top_fd)
    with open(fd, "wb") as stream:
        stream.write(file.content)
        stream.flush()
        os.fchmod(fd, 0o755 if file.executable else 0o644)
        os.fsync(fd)
