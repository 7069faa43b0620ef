"""Doctor: whether this host keeps what hive promises. Each check looks, by doing where it can.

Called by the surfaces on request, never by a pass. The looks run side by side under one deadline: one that
breaks or hangs is a failed check, and the others still answer. The judgements are in the `checks_*` modules.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hive_core.adapters.run_dirs import RunDirs
from hive_core.domain.ports import Engine
from hive_core.engine.checks import Check, CheckName, Finding, fail
from hive_core.engine.looks import Look, Looks
from hive_core.settings import Settings

__all__ = ["LIMIT_S", "Check", "CheckName", "Doctor", "Finding"]

LIMIT_S = 4.5


class Doctor:
    """The checks of one hive and its host."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        run_dirs: RunDirs,
        watch_problem: Callable[[], str],
        *,
        limit_s: float = LIMIT_S,
    ) -> None:
        """`limit_s` bounds an examination, whatever hangs."""
        self._settings = settings
        self._engine = engine
        self._run_dirs = run_dirs
        self._watch_problem = watch_problem
        self._limit_s = limit_s

    def examine(self) -> tuple[Check, ...]:
        """Return every check, in the order of `CheckName`."""
        looks = Looks(self._settings, self._engine, self._run_dirs, self._watch_problem).by_name()
        found: dict[CheckName, Check] = {}
        deadline = time.monotonic() + self._limit_s
        threads = [
            # What hangs may go on: it is bounded by itself, and must not keep a stopped daemon alive.
            threading.Thread(
                target=_take, args=(found, name, looks[name]), name=f"doctor {name}", daemon=True
            )
            for name in CheckName
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return tuple(found.get(name) or self._late(name) for name in CheckName)

    def _late(self, name: CheckName) -> Check:
        return fail(name, f"no answer within {self._limit_s:g} s", "something it looks at hangs; try again")


def _take(found: dict[CheckName, Check], name: CheckName, look: Look) -> None:
    """Put the result of a look where it is waited for; one that breaks is a failed check."""
    try:
        found[name] = look()
    except Exception as fault:  # whatever it is: a host that surprises a look is not known to be well
        text = str(fault) or type(fault).__name__
        found[name] = fail(name, text, getattr(fault, "hint", "") or "look at it by hand")
