"""The plan of one pass: `plan(desired, observed, now)`, synchronous and total.

Called by `engine.reconcile` for every pass and every dry run. Everything hive does on its own is decided
here and in the modules it calls; `engine.apply` only carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from hive_core.domain.agents import AgentRecord, IntentKind
from hive_core.domain.names import AgentName
from hive_core.domain.observed import Containers, EngineState, Observed, OurContainer, Unknown
from hive_core.domain.roster import Present, Roster, Unreadable, decode
from hive_core.domain.spec import differing_fields, is_known_version
from hive_core.planning.actions import (
    Action,
    AgentPlan,
    AgentState,
    AgentView,
    Plan,
    Problem,
    Remove,
    Start,
    Stop,
)
from hive_core.planning.containers import Case, Cell, plan_container
from hive_core.planning.crashes import in_view_of
from hive_core.planning.desired import Declared, DesiredState
from hive_core.planning.membership import may_end, plan_endings, plan_membership, plan_publication


def plan(desired: DesiredState, observed: Observed, now: datetime) -> Plan:
    """Return what to do and what to show. Total: every input, however odd, has a plan."""
    membership = plan_membership(desired, observed)
    order = _start_order(desired)
    live = {one.record.name: one for one in desired.agents if one.record.name not in membership.gone}
    cells = {name: _cell(live[name], desired, observed, now) for name in order if name in live}
    orphans = _orphans(desired, observed)
    plans = [
        *(AgentPlan(one.agent, (one,)) for one in membership.adopt),
        *plan_endings(desired, membership.gone),
        *_agent_plans(cells, orphans, order, live, observed.busy),
    ]
    roster = membership.roster
    publication = None if roster is None else plan_publication(desired, observed, roster)
    shown = roster if roster is not None else _published(desired)
    return Plan(
        agents=tuple(plans),
        roster=publication,
        views=tuple(_view(live[name], cells[name], observed, shown) for name in sorted(cells)),
        problems=(*_host_problems(desired, observed), *_agent_problems(live, cells, observed)),
        is_partial=roster is None,
        wake_at=min((cell.wake_at for cell in cells.values() if cell.wake_at is not None), default=None),
    )


def _start_order(desired: DesiredState) -> tuple[AgentName, ...]:
    """Return every name: the root agent first, parents before children, else by name."""
    parents = {one.record.name: one.record.parent for one in desired.agents}

    def depth(name: AgentName) -> int:
        seen, above = {name}, parents.get(name)
        while above is not None and above in parents and above not in seen:
            seen.add(above)
            above = parents.get(above)
        return len(seen)

    return tuple(sorted(parents, key=lambda name: (name != desired.root_agent, depth(name), name)))


def _cell(declared: Declared, desired: DesiredState, observed: Observed, now: datetime) -> Cell:
    record = declared.record
    if isinstance(observed.containers, Unknown):
        return Cell((), AgentState.UNKNOWN, observed.containers.reason)
    if record.name in observed.busy:
        return Cell((), AgentState.UNKNOWN, "an earlier action is still under way")
    if desired.outages and record.exits:
        record = replace(record, exits=in_view_of(record.exits, desired.outages))
    return plan_container(Case(record, _own(record, observed.containers), desired, now))


def _own(record: AgentRecord, containers: Containers) -> OurContainer | None:
    """Return the agent's container; of several (only by hand) one that runs, else the last listed."""
    own = containers.of(record.incarnation)
    running = [one for one in own if one.state in (EngineState.RUNNING, EngineState.PAUSED)]
    best = running or own
    return best[-1] if best else None


def _orphans(desired: DesiredState, observed: Observed) -> Mapping[AgentName, tuple[Action, ...]]:
    """Return the removal of containers that are ours by record but whose incarnation has ended."""
    if isinstance(observed.containers, Unknown) or not may_end(observed):
        return {}
    alive = {one.record.incarnation for one in desired.agents}
    found: dict[AgentName, tuple[Action, ...]] = {}
    for one in observed.containers.ours:
        is_left_alone = one.incarnation in alive or one.agent in observed.busy
        if is_left_alone or one.state is EngineState.REMOVING:
            continue
        reason = "its incarnation has ended"
        stop: tuple[Action, ...] = ()
        if one.state not in (EngineState.CREATED, EngineState.EXITED, EngineState.DEAD):
            stop = (Stop(one.agent, one.id, desired.grace_s, reason),)
        found[one.agent] = (*found.get(one.agent, ()), *stop, Remove(one.agent, one.id, reason))
    return found


