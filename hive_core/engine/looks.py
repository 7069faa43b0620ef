"""The looks of `doctor`: for every check, where its facts come from and who judges them.

Used by `engine.doctor`, which bounds them. A look raises what goes wrong; facts that several need are found
out once for an examination, by whichever comes first.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from hive_core.adapters import host_facts, probes
from hive_core.adapters.clock import boot_time
from hive_core.adapters.docker import API_NEWEST
from hive_core.adapters.files import check_parent
from hive_core.adapters.run_dirs import RunDirs
from hive_core.adapters.store import Store
from hive_core.adapters.subids import is_reserved, require_free
from hive_core.domain.agents import AgentRecord, ContainerRecord
from hive_core.domain.observed import EngineVersion
from hive_core.domain.ports import Engine
from hive_core.engine import checks_access, checks_containers, checks_engine, checks_host
from hive_core.engine.checks import Check, CheckName, fail, ok
from hive_core.engine.checks_access import Wanted
from hive_core.engine.checks_containers import Subject
from hive_core.engine.checks_engine import Clocks
from hive_core.engine.versions import GIT_SUBMODULES, RUNC_HOLES
from hive_core.settings import DEFAULT_PATH, Settings

_INSPECT_LIMIT_S = 3.5

T = TypeVar("T")
Look: TypeAlias = Callable[[], Check]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The engine's facts, and our own clocks around the call."""

    version: EngineVersion
    before: datetime
    after: datetime
    waited_s: float


@dataclass(frozen=True, slots=True)
class _Records:
    """What the store on disk knows."""

    agents: tuple[AgentRecord, ...]
    containers: tuple[ContainerRecord, ...]


