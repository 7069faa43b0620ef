"""One container of the fake engine, and how the engine's answers show it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from hive_core.domain.observed import ContainerDetail, EngineState, ListedContainer
from hive_core.domain.spec import ContainerSpec


@dataclass(slots=True)
class FakeContainer:
    """One container as the engine knows it; tests may read it, and change it under the engine's hooks."""

    id: str
    name: str
    labels: dict[str, str]
    image_id: str
    spec: ContainerSpec | None
    created_at: datetime
    state: EngineState = EngineState.CREATED
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int = 0
    oom_killed: bool = False
    error: str = ""
    restart_policy: str = "no"
    pid: int = 0
    ignores_term: bool = False
    keeps_log: bool = True
    log: list[bytes] = field(default_factory=list)


def listed(container: FakeContainer) -> ListedContainer:
    """Return its row of the list."""
    return ListedContainer(
        id=container.id,
        name=container.name,
        state=container.state,
        status=_status(container),
        labels=dict(container.labels),
        image_id=container.image_id,
    )


def _status(container: FakeContainer) -> str:
    match container.state:
        case EngineState.CREATED:
            return "Created"
        case EngineState.RUNNING:
            return "Up 1 second"
        case EngineState.PAUSED:
            return "Up 1 second (Paused)"
        case EngineState.RESTARTING:
            return f"Restarting ({container.exit_code}) 1 second ago"
        case EngineState.EXITED:
            return f"Exited ({container.exit_code}) 1 second ago"
        case EngineState.DEAD:
            return "Dead"
        case EngineState.REMOVING:
            return "Removal In Progress"


def detail(container: FakeContainer) -> ContainerDetail:
    """Return what an inspect tells."""
    return ContainerDetail(
        id=container.id,
        name=container.name,
        state=container.state,
        labels=dict(container.labels),
        created_at=container.created_at,
        started_at=container.started_at,
        finished_at=container.finished_at,
        exit_code=container.exit_code,
        oom_killed=container.oom_killed,
        error=container.error,
        restart_policy=container.restart_policy,
        pid=container.pid,
    )
