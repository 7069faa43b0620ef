"""The desired half of the reconcile pair, as planning takes it.

Gathered by `engine.observe` from the store and the config repos; frozen, so that a plan, a dry run and a
test are the same calculation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hive_core.domain.agents import AgentRecord, ContainerRecord, Outage
from hive_core.domain.names import AgentName
from hive_core.domain.roster import Shape
from hive_core.domain.spec import ContainerSpec


@dataclass(frozen=True, slots=True)
class Declared:
    """One agent: its record, and what its config repo's main and the present image would make of it.

    `candidate` is the spec an update would apply, None when main cannot be used; then `fault` says why.
    """

    record: AgentRecord
    candidate: ContainerSpec | None
    fault: str


@dataclass(frozen=True, slots=True)
class CrashPolicy:
    """When a crashed agent is started again; fields as in `settings.Crashes`."""

    backoff_initial_s: float = 1.0
    backoff_max_s: float = 300.0
    stable_s: float = 60.0
    loop_count: int = 5
    loop_window_s: float = 600.0


@dataclass(frozen=True, slots=True)
class DesiredState:
    """Everything hive wants, and what it remembers that bears on how to get there.

    `containers` are the journalled creates by container id. `published` are the bytes last written to
    topology.json, None before the first. `first_edges` are the parents of a map found at first start,
    for config repos that have no record yet; None otherwise. `over_budget` says of each agent that holds
    more disk than it may, how much.
    """

    agents: tuple[Declared, ...]
    containers: Mapping[str, ContainerRecord]
    published: bytes | None
    shape: Shape
    root_agent: AgentName | None
    first_edges: Mapping[AgentName, AgentName | None] | None
    outages: tuple[Outage, ...]
    boot_at: datetime
    grace_s: int
    crashes: CrashPolicy
    over_budget: Mapping[AgentName, str] = field(default_factory=dict)
