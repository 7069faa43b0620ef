"""Taking a whole hive down: the stops, and nothing that is desired.

Used by `hived down`, when the daemon does not run: the next daemon finds every agent as desired as before.
"""

from __future__ import annotations

from hive_core.domain.observed import Containers, EngineState
from hive_core.planning.actions import AgentPlan, Stop

_UP = (EngineState.RUNNING, EngineState.PAUSED, EngineState.RESTARTING)


def plan_shutdown(containers: Containers, grace_s: int) -> tuple[AgentPlan, ...]:
    """Return the stop of every container of ours that is up, one plan an agent."""
    reason = "the whole hive is taken down"
    stops: dict[str, list[Stop]] = {}
    for one in containers.ours:
        if one.state in _UP:
            stops.setdefault(one.agent, []).append(Stop(one.agent, one.id, grace_s, reason))
    return tuple(AgentPlan(found[0].agent, tuple(found)) for found in stops.values())
