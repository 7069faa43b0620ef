"""What hive itself knows of an agent: the durable half that no observation can replace.

Written by the store, read by planning and by the verbs. All authority hangs on the incarnation, one life
of a name: a name that comes back is another agent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from hive_core.domain.names import AgentName
from hive_core.domain.spec import ContainerSpec


class Desired(StrEnum):
    """The run state somebody asked for. Survives every restart of the daemon and the host."""

    UNSPAWNED = "unspawned"
    RUNNING = "running"
    STOPPED = "stopped"


class IntentKind(StrEnum):
    """A one-time wish on top of the desired state, cleared when it has been carried out."""

    STOP = "stop"
    RESTART = "restart"
    UPDATE = "update"
    UNPAUSE = "unpause"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Intent:
    """A wish, when it was made, and how long its stop may take.

    A container that started after `at` already satisfies a restart: so one is never done twice, whatever
    was interrupted in between.
    """

    kind: IntentKind
    at: datetime
    grace_s: int
    purge: bool = False


class ExitKind(StrEnum):
    """Why a container's run ended, in the sense that matters for starting it again."""

    CRASH = "crash"
    REQUESTED = "requested"
    HOST_RESTART = "host_restart"
    ENGINE_RESTART = "engine_restart"
    START_FAILED = "start_failed"


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """One end of one run of a container. `started_at` is None when the start itself failed."""

    container_id: str
    started_at: datetime | None
    finished_at: datetime
    exit_code: int
    oom_killed: bool
    kind: ExitKind
    text: str


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """A create that hive journalled. `id` is None while the engine's answer is not known.

    `stop_requested_at` is set before hive stops it: an exit after that is no crash.
    """

    nonce: str
    incarnation: str
    agent: AgentName
    id: str | None
    created_at: datetime
    stop_requested_at: datetime | None


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """One live incarnation.

    `applied` is the full spec the agent is to run with, `applied_hash` its hash and `applied_commit` its
    config commit; all None before the first spawn. `exits` are its recent ends, oldest first; those before
    `crashes_reset_at` no longer count. `desired_reason` says who asked for the present desired state, in
    words. `previous` is the spec that ran before an update, kept until the new one has proved itself.
    """

    name: AgentName
    incarnation: str
    uid: int
    parent: AgentName | None
    is_root: bool
    created_at: datetime
    desired: Desired
    desired_reason: str
    intent: Intent | None
    applied: ContainerSpec | None
    applied_hash: str | None
    applied_commit: str | None
    crashes_reset_at: datetime | None
    exits: tuple[ExitRecord, ...]
    previous: ContainerSpec | None = None
    quarantined_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A time the engine was away; `returned_at` is None while it still is."""

    lost_at: datetime
    returned_at: datetime | None
