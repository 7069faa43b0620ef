"""From one pass's rows to the next: what to show of busy agents, and which turns are news.

Used by `engine.reconcile`: a pass leaves busy agents out, so their row is the last one known, with the
state the action under way leads to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hive_core.domain.names import AgentName
from hive_core.engine.dispatch import Hold
from hive_core.planning.actions import (
    Action,
    AgentState,
    AgentView,
    Create,
    Pause,
    Remove,
    Retire,
    Start,
    Stop,
    Unpause,
)


def overlay(
    views: Mapping[AgentName, AgentView],
    previous: Mapping[AgentName, AgentView],
    busy: frozenset[AgentName],
    working: Mapping[AgentName, Action],
    holds: Mapping[AgentName, Hold],
) -> dict[AgentName, AgentView]:
    """Return the rows to show: this pass's, with those of busy agents told from what is under way."""
    shown: dict[AgentName, AgentView] = {}
    for name, view in views.items():
        known = previous.get(name)
        state, reason = view.state, view.reason
        if name in busy and known is not None and known.state is not AgentState.UNKNOWN:
            state, reason = known.state, known.reason
        action = working.get(name)
        word = under_way(action) if action is not None else None
        if action is not None and word is not None:
            state, reason = word, action.reason
        elif name in holds:
            reason = f"{holds[name].reason}; trying again soon"
        # One that is being made has no config yet: that is no fault, and no news when it has one.
        is_new = name in busy and known is None
        fault = "" if is_new else view.fault
        degraded = view.degraded and not is_new
        shown[name] = replace(view, state=state, reason=reason, degraded=degraded, fault=fault)
    return shown


def as_it_is(view: AgentView) -> AgentView:
    """Return the row of an agent that a pass would do something to, were automation not off."""
    if view.state is AgentState.STARTING:
        text = f"down while automation is off; after hivectl resume: {view.reason}"
        return replace(view, state=AgentState.STOPPED, reason=text)
    if view.state is AgentState.STOPPING:
        text = f"runs on while automation is off; after hivectl resume: {view.reason}"
        return replace(view, state=AgentState.RUNNING, reason=text)
    return view


def under_way(action: Action) -> AgentState | None:
    """Return the state word for an action that is being done; None where it changes none."""
    match action:
        case Create() | Start() | Unpause():
            return AgentState.STARTING
        case Stop() | Pause():
            return AgentState.STOPPING
        case Retire():
            return AgentState.REMOVING
        case Remove():
            return AgentState.STOPPING
        case _:
            return None


@dataclass(frozen=True, slots=True)
class News:
    """A turn for an agent that nobody asked for and no action tells: an event is made of it."""

    kind: str
    agent: AgentName
    text: str


def news(
    previous: Mapping[AgentName, AgentView],
    views: Mapping[AgentName, AgentView],
    busy: frozenset[AgentName],
    quarantined: frozenset[AgentName] = frozenset(),
) -> tuple[News, ...]:
    """Return what turned between two passes. An agent seen for the first time, or busy, has no turn yet."""
    return tuple(
        one
        for name, view in views.items()
        if name in previous and name not in busy
        for one in _turns(previous[name], view, is_quarantined=name in quarantined)
    )


def _turns(before: AgentView, now: AgentView, *, is_quarantined: bool) -> Iterator[News]:
    if now.degraded and now.fault != before.fault:
        yield News("degraded", now.name, now.fault)
    if before.degraded and not now.degraded:
        yield News("recovered", now.name, "its config can be used again")
    if now.needs_update and now.differing != before.differing:
        yield News("needs_update", now.name, f"an update would change: {', '.join(now.differing)}")
    if now.state is before.state:
        return
    if now.state is AgentState.PAUSED and not is_quarantined:
        yield News("paused", now.name, now.reason)
    if now.state is AgentState.CRASH_LOOPING:
        yield News("crash_looping", now.name, now.reason)
