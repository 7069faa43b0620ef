"""Keeps the agents' uids free of everybody else's, in /etc/subuid and /etc/subgid.

Called by the daemon at its first start and by the uninstaller. A range given there to another user could be
mapped by that user, who would then own every file of every agent; so the range is reserved under root, and
one that anybody else already has is refused with one that is free.

At first start the daemon asks `require_free`, records in its store that the range is its own, and only then
calls `reserve(ours=True)`: interrupted anywhere, the next start takes our own line for ours.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters.files import read_regular, write_atomic
from hive_core.domain.errors import HostUnsuitable, TimedOut

SUBID_FILES = (Path("/etc/subuid"), Path("/etc/subgid"))
ACCOUNT_FILES = (Path("/etc/passwd"), Path("/etc/group"))
# The lock of lckpwdf(3), which useradd, usermod and their kin take for these files too.
LOCK_FILE = Path("/etc/.pwd.lock")
_MAX_BYTES = 16 * 1024 * 1024
_LOCK_LIMIT_S = 15.0
_LOCK_POLL_S = 0.05
# Where to look for a free range: above what useradd and container managers hand out, below what the C
# library, systemd's foreign uids and signed 32-bit programs reserve.
_SEARCH_START = 1_900_000_000
_SEARCH_END = 2_147_352_576


@dataclass(frozen=True, slots=True)
class _Taken:
    """Ids that somebody has: `what` names them in a message."""

    start: int
    count: int
    what: str
    is_subid: bool

    def overlaps(self, start: int, count: int) -> bool:
        return self.start < start + count and start < self.start + self.count


def require_free(
    start: int,
    count: int,
    *,
    ours: bool,
    subids: tuple[Path, ...] = SUBID_FILES,
    accounts: tuple[Path, ...] = ACCOUNT_FILES,
) -> None:
    """Raise HostUnsuitable, with a free range, when anybody but us has an id in [start, start + count).

    `ours` says that our own line was recorded before: then it is no overlap.
    """
    taken = [*_taken_subids(subids, start, count, ours), *_taken_accounts(accounts)]
    for other in taken:
        if not other.overlaps(start, count):
            continue
        free = _free_start(taken, count)
        way_out = "free some ids" if free is None else f"set uids.start = {free}"
        if other.is_subid:
            way_out = f"if that line is left over from a removed hive, delete it, else {way_out}"
        raise HostUnsuitable(
            f"cannot use uid range {start}-{start + count - 1}: it overlaps {other.what}", way_out
        )


def reserve(
    start: int,
    count: int,
    *,
    ours: bool,
    subids: tuple[Path, ...] = SUBID_FILES,
    accounts: tuple[Path, ...] = ACCOUNT_FILES,
    lock: Path = LOCK_FILE,
) -> None:
    """Append `root:START:COUNT` to each file that lacks it; idempotent.

    Content, owner and mode of the files are preserved. Raises HostUnsuitable as `require_free` does, before
    anything is written; TimedOut when the account files stay locked.
    """
    with _locked(lock):
        require_free(start, count, ours=ours, subids=subids, accounts=accounts)
        for file in subids:
            content = _read(file)
            if _line(start, count) not in content.splitlines():
                gap = b"" if not content or content.endswith(b"\n") else b"\n"
                _replace(file, content + gap + _line(start, count) + b"\n")


def is_reserved(start: int, count: int, *, subids: tuple[Path, ...] = SUBID_FILES) -> bool:
    """Return whether every file has our line."""
    return all(_line(start, count) in _read(file).splitlines() for file in subids)


def release(
    start: int, count: int, *, subids: tuple[Path, ...] = SUBID_FILES, lock: Path = LOCK_FILE
) -> None:
    """Take our line out of each file again; for uninstalling, and idempotent."""
    with _locked(lock):
        for file in subids:
            content = _read(file)
            kept = [line for line in content.splitlines(keepends=True) if line.strip() != _line(start, count)]
            if b"".join(kept) != content:
                _replace(file, b"".join(kept))


def _line(start: int, count: int) -> bytes:
    return f"root:{start}:{count}".encode()


def _read(file: Path) -> bytes:
    try:
        return read_regular(file, _MAX_BYTES)
    except FileNotFoundError:
        return b""


def _replace(file: Path, content: bytes) -> None:
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o644
    write_atomic(file, content, mode)


def _taken_subids(files: tuple[Path, ...], start: int, count: int, ours: bool) -> Iterator[_Taken]:
    for file in files:
        for line in _read(file).splitlines():
            fields = line.strip().split(b":")
            # A line that is no range gives nobody anything: the tools that read it skip it too.
            is_range = len(fields) == 3 and all(field.isdigit() for field in fields[1:])
            if is_range and not (ours and line.strip() == _line(start, count)):
                yield _Taken(int(fields[1]), int(fields[2]), f"'{_shown(line)}' in {file}", is_subid=True)


def _taken_accounts(files: tuple[Path, ...]) -> Iterator[_Taken]:
    for file in files:
        for line in _read(file).splitlines():
            fields = line.split(b":")
            # In both files the third field is the id.
            if len(fields) >= 3 and fields[2].isdigit():
                what = f"'{_shown(fields[0])}' with id {int(fields[2])} in {file}"
                yield _Taken(int(fields[2]), 1, what, is_subid=False)


def _shown(untrusted_text: bytes) -> str:
    return ascii(os.fsdecode(untrusted_text[:80]))[1:-1]


def _free_start(taken: list[_Taken], count: int) -> int | None:
    """Return the lowest start of a free range: where the search begins, or right after somebody's range."""
    starts = sorted({_SEARCH_START, *(other.start + other.count for other in taken)})
    return next(
        (
            start
            for start in starts
            if _SEARCH_START <= start <= _SEARCH_END - count
            and not any(other.overlaps(start, count) for other in taken)
        ),
        None,
    )


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    fd = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        deadline = time.monotonic() + _LOCK_LIMIT_S
        while not _try_lock(fd):
            if time.monotonic() >= deadline:
                raise TimedOut(f"cannot reserve uids: {lock} stays locked", f"see who holds it: fuser {lock}")
            time.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
