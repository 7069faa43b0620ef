"""Making agents and changing their config: init, push, and the root agent at boot.

Called by the surfaces and, for the root agent, by the loop before each pass.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.clock import Clock
from hive_core.adapters.repos import ConfigRepos
from hive_core.adapters.store import Store
from hive_core.domain.agents import AgentRecord, Desired
from hive_core.domain.config_files import ConfigFile
from hive_core.domain.errors import (
    Conflict,
    HiveError,
    InvalidManifest,
    InvalidRequest,
    NameUnavailable,
    NotFound,
    Retryable,
)
from hive_core.domain.names import AgentName, parse_name
from hive_core.domain.roster import Shape
from hive_core.engine.apply import new_record
from hive_core.engine.changes import Change, Changes, Goal, Part
from hive_core.engine.config import ConfigSource
from hive_core.engine.dispatch import Dispatcher
from hive_core.engine.event_log import EventLog
from hive_core.engine.reconcile import Reconciler
from hive_core.engine.templates import AGENT, ROOT, template
from hive_core.manifest import FILE_NAME, parse_manifest
from hive_core.planning.actions import Problem
from hive_core.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewAgent:
    """What `init` asks for. `files` None takes the built-in template; `parent` None the default parent."""

    name: AgentName
    parent: AgentName | None
    is_top_level: bool
    adopts_state: bool
    files: tuple[ConfigFile, ...] | None


class Creation:
    """init and push."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        repos: ConfigRepos,
        dirs: AgentDirs,
        config: ConfigSource,
        reconciler: Reconciler,
        dispatcher: Dispatcher,
        changes: Changes,
        events: EventLog,
        clock: Clock,
        shape: Shape,
    ) -> None:
        self._settings = settings
        self._store = store
        self._repos = repos
        self._dirs = dirs
        self._config = config
        self._reconciler = reconciler
        self._dispatcher = dispatcher
        self._changes = changes
        self._events = events
        self._clock = clock
        self._shape = shape
        self._lock = threading.Lock()
        self._root_is_settled = False

    def init(self, asked: NewAgent, asked_by: str) -> Change:
        """Make an agent: an incarnation, its directories and its config repo. It is not spawned."""
        record = self._make(asked, is_root=False, reason=f"created by {asked_by}")
        text = f"{record.name} is made; run it with: hivectl spawn {record.name}"
        change = self._changes.begin("init", [Part(record.name, record.incarnation, Goal.LISTED, text=text)])
        self._reconciler.wake()
        return change

    def push(self, untrusted_name: object, files: tuple[ConfigFile, ...], asked_by: str) -> Change:
        """Put files on an agent's main. What runs is not touched; `update` applies it.

        Main moves even when the manifest cannot be used: the change then fails with the reason and the
        agent is degraded, running on its last good commit.
        """
        name = parse_name(untrusted_name)
        record = self._store.agent(name)
        if record is None:
            raise NotFound(f"there is no agent '{name}'", f"create it: hivectl init {name} --from DIR")
        commit = self._repos.push(name, files, f"push by {asked_by}")
        self._events.add("config_pushed", name, f"main is now {commit[:12]}", commit=commit)
        verb = "spawn" if record.desired is Desired.UNSPAWNED else "update"
        text = f"{name} has {commit[:12]} on main now; apply it with: hivectl {verb} {name}"
        change = self._changes.begin("push", [Part(name, record.incarnation, Goal.LISTED, text=text)])
        manifest = self._config.manifest(name, commit)
        if isinstance(manifest, str):
            kept = record.applied_commit
            keeps = f"{name} keeps its last good commit {kept[:12]}" if kept else f"{name} cannot be spawned"
            self._changes.fail(
                change.id,
                InvalidManifest(
                    f"cannot use what was pushed to {name} (commit {commit[:12]}): {manifest}",
                    f"{keeps}; push a fix",
                ),
            )
        self._reconciler.wake()
        return self._changes.get(change.id)

    def _make(self, asked: NewAgent, *, is_root: bool, reason: str) -> AgentRecord:
        with self._lock, self._dispatcher.reserve(asked.name):
            if self._store.agent(asked.name) is not None:
                raise NameUnavailable(f"cannot create {asked.name}: the name is taken", "choose another name")
            parent = self._parent(asked)
            retired = self._store.last_retired(asked.name) if asked.adopts_state else None
            if asked.adopts_state and retired is None:
                raise NotFound(
                    f"cannot adopt the state of {asked.name}: none was retired", "leave out --adopt-state"
                )
            files = asked.files
            if files is None and retired is None:
                files = template(ROOT if is_root else AGENT, asked.name)
            if files is not None:
                _require_manifest(files, asked.name)
            return self._build(asked.name, parent, files, retired, is_root=is_root, reason=reason)

    def _build(
        self,
        name: AgentName,
        parent: AgentName | None,
        files: Sequence[ConfigFile] | None,
        retired: tuple[str, int] | None,
        *,
        is_root: bool,
        reason: str,
    ) -> AgentRecord:
        """Record first: what a crash leaves is then a name without a repo, which the next pass takes back."""
        uids = self._settings.uids
        with self._store.transaction():
            uid = retired[1] if retired is not None else self._store.next_uid(uids.start, uids.count)
            record = new_record(name, uid, parent, is_root=is_root, clock=self._clock, reason=reason)
            self._store.add_agent(record)
        try:
            if retired is not None:
                self._revive(name, retired[0])
            self._dirs.create(name, uid)
            if retired is None:
                self._repos.create(name, files or (), reason)
            elif files is not None:
                self._repos.push(name, files, reason)
        except BaseException:
            self._take_back(record, is_revived=retired is not None)
            raise
        self._events.add("created", name, reason, parent=parent, uid=uid)
        return record

    def _revive(self, name: AgentName, incarnation: str) -> None:
        self._dirs.revive(name, incarnation)
        self._repos.revive(name, incarnation)

    def _take_back(self, record: AgentRecord, *, is_revived: bool) -> None:
        """Undo a creation that failed. Revived data is retired again, under the new incarnation."""
        try:
            if is_revived:
                self._dirs.retire(record.name, record.incarnation)
                self._repos.retire(record.name, record.incarnation)
            else:
                self._dirs.purge(record.name, record.uid)
                self._repos.purge(record.name)
        except HiveError as fault:
            log.warning("cannot take back the creation of %s: %s", record.name, fault.message)
        self._store.end_agent(record.incarnation, self._clock.now(), is_purged=not is_revived)

    def _parent(self, asked: NewAgent) -> AgentName | None:
        if self._shape is Shape.FLAT:
            if asked.parent is not None:
                raise Conflict(
                    f"cannot create {asked.name} below {asked.parent}: the roster is flat, without parents",
                    "leave out --parent",
                )
            return None
        if asked.is_top_level:
            return None
        if asked.parent is not None:
            if self._store.agent(asked.parent) is None:
                raise NotFound(
                    f"cannot create {asked.name}: there is no agent '{asked.parent}' to be its parent"
                )
            return asked.parent
        return next((one.name for one in self._store.agents() if one.is_root), None)

    # ---- the root agent ------------------------------------------------------------------------------------

    def ensure_root(self) -> tuple[Problem, ...]:
        """Make and spawn the root agent if this hive wants one and has none.

        Tried again with each pass until it worked once in this daemon's life; one that was stopped, or was
        there before, is left as it is.
        """
        if self._root_is_settled or self._settings.hive.ruthless:
            return ()
        name = parse_name(self._settings.hive.root_agent)
        try:
            record = self._store.agent(name)
            if record is None:
                record = self._make(
                    NewAgent(name, None, True, False, None), is_root=True, reason="the root agent"
                )
            if record.is_root and record.desired is Desired.UNSPAWNED:
                spec = self._config.prepare(record)
                with self._store.transaction():
                    self._store.set_applied(record.incarnation, spec)
                    self._store.set_desired(
                        record.incarnation, Desired.RUNNING, "the root agent is started at boot"
                    )
        except Retryable as fault:
            return (Problem("root_agent", f"the root agent waits: {fault.message}", name),)
        except HiveError as fault:
            hint = f" ({fault.hint})" if fault.hint else ""
            return (Problem("root_agent", f"cannot make the root agent: {fault.message}{hint}", name),)
        self._root_is_settled = True
        return ()


def _require_manifest(files: Sequence[ConfigFile], name: AgentName) -> None:
    for file in files:
        if file.path == FILE_NAME:
            parse_manifest(file.content, name)
            return
    raise InvalidRequest(f"cannot create {name}: there is no {FILE_NAME} at the top of the folder", "add one")
