"""Unix sockets: bound by hive itself, and the kernel's word on who is at the other end.

Called by the surfaces for the admin socket and for each agent's. It exists because HTTP servers make their
sockets writable for everybody and take a path that another process still listens on without a word.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters.files import check_parent, kind_of, make_dir, opened_directory
from hive_core.domain.errors import Conflict, UnsafePath

MAX_PATH_BYTES = 107
_BACKLOG = 128
_STAGING = ".b"
_STAGED_NAME = "s"
_SO_PEERGROUPS = 59
_PEERCRED = struct.Struct("iII")
_CGROUP_MAX_BYTES = 64 * 1024
_libc = ctypes.CDLL(None, use_errno=True)


def bind_socket(path: Path, mode: int, uid: int, gid: int) -> socket.socket:
    """Return a listening stream socket at `path`, with this mode and owner from its first instant there.

    It is made in a directory only root can enter, and renamed into place when complete; so its
    `getsockname()` is the name it was made under, in the same directory. A socket left by a daemon that is
    gone is replaced. Raises Conflict when another process listens there; UnsafePath, leaving everything
    untouched, when the path is too long, something else is there, or others could replace it.
    """
    _check_length(path)
    check_parent(path)
    with opened_directory(path.parent) as parent:
        _refuse_occupied(path, parent, uid)
        _drop_staging(parent)
        make_dir(path.parent / _STAGING, mode=0o700)
        try:
            listener = _bind_staged(path.parent / _STAGING / _STAGED_NAME, mode, uid, gid)
            try:
                os.rename(f"{_STAGING}/{_STAGED_NAME}", path.name, src_dir_fd=parent, dst_dir_fd=parent)
            except OSError:
                listener.close()
                raise
        finally:
            _drop_staging(parent)
    return listener


def _check_length(path: Path) -> None:
    needed = max(len(os.fsencode(path)), len(os.fsencode(path.parent / _STAGING / _STAGED_NAME)))
    if needed > MAX_PATH_BYTES:
        raise UnsafePath(
            f"cannot listen on {path}: its path needs {needed} bytes, the limit is {MAX_PATH_BYTES}",
            "choose a shorter run directory",
        )


def _bind_staged(path: Path, mode: int, uid: int, gid: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # The mode of an unbound socket is what bind gives the file. Unlike a umask it is no other thread's.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(os.fspath(path))
        os.chown(path, uid, gid, follow_symlinks=False)
        os.chmod(path, mode)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _drop_staging(parent: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(f"{_STAGING}/{_STAGED_NAME}", dir_fd=parent)
    with suppress(FileNotFoundError):
        os.rmdir(_STAGING, dir_fd=parent)


def _refuse_occupied(path: Path, parent: int, uid: int) -> None:
    try:
        found = os.lstat(path.name, dir_fd=parent)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise UnsafePath(f"cannot listen on {path}: it is {kind_of(found.st_mode)}", "move it away")
    if found.st_uid not in (os.geteuid(), uid):
        raise UnsafePath(
            f"cannot listen on {path}: the socket there belongs to uid {found.st_uid}", "find out whose it is"
        )
    if _is_listened_on(path):
        raise Conflict(f"cannot listen on {path}: another process listens on it", "stop that process first")


def _is_listened_on(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A full backlog answers EAGAIN instead of making us wait, a datagram socket EPROTOTYPE: both live.
        probe.setblocking(False)
        return probe.connect_ex(os.fspath(path)) not in (errno.ECONNREFUSED, errno.ENOENT)


@dataclass(frozen=True, slots=True)
class Peer:
    """Who connected, as the kernel recorded it at connect time.

    `groups` are the supplementary ones. `cgroup_text` is /proc/<pid>/cgroup as read now: a cross-check only,
    since the process may be gone (None) and its pid may have been given to another.
    """

    pid: int
    uid: int
    gid: int
    groups: frozenset[int]
    cgroup_text: str | None

    def is_in_group(self, gid: int) -> bool:
        """Whether a group is the peer's primary or one of its supplementary groups."""
        return gid == self.gid or gid in self.groups


def peer_of(connection: socket.socket) -> Peer:
    """Return the peer of a connected Unix socket; raises OSError when it is none."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
    pid, uid, gid = _PEERCRED.unpack(credentials)
    return Peer(pid, uid, gid, _peer_groups(connection), _cgroup_text(pid))


def _peer_groups(connection: socket.socket) -> frozenset[int]:
    """Ask by ctypes: `getsockopt` takes at most 1 KiB, and a member of 300 groups must not be locked out."""
    count = 64
    while True:
        groups = (ctypes.c_uint32 * count)()
        size = ctypes.c_uint32(ctypes.sizeof(groups))
        fd = connection.fileno()
        if _libc.getsockopt(fd, socket.SOL_SOCKET, _SO_PEERGROUPS, groups, ctypes.byref(size)) == 0:
            return frozenset(groups[: size.value // 4])
        number = ctypes.get_errno()
        if number != errno.ERANGE or size.value // 4 <= count:
            raise OSError(number, f"cannot learn the peer's groups: {os.strerror(number)}")
        # The kernel has put the size it needs there.
        count = size.value // 4


def _cgroup_text(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/cgroup", "rb") as file:
            return file.read(_CGROUP_MAX_BYTES).decode(errors="replace")
    except OSError:
        return None
