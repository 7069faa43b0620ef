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
from hive_core.engine.details import Details, Patience
from hive_core.engine.disk import DiskFacts
from hive_core.engine.facts import first_edges, published_roster
from hive_core.planning.desired import CrashPolicy, Declared, DesiredState
from hive_core.settings import Settings

STUCK_REMOVAL = "the engine does not finish removing its container; a restart of the engine often helps"
_REMOVAL_LIMIT_S = 60.0


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
        self._details = Details(engine, clock)
        self._removing_since: dict[str, float] = {}
        self.engine_is_hung = False

    def forget(self, container_id: str) -> None:
        """Inspect a container again at the next look: something happened to it."""
        self._details.forget(container_id)

    def forget_all(self) -> None:
        """Inspect every container again: events may have been lost."""
        self._details.forget_all()

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
        patience = Patience()
        ours: list[OurContainer] = []
        foreign: list[ForeignContainer] = []
        for one in listed:
            record = by_id.get(one.id) or self._claim(one, by_nonce)
            if record is None or one.labels.get(LABEL_INCARNATION) != record.incarnation:
                foreign.append(ForeignContainer(one.id, one.name, one.labels.get(LABEL_AGENT, "")))
                continue
            found = self._our(one, record, patience)
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

    def _our(self, one: ListedContainer, record: ContainerRecord, patience: Patience) -> OurContainer | None:
        try:
            agent = parse_name(one.labels.get(LABEL_AGENT))
        except InvalidName:
            agent = record.agent
        detail = self._details.of(one, patience)
        if detail is None:
            return None
        label = one.labels.get(LABEL_SPEC, "")
        if isinstance(detail, Unknown):
            return OurContainer(agent, record.incarnation, label, one, None, detail.reason)
        return OurContainer(agent, record.incarnation, label, one, detail, self._stuck_removal(one))

    def _stuck_removal(self, one: ListedContainer) -> str:
        """Return the sentence for a removal that the engine does not finish, else nothing."""
        now = self._clock.monotonic()
        with self._lock:
            if one.state is not EngineState.REMOVING:
                self._removing_since.pop(one.id, None)
                return ""
            since = self._removing_since.setdefault(one.id, now)
        return STUCK_REMOVAL if now - since >= _REMOVAL_LIMIT_S else ""

    def _forget_unlisted(self, listed: tuple[ListedContainer, ...]) -> None:
        alive = frozenset(one.id for one in listed)
        self._details.keep_only(alive)
        with self._lock:
            for container_id in self._removing_since.keys() - alive:
                del self._removing_since[container_id]

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
