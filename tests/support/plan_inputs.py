"""What a plan is made from, short enough to write down in a table of cases.

Used by the unit tests of planning, the golden plans and the properties. Everything has a default that is an
ordinary, healthy agent, so that a test names only what its case is about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath

from hive_core.domain.agents import (
    AgentRecord,
    ContainerRecord,
    Desired,
    ExitKind,
    ExitRecord,
    Intent,
    IntentKind,
    Outage,
)
from hive_core.domain.names import AgentName, container_name, parse_name
from hive_core.domain.observed import (
    ContainerDetail,
    Containers,
    EngineState,
    ForeignContainer,
    Known,
    ListedContainer,
    Observed,
    ObservedRepo,
    OurContainer,
    Repos,
)
from hive_core.domain.roster import Present, Roster, RosterFile, Shape, decode, encode
from hive_core.domain.spec import LABEL_AGENT, LABEL_INCARNATION, LABEL_SPEC, ContainerSpec, Limits, spec_hash
from hive_core.planning.container import Layout
from hive_core.planning.desired import CrashPolicy, Declared, DesiredState

NOW = datetime(2025, 3, 1, 12, 0, 0, tzinfo=UTC)
BOOT = NOW - timedelta(days=1)
GRACE_S = 10
COMMIT = "c" * 40
LAYOUT = Layout("default", PurePosixPath("/var/lib/hive/agents"), PurePosixPath("/run/hive"))
_UP = (EngineState.RUNNING, EngineState.PAUSED, EngineState.RESTARTING)


def ago(seconds: float) -> datetime:
    """Return so many seconds before `NOW`."""
    return NOW - timedelta(seconds=seconds)


def name(text: str) -> AgentName:
    """Return a valid name."""
    return parse_name(text)


def uid_of(agent: str) -> int:
    """Return a uid, the same for the same name."""
    return 1_900_000_000 + int(hashlib.sha256(agent.encode()).hexdigest()[:3], 16)


def spec(agent: str = "bob", commit: str = COMMIT, **changes: object) -> ContainerSpec:
    """Return the usual spec of an agent at a commit."""
    usual = ContainerSpec(
        name=container_name("default", name(agent)),
        image_id="sha256:" + "1" * 64,
        command=("python3", "main.py"),
        env=(("HIVE_AGENT", agent), ("LANG", "C.UTF-8")),
        drop_env=("LD_PRELOAD",),
        uid=uid_of(agent),
        gid=uid_of(agent),
        commit=commit,
        mounts=LAYOUT.mounts(name(agent), commit),
        limits=Limits(1 << 30, 1.0, 256, 4096, 1 << 28, 10 << 20, 3),
    )
    return replace(usual, **changes)  # type: ignore[arg-type]  # the test's own field names


def wish(
    kind: IntentKind, at: datetime | None = None, grace_s: int = GRACE_S, *, purge: bool = False
) -> Intent:
    """Return a wish, made half a minute ago unless said otherwise."""
    return Intent(kind, at if at is not None else ago(30), grace_s, purge)


def crash(
    at: datetime, ran_s: float = 1.0, kind: ExitKind = ExitKind.CRASH, of: str = "id-bob"
) -> ExitRecord:
    """Return the record of a run of `ran_s` seconds that ended at a time."""
    started_at = None if kind is ExitKind.START_FAILED else at - timedelta(seconds=ran_s)
    return ExitRecord(of, started_at, at, 1, False, kind, f"ended as {kind.value}")


def agent(
    agent_name: str = "bob",
    desired: Desired = Desired.RUNNING,
    *,
    intent: Intent | None = None,
    parent: str | None = None,
    is_root: bool = False,
    applied: ContainerSpec | None = None,
    exits: Iterable[ExitRecord] = (),
    reset_at: datetime | None = None,
    incarnation: str = "",
) -> AgentRecord:
    """Return a record; an agent that is not unspawned has the usual spec applied."""
    if applied is None and desired is not Desired.UNSPAWNED:
        applied = spec(agent_name)
    return AgentRecord(
        name=name(agent_name),
        incarnation=incarnation or f"i-{agent_name}",
        uid=uid_of(agent_name),
        parent=None if parent is None else name(parent),
        is_root=is_root,
        created_at=ago(7200),
        desired=desired,
        desired_reason=f"{desired.value} as asked",
        intent=intent,
        applied=applied,
        applied_hash=None if applied is None else spec_hash(applied),
        applied_commit=None if applied is None else applied.commit,
        crashes_reset_at=reset_at,
        exits=tuple(exits),
    )


def container(
    record: AgentRecord,
    state: EngineState = EngineState.RUNNING,
    *,
    container_id: str = "",
    created_at: datetime | None = None,
    started_at: datetime | None = None,
    finished_at: datetime | None = None,
    exit_code: int = 0,
    oom_killed: bool = False,
    of: ContainerSpec | None = None,
    listed_name: str = "",
    restart_policy: str = "no",
) -> OurContainer:
    """Return a container of an agent; it ran from an hour ago, and an ended one until a minute ago."""
    label = spec_hash(of) if of is not None else record.applied_hash or ""
    container_id = container_id or f"id-{record.name}"
    has_run = state is not EngineState.CREATED
    is_up = state in _UP
    labels = {LABEL_AGENT: str(record.name), LABEL_INCARNATION: record.incarnation, LABEL_SPEC: label}
    shown = listed_name or f"h-{record.name}"
    detail = ContainerDetail(
        id=container_id,
        name=shown,
        state=state,
        labels=labels,
        created_at=created_at or ago(3700),
        started_at=(started_at or ago(3600)) if has_run else None,
        finished_at=(finished_at or ago(60)) if has_run and not is_up else None,
        exit_code=exit_code,
        oom_killed=oom_killed,
        error="",
        restart_policy=restart_policy,
        pid=4711 if is_up else 0,
    )
    listed = ListedContainer(container_id, shown, state, state.value, labels, "sha256:" + "1" * 64)
    return OurContainer(record.name, record.incarnation, label, listed, detail)


def journal(one: OurContainer, stop_requested_at: datetime | None = None) -> ContainerRecord:
    """Return the journalled create of a container."""
    return ContainerRecord(
        f"nonce-{one.id}", one.incarnation, one.agent, one.id, ago(3700), stop_requested_at
    )


def desired_state(
    *records: AgentRecord | Declared,
    published: bytes | None = None,
    shape: Shape = Shape.TREE,
    journalled: Iterable[ContainerRecord] = (),
    first_edges: Mapping[AgentName, AgentName | None] | None = None,
    outages: tuple[Outage, ...] = (),
    crashes: CrashPolicy | None = None,
) -> DesiredState:
    """Return what hive wants; without `published`, the roster of these records was published."""
    declared = tuple(one if isinstance(one, Declared) else Declared(one, one.applied, "") for one in records)
    roots = [one.record.name for one in declared if one.record.is_root]
    return DesiredState(
        agents=declared,
        containers={one.id: one for one in journalled if one.id is not None},
        published=roster_of(*(one.record for one in declared), shape=shape)
        if published is None
        else published,
        shape=shape,
        root_agent=roots[0] if roots else None,
        first_edges=first_edges,
        outages=outages,
        boot_at=BOOT,
        grace_s=GRACE_S,
        crashes=crashes or CrashPolicy(),
        over_budget={},
    )


def roster_of(*records: AgentRecord, shape: Shape = Shape.TREE) -> bytes:
    """Return the file that says exactly what these records say."""
    known = {one.name for one in records}
    parents = {one.name: one.parent if one.parent in known else None for one in records}
    return encode(Roster(shape, parents if shape is Shape.TREE else dict.fromkeys(parents)))


def repos(*names: str, misnamed: tuple[str, ...] = ()) -> Repos:
    """Return healthy config repos."""
    return Repos({name(one): ObservedRepo(name(one), COMMIT, "") for one in names}, misnamed)


def observed(
    wanted: DesiredState,
    *ours: OurContainer,
    repositories: Known[Repos] | None = None,
    containers: Known[Containers] | None = None,
    foreign: tuple[ForeignContainer, ...] = (),
    roster: RosterFile | None = None,
    busy: Iterable[str] = (),
) -> Observed:
    """Return what was seen; unless said otherwise every agent has its repo and the roster is as published."""
    if repositories is None:
        repositories = repos(*(one.record.name for one in wanted.agents))
    if roster is None:
        assert wanted.published is not None
        roster = decode(wanted.published)
        assert isinstance(roster, Present)
    return Observed(
        at=NOW,
        containers=Containers(ours, foreign) if containers is None else containers,
        repos=repositories,
        roster=roster,
        busy=frozenset(map(name, busy)),
    )
