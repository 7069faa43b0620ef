"""What wakes the loop from outside: engine events and changed files. The timer is the loop's own.

Started by `daemon`. An event only ever says "look": losing one costs at most a timer period. A stream that
ends or falls silent is opened anew, and everything is looked at again, since what happened meanwhile is
nowhere to be read.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from hive_core.adapters.clock import Clock
from hive_core.adapters.store import Store
from hive_core.domain.errors import EngineUnavailable, HiveError
from hive_core.domain.ports import Engine
from hive_core.engine.config import ConfigSource
from hive_core.engine.observe import Observer

log = logging.getLogger(__name__)

_FIRST_RETRY_S = 0.2
_LONGEST_RETRY_S = 5.0


class EventWatch:
    """One thread that reads the engine's events, window after window."""

    def __init__(
        self,
        hive_id: str,
        engine: Engine,
        window_s: float,
        observer: Observer,
        config: ConfigSource,
        store: Store,
        clock: Clock,
        is_own_work: Callable[[str], bool],
        wake: Callable[[], None],
    ) -> None:
        self._hive_id = hive_id
        self._engine = engine
        self._window_s = window_s
        self._observer = observer
        self._config = config
        self._store = store
        self._clock = clock
        self._is_own_work = is_own_work
        self._wake = wake
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine-events", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading; the thread ends with its window at the latest, and nobody waits for it."""
        self._stopping.set()

    def _run(self) -> None:
        retry_s = _FIRST_RETRY_S
        is_away = False
        while not self._stopping.is_set():
            try:
                stream = self._engine.events(self._hive_id, self._window_s)
                if is_away:
                    log.info("the engine's event stream is back")
                is_away, retry_s = False, _FIRST_RETRY_S
                self._look_again()
                for event in stream:
                    self._note(event.kind, event.id)
            except HiveError as fault:
                if not is_away and not self._stopping.is_set():
                    log.warning("the engine's event stream ended: %s", fault.message)
                    self._lost(fault)
                is_away = True
                self._wake()
                self._stopping.wait(retry_s * random.uniform(0.8, 1.2))
                retry_s = min(retry_s * 2, _LONGEST_RETRY_S)

    def _look_again(self) -> None:
        """What happened before a stream was opened is in no event: inspect everything anew."""
        self._observer.forget_all()
        self._config.forget_images()
        self._wake()

    def _note(self, kind: str, object_id: str) -> None:
        if kind == "image":
            self._config.forget_images()
        else:
            self._observer.forget(object_id)
            if self._is_own_work(object_id):
                return  # the end of that work wakes a pass, and until then there is nothing to plan for it
        self._wake()

    def _lost(self, fault: HiveError) -> None:
        """An ended stream is the first sign of an engine that restarts, maybe faster than any pass looks."""
        if isinstance(fault, EngineUnavailable) and not fault.hung:
            self._store.open_outage(self._clock.now())
