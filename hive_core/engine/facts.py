"""Single facts of a hive that the store keeps by key, typed. Used by the engine layer and `daemon`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hive_core.adapters.store import Store
from hive_core.domain.errors import StoreUnusable
from hive_core.domain.names import AgentName
from hive_core.domain.roster import Present, RosterFile, Shape

_HIVE_ID = "hive_id"
_SHAPE = "roster_shape"
_PUBLISHED = "published_roster"
_EDGES = "first_edges"
_UIDS = "uid_range"
_PAUSED = "paused"
_OVER_BUDGET = "over_budget"


def claim_hive_id(store: Store, hive_id: str) -> bool:
    """Write the hive's id into a new store and return True; refuse a store of another hive."""
    known = store.fact(_HIVE_ID)
    if known is None:
        store.set_fact(_HIVE_ID, hive_id.encode())
        return True
    if known != hive_id.encode():
        raise StoreUnusable(
            f"the store belongs to hive '{known.decode()}', the settings say '{hive_id}'",
            "set hive.id back, or give this hive a data directory of its own",
        )
    return False


def roster_shape(store: Store, wished: Shape | None, found: RosterFile) -> Shape:
    """Return the shape rosters are written in: the setting, else what was remembered, else the file's.

    `wished` None is the setting `auto`; the first answer is remembered.
    """
    known = store.fact(_SHAPE)
    if wished is not None:
        shape = wished
    elif known is not None:
        shape = Shape(known.decode())
    else:
        shape = found.roster.shape if isinstance(found, Present) else Shape.TREE
    if known != shape.value.encode():
        store.set_fact(_SHAPE, shape.value.encode())
    return shape


def remember_first_edges(store: Store, found: RosterFile) -> None:
    """Keep the edges of a map found at the very first start, for config repos that have no record yet."""
    if isinstance(found, Present) and found.roster.shape is Shape.TREE:
        store.set_fact(_EDGES, json.dumps(dict(found.roster.parents)).encode())


def first_edges(store: Store) -> Mapping[AgentName, AgentName | None] | None:
    """Return the edges kept at first start, None once they have been used."""
    kept = store.fact(_EDGES)
    if kept is None:
        return None
    return {
        AgentName(name): None if parent is None else AgentName(parent)
        for name, parent in json.loads(kept).items()
    }


def forget_first_edges(store: Store) -> None:
    """Drop them: from now on a file's content adds no edge."""
    if store.fact(_EDGES) is not None:
        store.set_fact(_EDGES, None)


def published_roster(store: Store) -> bytes | None:
    """Return the bytes of topology.json as this hive last wrote them."""
    return store.fact(_PUBLISHED)


def remember_published(store: Store, content: bytes | None) -> None:
    """Keep the bytes that are about to be written: a crash in between then reads as ours to finish."""
    store.set_fact(_PUBLISHED, content)


def reserved_uids(store: Store) -> tuple[int, int] | None:
    """Return (start, count) of the uid range this hive reserved."""
    kept = store.fact(_UIDS)
    if kept is None:
        return None
    start, count = json.loads(kept)
    return (start, count)


def remember_uids(store: Store, start: int, count: int) -> None:
    """Keep the uid range this hive reserved."""
    store.set_fact(_UIDS, json.dumps([start, count]).encode())


def forget_uids(store: Store) -> None:
    """Drop the uid range: the next start reserves it anew, on the host it then is on."""
    store.set_fact(_UIDS, None)


def paused_by(store: Store) -> str | None:
    """Return who switched automation off, None while it is on."""
    kept = store.fact(_PAUSED)
    return None if kept is None else kept.decode()


def remember_paused(store: Store, by: str | None) -> None:
    """Switch automation off, or with None on again; it stays so over restarts."""
    store.set_fact(_PAUSED, None if by is None else by.encode())


def over_budget(store: Store) -> dict[AgentName, str]:
    """Return who was found to hold more disk than allowed, and how much."""
    kept = store.fact(_OVER_BUDGET)
    return {} if kept is None else {AgentName(name): text for name, text in json.loads(kept).items()}


def remember_over_budget(store: Store, over: Mapping[AgentName, str]) -> None:
    """Keep who holds more disk than allowed; it stays so over restarts, until measured again."""
    store.set_fact(_OVER_BUDGET, json.dumps(dict(over)).encode() if over else None)
