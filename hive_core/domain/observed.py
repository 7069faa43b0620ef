"""What a pass sees: the observed half of the reconcile pair.

Filled by `engine.observe` from the adapters, read by planning. Silence is a value here (`Unknown`), so a
plan cannot mistake an engine or a disk that did not answer for one that answered "nothing".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias, TypeVar

from hive_core.domain.names import AgentName
from hive_core.domain.roster import RosterFile


class EngineState(StrEnum):
    """The engine's own words for a container's state."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    RESTARTING = "restarting"
    EXITED = "exited"
    DEAD = "dead"
    REMOVING = "removing"


@dataclass(frozen=True, slots=True)
class ListedContainer:
    """One row of the engine's labelled list. `name` has no leading slash; `status` is the engine's text."""

    id: str
    name: str
    state: EngineState
    status: str
    labels: Mapping[str, str]
    image_id: str


@dataclass(frozen=True, slots=True)
class ContainerDetail:
    """What only an inspect tells. Times are aware UTC; None where the thing has not happened.

    `exit_code` and `oom_killed` are of the last exit; `error` is the engine's sentence for a failed start.
    `pid` is the host pid of the container's init, 0 when it does not run.
    """

    id: str
    name: str
    state: EngineState
    labels: Mapping[str, str]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int
    oom_killed: bool
    error: str
    restart_policy: str
    pid: int


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """An image as resolved: its id, and what it would add to a container."""

    id: str
    env_names: tuple[str, ...]
    volumes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """One engine event: it only wakes a pass. `kind` is `container` or `image`."""

    kind: str
    action: str
    id: str


@dataclass(frozen=True, slots=True)
class EngineVersion:
    """What the engine says of itself and of the host it runs on.

    `runtime` is runc's or crun's version and `runtime_build` its builder's name for it, both empty when the
    engine does not say. `missing_limits` are those it cannot enforce here; `security_options` are its own
    words, such as "name=seccomp,profile=default". `time` is its clock at the answer.
    """

    engine: str
    api: str
    runtime: str
    runtime_build: str
    default_runtime: str
    live_restore: bool
    security_options: tuple[str, ...]
    cgroup_version: str
    missing_limits: tuple[str, ...]
    storage_driver: str
    root_dir: str
    kernel: str
    time: datetime | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """An input that could not be observed, and why."""

    reason: str


T = TypeVar("T")
Known: TypeAlias = T | Unknown


@dataclass(frozen=True, slots=True)
class OurContainer:
    """A container that is ours by label and by record.

    `detail` is None when the engine did not answer for it. `stuck` is a sentence when nothing can be made of
    it although the engine answers for others.
    """

    agent: AgentName
    incarnation: str
    spec_label: str
    listed: ListedContainer
    detail: ContainerDetail | None
    stuck: str = ""

    @property
    def id(self) -> str:
        """The engine's full container id."""
        return self.listed.id

    @property
    def state(self) -> EngineState:
        """The engine's state word, from the list."""
        return self.listed.state


@dataclass(frozen=True, slots=True)
class ForeignContainer:
    """A container with this hive's label that hive has no record of having created."""

    id: str
    name: str
    claims: str


@dataclass(frozen=True, slots=True)
class Containers:
    """The engine's answer, sorted into ours and foreign."""

    ours: tuple[OurContainer, ...]
    foreign: tuple[ForeignContainer, ...]
    _by_incarnation: Mapping[str, tuple[OurContainer, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found: dict[str, tuple[OurContainer, ...]] = {}
        for one in self.ours:
            found[one.incarnation] = (*found.get(one.incarnation, ()), one)
        object.__setattr__(self, "_by_incarnation", found)

    def of(self, incarnation: str) -> tuple[OurContainer, ...]:
        """Return the containers of one incarnation, in list order; there is more than one only by hand."""
        return self._by_incarnation.get(incarnation, ())


@dataclass(frozen=True, slots=True)
class ObservedRepo:
    """A config repo: the commit its main branch names, or why it cannot be read."""

    agent: AgentName
    main: str | None
    fault: str


@dataclass(frozen=True, slots=True)
class Repos:
    """The config repos directory: valid repos, and entries whose name is no agent name."""

    repos: Mapping[AgentName, ObservedRepo]
    misnamed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything one pass saw, at one time.

    `busy` are agents with an action in flight, or finished after observation began: what was seen of them
    may be older than what was done to them, so nothing is planned for them.
    """

    at: datetime
    containers: Known[Containers]
    repos: Known[Repos]
    roster: RosterFile
    busy: frozenset[AgentName]
