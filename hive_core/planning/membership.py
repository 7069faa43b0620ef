"""Who is in the roster: names, parents, who comes in and who has gone.

Called by `planning.plan`. A name leaves only when its absence was seen: with the repos or the engine
unknown, the published roster stands as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hive_core.domain.agents import AgentRecord
from hive_core.domain.names import AgentName
from hive_core.domain.observed import Containers, Observed, Repos, Unknown
from hive_core.domain.roster import Absent, Present, Roster, Shape, Unreadable, encode
from hive_core.planning.actions import Adopt, AgentPlan, PublishRoster, Retire
from hive_core.planning.desired import DesiredState


@dataclass(frozen=True, slots=True)
class Membership:
    """Config repos to adopt, records to end, and the roster that follows."""

    adopt: tuple[Adopt, ...]
    gone: frozenset[AgentName]
    roster: Roster | None


def plan_membership(desired: DesiredState, observed: Observed) -> Membership:
    """Return the membership; its roster is None when an input is unknown and the published one stays."""
    records = {declared.record.name: declared.record for declared in desired.agents}
    if isinstance(observed.repos, Unknown) or isinstance(observed.containers, Unknown):
        return Membership((), frozenset(), None)
    gone = frozenset(
        name
        for name, record in records.items()
        if may_end(observed)
        and name not in observed.busy
        and _is_gone(record, observed.repos, observed.containers)
    )
    adopt = tuple(
        Adopt(name, _first_parent(name, desired, observed.repos), "a config repo without a record")
        for name in sorted(observed.repos.repos)
        if name not in records and name not in observed.busy
    )
    parents = {name: record.parent for name, record in records.items()}
    parents.update({one.agent: one.parent for one in adopt})
    return Membership(adopt, gone, _derive(desired.shape, parents, gone))


def may_end(observed: Observed) -> bool:
    """Whether this pass may conclude by itself that something has ended: only when it saw everything.

    A missing or unreadable roster is written anew first; what is gone is still gone in the next pass.
    """
    return (
        isinstance(observed.roster, Present)
        and not isinstance(observed.repos, Unknown)
        and not isinstance(observed.containers, Unknown)
    )


def _is_gone(record: AgentRecord, repos: Repos, containers: Containers) -> bool:
    has_container = bool(containers.of(record.incarnation))
    return record.name not in repos.repos and not has_container and record.intent is None


def _first_parent(name: AgentName, desired: DesiredState, repos: Repos) -> AgentName | None:
    """Return the parent of a repo that has no record: from the map found at first start, else the root."""
    if desired.first_edges is not None and name in desired.first_edges:
        parent = desired.first_edges[name]
        known = parent in repos.repos or any(one.record.name == parent for one in desired.agents)
        return parent if known else None
    if desired.shape is Shape.FLAT or name == desired.root_agent:
        return None
    has_root = any(one.record.name == desired.root_agent for one in desired.agents)
    return desired.root_agent if has_root else None


def _derive(
    shape: Shape, parents: Mapping[AgentName, AgentName | None], gone: frozenset[AgentName]
) -> Roster:
    """Return the roster without who is gone, whose children go to the nearest ancestor that stays.

    A parent nobody knows reads as none, and edges that form a ring are cut.
    """
    if shape is Shape.FLAT:
        return Roster(shape, {name: None for name in parents if name not in gone})
    known = {name: _staying_parent(name, parents, gone) for name in parents if name not in gone}
    for name in sorted(known):
        seen = {name}
        above = known[name]
        while above is not None and above not in seen:
            seen.add(above)
            above = known[above]
        if above == name:
            known[name] = None
    return Roster(shape, known)


def _staying_parent(
    name: AgentName, parents: Mapping[AgentName, AgentName | None], gone: frozenset[AgentName]
) -> AgentName | None:
    passed: set[AgentName] = set()
    above = parents[name]
    while above is not None and above in gone and above not in passed:
        passed.add(above)
        above = parents[above]
    return above if above in parents and above not in gone else None


def plan_publication(desired: DesiredState, observed: Observed, roster: Roster) -> PublishRoster | None:
    """Return the write of topology.json that is due, None when the file is byte for byte the roster."""
    content = encode(roster)
    on_disk = observed.roster.content if isinstance(observed.roster, Present) else None
    if on_disk == content and desired.published == content:
        return None
    match observed.roster:
        case Unreadable():
            fault = f"topology.json was unreadable: {observed.roster.reason}"
        case Absent() if desired.published is not None:
            fault = "topology.json was missing"
        case Present() if desired.published is not None and on_disk != desired.published:
            fault = "topology.json was changed by hand"
        case _:
            count = "1 agent" if len(roster) == 1 else f"{len(roster)} agents"
            return PublishRoster(roster, content, False, count)
    return PublishRoster(roster, content, True, fault)


def plan_endings(desired: DesiredState, gone: frozenset[AgentName]) -> tuple[AgentPlan, ...]:
    """Return the ends of the incarnations whose repo and container were both seen to be gone."""
    reason = "its config repo and its container are gone"
    return tuple(
        AgentPlan(one.record.name, (Retire(one.record.name, one.record.incarnation, False, reason),))
        for one in desired.agents
        if one.record.name in gone
    )
