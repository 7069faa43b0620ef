"""What inspects told: the detail of each container, asked for again only when there is a reason to.

Used by `engine.observe`. An engine can answer for all containers but one, whose inspect then hangs until the
call's timeout. Such a container is left aside, so that it costs a look one timeout and the others nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from hive_core.adapters.clock import Clock
from hive_core.domain.errors import EngineRefused, EngineUnavailable
from hive_core.domain.observed import ContainerDetail, EngineState, Known, ListedContainer, Unknown
from hive_core.domain.ports import Engine

SILENT = "the engine lists its container but does not answer for it"
_YOUNG_S = 120.0


@dataclass(slots=True)
class Patience:
    """Of one look: whether it has waited in vain for an inspect. It does so once, not for each container."""

    is_spent: bool = False


class Details:
    """The memory of inspects. Safe to use from many threads."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, ContainerDetail] = {}
        self._silent: set[str] = set()
        self._asked_in_vain: set[str] = set()

    def forget(self, container_id: str) -> None:
        """Inspect a container again at the next look: something happened to it."""
        with self._lock:
            self._known.pop(container_id, None)
            self._asked_in_vain.discard(container_id)

    def forget_all(self) -> None:
        """Inspect every container again: events may have been lost."""
        with self._lock:
            self._known.clear()
            self._asked_in_vain.clear()

    def keep_only(self, listed: frozenset[str]) -> None:
        """Drop what is remembered of containers that are no more."""
        with self._lock:
            self._known = {one: detail for one, detail in self._known.items() if one in listed}
            self._silent &= listed
            self._asked_in_vain &= listed

    def of(self, one: ListedContainer, patience: Patience) -> Known[ContainerDetail] | None:
        """Return the detail, from memory while the list does not contradict it; None when it is gone.

        `Unknown` when the engine does not answer for this one. Raises EngineUnavailable when the engine is
        away, or when a second container gets no answer in the same look.
        """
        with self._lock:
            known = self._known.get(one.id)
            is_left_aside = one.id in self._silent and (patience.is_spent or one.id in self._asked_in_vain)
        if known is not None and known.state is one.state and not self._is_contradicted(one, known):
            return known
        return Unknown(SILENT) if is_left_aside else self._ask(one.id, patience)

    def _ask(self, container_id: str, patience: Patience) -> Known[ContainerDetail] | None:
        try:
            detail = self._engine.inspect(container_id)
        except EngineRefused as fault:
            if fault.is_gone:
                return None
            raise
        except EngineUnavailable as fault:
            if not fault.hung:
                raise
            with self._lock:
                self._silent.add(container_id)
                self._asked_in_vain.add(container_id)
            if patience.is_spent:
                raise
            patience.is_spent = True
            return Unknown(SILENT)
        with self._lock:
            self._known[container_id] = detail
            self._silent.discard(container_id)
        return detail

    def _is_contradicted(self, one: ListedContainer, known: ContainerDetail) -> bool:
        """Whether the list speaks of seconds where the remembered run or end is minutes old."""
        since = known.started_at if one.state is EngineState.RUNNING else known.finished_at
        if since is None or "second" not in one.status:
            return False
        return (self._clock.now() - since).total_seconds() > _YOUNG_S
