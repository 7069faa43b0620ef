"""hived: the composition root, the only file that names concrete classes of every layer.

`main` is the console script. It checks the host, takes the hive's lock, opens the store, puts the parts
together, and serves until told to stop. Sockets answer before the first pass; agents run on when it ends.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import grp
import logging
import os
import pwd
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import uvicorn

from hive_core import __version__
from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.audit import AuditLog
from hive_core.adapters.clock import Clock, boot_time
from hive_core.adapters.docker import DockerEngine
from hive_core.adapters.evidence import EvidenceRoom
from hive_core.adapters.files import check_parent, make_dir, read_roster
from hive_core.adapters.git_process import GitLimits
from hive_core.adapters.journal import Journal
from hive_core.adapters.meta import MetaRepo
from hive_core.adapters.repos import ConfigRepos
from hive_core.adapters.run_dirs import RunDirs
from hive_core.adapters.sockets import bind_socket
from hive_core.adapters.store import Store
from hive_core.adapters.subids import require_free, reserve
from hive_core.adapters.systemd import notify_stopping
from hive_core.adapters.watch import DirectoryWatch
from hive_core.domain.changes import Change
from hive_core.domain.errors import Conflict, EngineUnavailable, HiveError, HostUnsuitable, InvalidSettings
from hive_core.domain.observed import Unknown
from hive_core.domain.roster import Shape
from hive_core.engine.apply import Applier
from hive_core.engine.audit import Audit
from hive_core.engine.backup import Backup, Origin
from hive_core.engine.changes import Changes
from hive_core.engine.config import ConfigSource
from hive_core.engine.creation import Creation
from hive_core.engine.disk import DiskWatch
from hive_core.engine.dispatch import Dispatcher
from hive_core.engine.doctor import Doctor
from hive_core.engine.event_log import EventLog
from hive_core.engine.facts import (
    claim_hive_id,
    remember_first_edges,
    remember_uids,
    reserved_uids,
    roster_shape,
)
from hive_core.engine.first_start import refuse_lost_store
from hive_core.engine.hive import Hive
from hive_core.engine.lifecycle import Lifecycle
from hive_core.engine.observe import Observer
from hive_core.engine.publish import FILE_NAME, Publisher
from hive_core.engine.reconcile import Reconciler
from hive_core.engine.rescue import Rescue
from hive_core.engine.restore import refuse_half_restored, restore
from hive_core.engine.wakes import EventWatch
from hive_core.planning.actions import Problem
from hive_core.planning.shutdown import plan_shutdown
from hive_core.settings import RosterShape, Settings, load_settings
from hive_core.surfaces.admin import admin_app
from hive_core.surfaces.gate import PeerProtocol

log = logging.getLogger("hived")

_ACTIONS_LIMIT_S = 12.0
_PASS_LIMIT_S = 5.0
_CONNECTIONS_LIMIT_S = 3


@dataclass(frozen=True, slots=True)
class Places:
    """The hive's paths, resolved once."""

    data: Path
    run: Path

    @property
    def admin_socket(self) -> Path:
        """Where operators connect."""
        return self.run / "admin.sock"

    @property
    def store(self) -> Path:
        """What hive remembers."""
        return self.data / "hive.db"

    @property
    def roster(self) -> Path:
        """Where the roster is published."""
        return self.data / "meta" / FILE_NAME


@dataclass(frozen=True, slots=True)
class Accounts:
    """The host accounts hive uses."""

    operator_gid: int
    git_uid: int
    git_gid: int


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; exits the process."""
    options = _parse(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    try:
        settings = load_settings(options.settings)
        if options.command == "check":
            _check(settings)
        elif options.command == "restore":
            _restore(settings, options.file)
        else:
            _run(settings, options.command)
    except HiveError as fault:
        hint = f" ({fault.hint})" if fault.hint else ""
        print(f"hived: {fault.message}{hint}", file=sys.stderr)
        raise SystemExit(2 if isinstance(fault, InvalidSettings) else 1) from None


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hived", description="The hive daemon.")
    parser.add_argument("--version", action="version", version=f"hived {__version__}")
    parser.add_argument(
        "--settings", type=Path, help="settings file (default: /etc/hive/hive.toml if it exists)"
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=("run", "check", "down", "restore"),
        default="run",
        help="run (default); check the settings and the host's accounts; or, while no daemon runs, "
        "take all agents down until the next one does, or make the hive of a backup",
    )
    parser.add_argument("file", nargs="?", type=Path, help="what to restore: an archive of hivectl backup")
    options = parser.parse_args(argv)
    if (options.command == "restore") is not (options.file is not None):
        parser.error("restore takes a file, the other commands take none")
    return options


def _check(settings: Settings) -> None:
    """Say whether the daemon could start with these settings, changing nothing."""
    _accounts(settings)
    uids = settings.uids
    if uids.reserve:
        require_free(uids.start, uids.count, ours=True)
    print(f"settings are valid: hive '{settings.hive.id}', data in {settings.paths.data}")


def _places(settings: Settings) -> Places:
    """Become what the hive's files are made as, and return where they are; the data directory then exists."""
    if os.geteuid() != 0:
        raise HostUnsuitable("hived needs root: it mounts, chowns and drives the engine", "run it as root")
    os.umask(0o077)
    places = Places(settings.paths.data.resolve(), settings.paths.run.resolve())
    check_parent(places.data)
    make_dir(places.data, mode=0o711)
    return places


