"""Files of the host, opened so that nobody can swap what is being opened.

Called by every adapter that touches a path below the hive's roots, and by the engine layer right before a
bind source is handed to the container engine. It exists because the engine follows a link in a bind source
at every start, and because a FIFO or a half-written file in the place of a roster must cost neither the
daemon's time nor anybody's work.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hive_core.domain.errors import HostUnsuitable, UnsafePath
from hive_core.domain.roster import MAX_BYTES, Absent, RosterFile, Unreadable, decode

_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_AT_FDCWD = -100
_GROUP_OR_OTHER_WRITES = stat.S_IWGRP | stat.S_IWOTH
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: "a regular file",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
}
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def kind_of(mode: int) -> str:
    """Return what a file is, with its article, from `st_mode`: "a FIFO", "a symbolic link"."""
    return _KINDS.get(stat.S_IFMT(mode), "of an unknown kind")


def open_path(path: Path, *, directory: bool) -> int:
    """Return an fd of an absolute path none of whose components is a link; the caller closes it.

    A directory is opened for reading (it can be listed and synced), anything else with O_PATH, which has
    no side effect on a FIFO or a device. Raises FileNotFoundError, or UnsafePath naming the component.
    """
    _require_plain(path)
    flags = os.O_RDONLY | os.O_DIRECTORY if directory else os.O_PATH
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
    fd = int(_libc.syscall(_SYS_OPENAT2, _AT_FDCWD, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)))
    if fd < 0:
        raise _open_failure(path, ctypes.get_errno())
    if not directory and stat.S_ISDIR(os.fstat(fd).st_mode):
        os.close(fd)
        raise UnsafePath(f"cannot open {path}: is a directory")
    return fd


def _open_failure(path: Path, number: int) -> Exception:
    if number == errno.ENOENT:
        return FileNotFoundError(number, os.strerror(number), str(path))
    if number == errno.ENOSYS:
        return HostUnsuitable("cannot open paths safely: the kernel has no openat2", "use Linux 5.6 or later")
    if number in (errno.ELOOP, errno.ENOTDIR):
        return UnsafePath(f"cannot open {path}: {_first_odd_component(path)}")
    return OSError(number, os.strerror(number), str(path))


def _first_odd_component(path: Path) -> str:
    """Return words for the first component that is no plain directory; only for messages, it races."""
    for component in (*reversed(path.parents), path):
        try:
            mode = component.lstat().st_mode
        except OSError as fault:
            return f"{component}: {fault.strerror}"
        if not stat.S_ISDIR(mode):
            return f"{component} is {kind_of(mode)}"
    return "it changed while it was opened"


def _require_plain(path: Path) -> None:
    if not path.is_absolute() or ".." in path.parts:
        raise UnsafePath(f"cannot use path {path}: not absolute, or with '..'")


def check_source(path: Path, *, directory: bool, owner: int | None = None) -> tuple[int, int]:
    """Return (st_dev, st_ino) of a path that only root could have put where it is.

    Every ancestor is a directory of root's that group and others cannot write and that is no link; the
    leaf has the wanted kind (directory or regular file) and, when given, that owner. A sticky directory
    such as /tmp is refused too: sticky does not keep others from taking a name that is free for a moment.
    Raises UnsafePath naming the component and the way out.
    """
    with _checked_parent(path) as parent:
        try:
            found = os.stat(path.name or ".", dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            raise _missing(path) from None
    return _check_leaf(path, found, directory, owner)


def check_parent(path: Path) -> None:
    """Require that only root can put, replace or remove something at a path, which need not exist yet.

    The same rule for every ancestor as in `check_source`. Raises UnsafePath.
    """
    with _checked_parent(path):
        return


@contextmanager
def _checked_parent(path: Path) -> Iterator[int]:
    _require_plain(path)
    fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check_ancestor(Path("/"), os.fstat(fd))
        walked = Path("/")
        for part in path.parts[1:-1]:
            walked = walked / part
            fd = _step(fd, part, walked)
            _check_ancestor(walked, os.fstat(fd))
        yield fd
    finally:
        os.close(fd)


def _missing(path: Path) -> UnsafePath:
    return UnsafePath(f"cannot use {path}: it is missing", "create it, or restore it from a backup")


def _step(parent_fd: int, part: str, walked: Path) -> int:
    """Open the next component without following it and close its parent."""
    try:
        fd = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
    except FileNotFoundError:
        raise _missing(walked) from None
    except OSError as fault:
        raise UnsafePath(f"cannot use {walked}: {fault.strerror}") from fault
    # The caller's `finally` closes what it holds, so the parent goes only once there is a successor.
    os.close(parent_fd)
    return fd


def _check_ancestor(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafePath(
            f"cannot use {path}: it is {kind_of(found.st_mode)}, not a directory",
            "put the hive where no component of the path is a link",
        )
    if found.st_uid not in (0, os.geteuid()):
        raise UnsafePath(f"cannot use {path}: it belongs to uid {found.st_uid}", f"chown root {path}")
    if found.st_mode & _GROUP_OR_OTHER_WRITES:
        mode = stat.S_IMODE(found.st_mode)
        raise UnsafePath(f"cannot use {path}: others can write it (mode {mode:04o})", f"chmod go-w {path}")


def _check_leaf(path: Path, found: os.stat_result, directory: bool, owner: int | None) -> tuple[int, int]:
    wanted = stat.S_IFDIR if directory else stat.S_IFREG
    if stat.S_IFMT(found.st_mode) != wanted:
        raise UnsafePath(
            f"cannot use {path}: it is {kind_of(found.st_mode)}, not {_KINDS[wanted]}",
            "move it away; what belongs there is made again",
        )
    if owner is not None and found.st_uid != owner:
        raise UnsafePath(
            f"cannot use {path}: it belongs to uid {found.st_uid}, not {owner}",
            f"look at what is in it, then chown {owner} {path}",
        )
    return found.st_dev, found.st_ino


class _Unusable(Exception):
    """A file that cannot be read as one; the text is a reason such as "is a FIFO"."""


def _read_bounded(path: Path, max_bytes: int) -> bytes:
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise _Unusable(f"is {kind_of(mode)}")
            # Opened again through its fd: what is read is what was looked at, nothing else is ever opened.
            with open(f"/proc/self/fd/{fd}", "rb", buffering=0, opener=_open_nonblocking) as file:
                content = _read_up_to(file.fileno(), max_bytes + 1)
        finally:
            os.close(fd)
    except FileNotFoundError:
        raise
    except OSError as fault:
        raise _Unusable((fault.strerror or str(fault)).lower()) from fault
    if len(content) > max_bytes:
        raise _Unusable(f"larger than {max_bytes} bytes")
    return content


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _read_up_to(fd: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    left = limit
    while left > 0 and (chunk := os.read(fd, min(left, 1 << 16))):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file that is no link and not larger than `max_bytes`.

    Never blocks on a FIFO and never opens a device. Raises FileNotFoundError when there is nothing, else
    UnsafePath with the reason.
    """
    try:
        return _read_bounded(path, max_bytes)
    except _Unusable as fault:
        raise UnsafePath(f"cannot read {path}: {fault}") from fault


