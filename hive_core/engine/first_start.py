"""What tells a hive that begins from one that has lost its memory.

Called by `daemon` before the store is opened, which would make a new one. The store alone knows what agents
are to run and which uids were given out: begun anew beside what they left, agents would get the uids of
others, and containers that still run would be nobody's.
"""

from __future__ import annotations

import os
from pathlib import Path

from hive_core.adapters.agent_dirs import RETIRED
from hive_core.domain.errors import StoreUnusable

_HEADER_BYTES = 100  # of an SQLite file; shorter ones may be taken for new ones
_WAY_OUT = (
    "put the store back, or restore a backup into an empty data directory; to begin anew with the config "
    "repos alone, remove this hive's containers and move agents/ aside"
)


def refuse_lost_store(store: Path, agents: Path) -> None:
    """Raise StoreUnusable when there is no store, or nothing in it, beside the directories of agents."""
    is_missing = not os.path.lexists(store)
    if not is_missing and store.lstat().st_size >= _HEADER_BYTES:
        return  # what is in it is for the store to judge
    if _names(agents) - {RETIRED} or _names(agents / RETIRED):
        what = "missing" if is_missing else "empty"
        raise StoreUnusable(f"the store {store} is {what}, yet there are agents in {agents}", _WAY_OUT)


def _names(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        return set()