def _run(settings: Settings, command: str) -> None:
    places = _places(settings)
    check_parent(places.run)
    make_dir(places.run, mode=0o755)
    with _lock(places.data / "lock"):
        refuse_half_restored(places.data)
        refuse_lost_store(places.store, places.data / "agents")
        if command == "down":
            _take_down(settings, places)
        else:
            with _assembled(settings, places) as assembly:
                asyncio.run(_serve(assembly))
        logging.shutdown()
        # Ends now: a worker that hangs in an engine call must not keep a stopped daemon and its lock alive.
        os._exit(0)


def _restore(settings: Settings, file: Path) -> None:
    """Make the hive of a backup in the data directory, which has none yet."""
    accounts = _accounts(settings)
    places = _places(settings)
    uids = range(settings.uids.start, settings.uids.start + settings.uids.count)
    with _lock(places.data / "lock"):
        done = restore(file, _origin(settings, places, accounts), uids, Clock())
    agents = "1 agent" if done.agents == 1 else f"{done.agents} agents"
    state = "" if done.with_state else ", without their state and home"
    print(f"restored hive '{settings.hive.id}' as of {done.made_at}: {agents}{state}, in {done.took_s:.1f} s")
    for kind, count in sorted(done.skipped.items()):
        print(f"  the backup had left out: {kind} ({count})")
    print("it will start paused: start hived, look around, then hivectl resume")


