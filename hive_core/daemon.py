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
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from hive_core import __version__
from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.clock import Clock, boot_time
from hive_core.adapters.docker import DockerEngine
from hive_core.adapters.files import check_parent, make_dir, read_roster
from hive_core.adapters.git_process import GitLimits
from hive_core.adapters.meta import MetaRepo
from hive_core.adapters.repos import ConfigRepos
from hive_core.adapters.run_dirs import RunDirs
from hive_core.adapters.sockets import bind_socket
from hive_core.adapters.store import Store
from hive_core.adapters.subids import require_free, reserve
from hive_core.adapters.systemd import notify_stopping
from hive_core.adapters.watch import DirectoryWatch
from hive_core.domain.errors import Conflict, HiveError, HostUnsuitable, InvalidSettings
from hive_core.domain.roster import Shape
from hive_core.engine.apply import Applier
from hive_core.engine.changes import Changes
from hive_core.engine.config import ConfigSource
from hive_core.engine.creation import Creation
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
from hive_core.engine.hive import Hive
from hive_core.engine.lifecycle import Lifecycle
from hive_core.engine.observe import Observer
from hive_core.engine.publish import FILE_NAME, Publisher
from hive_core.engine.reconcile import Reconciler
from hive_core.engine.wakes import EventWatch
from hive_core.planning.actions import Problem
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
    def roster(self) -> Path:
        """Where the roster is published."""
        return self.data / "meta" / FILE_NAME


@dataclass(frozen=True, slots=True)
class Accounts:
    """The host accounts hive uses."""

    operator_gid: int
    git_uid: int
    git_gid: int


