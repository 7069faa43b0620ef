"""The snapshot: what the last pass saw, for everybody who asks.

Published by `engine.reconcile`, read by the surfaces without a lock on anything slow: `status` answers
while the engine hangs, because it answers from here and says how old that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hive_core.domain.names import AgentName
from hive_core.domain.roster import Shape
from hive_core.planning.actions import AgentView, Problem


class Phase(StrEnum):
    """What the daemon as a whole is doing."""

    RECOVERING = "recovering"
    RUNNING = "running"
    PAUSED = "paused"
    DEGRADED = "degraded"
    STOPPING = "stopping"


class EngineHealth(StrEnum):
    """How the engine answered last."""

    OK = "ok"
    UNREACHABLE = "unreachable"
    HUNG = "hung"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One pass's view. Times are monotonic seconds; None before the first pass has ended."""

    phase: Phase = Phase.RECOVERING
    seen_at: float | None = None
    duration_s: float | None = None
    actions: int | None = None
    engine: EngineHealth = EngineHealth.OK
    engine_version: str | None = None
    roster_state: str = "absent"
    shape: Shape = Shape.TREE
    views: Mapping[AgentName, AgentView] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    container_ids: frozenset[str] = frozenset()
