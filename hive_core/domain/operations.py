"""The operations table: every verb, on which socket it exists and whom it may reach, as data.

Read by `planning.authorise` (may this caller do that), by `surfaces.bindings` (every operation has its
route), by the tests (every operation against every kind of target) and by the generated reference. A verb
that is not here cannot be reached; one that is here and bound to nothing fails at import.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Capability(StrEnum):
    """A named right beyond an agent's own subtree. Only the operator grants one."""

    MANAGE_ROOT_AGENT = "ManageRootAgent"
    MANAGE_LIFECYCLE = "ManageLifecycle"
    QUERY_AGENT_STATE = "QueryAgentState"
    META_READ = "MetaRead"
    MANAGE_SCHEDULES = "ManageSchedules"


class Surface(StrEnum):
    """Where an operation can be asked for."""

    ADMIN = "admin"
    AGENT = "agent"


class ToolGroup(StrEnum):
    """A set of tools an agent has or has not."""

    LIFECYCLE = "lifecycle"
    APPROVALS = "approvals"
    MESSAGING = "messaging"
    SUBAGENTS = "subagents"
    MEMORY = "memory"
    STATE = "state"
    SCHEDULING = "scheduling"


class Reach(StrEnum):
    """Whom an agent may name as the target of an operation. The operator reaches everybody.

    `operator`: no agent may. `subtree`: the caller and everything below it. `hive`: there is no target.
    """

    OPERATOR = "operator"
    SUBTREE = "subtree"
    HIVE = "hive"


@dataclass(frozen=True, slots=True)
class Operation:
    """One verb. `widened_by` is the capability that makes its reach the whole hive.

    `has_target`: it names one agent, and is refused to an agent that names none.
    """

    name: str
    summary: str
    surfaces: frozenset[Surface]
    reach: Reach
    mutates: bool
    tool_group: ToolGroup | None = None
    widened_by: Capability | None = None
    has_target: bool = True


_ADMIN = frozenset({Surface.ADMIN})
_BOTH = frozenset({Surface.ADMIN, Surface.AGENT})


def _lifecycle(name: str, summary: str, *, mutates: bool = True, has_target: bool = True) -> Operation:
    return Operation(
        name,
        summary,
        _BOTH,
        Reach.SUBTREE,
        mutates,
        ToolGroup.LIFECYCLE,
        Capability.MANAGE_LIFECYCLE,
        has_target,
    )


def _operator(name: str, summary: str, *, mutates: bool) -> Operation:
    return Operation(name, summary, _ADMIN, Reach.OPERATOR, mutates)


_TABLE = (
    _operator("status", "how the daemon, its engine and its roster are", mutates=False),
    _lifecycle("list_containers", "the agents and their run states", mutates=False, has_target=False),
    _operator("show", "everything known about one agent", mutates=False),
    _operator("names", "the names of all agents", mutates=False),
    _operator("roster", "the published roster", mutates=False),
    _operator("events", "what happened", mutates=False),
    _operator("doctor", "whether the host keeps what hive promises", mutates=False),
    _operator("why", "how an agent came to be as it is", mutates=False),
    _operator("explain", "whether a caller may do something, and by which rule", mutates=False),
    _operator("audit", "who asked for what, and whether the record holds", mutates=False),
    _operator("changes", "long operations and how far they are", mutates=False),
    _operator("backup", "the whole hive as one archive, read while it runs; audited", mutates=False),
    _operator("init", "create an agent from a template or a folder", mutates=True),
    _operator("push", "put a folder on an agent's main branch", mutates=True),
    _operator("spawn", "run an agent for the first time", mutates=True),
    _lifecycle("start", "start a stopped agent"),
    _lifecycle("kill", "stop an agent; its state is kept"),
    _lifecycle("restart", "stop and start an agent"),
    _lifecycle("update", "apply current config and image in a new container"),
    _lifecycle("get_logs", "what an agent's program printed", mutates=False),
    _operator("remove", "end an agent; its data is retired or purged", mutates=True),
    _operator("quarantine", "freeze agents as they are and keep hands off them", mutates=True),
    _operator("release", "end a quarantine", mutates=True),
    _operator("pause", "switch automation off; observation stays on", mutates=True),
    _operator("resume", "switch automation on again", mutates=True),
    _operator("exec", "run a command in an agent's container as that agent", mutates=True),
    _operator("reconcile", "run a pass now, or show what it would do", mutates=True),
)

OPERATIONS: dict[str, Operation] = {operation.name: operation for operation in _TABLE}
