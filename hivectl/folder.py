"""Reads a config folder to send. Used by `init --from` and `push`.

The folder may be one an agent can write, and hivectl may run as root: nothing is followed. Every step opens
one name below the directory already open, without links and without blocking, and what was opened is checked,
not what the name meant a moment before.
"""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hivectl.failure import CommandError, UsageError

MAX_FILES = 2000
MAX_BYTES = 16 << 20
MAX_DEPTH = 32
MANIFEST = "agent.toml"
GIT = ".git"

_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISCHR, "a device"),
)


@dataclass(frozen=True, slots=True)
class FolderFile:
    """One file: its path below the folder, with slashes; its bytes; whether its owner may execute it."""

    path: str
    content: bytes
    is_executable: bool

    def as_json(self) -> dict[str, object]:
        """Return the file as the API takes it."""
        encoded = base64.b64encode(self.content).decode("ascii")
        return {"path": self.path, "content": encoded, "executable": self.is_executable}


@dataclass(slots=True)
class FolderContent:
    """What a folder holds, in path order, and what the operator should be told about it."""

    files: list[FolderFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    size_bytes: int = 0


def read_folder(folder: Path) -> FolderContent:
    """Return the regular files below `folder`; `UsageError` names what cannot be part of a config."""
    content = FolderContent()
    with _reading(str(folder)):
        descriptor = os.open(folder, _FOLDER_FLAGS)
    try:
        _read_level(descriptor, "", content, 0)
    finally:
        os.close(descriptor)
    if not any(entry.path == MANIFEST for entry in content.files):
        raise UsageError(f"{folder} has no {MANIFEST}", f"a config folder holds {MANIFEST} at its top")
    return content


def _read_level(descriptor: int, prefix: str, content: FolderContent, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise UsageError(f"{prefix} is more than {MAX_DEPTH} folders deep")
    with _reading(prefix or "the folder"):
        names = sorted(os.listdir(descriptor))
    for name in names:
        path = f"{prefix}{name}"
        if name == GIT:
            _pass_over_git(path, content)
        else:
            _read_entry(descriptor, name, _checked_path(path), content, depth)


def _pass_over_git(path: str, content: FolderContent) -> None:
    if path != GIT:
        raise UsageError(f"{path} is another repository", "take it out, or give its files without their .git")
    content.notes.append(f"{GIT} was left out: only the files are sent")


def _checked_path(path: str) -> str:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"the name {path} is not valid UTF-8", "rename it") from None
    return path


def _read_entry(parent: int, name: str, path: str, content: FolderContent, depth: int) -> None:
    with _reading(path):
        mode = os.lstat(name, dir_fd=parent).st_mode
    if stat.S_ISDIR(mode):
        with _reading(path):
            descriptor = os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
        try:
            _read_level(descriptor, f"{path}/", content, depth + 1)
        finally:
            os.close(descriptor)
        return
    _refuse_unless_regular(path, mode)
    if len(content.files) >= MAX_FILES:
        raise UsageError(
            f"the folder has more than {MAX_FILES} files", "a config holds programs, not their data"
        )
    content.files.append(_read_file(parent, name, path, MAX_BYTES - content.size_bytes))
    content.size_bytes += len(content.files[-1].content)


def _read_file(parent: int, name: str, path: str, room_bytes: int) -> FolderFile:
    with _reading(path):
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=parent)
    with os.fdopen(descriptor, "rb") as stream:
        mode = os.fstat(stream.fileno()).st_mode
        _refuse_unless_regular(path, mode)
        with _reading(path):
            content = stream.read(room_bytes + 1)
    if len(content) > room_bytes:
        raise UsageError(
            f"the folder is larger than {MAX_BYTES >> 20} MiB", "a config holds programs, not their data"
        )
    return FolderFile(path, content, bool(mode & stat.S_IXUSR))


def _refuse_unless_regular(path: str, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "no regular file")
    raise UsageError(f"{path} is {kind}", "only regular files can be part of a config")


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist") from None
    except NotADirectoryError:
        raise UsageError(f"{path} is not a folder") from None
    except OSError as failure:
        raise CommandError(f"{path} cannot be read: {failure.strerror}", "check its permissions") from None
