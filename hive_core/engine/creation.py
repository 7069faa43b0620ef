"""Making agents and changing their config: init, push, and the root agent at boot.

Called by the surfaces and, for the root agent, by the loop before each pass.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.clock import Clock
from hive_core.adapters.repos import ConfigRepos
from hive_core.adapters.store import Store
from hive_core.domain.agents import AgentRecord, Desired
from hive_core.domain.changes import Asked, Change, Goal, Part
from hive_core.domain.config_files import ConfigFile
from hive_core.domain.errors import (
    Conflict,
    HiveError,
    InvalidManifest,
    InvalidRequest,
    NameUnavailable,
    NotFound,
    Retryable,
    owned,
)
from hive_core.domain.names import AgentName, parse_name
from hive_core.domain.roster import Shape
from hive_core.engine.apply import new_record
from hive_core.engine.changes import Changes
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
        require_space: Callable[[str], None],
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
        self._require_space = require_space
        self._clock = clock
        self._shape = shape
        self._lock = threading.Lock()
        self._root_is_settled = False

    def init(self, new: NewAgent, asked: Asked) -> Change:
        """Make an agent: an incarnation, its directories and its config repo. It is not spawned."""
        known = self._changes.same_as_before("init", asked.key)
        if known is not None:
            return known
        self._require_space(f"create {new.name}")
        change = self._make(new, is_root=False, reason=f"created by {asked.by}", asked=asked)
        self._reconciler.wake()
        return change

    def push(self, untrusted_name: object, files: tuple[ConfigFile, ...], asked: Asked) -> Change:
        """Put files on an agent's main. What runs is not touched; `update` applies it.

        Main moves even when the manifest cannot be used: the change then fails with the reason and the
        agent is degraded, running on its last good commit.
        """
        name = parse_name(untrusted_name)
        record = self._store.agent(name)
        if record is None:
            raise NotFound(f"there is no agent '{name}'", f"create it: hivectl init {name} --from DIR")
        known = self._changes.same_as_before("push", asked.key)
        if known is not None:
            return known
        self._require_space(f"push to {name}")
        part = Part(name, record.incarnation, Goal.LISTED)
        change = self._changes.begin("push", [part], asked)
        try:
            commit = self._repos.push(name, files, f"push by {asked.by}")
        except (HiveError, OSError) as fault:
            self._changes.fail(self._changes.release(change).id, owned(fault))
            raise
        return self._pushed(record, change, commit)

    def _pushed(self, record: AgentRecord, change: Change, commit: str) -> Change:
        name = record.name
        verb = "spawn" if record.desired is Desired.UNSPAWNED else "update"
        text = f"{name} has {commit[:12]} on main now; apply it with: hivectl {verb} {name}"
        parts = tuple(replace(part, text=text) for part in change.parts)
        change = self._changes.release(replace(change, parts=parts))
        self._events.add("config_pushed", name, f"main is now {commit[:12]}", commit=commit)
        manifest = self._config.manifest(name, commit)
        if isinstance(manifest, str):
            kept = record.applied_commit
            keeps = f"{name} keeps its last good commit {kept[:12]}" if kept else f"{name} cannot be spawned"
            sentence = f"cannot use what was pushed to {name} (commit {commit[:12]}): {manifest}"
            change = self._changes.fail(change.id, InvalidManifest(sentence, f"{keeps}; push a fix"))
        self._reconciler.wake()
        return change

    def _make(self, new: NewAgent, *, is_root: bool, reason: str, asked: Asked) -> Change:
        with self._lock, self._dispatcher.reserve(new.name):
            if self._store.agent(new.name) is not None:
                raise NameUnavailable(f"cannot create {new.name}: the name is taken", "choose another name")
            retired = self._store.last_retired(new.name) if new.adopts_state else None
            if new.adopts_state and retired is None:
                raise NotFound(
                    f"cannot adopt the state of {new.name}: none was retired", "leave out --adopt-state"
                )
            files = new.files
            if files is None and retired is None:
                files = template(ROOT if is_root else AGENT, new.name)
            if files is not None:
                _require_manifest(files, new.name)
            uids = self._settings.uids
            uid = retired[1] if retired is not None else self._store.next_uid(uids.start, uids.count)
            record = new_record(
                new.name, uid, self._parent(new), is_root=is_root, clock=self._clock, reason=reason
            )
            return self._build(record, files, retired[0] if retired is not None else None, asked)

    def _build(
        self, record: AgentRecord, files: Sequence[ConfigFile] | None, revived: str | None, asked: Asked
    ) -> Change:
        """Record first: what a crash leaves is then a name without a repo, which the next pass takes back."""
        name, reason = record.name, record.desired_reason
        text = f"{name} is made; run it with: hivectl spawn {name}"
        with self._store.transaction():
            self._store.add_agent(record)
            part = Part(name, record.incarnation, Goal.LISTED, text=text)
            change = self._changes.begin("init", [part], asked)
        try:
            if revived is not None:
                self._revive(name, revived)
            self._dirs.create(name, record.uid)
            if revived is None:
                self._repos.create(name, files or (), reason)
            elif files is not None:
                self._repos.push(name, files, reason)
        except BaseException as fault:
            self._take_back(record, is_revived=revived is not None)
            error = fault if isinstance(fault, HiveError) else HiveError(f"cannot create {name}")
            self._changes.fail(self._changes.release(change).id, error)
            raise
        self._events.add("created", name, reason, parent=record.parent, uid=record.uid)
        return self._changes.release(change)

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

    def _parent(self, new: NewAgent) -> AgentName | None:
        if self._shape is Shape.FLAT:
            if new.parent is not None:
                raise Conflict(
                    f"cannot create {new.name} below {new.parent}: the roster is flat, without parents",
                    "leave out --parent",
                )
            return None
        if new.is_top_level:
            return None
        if new.parent is not None:
            if self._store.agent(new.parent) is None:
                raise NotFound(f"cannot create {new.name}: there is no agent '{new.parent}' to be its parent")
            return new.parent
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
            if self._store.agent(name) is None:
                new = NewAgent(name, None, True, False, None)
                self._make(new, is_root=True, reason="the root agent", asked=Asked("hive"))
            self._spawn_root(self._store.agent(name))
        except Retryable as fault:
            return (Problem("root_agent", f"the root agent waits: {fault.message}", name),)
        except HiveError as fault:
            hint = f" ({fault.hint})" if fault.hint else ""
            return (Problem("root_agent", f"cannot make the root agent: {fault.message}{hint}", name),)
        self._root_is_settled = True
        return ()

    def _spawn_root(self, record: AgentRecord | None) -> None:
        if record is None or not record.is_root or record.desired is not Desired.UNSPAWNED:
            return
        spec = self._config.prepare(record)
        with self._store.transaction():
            self._store.set_applied(record.incarnation, spec)
            reason = "the root agent is started at boot"
            self._store.set_desired(record.incarnation, Desired.RUNNING, reason)


def _require_manifest(files: Sequence[ConfigFile], name: AgentName) -> None:
    for file in files:
        if file.path == FILE_NAME:
            parse_manifest(file.content, name)
            return
    raise InvalidRequest(f"cannot create {name}: there is no {FILE_NAME} at the top of the folder", "add one")
