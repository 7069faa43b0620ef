"""Code run as another user of the host, inside the test's own process. Used by the security tests.

The kernel keeps credentials per thread; the C library only hides it. A thread that is thrown away afterwards
can therefore be anybody, without a program that this user would have to be allowed to execute.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

# Numbers of setgroups, setresgid, setresuid.
_CALLS = {"x86_64": (116, 119, 117), "aarch64": (159, 149, 147)}
_libc = ctypes.CDLL(None, use_errno=True)


def as_user(uid: int, gid: int, groups: Sequence[int], work: Callable[[], T]) -> T:
    """Return what `work` returns in a thread with these credentials; raises what it raises."""
    answers: list[T] = []
    faults: list[BaseException] = []

    def run() -> None:
        try:
            _become(uid, gid, groups)
            answers.append(work())
        except BaseException as fault:  # handed to the caller, whatever it is
            faults.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if faults:
        raise faults[0]
    return answers[0]


def _become(uid: int, gid: int, groups: Sequence[int]) -> None:
    setgroups, setresgid, setresuid = _CALLS[platform.machine()]
    ids = (ctypes.c_uint32 * max(1, len(groups)))(*groups)
    calls: tuple[tuple[int, tuple[object, ...]], ...] = (
        (setgroups, (ctypes.c_size_t(len(groups)), ids)),
        (setresgid, (ctypes.c_uint32(gid),) * 3),
        (setresuid, (ctypes.c_uint32(uid),) * 3),
    )
    for number, arguments in calls:
        if _libc.syscall(ctypes.c_long(number), *arguments) != 0:
            raise OSError(ctypes.get_errno(), f"cannot become uid {uid}")
