"""A program of its own: makes one id-mapped mount of a directory where nobody sees it, and says how it went.

Run by `probes` as `python -I mount_probe.py DIRECTORY`. It exists because joining and leaving namespaces is a
matter of a whole process: here it is one with a single thread, whose mount namespace, and with it the mount,
ends when it does. Exit status 0: it worked; 1: standard output says which step failed and why.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_PR_SET_PDEATHSIG = 1
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
# Read-only, nosuid, nodev, nosymfollow, id-mapped: what a live grant of a config would have.
_ATTRIBUTES = 0x1 | 0x2 | 0x4 | 0x200000 | 0x100000
_SHOWN_ID = 1_999_999_999
_libc = ctypes.CDLL(None, use_errno=True)


class _Step(Exception):
    """A step that failed, with the kernel's reason."""


class _MountAttr(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns_fd"))


def _call(step: str, result: int) -> int:
    if result < 0:
        raise _Step(f"{step}: {os.strerror(ctypes.get_errno())}")
    return result


def _hide() -> None:
    """Leave the host's mount namespace, and see to it that nothing done here travels back."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _call("unshare", _libc.unshare(_CLONE_NEWNS))
    _call("make / private", _libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None))


def _user_namespace(owner: os.stat_result) -> int:
    """Return an fd of a user namespace that shows the owner as another id; its process is gone then."""
    told_r, told_w = os.pipe()
    made_r, made_w = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(told_w)
        os.write(made_w, b"1" if _libc.unshare(_CLONE_NEWUSER) == 0 else b"0")
        os.read(told_r, 1)  # ends when the parent closes its end, or ends
        os._exit(0)
    try:
        if os.read(made_r, 1) != b"1":
            raise _Step("make a user namespace: the kernel refuses")
        Path(f"/proc/{child}/uid_map").write_text(f"{owner.st_uid} {_SHOWN_ID} 1")
        Path(f"/proc/{child}/gid_map").write_text(f"{owner.st_gid} {_SHOWN_ID} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(told_w)
        os.waitpid(child, 0)


def _try(directory: str) -> None:
    owner = os.stat(directory)
    _hide()
    path = os.fsencode(directory)
    tree = _call("open_tree", _libc.syscall(_SYS_OPEN_TREE, _AT_FDCWD, path, _OPEN_TREE_CLONE | os.O_CLOEXEC))
    wanted = _MountAttr(_ATTRIBUTES, 0, 0, _user_namespace(owner))
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    _call(
        "mount_setattr",
        _libc.syscall(_SYS_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, ctypes.byref(wanted), size),
    )
    # Over the directory itself: it is the one place that surely exists, and this namespace is nobody else's.
    _call("move_mount", _libc.syscall(_SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, path, _MOVE_MOUNT_F_EMPTY_PATH))
    seen = os.stat(directory)
    if (seen.st_uid, seen.st_gid) != (_SHOWN_ID, _SHOWN_ID):
        raise _Step(f"look at it: its owner shows as {seen.st_uid}:{seen.st_gid}")


def main(arguments: list[str]) -> int:
    """Try it on the directory named by the only argument."""
    try:
        _try(arguments[0])
    except (_Step, OSError) as fault:
        sys.stdout.write(f"{fault}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
