"""The engine layer as the surfaces see it: one object with the operations and the views.

Built by `daemon`; the surfaces hold nothing else. Reads answer from the snapshot and the store, so they are
fast whatever the engine does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from hive_core.adapters.clock import Clock
from hive_core.adapters.disk_usage import Usage
from hive_core.adapters.evidence import EvidenceRoom
from hive_core.adapters.repos import ConfigRepos
from hive_core.adapters.store import Store
from hive_core.domain.agents import AgentRecord
from hive_core.domain.changes import Asked, Change
from hive_core.domain.errors import Conflict, EngineRefused, NotFound
from hive_core.domain.names import AgentName, container_name, parse_name
from hive_core.domain.observed import Unknown
from hive_core.domain.operations import OPERATIONS
from hive_core.domain.ports import Engine, ExecRequest, ExecSession
from hive_core.domain.spec import HOME, STATE
from hive_core.engine.audit import Audit
from hive_core.engine.backup import Backup
from hive_core.engine.changes import Changes
from hive_core.engine.config import ConfigSource
from hive_core.engine.creation import Creation
from hive_core.engine.disk import DiskFacts, DiskWatch
from hive_core.engine.doctor import Check, Doctor
from hive_core.engine.event_log import EventLog
from hive_core.engine.facts import paused_by, published_roster, remember_paused
from hive_core.engine.history import Account, account
from hive_core.engine.lifecycle import Lifecycle
from hive_core.engine.publish import Publisher
from hive_core.engine.reconcile import Reconciler
from hive_core.engine.rescue import Rescue
from hive_core.engine.snapshot import Snapshot
from hive_core.manifest import Manifest
from hive_core.planning.actions import AgentState, AgentView, Plan
from hive_core.planning.authorise import AgentCaller, Explanation, Operator, explain
from hive_core.settings import Settings

MAX_TAIL = 10_000
_HISTORY = 200
_RESCUABLE = (AgentState.STOPPED, AgentState.BACKOFF, AgentState.CRASH_LOOPING, AgentState.FAILED)


@dataclass(frozen=True, slots=True)
class Portrait:
    """Everything about one agent, for `show`."""

    record: AgentRecord
    view: AgentView
    children: tuple[AgentName, ...]
    manifest: Manifest | None
    main: str | None
    container_name: str
    usage: Usage | None


class Hive:
    """One hive, running."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        engine: Engine,
        repos: ConfigRepos,
        config: ConfigSource,
        reconciler: Reconciler,
        lifecycle: Lifecycle,
        creation: Creation,
        changes: Changes,
        events: EventLog,
        audit: Audit,
        evidence: EvidenceRoom,
        rescue: Rescue,
        publisher: Publisher,
        backup: Backup,
        doctor: Doctor,
        disk: DiskWatch,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.lifecycle = lifecycle
        self.creation = creation
        self.changes = changes
        self.events = events
        self.audit = audit
        self.backup = backup
        self._evidence = evidence
        self._rescue = rescue
        self._publisher = publisher
        self._store = store
        self._engine = engine
        self._repos = repos
        self._config = config
        self._reconciler = reconciler
        self._doctor = doctor
        self._disk = disk
        self._clock = clock
        self.pid = os.getpid()

    @property
    def snapshot(self) -> Snapshot:
        """What the last pass saw."""
        return self._reconciler.snapshot

    def age_s(self) -> float | None:
        """Return how old the snapshot is, None before the first pass."""
        seen_at = self.snapshot.seen_at
        return None if seen_at is None else self._clock.monotonic() - seen_at

    def disk(self) -> DiskFacts:
        """Return the last figures of the disk."""
        return self._disk.facts

    def names(self) -> tuple[AgentName, ...]:
        """Return the names of the live agents."""
        return tuple(record.name for record in self._store.agents())

    def published(self) -> bytes:
        """Return the bytes of topology.json as last published."""
        content = published_roster(self._store)
        if content is None:
            raise NotFound(
                "no roster has been published yet", "hivectl status says what the daemon waits for"
            )
        return content

    def portrait(self, untrusted_name: object) -> Portrait:
        """Return everything about one agent."""
        record = self.lifecycle.require(untrusted_name)
        view = self.snapshot.views.get(record.name)
        if view is None:
            raise Conflict(
                f"cannot show {record.name}: no pass has looked at it yet", "try again in a moment"
            )
        found = self._repos.observe()
        repo = None if isinstance(found, Unknown) else found.repos.get(record.name)
        main = repo.main if repo is not None else None
        commit = record.applied_commit or main
        manifest = self._config.manifest(record.name, commit) if commit is not None else None
        children = tuple(one.name for one in self._store.agents() if one.parent == record.name)
        return Portrait(
            record,
            view,
            children,
            manifest if isinstance(manifest, Manifest) else None,
            main,
            container_name(self.settings.hive.id, record.name),
            self._disk.facts.usage.get(record.name),
        )

    def preview(self) -> Plan:
        """Return what a pass would do now."""
        return self._reconciler.preview()

    def reconcile(self, asked: Asked) -> Change:
        """Ask for a pass; the change is done when a pass from now on left nothing in flight."""
        known = self.changes.same_as_before("reconcile", asked.key)
        if known is not None:
            return known
        change = self.changes.release(self.changes.begin("reconcile", (), asked))
        self._reconciler.wake()
        return change

    def set_paused(self, is_paused: bool, by: str) -> None:
        """Switch automation off or on. While it is off, passes look, and do only what is asked for."""
        if (paused_by(self._store) is not None) is is_paused:
            return
        remember_paused(self._store, by if is_paused else None)
        if is_paused:
            self.events.add("automation_paused", None, f"automation was switched off by {by}")
        else:
            self.events.add("automation_resumed", None, f"automation was switched on again by {by}")
        self._reconciler.wake()

    def logs(self, untrusted_name: object, tail: int, follow: bool) -> Iterator[bytes]:
        """Yield what an agent's program printed: the last lines, then new ones if asked."""
        record = self.lifecycle.require(untrusted_name)
        container_id = self._container_id(record, "read the logs of")
        return self._engine.logs(container_id, max(0, min(tail, MAX_TAIL)), follow)

    def previous_log(self, untrusted_name: object) -> Iterator[bytes]:
        """Yield the last of the log of the container that was removed last."""
        record = self.lifecycle.require(untrusted_name)
        kept = self._evidence.of(record.incarnation)
        if not kept:
            raise NotFound(f"no container of {record.name} was removed yet", f"hivectl logs {record.name}")
        yield self._evidence.log(record.incarnation, kept[-1])

    def account(self, untrusted_name: object, limit: int) -> Account:
        """Return how an agent came to be as it is."""
        record = self.lifecycle.require(untrusted_name)
        view = self.snapshot.views.get(record.name)
        if view is None:
            raise Conflict(f"cannot tell of {record.name}: no pass has looked at it yet", "try again")
        return account(view, self._store.events_of_agent(record.name, _HISTORY), limit)

    def explain(
        self, untrusted_caller: str, untrusted_operation: str, untrusted_target: str | None
    ) -> Explanation:
        """Return the decision on a call, as it would be taken now."""
        operation = OPERATIONS.get(untrusted_operation)
        if operation is None:
            known = ", ".join(OPERATIONS)
            raise NotFound(f"there is no operation {untrusted_operation[:40]!a}", f"known: {known}")
        is_operator = untrusted_caller == "operator"
        caller = Operator() if is_operator else AgentCaller(parse_name(untrusted_caller))
        target = None if untrusted_target is None else parse_name(untrusted_target)
        return explain(caller, operation, target, self._publisher.authority(), self.names())

    def exec(
        self,
        untrusted_name: object,
        argv: tuple[str, ...],
        *,
        tty: bool,
        rows: int,
        columns: int,
        is_rescue: bool = False,
    ) -> ExecSession:
        """Start a command in an agent's container, as the agent's own uid.

        `is_rescue`: in a container made for it, like that of an agent whose own does not run.
        """
        record = self.lifecycle.require(untrusted_name)
        env = (("HOME", HOME), ("TERM", "xterm-256color")) if tty else (("HOME", HOME),)
        request = ExecRequest(argv, record.uid, record.uid, env, STATE, tty, rows, columns)
        if is_rescue:
            self._require_down(record)
            session = self._rescue.open(record, request)
        else:
            session = self._exec_inside(record, request)
        # The program alone: arguments may be secrets, and events are kept.
        self.events.add("exec", record.name, f"the operator runs {ascii(argv[0])[1:-1][:200]}")
        return session

    def _exec_inside(self, record: AgentRecord, request: ExecRequest) -> ExecSession:
        container_id = self._container_id(record, "exec in")
        try:
            return self._engine.exec(container_id, request)
        except EngineRefused as fault:
            if not (fault.is_conflict or fault.is_gone):
                raise
            raise self._not_inside(record) from fault

    def _not_inside(self, record: AgentRecord) -> Conflict:
        """Return why nothing can be run in an agent's container: it is frozen, or down."""
        view = self.snapshot.views.get(record.name)
        if record.quarantined_at is not None:
            hint = f"hivectl release {record.name} ends it"
            return Conflict(f"cannot exec in {record.name}: it is in quarantine", hint)
        if view is not None and view.state is AgentState.PAUSED:
            return Conflict(f"cannot exec in {record.name}: it is paused", f"hivectl start {record.name}")
        hint = f"hivectl show {record.name} says why; hivectl shell {record.name} --rescue looks inside"
        return Conflict(f"cannot exec in {record.name}: its container does not run", hint)

    def _require_down(self, record: AgentRecord) -> None:
        view = self.snapshot.views.get(record.name)
        is_down = view is not None and view.state in _RESCUABLE
        if not is_down:
            state = view.state.value if view is not None else "unknown"
            raise Conflict(f"cannot rescue {record.name}: it is {state}", f"hivectl shell {record.name}")

    def doctor(self) -> tuple[Check, ...]:
        """Return the checks of this host."""
        return self._doctor.examine()

    def is_managed(self, cgroup_text: str) -> bool:
        """Whether a cgroup path names one of this hive's containers. Asked on the event loop: no lock."""
        return any(container_id in cgroup_text for container_id in self.snapshot.container_ids)

    def _container_id(self, record: AgentRecord, deed: str) -> str:
        """Return the id of the container, from the pass that saw it; never by name."""
        view = self.snapshot.views.get(record.name)
        if view is not None and view.state is AgentState.UNKNOWN and view.container_id is None:
            raise Conflict(f"cannot {deed} {record.name}: {view.reason}", "hivectl status")
        if view is None or view.container_id is None:
            state = view.state.value if view is not None else "unknown"
            raise Conflict(
                f"cannot {deed} {record.name}: it has no container ({state})", f"hivectl show {record.name}"
            )
        return view.container_id