def _agent_plans(
    cells: Mapping[AgentName, Cell],
    orphans: Mapping[AgentName, tuple[Action, ...]],
    order: tuple[AgentName, ...],
    live: Mapping[AgentName, Declared],
    busy: frozenset[AgentName],
) -> list[AgentPlan]:
    actions = {name: (*orphans.get(name, ()), *cells[name].actions) for name in order if name in cells}
    actions.update({name: done for name, done in orphans.items() if name not in actions})
    starting = {name for name, steps in actions.items() if any(isinstance(step, Start) for step in steps)}
    first = starting | busy
    return [
        AgentPlan(name, steps, _first_above(name, live, first) if name in starting else None)
        for name, steps in actions.items()
        if steps
    ]


def _first_above(
    name: AgentName, live: Mapping[AgentName, Declared], starting: set[AgentName]
) -> AgentName | None:
    """Return the nearest ancestor that this plan starts too, or that something is being done to."""
    seen = {name}
    above = live[name].record.parent
    while above is not None and above in live and above not in seen:
        if above in starting:
            return above
        seen.add(above)
        above = live[above].record.parent
    return None


def _published(desired: DesiredState) -> Roster | None:
    found = decode(desired.published) if desired.published is not None else None
    return found.roster if isinstance(found, Present) else None


def _view(declared: Declared, cell: Cell, observed: Observed, roster: Roster | None) -> AgentView:
    record = declared.record
    container = None if isinstance(observed.containers, Unknown) else _own(record, observed.containers)
    differing = _differing(declared, container)
    detail = container.detail if container is not None else None
    is_up = container is not None and container.state in (EngineState.RUNNING, EngineState.PAUSED)
    return AgentView(
        name=record.name,
        parent=roster.parent(record.name) if roster is not None else None,
        state=cell.state,
        desired=record.desired,
        container_id=container.id if container is not None else None,
        started_at=detail.started_at if detail is not None and is_up else None,
        reason=cell.reason,
        needs_update=bool(differing),
        degraded=bool(declared.fault),
        differing=differing,
        fault=declared.fault,
    )


def _differing(declared: Declared, container: OurContainer | None) -> tuple[str, ...]:
    """Return what an update would change: the declared spec, or a container made from another one."""
    record, candidate = declared.record, declared.candidate
    is_under_way = record.intent is not None and record.intent.kind is IntentKind.UPDATE
    if record.applied is None or is_under_way:
        return ()
    if candidate is not None and candidate is not record.applied and candidate != record.applied:
        return differing_fields(record.applied, candidate)
    if container is None or not is_known_version(container.spec_label):
        return ()
    return () if container.spec_label == record.applied_hash else ("spec",)


def _host_problems(desired: DesiredState, observed: Observed) -> list[Problem]:
    found: list[Problem] = []
    if isinstance(observed.repos, Unknown):
        found.append(Problem("repos_unknown", observed.repos.reason))
    else:
        found.extend(
            Problem("misnamed_repo", f"repos/{entry} is not named after a valid agent name; it is ignored")
            for entry in observed.repos.misnamed
        )
    if isinstance(observed.containers, Unknown):
        found.append(Problem("engine_unknown", observed.containers.reason))
    else:
        found.extend(
            Problem(
                "foreign_container",
                f"container {one.name} ({one.id[:12]}) carries this hive's label but hive did not create it; "
                "it is left alone",
            )
            for one in observed.containers.foreign
        )
    if isinstance(observed.roster, Unreadable):
        found.append(Problem("roster_unreadable", f"topology.json is unreadable: {observed.roster.reason}"))
    return found


def _agent_problems(
    live: Mapping[AgentName, Declared], cells: Mapping[AgentName, Cell], observed: Observed
) -> list[Problem]:
    found: list[Problem] = []
    for name in sorted(cells):
        declared, cell = live[name], cells[name]
        if declared.fault:
            found.append(Problem("degraded", declared.fault, name))
        if cell.state in (AgentState.CRASH_LOOPING, AgentState.FAILED):
            found.append(Problem(cell.state.value.replace("-", "_"), cell.reason, name))
        if not isinstance(observed.containers, Unknown):
            own = observed.containers.of(declared.record.incarnation)
            found.extend(_container_problems(declared, own))
    return found


def _container_problems(declared: Declared, own: tuple[OurContainer, ...]) -> list[Problem]:
    name = declared.record.name
    found: list[Problem] = []
    if len(own) > 1:
        ids = ", ".join(one.id[:12] for one in own)
        found.append(Problem("several_containers", f"{name} has more than one container: {ids}", name))
    for one in own:
        expected = declared.record.applied.name if declared.record.applied is not None else one.listed.name
        if one.listed.name != expected:
            text = (
                f"the container of {name} was renamed to {one.listed.name}; update makes it {expected} again"
            )
            found.append(Problem("renamed_container", text, name))
        if one.stuck:
            found.append(Problem("stuck_container", f"{name} ({one.id[:12]}): {one.stuck}", name))
        if one.detail is not None and one.detail.restart_policy not in ("", "no"):
            text = f"somebody gave the container of {name} the restart policy {one.detail.restart_policy}"
            found.append(Problem("foreign_restart_policy", f"{text}; update takes it away", name))
    return found
