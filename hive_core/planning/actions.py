"""What a plan is made of: actions in order, each with its reason, and what to show meanwhile.

Built by `planning`, carried out one by one by `engine.apply`, printed by `hivectl reconcile --dry-run`. An
action says all that is needed to do it; carrying one out takes no decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from hive_core.domain.agents import Desired, ExitRecord, Intent
from hive_core.domain.names import AgentName
from hive_core.domain.roster import Roster
from hive_core.domain.spec import ContainerSpec


@dataclass(frozen=True, slots=True)
class RecordExit:
    """Remember how a run ended, before anything is done about it."""

    agent: AgentName
    incarnation: str
    exit: ExitRecord
    reason: str


@dataclass(frozen=True, slots=True)
class Create:
    """Create the container of the applied spec. It becomes the container of the actions after it."""

    agent: AgentName
    incarnation: str
    spec: ContainerSpec
    reason: str


@dataclass(frozen=True, slots=True)
class Start:
    """Start a container; None is the one created just before."""

    agent: AgentName
    container_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a container within a grace."""

    agent: AgentName
    container_id: str
    grace_s: int
    reason: str


@dataclass(frozen=True, slots=True)
class Unpause:
    """Let a paused container run on."""

    agent: AgentName
    container_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Freeze a running container: the agent is in quarantine."""

    agent: AgentName
    container_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class RollBack:
    """Make the spec that ran before the applied one again: the new one does not start."""

    agent: AgentName
    incarnation: str
    spec: ContainerSpec
    reason: str


@dataclass(frozen=True, slots=True)
class Approve:
    """The applied spec has proved itself; there is no going back from it any more."""

    agent: AgentName
    incarnation: str
    reason: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a container that is down."""

    agent: AgentName
    container_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClearIntent:
    """This one-time wish has been carried out; a newer one stays."""

    agent: AgentName
    incarnation: str
    intent: Intent
    reason: str


@dataclass(frozen=True, slots=True)
class Retire:
    """End the incarnation: its repo and directories move to the retired ones, or are deleted."""

    agent: AgentName
    incarnation: str
    purge: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """Give a config repo without a record an incarnation, not spawned."""

    agent: AgentName
    parent: AgentName | None
    reason: str


Action = (
    RecordExit
    | Create
    | Start
    | Stop
    | Pause
    | Unpause
    | Remove
    | RollBack
    | Approve
    | ClearIntent
    | Retire
    | Adopt
)


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """The actions for one agent, in order. `after` is an ancestor that comes first if it is worked on."""

    agent: AgentName
    actions: tuple[Action, ...]
    after: AgentName | None = None


@dataclass(frozen=True, slots=True)
class PublishRoster:
    """Write topology.json and commit it. `repaired`: the file was not what hive last published."""

    roster: Roster
    content: bytes
    repaired: bool
    reason: str


class AgentState(StrEnum):
    """The state words of `hivectl ps`."""

    UNSPAWNED = "unspawned"
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    STOPPED = "stopped"
    BACKOFF = "backoff"
    CRASH_LOOPING = "crash-looping"
    FAILED = "failed"
    REMOVING = "removing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class AgentView:
    """One row of `hivectl ps`, and what `show` adds from the same calculation.

    `differing` are the spec fields an update would change. `fault` says why the agent is degraded.
    """

    name: AgentName
    parent: AgentName | None
    state: AgentState
    desired: Desired
    container_id: str | None
    started_at: datetime | None
    reason: str
    needs_update: bool
    degraded: bool
    differing: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something an operator should know: a stable code, a sentence, and the agent it concerns, if one."""

    code: str
    text: str
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The decision of one pass.

    `is_partial`: an input was unknown, so the roster was left alone. `wake_at` is when a wait ends.
    """

    agents: tuple[AgentPlan, ...]
    roster: PublishRoster | None
    views: tuple[AgentView, ...]
    problems: tuple[Problem, ...]
    is_partial: bool
    wake_at: datetime | None

    @property
    def actions(self) -> tuple[Action, ...]:
        """Every agent's actions in plan order."""
        return tuple(action for plan in self.agents for action in plan.actions)

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to do."""
        return not self.agents and self.roster is None
