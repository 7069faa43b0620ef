"""Publishing the roster, and the authority that follows from it.

`Publisher.publish` is called by the loop when a plan says so; `authority` by whoever decides on a caller.
"""

from __future__ import annotations

from pathlib import Path

from hive_core.adapters.files import read_regular
from hive_core.adapters.meta import MetaRepo
from hive_core.adapters.store import Store
from hive_core.domain.errors import HiveError
from hive_core.domain.roster import MAX_BYTES, Present, Roster, decode
from hive_core.engine.event_log import EventLog
from hive_core.engine.facts import published_roster, remember_published
from hive_core.planning.actions import PublishRoster

FILE_NAME = "topology.json"


class Publisher:
    """Writes topology.json and commits it to the meta repo, one commit per change."""

    def __init__(self, store: Store, meta: MetaRepo, path: Path, events: EventLog) -> None:
        self._store = store
        self._meta = meta
        self._path = path
        self._events = events

    def publish(self, due: PublishRoster) -> None:
        """Write the file atomically, then commit. The store learns the bytes first: what a crash leaves
        half done is then recognised as ours to finish.
        """
        before = published_roster(self._store)
        remember_published(self._store, due.content)
        names = ", ".join(due.roster) or "none"
        try:
            self._meta.commit({FILE_NAME: due.content}, f"roster: {due.reason}")
        except BaseException:
            remember_published(self._store, before)
            raise
        if due.repaired:
            self._events.add("roster_repaired", None, f"{due.reason}; published again: {names}")
        elif before != due.content:
            self._events.add("roster_changed", None, f"the roster is now: {names}")

    def resume(self) -> None:
        """Commit what a daemon that was killed had written and not committed."""
        published = published_roster(self._store)
        if published is not None and self._on_disk() == published:
            self._meta.commit({FILE_NAME: published}, "roster: commit an interrupted publication")

    def _on_disk(self) -> bytes | None:
        try:
            return read_regular(self._path, MAX_BYTES)
        except (OSError, HiveError):
            return None

    def authority(self) -> Roster | None:
        """Return the roster that gives authority: the published one, while the file still says just that."""
        published = published_roster(self._store)
        if published is None or self._on_disk() != published:
            return None
        found = decode(published)
        return found.roster if isinstance(found, Present) else None