def _origin(settings: Settings, places: Places, accounts: Accounts) -> Origin:
    return Origin(settings.hive.id, places.data, places.run, accounts.git_uid, accounts.git_gid)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the hive's lock for the daemon's life; children never inherit it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise Conflict(
                f"another hived (pid {holder}) is already running for {path.parent}",
                "stop it first, or use it: hivectl status",
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def _accounts(settings: Settings) -> Accounts:
    try:
        group = grp.getgrnam(settings.admin.group)
    except KeyError:
        raise HostUnsuitable(
            f"there is no group '{settings.admin.group}' (admin.group)",
            f"groupadd --system {settings.admin.group}",
        ) from None
    try:
        user = pwd.getpwnam(settings.git.user)
    except KeyError:
        raise HostUnsuitable(
            f"there is no user '{settings.git.user}' (git.user)",
            f"useradd --system --no-create-home --shell /usr/sbin/nologin {settings.git.user}",
        ) from None
    if user.pw_uid == 0:
        raise HostUnsuitable("git.user must not be root", "name a user that can do nothing else")
    return Accounts(group.gr_gid, user.pw_uid, user.pw_gid)


def _reserve_uids(settings: Settings, store: Store) -> None:
    uids = settings.uids
    is_ours = reserved_uids(store) == (uids.start, uids.count)
    if not uids.reserve:
        return
    if not is_ours:
        require_free(uids.start, uids.count, ours=False)
        remember_uids(store, uids.start, uids.count)
    reserve(uids.start, uids.count, ours=True)


class Assembly:
    """The parts of one hive, each made when first asked for. Nothing here decides anything."""

    def __init__(
        self, settings: Settings, places: Places, accounts: Accounts, store: Store, is_new: bool
    ) -> None:
        paths = settings.paths.model_copy(update={"data": places.data, "run": places.run})
        self.settings = settings.model_copy(update={"paths": paths})
        self.places = places
        self.accounts = accounts
        self.origin = _origin(settings, places, accounts)
        self.store = store
        self.is_new = is_new
        self.clock = Clock()
        self.events = EventLog(store, self.clock)
        chain = AuditLog(places.data / "audit", keep_segments=settings.audit.keep_segments)
        if chain.torn:
            log.warning("%s", chain.torn)
        self.audit = Audit(chain, self.clock)
        self.changes = Changes(self.clock, Journal(store), self._told_of_change)
        self.events.change_of = self.changes.of_agent
        self.evidence = EvidenceRoom(places.data / "evidence", store)
        self.run_dirs = RunDirs(places.run)
        self.dirs = AgentDirs(places.data / "agents")
        self.meta = MetaRepo(places.data / "meta")
        self.engine = DockerEngine(str(settings.engine.socket), settings.engine.call_timeout_s)
        limits = GitLimits(wall_s=settings.git.timeout_s)
        self.repos = ConfigRepos(places.data / "repos", accounts.git_uid, accounts.git_gid, limits)

    def _told_of_change(self, change: Change) -> None:
        """Put the end of a change into the audit; what is over can no longer be refused for that."""
        texts = "; ".join(part.text for part in change.parts if part.text)
        text = change.error.message if change.error is not None else texts
        try:
            self.audit.ended(change.id, change.kind, change.state.value, text)
        except HiveError as fault:
            log.error("%s", fault.message)

    def prepare_host(self) -> None:
        """Make what is missing on disk and below the run directory; safe while agents run."""
        for note in self.meta.prepare():
            log.warning("%s", note)
        self.publisher.resume()
        self.run_dirs.prepare()
        make_dir(self.places.data / "agents", mode=0o700)
        unmounted = self.repos.prepare(self.settings.hive.id, expect_marker=not self.is_new)
        if unmounted is not None:
            log.warning("%s", unmounted.reason)

    @cached_property
    def shape(self) -> Shape:
        """How rosters are written; settled at the very first start."""
        found = read_roster(self.places.roster)
        if self.is_new:
            remember_first_edges(self.store, found)
        setting = self.settings.hive.roster_shape
        wished = None if setting is RosterShape.AUTO else Shape(setting.value)
        return roster_shape(self.store, wished, found)

    @cached_property
    def config(self) -> ConfigSource:
        """Manifests and specs."""
        return ConfigSource(self.settings, self.repos, self.dirs, self.engine, self.clock)

    @cached_property
    def observer(self) -> Observer:
        """What a pass sees."""
        return Observer(
            self.settings,
            self.store,
            self.engine,
            self.repos,
            self.config,
            self.places.roster,
            self.shape,
            boot_time(),
            lambda: self.disk_watch.facts,
            self.clock,
        )

    @cached_property
    def applier(self) -> Applier:
        """What carries out actions."""
        return Applier(
            self.settings,
            self.store,
            self.engine,
            self.repos,
            self.dirs,
            self.run_dirs,
            self.config,
            self.events,
            self.evidence,
            self.clock,
            self.observer.forget,
        )

    @cached_property
    def dispatcher(self) -> Dispatcher:
        """The workers."""
        workers = self.settings.reconcile
        return Dispatcher(
            self.applier,
            self.clock,
            workers.start_workers,
            workers.stop_workers,
            on_done=lambda: self.reconciler.wake(),  # noqa: PLW0108  # made later: the two need each other
        )

    @cached_property
    def publisher(self) -> Publisher:
        """The roster's way to disk."""
        return Publisher(self.store, self.meta, self.places.roster, self.events)

    @cached_property
    def reconciler(self) -> Reconciler:
        """The loop."""
        return Reconciler(
            self.store,
            self.engine,
            self.observer,
            self.dispatcher,
            self.publisher,
            self.changes,
            self.events,
            self.audit,
            self.clock,
            self.settings.reconcile.interval_s,
        )

    @cached_property
    def event_watch(self) -> EventWatch:
        """Engine events."""
        return EventWatch(
            self.settings.hive.id,
            self.engine,
            self.settings.engine.event_window_s,
            self.observer,
            self.config,
            self.store,
            self.clock,
            self.is_own_work,
            self.reconciler.wake_twice,
        )

    def is_own_work(self, container_id: str) -> bool:
        """Whether an action on the agent of this container is under way, so that its events are our doing."""
        agent = next((one.agent for one in self.store.containers() if one.id == container_id), None)
        return agent is not None and agent in self.dispatcher.working()

    @cached_property
    def directory_watch(self) -> DirectoryWatch:
        """Changed files."""
        watched = (self.places.data / "meta", self.places.data / "repos")
        return DirectoryWatch(watched, lambda _path: self.reconciler.wake())

    @cached_property
    def disk_watch(self) -> DiskWatch:
        """Disk budgets."""
        return DiskWatch(
            self.settings.disk,
            self.places.data,
            self.dirs,
            self.store,
            lambda: self.reconciler.wake(),  # noqa: PLW0108  # made later: the two need each other
        )

    def keep_run_dirs(self) -> tuple[Problem, ...]:
        """Make the run directory again if somebody cleared it while no container ran."""
        if not self.run_dirs.meta.is_dir():
            log.warning("%s was cleared; it is made again", self.places.run)
            try:
                self.run_dirs.prepare()
            except HiveError as fault:
                return (Problem("run_dirs", fault.message),)
        if not self.places.admin_socket.exists():
            text = f"{self.places.admin_socket} was removed: who is not connected yet cannot reach hived"
            return (Problem("admin_socket_gone", f"{text}; restart it, agents run on"),)
        return ()

    def host_problems(self) -> tuple[Problem, ...]:
        """Return what is wrong with the host, for `status`."""
        problem = self.directory_watch.problem
        watch = (Problem("file_watch", problem),) if problem else ()
        return (*watch, *self.disk_watch.problems())

    @cached_property
    def hive(self) -> Hive:
        """What the surfaces see."""
        creation = Creation(
            self.settings,
            self.store,
            self.repos,
            self.dirs,
            self.config,
            self.reconciler,
            self.dispatcher,
            self.changes,
            self.events,
            self.disk_watch.require_space,
            self.clock,
            self.shape,
        )
        self.reconciler.housekeeping = lambda: (*self.keep_run_dirs(), *creation.ensure_root())
        rescue = Rescue(self.settings.hive.id, self.store, self.engine, self.applier, self.dispatcher)
        rescue.clean_up()
        self.reconciler.host_problems = self.host_problems
        self.store.on_full = self.audit.make_room = self.disk_watch.make_room
        return Hive(
            self.settings,
            self.store,
            self.engine,
            self.repos,
            self.config,
            self.reconciler,
            Lifecycle(
                self.settings,
                self.store,
                self.config,
                self.reconciler,
                self.dispatcher,
                self.changes,
                self.disk_watch.require_space,
                self.clock,
            ),
            creation,
            self.changes,
            self.events,
            self.audit,
            self.evidence,
            rescue,
            self.publisher,
            Backup(self.origin, self.store, self.clock),
            Doctor(self.settings, self.engine, self.run_dirs, lambda: self.directory_watch.problem),
            self.disk_watch,
            self.clock,
        )


@contextmanager
def _assembled(settings: Settings, places: Places) -> Iterator[Assembly]:
    """Open the hive's store and hand out its parts, with the host made ready for them."""
    accounts = _accounts(settings)
    store = Store(places.store)
    try:
        is_new = claim_hive_id(store, settings.hive.id)
        _reserve_uids(settings, store)
        assembly = Assembly(settings, places, accounts, store, is_new)
        assembly.shape  # noqa: B018  # the file as found, before anything is written
        assembly.prepare_host()
        yield assembly
    finally:
        store.close()


def _take_down(settings: Settings, places: Places) -> None:
    """Stop every agent's container, all at once; what is desired stays, so the next daemon starts them."""
    with _assembled(settings, places) as assembly:
        _, observed = assembly.observer.observe(frozenset())
        if isinstance(observed.containers, Unknown):
            raise EngineUnavailable(f"cannot stop the agents: {observed.containers.reason}")
        plans = plan_shutdown(observed.containers, settings.container.stop_grace_s)
        assembly.dispatcher.submit(plans)
        left = assembly.dispatcher.close_when_idle(settings.container.stop_grace_s + _ACTIONS_LIMIT_S)
        holds = assembly.dispatcher.holds()
        if left or holds:
            names = ", ".join(sorted(left | holds.keys()))
            raise HiveError(f"cannot stop {names}", "see the log above, or the engine's own")
        print(f"stopped {len(plans)} agents; they run again when hived does")


class _Server(uvicorn.Server):
    """uvicorn, leaving signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(assembly: Assembly) -> None:
    """Answer on the admin socket, then start to reconcile; stop in the reverse order when told."""
    gid = assembly.accounts.operator_gid
    listener = bind_socket(assembly.places.admin_socket, 0o660, 0, gid)
    server = _Server(
        uvicorn.Config(
            admin_app(assembly.hive, gid),
            http=PeerProtocol,
            ws="websockets-sansio",
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_CONNECTIONS_LIMIT_S,
        )
    )
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    assembly.event_watch.start()
    assembly.directory_watch.start()
    assembly.disk_watch.start()
    assembly.reconciler.start()
    log.info("hived %s serves hive '%s' (pid %d)", __version__, assembly.settings.hive.id, os.getpid())
    waiting = asyncio.create_task(told.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    await _stop(assembly, server, serving)


async def _stop(assembly: Assembly, server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    """Refuse new work, let waiters go, finish what is under way within bounds. Agents run on."""
    log.info("stopping; agents run on")
    notify_stopping()
    assembly.hive.lifecycle.refuse_more()
    assembly.changes.close()
    assembly.events.close()
    assembly.event_watch.stop()
    assembly.disk_watch.stop()
    await asyncio.to_thread(assembly.directory_watch.stop)
    await asyncio.to_thread(assembly.reconciler.stop, _PASS_LIMIT_S)
    left = await asyncio.to_thread(assembly.dispatcher.close, _ACTIONS_LIMIT_S)
    if left:
        log.warning("not finished, will be planned again: %s", ", ".join(sorted(left)))
    head = assembly.audit.head
    log.info("audit head %d:%s", head.seq, head.hash)
    server.should_exit = True
    await serving
    assembly.audit.flush(is_last=True)