@dataclass(frozen=True, slots=True)
class Parts:
    """What `serve` starts and stops."""

    hive: Hive
    reconciler: Reconciler
    dispatcher: Dispatcher
    events: EventLog
    event_watch: EventWatch
    directory_watch: DirectoryWatch


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; exits the process."""
    options = _parse(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    try:
        settings = load_settings(options.settings)
        if options.command == "check":
            _check(settings)
        else:
            _run(settings)
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
        choices=("run", "check"),
        default="run",
        help="run (default), or check the settings and the host's accounts",
    )
    return parser.parse_args(argv)


def _check(settings: Settings) -> None:
    """Say whether the daemon could start with these settings, changing nothing."""
    _accounts(settings)
    uids = settings.uids
    if uids.reserve:
        require_free(uids.start, uids.count, ours=True)
    print(f"settings are valid: hive '{settings.hive.id}', data in {settings.paths.data}")


def _run(settings: Settings) -> None:
    if os.geteuid() != 0:
        raise HostUnsuitable("hived needs root: it mounts, chowns and drives the engine", "run it as root")
    os.umask(0o077)
    places = Places(settings.paths.data.resolve(), settings.paths.run.resolve())
    for path, mode in ((places.data, 0o711), (places.run, 0o755)):
        check_parent(path)
        make_dir(path, mode=mode)
    with _lock(places.data / "lock"):
        asyncio.run(_serve(settings, places))
        logging.shutdown()
        # Ends now: a worker that hangs in an engine call must not keep a stopped daemon and its lock alive.
        os._exit(0)


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


def _shape(settings: Settings, store: Store, places: Places, is_new: bool) -> Shape:
    found = read_roster(places.roster)
    if is_new:
        remember_first_edges(store, found)
    setting = settings.hive.roster_shape
    wished = None if setting is RosterShape.AUTO else Shape(setting.value)
    return roster_shape(store, wished, found)


def _compose(settings: Settings, places: Places, accounts: Accounts, store: Store, is_new: bool) -> Parts:
    """Put the parts together. Nothing here decides anything."""
    clock = Clock()
    shape = _shape(settings, store, places, is_new)
    meta = MetaRepo(places.data / "meta")
    for note in meta.prepare():
        log.warning("%s", note)
    run_dirs = RunDirs(places.run)
    run_dirs.prepare()
    make_dir(places.data / "agents", mode=0o700)
    dirs = AgentDirs(places.data / "agents")
    repos = ConfigRepos(
        places.data / "repos", accounts.git_uid, accounts.git_gid, GitLimits(wall_s=settings.git.timeout_s)
    )
    unmounted = repos.prepare(settings.hive.id, expect_marker=not is_new)
    if unmounted is not None:
        log.warning("%s", unmounted.reason)
    engine = DockerEngine(str(settings.engine.socket), settings.engine.call_timeout_s)
    events = EventLog(store, clock)
    changes = Changes(clock)
    resolved = settings.model_copy(
        update={"paths": settings.paths.model_copy(update={"data": places.data, "run": places.run})}
    )
    config = ConfigSource(resolved, repos, dirs, engine, clock)
    observer = Observer(resolved, store, engine, repos, config, places.roster, shape, boot_time(), clock)
    applier = Applier(resolved, store, engine, repos, dirs, run_dirs, config, events, clock, observer.forget)
    dispatcher = Dispatcher(
        applier,
        clock,
        settings.reconcile.start_workers,
        settings.reconcile.stop_workers,
        on_done=lambda: reconciler.wake(),  # noqa: PLW0108  # made below: the two need each other
    )
    publisher = Publisher(store, meta, places.roster, events)
    reconciler = Reconciler(
        store,
        engine,
        observer,
        dispatcher,
        publisher,
        changes,
        events,
        clock,
        settings.reconcile.interval_s,
    )
    lifecycle = Lifecycle(resolved, store, config, reconciler, dispatcher, changes, clock)
    creation = Creation(
        resolved, store, repos, dirs, config, reconciler, dispatcher, changes, events, clock, shape
    )
    event_watch = EventWatch(
        settings.hive.id,
        engine,
        settings.engine.event_window_s,
        observer,
        config,
        store,
        clock,
        reconciler.wake,
    )
    directory_watch = DirectoryWatch(
        (places.data / "meta", places.data / "repos"), lambda _path: reconciler.wake()
    )
    doctor = Doctor(resolved, engine, run_dirs, lambda: directory_watch.problem)
    reconciler.housekeeping = creation.ensure_root
    reconciler.host_problems = lambda: (
        (Problem("file_watch", directory_watch.problem),) if directory_watch.problem else ()
    )
    hive = Hive(
        resolved,
        store,
        engine,
        repos,
        config,
        reconciler,
        lifecycle,
        creation,
        changes,
        events,
        doctor,
        clock,
    )
    return Parts(hive, reconciler, dispatcher, events, event_watch, directory_watch)


class _Server(uvicorn.Server):
    """uvicorn, leaving signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(settings: Settings, places: Places) -> None:
    """Open the store, answer on the admin socket, then start to reconcile; stop in the reverse order."""
    accounts = _accounts(settings)
    store = Store(places.data / "hive.db")
    try:
        is_new = claim_hive_id(store, settings.hive.id)
        _reserve_uids(settings, store)
        parts = _compose(settings, places, accounts, store, is_new)
        listener = bind_socket(places.admin_socket, 0o660, 0, accounts.operator_gid)
        server = _Server(
            uvicorn.Config(
                admin_app(parts.hive, accounts.operator_gid),
                http=PeerProtocol,
                ws="websockets-sansio",
                lifespan="off",
                log_level="warning",
                access_log=False,
                timeout_graceful_shutdown=_CONNECTIONS_LIMIT_S,
            )
        )
        await _serve_until_told(parts, server, listener)
    finally:
        store.close()


async def _serve_until_told(parts: Parts, server: uvicorn.Server, listener: socket.socket) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    parts.event_watch.start()
    parts.directory_watch.start()
    parts.reconciler.start()
    log.info("hived %s serves hive '%s' (pid %d)", __version__, parts.hive.settings.hive.id, os.getpid())
    waiting = asyncio.create_task(told.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    await _stop(parts, server, serving)


async def _stop(parts: Parts, server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    """Refuse new work, let waiters go, finish what is under way within bounds. Agents run on."""
    log.info("stopping; agents run on")
    notify_stopping()
    parts.hive.lifecycle.refuse_more()
    parts.hive.changes.close()
    parts.events.close()
    parts.event_watch.stop()
    await asyncio.to_thread(parts.directory_watch.stop)
    await asyncio.to_thread(parts.reconciler.stop, _PASS_LIMIT_S)
    left = await asyncio.to_thread(parts.dispatcher.close, _ACTIONS_LIMIT_S)
    if left:
        log.warning("not finished, will be planned again: %s", ", ".join(sorted(left)))
    server.should_exit = True
    await serving
