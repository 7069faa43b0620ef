"""Apply: one function per action, no decisions.

Called by `engine.dispatch` on worker threads, one agent's actions in order. Every step is safe to repeat:
what a killed daemon left half done is planned again from what is then observed.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.clock import Clock
from hive_core.adapters.evidence import Evidence, EvidenceRoom
from hive_core.adapters.files import check_source
from hive_core.adapters.repos import ConfigRepos
from hive_core.adapters.run_dirs import RunDirs
from hive_core.adapters.store import Store
from hive_core.domain.agents import AgentRecord, Desired, ExitKind, ExitRecord, Intent, IntentKind
from hive_core.domain.changes import ROLLED_BACK
from hive_core.domain.errors import (
    Conflict,
    EngineRefused,
    EngineUnavailable,
    HiveError,
    RepoDamaged,
    owned,
)
from hive_core.domain.names import AgentName
from hive_core.domain.observed import ContainerDetail, EngineState
from hive_core.domain.ports import Engine
from hive_core.domain.spec import (
    HOME,
    LABEL_AGENT,
    LABEL_CREATE,
    LABEL_HIVE,
    LABEL_INCARNATION,
    LABEL_SPEC,
    STATE,
    ContainerSpec,
    differing_fields,
    spec_hash,
)
from hive_core.engine.config import ConfigSource
from hive_core.engine.event_log import EventLog
from hive_core.planning.actions import (
    Action,
    Adopt,
    Approve,
    ClearIntent,
    Create,
    Pause,
    RecordExit,
    Remove,
    Retire,
    RollBack,
    Start,
    Stop,
    Unpause,
)
from hive_core.settings import Settings

log = logging.getLogger(__name__)

_FILE_TARGETS = frozenset({"/etc/passwd", "/etc/group"})
_OWNED_TARGETS = frozenset({STATE, HOME})
_KILLED = 137
_EVIDENCE_LINES = 10_000


class StartFailed(HiveError):
    """A container could not be made or started; recorded as an exit, so that the next try waits."""


@dataclass(slots=True)
class _Run:
    """What the actions of one agent hand on: the container at hand, and a word for the change."""

    container_id: str | None = None
    word: str = ""


class Applier:
    """Carries out actions against the engine, the disk and the store."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        engine: Engine,
        repos: ConfigRepos,
        dirs: AgentDirs,
        run_dirs: RunDirs,
        config: ConfigSource,
        events: EventLog,
        evidence: EvidenceRoom,
        clock: Clock,
        forget: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._engine = engine
        self._repos = repos
        self._dirs = dirs
        self._run_dirs = run_dirs
        self._config = config
        self._events = events
        self._evidence = evidence
        self._clock = clock
        self._forget = forget
        self._start_slots = threading.BoundedSemaphore(settings.reconcile.start_workers)

    def apply(self, actions: tuple[Action, ...], at_step: Callable[[Action], None]) -> str:
        """Carry out one agent's actions in order; `at_step` is told each before it is done.

        Returns a word for people about how it went, as in "graceful". Raises the first `HiveError`; the
        actions after it are left to a later plan.
        """
        run = _Run()
        for action in actions:
            at_step(action)
            self._one(action, run)
        return run.word

    def _one(self, action: Action, run: _Run) -> None:
        match action:
            case Create() | Start() | Stop() | Pause() | Unpause() | Remove():
                self._on_container(action, run)
            case RollBack():
                self._roll_back(action, run)
            case Approve():
                self._store.forget_previous(action.incarnation)
            case RecordExit():
                self._record_exit(action)
            case ClearIntent():
                self._clear_intent(action)
            case Retire():
                self._retire(action)
            case Adopt():
                self._adopt(action)
            case _:
                assert_never(action)

    def _on_container(self, action: Create | Start | Stop | Pause | Unpause | Remove, run: _Run) -> None:
        match action:
            case Create():
                self._create(action, run)
            case Start():
                self._start(action, run)
            case Stop():
                self._stop(action, run)
            case Pause():
                self._engine.pause(action.container_id)
                self._done(action.container_id, "frozen", action.agent, action.reason)
            case Unpause():
                self._engine.unpause(action.container_id)
                self._done(action.container_id, "resumed", action.agent, action.reason)
            case Remove():
                self._remove(action)
            case _:
                assert_never(action)

    def _done(self, container_id: str, kind: str, agent: AgentName, text: str, **fields: str | int) -> None:
        self._forget(container_id)
        self._events.add(kind, agent, text, container_id=container_id, **fields)

    # ---- exits ---------------------------------------------------------------------------------------------

    def _record_exit(self, action: RecordExit) -> None:
        if self._store.record_exit(action.incarnation, action.exit):
            self._events.add(
                "exited",
                action.agent,
                action.exit.text,
                cause=action.exit.kind.value,
                exit_code=action.exit.exit_code,
                container_id=action.exit.container_id,
            )

    def _start_failed(self, action: Create | Start, container_id: str, fault: HiveError) -> StartFailed:
        record = self._live(action.agent)
        now = self._clock.now()
        if record is not None:
            way_out = f"; {fault.hint}" if fault.hint else ""
            text = f"could not be started: {fault.message}{way_out}"
            failed = ExitRecord(container_id, None, now, 127, False, ExitKind.START_FAILED, text)
            self._store.record_exit(record.incarnation, failed)
        self._events.add("start_failed", action.agent, fault.message, hint=fault.hint)
        return StartFailed(f"cannot start {action.agent}: {fault.message}", fault.hint)

    def _live(self, name: AgentName) -> AgentRecord | None:
        return self._store.agent(name)

    # ---- create and start ----------------------------------------------------------------------------------

    def _create(self, action: Create, run: _Run) -> None:
        try:
            self.make_ready(action.agent, action.spec)
            with self._start_slots:
                run.container_id = self._create_journalled(action)
        except EngineUnavailable:
            raise
        except (HiveError, OSError) as fault:
            raise self._start_failed(action, "none", owned(fault)) from fault
        self._done(run.container_id, "container_created", action.agent, action.reason)

    def _create_journalled(self, action: Create) -> str:
        """Create with a nonce that is on disk first: an answer that is lost can be recognised later."""
        nonce = secrets.token_hex(16)
        self._store.journal_create(nonce, action.incarnation, self._clock.now())
        labels = {
            LABEL_HIVE: self._settings.hive.id,
            LABEL_AGENT: action.agent,
            LABEL_INCARNATION: action.incarnation,
            LABEL_SPEC: spec_hash(action.spec),
            LABEL_CREATE: nonce,
        }
        try:
            container_id = self._engine.create(action.spec, labels)
        except EngineRefused as fault:
            holder = self._engine.find_by_name(action.spec.name) if fault.status >= 409 else None
            if holder is None or not self._is_ours(holder, action.incarnation, nonce):
                if fault.status < 500:
                    self._store.forget_create(nonce)
                raise self._explain(fault, holder, action.spec) from fault
            if holder.labels.get(LABEL_CREATE) != nonce:
                self._store.forget_create(nonce)
                nonce = holder.labels[LABEL_CREATE]
            container_id = holder.id
        self._store.confirm_create(nonce, container_id)
        return container_id

    def _is_ours(self, holder: ContainerDetail, incarnation: str, nonce: str) -> bool:
        """Whether the holder of the name is this incarnation's own, from this or an earlier lost create."""
        nonces = {one.nonce for one in self._store.containers() if one.incarnation == incarnation} | {nonce}
        return holder.labels.get(LABEL_CREATE) in nonces and holder.state is EngineState.CREATED

    def _explain(
        self, fault: EngineRefused, holder: ContainerDetail | None, spec: ContainerSpec
    ) -> HiveError:
        if not fault.is_conflict:
            return fault
        if holder is None:
            return Conflict(
                f"the engine says the name {spec.name} is taken, yet shows no such container", fault.message
            )
        return Conflict(
            f"the name {spec.name} is taken by a container that is not this agent's ({holder.id[:12]})",
            f"look at it and rename or remove it: docker rename {spec.name} OTHER",
        )

    def make_ready(self, name: AgentName, spec: ContainerSpec) -> None:
        """Make again what hive can make again of a spec's mount sources, then require all of them sound."""
        self._dirs.refresh(name, spec.uid)
        self._run_dirs.ensure_agent(name, spec.uid)
        self._config.export(name, spec.commit)
        self._check_sources(spec)

    def _check_sources(self, spec: ContainerSpec) -> None:
        """Open every bind source component by component: the engine would follow a link."""
        for mount in spec.mounts:
            owner = spec.uid if mount.target in _OWNED_TARGETS else 0
            check_source(Path(mount.source), directory=mount.target not in _FILE_TARGETS, owner=owner)

    def _start(self, action: Start, run: _Run) -> None:
        container_id = action.container_id or run.container_id
        record = self._live(action.agent)
        if container_id is None or record is None:
            raise Conflict(f"cannot start {action.agent}: it was removed meanwhile")
        try:
            if record.applied is not None:
                self.make_ready(action.agent, record.applied)
            with self._start_slots:
                self._engine.start(container_id)
        except EngineUnavailable:
            raise
        except (HiveError, OSError) as fault:
            raise self._start_failed(action, container_id, owned(fault)) from fault
        self._done(container_id, "started", action.agent, action.reason)

    # ---- stop and remove -----------------------------------------------------------------------------------

    def _stop(self, action: Stop, run: _Run) -> None:
        self._store.request_stop(action.container_id, self._clock.now())
        try:
            self._engine.stop(action.container_id, action.grace_s)
            self._forget(action.container_id)
            detail = self._engine.inspect(action.container_id)
        except EngineRefused as fault:
            if not fault.is_gone:
                raise
            self._events.add("stopped", action.agent, "its container was removed meanwhile")
            return
        self._record_stop(action, detail)
        run.word = "forced after the grace" if detail.exit_code == _KILLED and action.grace_s else "graceful"
        if action.grace_s == 0:
            run.word = "killed at once"
        self._done(
            action.container_id,
            "stopped",
            action.agent,
            f"{action.reason} ({run.word})",
            exit_code=detail.exit_code,
        )

    def _record_stop(self, action: Stop, detail: ContainerDetail) -> None:
        """Remember this end at once: what starts the container next must not find an older one the last."""
        known = next((one for one in self._store.containers() if one.id == action.container_id), None)
        if known is None or detail.finished_at is None:
            return
        text = f"stopped on request (exit code {detail.exit_code})"
        ended = ExitRecord(
            action.container_id,
            detail.started_at,
            detail.finished_at,
            detail.exit_code,
            detail.oom_killed,
            ExitKind.REQUESTED,
            text,
        )
        self._store.record_exit(known.incarnation, ended)

    def _remove(self, action: Remove) -> None:
        self._keep_evidence(action)
        self._engine.remove(action.container_id)
        self._store.forget_container(action.container_id)
        self._done(action.container_id, "container_removed", action.agent, action.reason)

    def _keep_evidence(self, action: Remove) -> None:
        """Keep how a container ended and the last of its log; what cannot be kept holds up nothing."""
        known = next((one for one in self._store.containers() if one.id == action.container_id), None)
        if known is None:
            return
        try:
            detail = self._engine.inspect(action.container_id)
            found = Evidence(
                action.container_id,
                self._clock.now(),
                detail.exit_code,
                detail.oom_killed,
                action.reason,
                self._differing(action.agent, detail),
                None,
            )
            log_chunks = self._engine.logs(action.container_id, _EVIDENCE_LINES, follow=False)
            self._evidence.keep(known.incarnation, found, log_chunks)
        except (HiveError, OSError) as fault:
            log.warning("no evidence is kept of the container of %s: %s", action.agent, owned(fault).message)

    def _differing(self, name: AgentName, detail: ContainerDetail) -> tuple[str, ...]:
        record = self._live(name)
        if record is None or record.applied is None or record.previous is None:
            return ()
        is_previous = detail.labels.get(LABEL_SPEC) == spec_hash(record.previous)
        return differing_fields(record.previous, record.applied) if is_previous else ()

    def _roll_back(self, action: RollBack, run: _Run) -> None:
        """Apply the earlier spec as an update would: should the daemon be killed before its container is
        made, the wish says that the one that failed is not to be started again.
        """
        now = self._clock.now()
        wish = Intent(IntentKind.UPDATE, now, self._settings.container.stop_grace_s)
        with self._store.transaction():
            self._store.set_applied(action.incarnation, action.spec)
            self._store.set_desired(action.incarnation, Desired.RUNNING, action.reason, wish, now)
        run.word = f"{ROLLED_BACK} {action.reason}"
        self._events.add("rolled_back", action.agent, action.reason, commit=action.spec.commit)

    def _clear_intent(self, action: ClearIntent) -> None:
        self._store.clear_intent(action.incarnation, action.intent)
        record = self._live(action.agent)
        if (
            action.intent.kind is IntentKind.UPDATE
            and record is not None
            and record.applied_commit is not None
        ):
            self._dirs.drop_config(action.agent, {record.applied_commit})

    # ---- who is there --------------------------------------------------------------------------------------

    def _retire(self, action: Retire) -> None:
        """Authority first, things after: the name is free only when nothing of it is left in place."""
        record = self._live(action.agent)
        if record is None or record.incarnation != action.incarnation:
            return
        self._run_dirs.drop_agent(action.agent)
        if action.purge:
            self._dirs.purge(action.agent, record.uid)
            self._repos.purge(action.agent)
            self._evidence.drop(action.incarnation)
        else:
            self._dirs.retire(action.agent, action.incarnation)
            self._repos.retire(action.agent, action.incarnation)
        self._store.end_agent(action.incarnation, self._clock.now(), is_purged=action.purge)
        self._evidence.drop_old()
        how = "its data is deleted" if action.purge else "its data is retired"
        self._events.add("removed", action.agent, f"{action.reason}; {how}", incarnation=action.incarnation)

    def _adopt(self, action: Adopt) -> None:
        uids = self._settings.uids
        with self._store.transaction():
            uid = self._store.next_uid(uids.start, uids.count)
            self._store.add_agent(
                new_record(
                    action.agent, uid, action.parent, is_root=False, clock=self._clock, reason=action.reason
                )
            )
        self._dirs.create(action.agent, uid)
        self._events.add("adopted", action.agent, action.reason, parent=action.parent)
        try:
            self._repos.adopt(action.agent)
        except RepoDamaged as fault:
            log.warning("%s; %s is degraded until it is pushed to", fault.message, action.agent)


def new_record(
    name: AgentName, uid: int, parent: AgentName | None, *, is_root: bool, clock: Clock, reason: str
) -> AgentRecord:
    """Return the record of a new incarnation, not spawned, with a fresh random id."""
    return AgentRecord(
        name=name,
        incarnation=secrets.token_hex(8),
        uid=uid,
        parent=parent,
        is_root=is_root,
        created_at=clock.now(),
        desired=Desired.UNSPAWNED,
        desired_reason=reason,
        intent=None,
        applied=None,
        applied_hash=None,
        applied_commit=None,
        crashes_reset_at=None,
        exits=(),
    )
