"""Changes over a store in memory, and the two steps by which every request begins one."""

import weakref
from collections.abc import Sequence
from pathlib import Path

from hive_core.adapters.clock import Clock
from hive_core.adapters.journal import Journal
from hive_core.adapters.store import Store
from hive_core.domain.changes import Asked, Change, Part
from hive_core.engine.changes import Changes


def new_changes(clock: Clock, store: Store | None = None) -> Changes:
    """Return the changes of a hive; of a new one unless its store is given."""
    store = store or Store(Path(":memory:"))
    changes = Changes(clock, Journal(store), lambda _ended: None)
    weakref.finalize(changes, store.close)
    return changes


def begun(changes: Changes, kind: str, parts: Sequence[Part]) -> Change:
    """Return a change that passes may judge."""
    return changes.release(changes.begin(kind, parts, Asked("the tests")))