def read_roster(path: Path) -> RosterFile:
    """Return the roster file as present, absent or unreadable with its reason; never raises or blocks."""
    try:
        return decode(_read_bounded(path, MAX_BYTES))
    except FileNotFoundError:
        return Absent()
    except _Unusable as fault:
        return Unreadable(str(fault))


def write_atomic(path: Path, content: bytes, mode: int) -> None:
    """Replace a file so that a reader, a crash or a full disk sees the old content or the new, whole.

    `mode` is exact, whatever the umask. Raises OSError; the old content then still stands (a failing sync
    of the directory, after the rename, is the exception) and nothing is left beside it.
    """
    with opened_directory(path.parent) as directory:
        temporary = f".{path.name[:200]}.{secrets.token_hex(8)}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
        try:
            try:
                _write_all(fd, content)
                os.fchmod(fd, mode)
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise
        os.fsync(directory)


def _write_all(fd: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


@contextmanager
def opened_directory(path: Path) -> Iterator[int]:
    """Hold a directory open that was reached without following any link."""
    fd = open_path(path, directory=True)
    try:
        yield fd
    finally:
        os.close(fd)


def make_dir(path: Path, *, mode: int, uid: int = 0, gid: int = 0) -> None:
    """Make a directory, or bring the owner and mode of an existing one in order; idempotent.

    Its parent must exist. One that belongs to neither root nor `uid`, or that is no directory, is left
    exactly as it is: UnsafePath.
    """
    with opened_directory(path.parent) as parent:
        try:
            os.mkdir(path.name, 0o700, dir_fd=parent)
        except FileExistsError:
            _refuse_non_directory(path, os.lstat(path.name, dir_fd=parent))
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(path.name, flags, dir_fd=parent)
        except OSError as fault:
            raise UnsafePath(f"cannot use {path}: {fault.strerror}") from fault
    try:
        _own(path, fd, mode, uid, gid)
    finally:
        os.close(fd)


def _refuse_non_directory(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafePath(
            f"cannot use {path}: it is {kind_of(found.st_mode)}, not a directory",
            "move it away; what belongs there is made again",
        )


def _own(path: Path, fd: int, mode: int, uid: int, gid: int) -> None:
    found = os.fstat(fd)
    if found.st_uid not in (os.geteuid(), uid):
        raise UnsafePath(
            f"cannot use {path}: it belongs to uid {found.st_uid}, not {uid}",
            f"look at what is in it, then chown {uid}:{gid} {path}",
        )
    if (found.st_uid, found.st_gid) != (uid, gid):
        os.fchown(fd, uid, gid)
    if stat.S_IMODE(found.st_mode) != mode:
        os.fchmod(fd, mode)