class _Once(Generic[T]):
    """A fact that several looks need and the first of them finds out, its failure included."""

    def __init__(self, find: Callable[[], T]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._found: T | None = None
        self._fault: Exception | None = None

    def __call__(self) -> T:
        with self._lock:
            if self._fault is not None:
                raise self._fault
            if self._found is None:
                try:
                    self._found = self._find()
                except Exception as fault:
                    self._fault = fault
                    raise
            return self._found


class Looks:
    """One examination: what is looked at, and who judges it."""

    def __init__(
        self, settings: Settings, engine: Engine, run_dirs: RunDirs, watch_problem: Callable[[], str]
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._run_dirs = run_dirs
        self._watch_problem = watch_problem
        self._data = settings.paths.data
        self._asked = _Once(self._ask)
        self._records = _Once(self._read_store)

    def by_name(self) -> Mapping[CheckName, Look]:
        """Return the look of every check."""
        return {
            CheckName.ENGINE: lambda: checks_engine.engine(self._version, os.uname().release),
            CheckName.RUNTIME: self._runtime,
            CheckName.SECCOMP: lambda: checks_engine.seccomp(self._version),
            CheckName.USER_NAMESPACES: lambda: checks_engine.user_namespaces(self._version),
            CheckName.ROOTLESS: lambda: checks_engine.rootless(self._version),
            CheckName.LIVE_RESTORE: lambda: checks_engine.live_restore(self._version),
            CheckName.LIMITS: lambda: checks_engine.limits(self._version),
            CheckName.STORAGE_DRIVER: lambda: checks_engine.storage_driver(self._version),
            CheckName.CLOCK: self._clock,
            CheckName.IMAGE: self._image,
            CheckName.CONTAINERS: self._containers,
            CheckName.MOUNT_NAMESPACE: self._mount_namespace,
            CheckName.GRANTS: self._grants,
            CheckName.SAFE_PATHS: lambda: checks_host.safe_paths(probes.open_safely(self._data)),
            CheckName.LIVE_GRANTS: self._live_grants,
            CheckName.FILE_SYSTEM: self._file_system,
            CheckName.DISK: self._disk,
            CheckName.STORE: self._store,
            CheckName.UIDS: self._uids,
            CheckName.ANCESTORS: self._ancestors,
            CheckName.DIRECTORIES: self._directories,
            CheckName.ADMIN_SOCKET: self._admin_socket,
            CheckName.SETTINGS_FILE: self._settings_file,
            CheckName.OPERATORS: self._operators,
            CheckName.GIT_ACCOUNT: self._git_account,
            CheckName.GIT: self._git,
            CheckName.INOTIFY: lambda: checks_host.inotify(host_facts.inotify_use()),
            CheckName.FILE_WATCH: lambda: checks_host.file_watch(self._watch_problem()),
        }

    # ---- what several looks need ---------------------------------------------------------------------------

    @property
    def _version(self) -> EngineVersion:
        return self._asked().version

    def _ask(self) -> _Asked:
        before, began = datetime.now(UTC), time.monotonic()
        version = self._engine.version()
        return _Asked(version, before, datetime.now(UTC), time.monotonic() - began)

    def _read_store(self) -> _Records:
        """Open the store beside the daemon: what counts is the file, not what is remembered of it."""
        with closing(Store(self._data / "hive.db")) as store:
            return _Records(store.agents(), store.containers())

    # ---- the engine ----------------------------------------------------------------------------------------

    def _runtime(self) -> Check:
        mended = host_facts.backported("runc", self._version.runtime_build, RUNC_HOLES)
        return checks_engine.runtime(self._version, mended)

    def _clock(self) -> Check:
        asked, records = self._asked(), self._records()
        made = [one.created_at for one in records.agents] + [one.created_at for one in records.containers]
        newest = max(made, default=None)
        return checks_engine.clock(
            Clocks(asked.before, asked.version.time, asked.after, asked.waited_s, boot_time(), newest)
        )

    def _image(self) -> Check:
        reference = self._settings.container.image
        facts = self._engine.resolve_image(reference)
        applied = {one.applied.image_id for one in self._records().agents if one.applied is not None}
        for image_id in sorted(applied - {facts.id}):
            self._engine.resolve_image(image_id)
        shown = f"{reference} is {facts.id.removeprefix('sha256:')[:12]}"
        return ok(CheckName.IMAGE, f"{shown}; the images of all agents are there")

    def _containers(self) -> Check:
        records = self._records()
        agents = {one.incarnation: one for one in records.agents}
        owned = {
            one.id: agents[one.incarnation]
            for one in records.containers
            if one.id and one.incarnation in agents
        }
        offered = tuple(int(part) for part in self._version.api.split("."))
        api = ".".join(str(part) for part in min(offered, API_NEWEST))
        socket = self._settings.engine.socket
        inspected = probes.inspect_containers(socket, api, tuple(owned), _INSPECT_LIMIT_S)
        return checks_containers.containers(
            [
                Subject(owned[one].name, checks_containers.spec_of(owned[one], account), account)
                for one, account in inspected.items()
            ]
        )

    # ---- the host ------------------------------------------------------------------------------------------

    def _mount_namespace(self) -> Check:
        return checks_host.mount_namespace(probes.namespaces(self._settings.engine.socket))

    def _grants(self) -> Check:
        name, grants = CheckName.GRANTS, self._run_dirs.grants
        if self._run_dirs.grants_state().is_shared:
            return ok(name, f"{grants} is a shared mount")
        text = f"{grants} is not a shared mount: grants would not reach running containers"
        return fail(name, text, "restart hived; if it stays so, it does not share the host's mount namespace")

    def _live_grants(self) -> Check:
        return checks_host.live_grants(probes.idmap_refusal(self._data), self._data)

    def _file_system(self) -> Check:
        return checks_host.file_system(host_facts.file_system(self._data), self._data)

    def _disk(self) -> Check:
        places = dict.fromkeys((self._data, Path(self._version.root_dir or self._data)))
        return checks_host.disk([host_facts.space(place) for place in places])

    def _store(self) -> Check:
        return checks_access.store(self._data / "hive.db", len(self._records().agents))

    def _uids(self) -> Check:
        uids = self._settings.uids
        require_free(uids.start, uids.count, ours=True)
        owners = {one.name: one.uid for one in self._records().agents}
        reserved = is_reserved(uids.start, uids.count)
        return checks_host.uids(uids.start, uids.count, owners, is_wanted=uids.reserve, is_reserved=reserved)

    def _git(self) -> Check:
        version = host_facts.git_version()
        return checks_host.git(version, host_facts.backported("git", version, GIT_SUBMODULES.ids))

    # ---- who may touch what --------------------------------------------------------------------------------

    def _ancestors(self) -> Check:
        paths = (self._data, self._run_dirs.root)
        for path in paths:
            check_parent(path)
        return checks_access.ancestors(paths)

    def _directories(self) -> Check:
        git_gid = host_facts.account(self._settings.git.user).gid
        wanted = (*self._layout(git_gid), *self._agents_layout())
        return checks_access.directories([(one, host_facts.entry(one.path)) for one in wanted])

    def _layout(self, git_gid: int) -> tuple[Wanted, ...]:
        data, run = self._data, self._run_dirs
        return (
            Wanted(data, 0o711),
            Wanted(data / "meta", 0o755),
            Wanted(data / "repos", 0o710, gid=git_gid),
            Wanted(data / "agents", 0o700),
            Wanted(data / "audit", 0o700, is_required=False),
            Wanted(data / "evidence", 0o700, is_required=False),
            Wanted(data / "hive.db", 0o600, is_directory=False),
            Wanted(data / "lock", 0o600, is_directory=False),
            Wanted(run.root, 0o755),
            Wanted(run.agents, 0o700),
            Wanted(run.grants, 0o700),
            Wanted(run.meta, 0o700),
            Wanted(run.secrets, 0o700),
        )

    def _agents_layout(self) -> tuple[Wanted, ...]:
        found = []
        for one in self._records().agents:
            root = self._data / "agents" / one.name
            found.append(Wanted(root, 0o755))
            found += [Wanted(root / leaf, 0o700, one.uid, one.uid) for leaf in ("state", "home")]
        return tuple(found)

    def _admin_socket(self) -> Check:
        path = self._run_dirs.root / "admin.sock"
        gid = host_facts.group_id(self._settings.admin.group)
        return checks_access.admin_socket(path, host_facts.entry(path), gid)

    def _settings_file(self) -> Check:
        path = host_facts.settings_file(sys.argv[1:], DEFAULT_PATH)
        # A link is fine as long as everything up to what it names is root's.
        real = path.resolve()
        found = host_facts.entry(real)
        if found is not None:
            check_parent(real)
        return checks_access.settings_file(path, found)

    def _operators(self) -> Check:
        group = self._settings.admin.group
        return checks_access.operators(group, host_facts.members(group))

    def _git_account(self) -> Check:
        account, repos = host_facts.account(self._settings.git.user), self._data / "repos"
        reaches = probes.can_enter(account.uid, account.gid, repos)
        return checks_access.git_account(account, self._settings.admin.group, repos, can_enter=reaches)
