"""Hives of every kind, for the properties."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from hive_core.domain.agents import Desired, IntentKind
from hive_core.domain.names import AgentName, parse_name
from hive_core.domain.observed import EngineState
from tests.property.world import World

NAMES = tuple(map(parse_name, ("ruth", "alice", "bob", "carol")))


@dataclass(frozen=True)
class Kind:
    """One agent to be: what is desired and wished of it, its container, its parent, and its repo.

    It may be in quarantine, hold too much disk, or have another spec to go back to.
    """

    desired: Desired
    intent: IntentKind | None
    state: EngineState | None
    parent: int | None
    has_repo: bool
    is_quarantined: bool = False
    is_over_budget: bool = False
    has_previous: bool = False


def _kinds(*, may_wish: bool) -> st.SearchStrategy[Kind]:
    return st.builds(
        Kind,
        desired=st.sampled_from(Desired),
        intent=st.sampled_from([None, *IntentKind]) if may_wish else st.none(),
        state=st.sampled_from([None, *EngineState]),
        parent=st.sampled_from([None, *range(len(NAMES))]),
        has_repo=st.booleans() if may_wish else st.just(True),
        is_quarantined=st.sampled_from([False, False, True]),
        is_over_budget=st.sampled_from([False, False, True]) if may_wish else st.just(False),
        has_previous=st.booleans(),
    )


def hives(*, may_wish: bool = True) -> st.SearchStrategy[tuple[Kind, ...]]:
    """Up to four agents; without wishes, nobody has asked for anything, every repo is there, and there is
    plenty of disk.
    """
    return st.lists(_kinds(may_wish=may_wish), max_size=len(NAMES)).map(tuple)


def world_of(kinds: tuple[Kind, ...]) -> World:
    """Return a new world with these agents in it, the roster published, and a stranger's container."""
    world = World()
    for number, (name, kind) in enumerate(zip(NAMES, kinds, strict=False)):
        parent = _parent(kind, number, len(kinds))
        record = replace(world.add(name, kind.desired, parent, is_root=number == 0), desired=kind.desired)
        if kind.has_previous and kind.desired is not Desired.UNSPAWNED:
            world.put_on_probation(record)
        if kind.state is not None and kind.desired is not Desired.UNSPAWNED:
            world.bring(record, kind.state)
        if kind.intent is not None and kind.desired is not Desired.UNSPAWNED:
            world.wish(name, kind.intent)
        if kind.is_quarantined:
            world.store.set_quarantined(record.incarnation, world.now)
        if kind.is_over_budget:
            world.over_budget.add(name)
        if not kind.has_repo:
            world.repos.discard(name)
    world.engine.run_foreign("somebody", {"dev.hive.id": "default", "dev.hive.agent": "bob"})
    return world


def _parent(kind: Kind, number: int, count: int) -> AgentName | None:
    is_other = kind.parent is not None and kind.parent != number and kind.parent < count
    return NAMES[kind.parent] if is_other and kind.parent is not None else None
