"""The event log: appends to the store, and wakes whoever follows.

Written by the loop, the verbs and the workers; read by the surfaces. Followers wait in threads with a
deadline, so a follower that goes away costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from hive_core.adapters.clock import Clock
from hive_core.adapters.store import Store
from hive_core.domain.events import Event
from hive_core.domain.names import AgentName

MAX_PAGE = 1000


class EventLog:
    """Append, read and wait."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._arrived = threading.Condition()
        self._closed = False
        self.change_of: Callable[[AgentName], str | None] = lambda _agent: None

    def add(self, kind: str, agent: AgentName | None, text: str, **fields: str | int | bool | None) -> Event:
        """Append an event and wake the followers; a step of a running change is marked as such."""
        change_id = None if agent is None else self.change_of(agent)
        event = self._store.add_event(self._clock.now(), kind, agent, text, fields, change_id)
        with self._arrived:
            self._arrived.notify_all()
        return event

    def last(self, limit: int) -> tuple[Event, ...]:
        """Return the last events, oldest first."""
        return self._store.last_events(min(limit, MAX_PAGE))

    def steps(self, change_id: str) -> tuple[Event, ...]:
        """Return what was done for a change so far, oldest first."""
        return self._store.events_of_change(change_id)

    def after(self, seq: int, limit: int, wait_s: float) -> tuple[Event, ...]:
        """Return the events after a number; with none yet, wait up to `wait_s` for one."""
        deadline = self._clock.monotonic() + wait_s
        while True:
            found = self._store.events_after(seq, min(limit, MAX_PAGE))
            left_s = deadline - self._clock.monotonic()
            if found or left_s <= 0 or self._closed:
                return found
            with self._arrived:
                if not self._store.events_after(seq, 1) and not self._closed:
                    self._arrived.wait(left_s)

    def close(self) -> None:
        """Let every follower go; the daemon is stopping."""
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()
