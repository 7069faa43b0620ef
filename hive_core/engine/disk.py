"""Disk: how much each agent holds, how much the host has left, and a reserve for the worst hour.

One thread, started by `daemon`. Measuring walks whole trees, so it never happens in a pass; passes read the
last figures. On a full disk the ballast is given up, so that an operator can still stop what fills it.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.disk_usage import Free, Usage, free_space, measure
from hive_core.adapters.store import Store
from hive_core.domain.errors import HiveError, LimitExceeded
from hive_core.domain.names import AgentName
from hive_core.engine.facts import over_budget, remember_over_budget
from hive_core.planning.actions import Problem
from hive_core.settings import Disk

log = logging.getLogger(__name__)

BALLAST_BYTES = 16 * 1024 * 1024
_LOOK_S = 2.0
_AGENT_LIMIT_S = 10.0
# An agent that was over its budget runs again only once it is clearly below.
_BACK_BELOW = 0.9


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The last figures. `over` says of each agent over its budget how far; the rest is what hive's own
    records take.
    """

    free: Free
    is_low: bool
    usage: Mapping[AgentName, Usage]
    over: Mapping[AgentName, str]
    store_bytes: int = 0
    audit_bytes: int = 0


class DiskWatch:
    """Measures, and keeps the ballast."""

    def __init__(
        self, settings: Disk, data: Path, dirs: AgentDirs, store: Store, wake: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._data = data
        self._dirs = dirs
        self._store = store
        self._wake = wake
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk", daemon=True)
        # Who was over before a restart is so until measured: its agent would start, only to be stopped again.
        self.facts = self._facts({}, over_budget(store))

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def stop(self) -> None:
        """Stop measuring; nobody waits for a walk."""
        self._stopping.set()

    def problems(self) -> tuple[Problem, ...]:
        """Return what an operator should know."""
        facts = self.facts
        if not facts.is_low:
            return ()
        free = f"{facts.free.free_bytes // 1024**2} MiB and {facts.free.inodes} inodes"
        text = (
            f"the disk is nearly full: {free} left below {self._data}; no agent is made, spawned or pushed to"
        )
        return (Problem("disk_low", text),)

    def require_space(self, deed: str) -> None:
        """Refuse what would fill the disk further while there is little left."""
        if self.facts.is_low:
            free = f"{self.facts.free.free_bytes // 1024**2} MiB"
            raise LimitExceeded(
                f"cannot {deed}: the disk is nearly full ({free} left)", "free some space first"
            )

    def make_room(self) -> bool:
        """Give the ballast up for the write that failed; False when it is gone already."""
        try:
            (self._data / "ballast").unlink()
        except OSError:
            return False
        log.error("the disk is full; the reserve of %d MiB was given up", BALLAST_BYTES // 1024**2)
        return True

    # ---- the thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        since_s = self._settings.interval_s
        while not self._stopping.is_set():
            try:
                before = self.facts
                usage, over = before.usage, before.over
                if since_s >= self._settings.interval_s:
                    since_s = 0.0
                    usage, over = self._measure_agents(before)
                self.facts = self._facts(usage, over)
                self._keep_ballast()
                if (self.facts.is_low, dict(self.facts.over)) != (before.is_low, dict(before.over)):
                    self._wake()
                if over.keys() != over_budget(self._store).keys():
                    remember_over_budget(self._store, over)
            except Exception:
                log.exception("the disk could not be measured")
            self._stopping.wait(_LOOK_S)
            since_s += _LOOK_S

    def _facts(self, usage: Mapping[AgentName, Usage], over: Mapping[AgentName, str]) -> DiskFacts:
        free = free_space(self._data)
        is_low = free.free_bytes < self._settings.low_water or free.inodes < self._settings.low_water_inodes
        return DiskFacts(
            free,
            is_low,
            usage,
            over,
            store_bytes=_sizes(self._data.glob("hive.db*")),
            audit_bytes=_sizes((self._data / "audit").glob("*")),
        )

    def _measure_agents(self, before: DiskFacts) -> tuple[dict[AgentName, Usage], dict[AgentName, str]]:
        usage: dict[AgentName, Usage] = {}
        over: dict[AgentName, str] = {}
        for record in self._store.agents():
            if self._stopping.is_set():
                return dict(before.usage), dict(before.over)
            paths = self._dirs.paths(record.name)
            excess = before.over.get(record.name, "")
            try:
                usage[record.name] = measure((paths.state, paths.home), _AGENT_LIMIT_S)
                excess = self._excess(usage[record.name], excess)
            except (HiveError, OSError) as fault:
                log.warning("cannot measure what %s holds: %s", record.name, fault)
            if excess:
                over[record.name] = excess
        return usage, over

    def _excess(self, found: Usage, before: str) -> str:
        """Return how far an agent is over its budget, "" when it is not; what cannot be told stays so."""
        share = _BACK_BELOW if before else 1.0
        mib = 1024**2
        if found.used_bytes > self._settings.budget * share:
            return f"{found.used_bytes // mib} MiB of {self._settings.budget // mib} MiB are used"
        if found.inodes > self._settings.budget_inodes * share:
            return f"{found.inodes} of {self._settings.budget_inodes} files are used"
        if found.is_too_deep:
            return "its directories are nested too deep to be measured"
        return "" if found.is_complete else before

    def _keep_ballast(self) -> None:
        """Make the ballast while there is plenty; it is taken out of the hive's own disk, once."""
        path = self._data / "ballast"
        if path.exists() or self.facts.is_low or self.facts.free.free_bytes < 8 * BALLAST_BYTES:
            return
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, BALLAST_BYTES)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(fd)


def _sizes(paths: Iterable[Path]) -> int:
    """Return the bytes of files together; one that goes meanwhile counts as nothing."""
    total = 0
    for path in paths:
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total
