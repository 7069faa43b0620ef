"""Wakes the daemon when something changes in a directory.

Used by the reconcile loop for `meta/` and `repos/`. A wake is a hint that saves waiting for the timer, never
a fact: it may come late, twice or not at all. Directories are watched, not files: a file's watch ends with
the file when it is replaced atomically.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from watchfiles import watch

_log = logging.getLogger(__name__)
_DEBOUNCE_MS = 50
_REARM_S = 1.0
_RETRY_NATIVE_S = 60.0
_POLL_DELAY_MS = 300
_STOP_LIMIT_S = 5.0
_LIMITS = {
    "watch limit": ("watches", "fs.inotify.max_user_watches"),
    "Too many open files": ("instances", "fs.inotify.max_user_instances"),
}


@dataclass(frozen=True, slots=True)
class _Armed:
    """A directory as it is being watched; the open fd keeps its inode number from being used again."""

    path: Path
    fd: int

    def is_current(self) -> bool:
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        then = os.fstat(self.fd)
        return (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino)


class DirectoryWatch:
    """One thread that calls `on_change` with the directory, of those given, in which something changed.

    A directory that is missing, or deleted and made again, is picked up within about a second, and counts as
    changed. When the kernel has no watches left it polls instead; `problem` then says what to raise.
    """

    def __init__(
        self, paths: Iterable[Path], on_change: Callable[[Path], None], *, rearm_s: float = _REARM_S
    ) -> None:
        self._paths = tuple(paths)
        self._on_change = on_change
        self._rearm_s = rearm_s
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why changes are seen late, with the way out; empty while all is well."""
        return self._problem

    def start(self) -> None:
        """Begin to watch. A watch is started once."""
        self._thread = threading.Thread(target=self._run, name="directory-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; returns when no further `on_change` will come, or after a few seconds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(_STOP_LIMIT_S)

    def _run(self) -> None:
        native_again = 0.0
        while not self._stopping.is_set():
            armed = self._arm()
            is_polling = time.monotonic() < native_again
            try:
                self._follow(armed, is_polling)
            except (OSError, RuntimeError) as fault:
                self._note(_explain(fault))
                if is_polling or _explain_limit(str(fault)) is None:
                    self._stopping.wait(self._rearm_s)
                else:
                    native_again = time.monotonic() + _RETRY_NATIVE_S
            finally:
                for directory in armed:
                    os.close(directory.fd)

    def _arm(self) -> tuple[_Armed, ...]:
        armed: list[_Armed] = []
        for path in self._paths:
            with suppress(OSError):
                armed.append(_Armed(path, os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)))
        return tuple(armed)

    def _follow(self, armed: tuple[_Armed, ...], is_polling: bool) -> None:
        """Report changes until a directory was replaced, a retry is due, or the watch is stopped."""
        until = time.monotonic() + (_RETRY_NATIVE_S if is_polling else math.inf)
        # What changed while nothing was armed is not in the first batch: count every directory as changed.
        unseen = {directory.path for directory in armed}
        for changed in self._batches(armed, is_polling):
            if not is_polling:
                self._note("")
            for path in self._paths:
                if path in unseen or path in changed:
                    self._on_change(path)
            unseen = set()
            if not self._is_current(armed) or time.monotonic() > until:
                return

    def _batches(self, armed: tuple[_Armed, ...], is_polling: bool) -> Iterator[set[Path]]:
        """Yield the directories in which something changed, an empty set at least every `rearm_s`."""
        if not armed:
            self._stopping.wait(self._rearm_s)
            return
        batches = watch(
            *(directory.path for directory in armed),
            watch_filter=None,
            debounce=_DEBOUNCE_MS,
            step=_DEBOUNCE_MS,
            stop_event=self._stopping,
            rust_timeout=int(self._rearm_s * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
            force_polling=is_polling,
            poll_delay_ms=_POLL_DELAY_MS,
            recursive=False,
        )
        for batch in batches:
            entries = {Path(entry) for _, entry in batch}
            yield entries | {entry.parent for entry in entries}

    def _is_current(self, armed: tuple[_Armed, ...]) -> bool:
        missing = set(self._paths) - {directory.path for directory in armed}
        return all(directory.is_current() for directory in armed) and not any(
            path.is_dir() for path in missing
        )

    def _note(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            _log.log(logging.WARNING if problem else logging.INFO, problem or "watching directories again")


def _explain(fault: Exception) -> str:
    limit = _explain_limit(str(fault))
    if limit is None:
        return f"cannot watch directories: {str(fault)[:200]}"
    return f"watching directories by polling: no inotify {limit[0]} left; raise the sysctl {limit[1]}"


def _explain_limit(fault_text: str) -> tuple[str, str] | None:
    """Return which inotify limit a failure is about, and its sysctl; the library keeps text, no errno."""
    return next((limit for words, limit in _LIMITS.items() if words in fault_text), None)
