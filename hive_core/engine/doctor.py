"""Doctor: whether this host keeps what hive promises. Each check looks, by doing where it can.

Called by the surfaces on request; takes as long as the slowest look, so it never runs in a pass.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from hive_core.adapters.run_dirs import RunDirs
from hive_core.adapters.subids import is_reserved
from hive_core.domain.errors import HiveError
from hive_core.domain.ports import Engine
from hive_core.settings import Settings

_LOW_BYTES = 2 * 1024**3
_LOW_INODES = 10_000


class Finding(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was looked at, how it is, and the way out."""

    name: str
    status: Finding
    text: str
    hint: str = ""


class Doctor:
    """The checks."""

    def __init__(
        self, settings: Settings, engine: Engine, run_dirs: RunDirs, watch_problem: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._run_dirs = run_dirs
        self._watch_problem = watch_problem

    def examine(self) -> tuple[Check, ...]:
        """Return every check; one that breaks is itself a failed check."""
        found: list[Check] = []
        looks: tuple[Callable[[], Iterator[Check]], ...] = (
            self._look_at_engine,
            self._look_at_image,
            self._look_at_mounts,
            self._look_at_uids,
            self._look_at_disk,
            self._look_at_socket,
            self._look_at_watch,
        )
        for look in looks:
            try:
                found.extend(look())
            except (HiveError, OSError) as fault:
                name = look.__name__.removeprefix("_look_at_")
                found.append(Check(name, Finding.FAIL, str(fault), getattr(fault, "hint", "")))
        return tuple(found)

    def _look_at_engine(self) -> Iterator[Check]:
        version = self._engine.version()
        yield Check(
            "engine",
            Finding.OK,
            f"engine {version.engine}, API {version.api}, runtime {version.runtime or '?'}",
        )
        if version.live_restore:
            yield Check("live-restore", Finding.OK, "agents run on while the engine is restarted")
        else:
            yield Check(
                "live-restore",
                Finding.WARN,
                "a restart of the engine ends every container; hive starts the agents again",
                'set "live-restore": true in /etc/docker/daemon.json to keep them running',
            )

    def _look_at_image(self) -> Iterator[Check]:
        reference = self._settings.container.image
        facts = self._engine.resolve_image(reference)
        yield Check("image", Finding.OK, f"{reference} is {facts.id.removeprefix('sha256:')[:12]}")

    def _look_at_mounts(self) -> Iterator[Check]:
        state = self._run_dirs.grants_state()
        if state.is_shared:
            yield Check("grants", Finding.OK, f"{self._run_dirs.grants} is a shared mount")
        else:
            yield Check(
                "grants",
                Finding.FAIL,
                f"{self._run_dirs.grants} is not a shared mount: grants would not reach running containers",
                "restart hived; if it stays so, hived does not share the host's mount namespace",
            )

    def _look_at_uids(self) -> Iterator[Check]:
        uids = self._settings.uids
        shown = f"{uids.start}-{uids.start + uids.count - 1}"
        if not uids.reserve:
            yield Check("uids", Finding.WARN, f"uids {shown} are not reserved", "set uids.reserve = true")
        elif is_reserved(uids.start, uids.count):
            yield Check("uids", Finding.OK, f"uids {shown} are reserved in /etc/subuid and /etc/subgid")
        else:
            yield Check(
                "uids",
                Finding.FAIL,
                f"the line for uids {shown} is gone from /etc/subuid or /etc/subgid",
                "restart hived: it writes the line again",
            )

    def _look_at_disk(self) -> Iterator[Check]:
        path = self._settings.paths.data
        free = shutil.disk_usage(path).free
        inodes = os.statvfs(path).f_favail
        is_low = free < _LOW_BYTES or 0 < inodes < _LOW_INODES
        text = f"{free // 1024**2} MiB and {inodes} inodes free below {path}"
        yield Check("disk", Finding.WARN if is_low else Finding.OK, text, "free some space" if is_low else "")

    def _look_at_socket(self) -> Iterator[Check]:
        path = Path(self._settings.paths.run) / "admin.sock"
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode == 0o660:
            yield Check("admin socket", Finding.OK, f"{path} has mode 0660")
        else:
            yield Check(
                "admin socket", Finding.FAIL, f"{path} has mode {mode:04o} instead of 0660", "restart hived"
            )

    def _look_at_watch(self) -> Iterator[Check]:
        problem = self._watch_problem()
        if problem:
            yield Check("file watch", Finding.WARN, problem)
        else:
            yield Check("file watch", Finding.OK, "changes to the meta repo and the config repos wake a pass")
