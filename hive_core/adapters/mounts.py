"""The mount calls hive makes, each one exact and without a shell.

Called by `run_dirs`. It exists because mount(8) adds behaviour of its own (helpers, fstab, retries), while
here every call either did precisely what its name says or raised with the kernel's reason.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_MS_NOSUID = 0x2
_MS_NODEV = 0x4
_MS_NOEXEC = 0x8
_MS_BIND = 0x1000
_MS_PRIVATE = 0x40000
_MS_SHARED = 0x100000
_UMOUNT_NOFOLLOW = 0x8
_libc = ctypes.CDLL(None, use_errno=True)


def bind(source: Path, target: Path) -> None:
    """Bind a directory, without what is mounted below it, at another path or at itself."""
    _mount(os.fsencode(source), target, None, _MS_BIND, None)


def make_private(target: Path) -> None:
    """Cut a mount's ties: mounts made below it no longer appear elsewhere, nor others' below it."""
    _mount(None, target, None, _MS_PRIVATE, None)


def make_shared(target: Path) -> None:
    """Give a mount a peer group, so that mounts made below it later reach its slaves."""
    _mount(None, target, None, _MS_SHARED, None)


def mount_tmpfs(target: Path, *, label: str, size_bytes: int, mode: int) -> None:
    """Mount an empty tmpfs from which nothing is executed and on which no device or setuid bit counts."""
    options = f"size={size_bytes},mode={mode:04o}".encode()
    _mount(label.encode(), target, b"tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options)


def unmount(target: Path) -> None:
    """Unmount, never lazily: raises OSError with EBUSY while anything still uses the mount."""
    if _libc.umount2(os.fsencode(target), _UMOUNT_NOFOLLOW) != 0:
        raise _failure("unmount", target)


def _mount(
    source: bytes | None, target: Path, fs_type: bytes | None, flags: int, options: bytes | None
) -> None:
    if _libc.mount(source, os.fsencode(target), fs_type, ctypes.c_ulong(flags), options) != 0:
        raise _failure("mount", target)


def _failure(verb: str, target: Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"cannot {verb}: {os.strerror(number)}", str(target))
