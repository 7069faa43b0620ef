"""What to show of agents that something is being done to.

Used by `engine.reconcile`: a pass leaves busy agents out, so their row is the last one known, with the
state the action under way leads to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hive_core.domain.names import AgentName
from hive_core.engine.dispatch import Hold
from hive_core.planning.actions import (
    Action,
    AgentState,
    AgentView,
    Create,
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
        if name in working:
            state, reason = under_way(working[name]) or state, working[name].reason
        elif name in holds:
            reason = f"{holds[name].reason}; trying again soon"
        shown[name] = replace(view, state=state, reason=reason)
    return shown


def under_way(action: Action) -> AgentState | None:
    """Return the state word for an action that is being done; None where it changes none."""
    match action:
        case Create() | Start() | Unpause():
            return AgentState.STARTING
        case Stop():
            return AgentState.STOPPING
        case Retire():
            return AgentState.REMOVING
        case Remove():
            return AgentState.STOPPING
        case _:
            return None
