"""Observation: one look at everything a pass needs, and nothing done about it.

Called by `engine.reconcile`. Whatever does not answer becomes `Unknown` with its reason; an exception here
would be a pass that saw nothing at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path

from hive_core.adapters.clock import Clock
from hive_core.adapters.files import read_roster
from hive_core.adapters.repos import ConfigRepos
from hive_core.adapters.store import Store
from hive_core.domain.agents import AgentRecord, ContainerRecord
from hive_core.domain.errors import EngineRefused, EngineUnavailable, InvalidName
from hive_core.domain.names import AgentName, parse_name
from hive_core.domain.observed import (
    ContainerDetail,
    Containers,
    EngineState,
    ForeignContainer,
    Known,
    ListedContainer,
    Observed,
    OurContainer,
    Repos,
    Unknown,
)
from hive_core.domain.ports import Engine
from hive_core.domain.roster import Shape
from hive_core.domain.spec import LABEL_AGENT, LABEL_CREATE, LABEL_INCARNATION, LABEL_SPEC
from hive_core.engine.config import ConfigSource
from hive_core.engine.disk import DiskFacts
from hive_core.engine.facts import first_edges, published_roster
from hive_core.planning.desired import CrashPolicy, Declared, DesiredState
from hive_core.settings import Settings

_YOUNG_S = 120.0


class Observer:
    """Looks at the engine, the repos, the roster file and the store."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        engine: Engine,
        repos: ConfigRepos,
        config: ConfigSource,
        roster_path: Path,
        shape: Shape,
        boot_at: datetime,
        disk: Callable[[], DiskFacts],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._store = store
        self._engine = engine
        self._repos = repos
        self._config = config
        self._roster_path = roster_path
        self._shape = shape
        self._boot_at = boot_at
        self._disk = disk
        self._clock = clock
        self._lock = threading.Lock()
        self._details: dict[str, ContainerDetail] = {}
        self.engine_is_hung = False

    def forget(self, container_id: str) -> None:
        """Inspect a container again at the next look: something happened to it."""
        with self._lock:
            self._details.pop(container_id, None)

    def forget_all(self) -> None:
        """Inspect every container again: events may have been lost."""
        with self._lock:
            self._details.clear()

    def observe(self, busy: frozenset[AgentName]) -> tuple[DesiredState, Observed]:
        """Return the desired and the observed state as they are now."""
        containers = self._containers()
        repos = self._repos.observe()
        observed = Observed(self._clock.now(), containers, repos, read_roster(self._roster_path), busy)
        return self._desired(repos), observed

    # ---- the engine ----------------------------------------------------------------------------------------

    def _containers(self) -> Known[Containers]:
        try:
            listed = self._engine.list_containers(self._settings.hive.id)
            found = self._sort(listed)
        except EngineUnavailable as fault:
            self.engine_is_hung = fault.hung
            self._store.open_outage(self._clock.now())
            return Unknown(fault.message)
        except EngineRefused as fault:
            return Unknown(fault.message)
        self._store.close_outage(self._clock.now())
        return found

    def _sort(self, listed: tuple[ListedContainer, ...]) -> Containers:
        """Tell ours from foreign: ours has our labels and a record of its id, or of its create."""
        records = self._store.containers()
        by_id = {one.id: one for one in records if one.id is not None}
        by_nonce = {one.nonce: one for one in records}
        ours: list[OurContainer] = []
        foreign: list[ForeignContainer] = []
        for one in listed:
            record = by_id.get(one.id) or self._claim(one, by_nonce)
            if record is None or one.labels.get(LABEL_INCARNATION) != record.incarnation:
                foreign.append(ForeignContainer(one.id, one.name, one.labels.get(LABEL_AGENT, "")))
                continue
            found = self._our(one, record)
            if found is not None:
                ours.append(found)
        self._forget_unlisted(listed)
        return Containers(tuple(ours), tuple(foreign))

    def _claim(self, one: ListedContainer, by_nonce: Mapping[str, ContainerRecord]) -> ContainerRecord | None:
        """Recognise a container whose create was journalled but whose id was never learnt."""
        record = by_nonce.get(one.labels.get(LABEL_CREATE, ""))
        if record is None or record.id is not None:
            return None
        self._store.confirm_create(record.nonce, one.id)
        return record

    def _our(self, one: ListedContainer, record: ContainerRecord) -> OurContainer | None:
        try:
            agent = parse_name(one.labels.get(LABEL_AGENT))
        except InvalidName:
            agent = record.agent
        detail = self._detail(one)
        if detail is None:
            return None
        return OurContainer(agent, record.incarnation, one.labels.get(LABEL_SPEC, ""), one, detail)

    def _detail(self, one: ListedContainer) -> ContainerDetail | None:
        """Return the detail, from memory while the list does not contradict it; None when it is gone."""
        with self._lock:
            known = self._details.get(one.id)
        if known is not None and known.state is one.state and not self._is_contradicted(one, known):
            return known
        try:
            detail = self._engine.inspect(one.id)
        except EngineRefused as fault:
            if fault.is_gone:
                return None
            raise
        with self._lock:
            self._details[one.id] = detail
        return detail

    def _is_contradicted(self, one: ListedContainer, known: ContainerDetail) -> bool:
        """Whether the list speaks of seconds where the remembered run or end is minutes old."""
        since = known.started_at if one.state is EngineState.RUNNING else known.finished_at
        if since is None or "second" not in one.status:
            return False
        return (self._clock.now() - since).total_seconds() > _YOUNG_S

    def _forget_unlisted(self, listed: tuple[ListedContainer, ...]) -> None:
        alive = {one.id for one in listed}
        with self._lock:
            for container_id in self._details.keys() - alive:
                del self._details[container_id]

    # ---- what hive wants -----------------------------------------------------------------------------------

    def _desired(self, repos: Known[Repos]) -> DesiredState:
        records = self._store.agents()
        crashes = self._settings.crashes
        return DesiredState(
            agents=tuple(self._declared(record, repos) for record in records),
            containers={one.id: one for one in self._store.containers() if one.id is not None},
            published=published_roster(self._store),
            shape=self._shape,
            root_agent=next((one.name for one in records if one.is_root), None),
            first_edges=first_edges(self._store),
            outages=self._store.outages(),
            boot_at=self._boot_at,
            grace_s=self._settings.container.stop_grace_s,
            over_budget=self._disk().over,
            crashes=CrashPolicy(
                backoff_initial_s=crashes.backoff_initial_s,
                backoff_max_s=crashes.backoff_max_s,
                stable_s=crashes.stable_s,
                loop_count=crashes.loop_count,
                loop_window_s=crashes.loop_window_s,
            ),
        )

    def _declared(self, record: AgentRecord, repos: Known[Repos]) -> Declared:
        if isinstance(repos, Unknown):
            return Declared(record, None, "")
        candidate = self._config.candidate(record, repos.repos.get(record.name))
        return Declared(record, candidate.spec, candidate.fault)
