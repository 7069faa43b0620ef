"""Deletes a hive's data from its host. `scripts/uninstall --purge` runs it with the installed interpreter.

With --check it only says what stands in the way. The order is what makes it safe: no container of the hive
runs, then the daemon's lock is held, then the mounts of the run directory go, and only what has no mount
left below it is deleted.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters.docker import DockerEngine
from hive_core.adapters.mountinfo import read_mounts
from hive_core.adapters.run_dirs import RunDirs
from hive_core.adapters.store import Store
from hive_core.adapters.subids import LOCK_FILE, SUBID_FILES, release
from hive_core.domain.errors import Conflict, HiveError
from hive_core.domain.observed import EngineState, ListedContainer
from hive_core.engine.facts import claim_hive_id, reserved_uids
from hive_core.settings import Settings, load_settings

_DOWN = frozenset({EngineState.CREATED, EngineState.EXITED, EngineState.DEAD, EngineState.REMOVING})


@dataclass(frozen=True, slots=True)
class Hive:
    """What is to be deleted, and where. `root` is "/" unless the installation is a redirected one."""

    settings: Settings
    root: Path
    data: Path
    run: Path

    @property
    def id(self) -> str:
        """The hive's id."""
        return self.settings.hive.id


def main(arguments: list[str]) -> int:
    """Check or purge; 1 with one line on stderr when something stands in the way."""
    parser = argparse.ArgumentParser(prog="purge")
    parser.add_argument(
        "--settings", type=Path, required=True, help="settings file; defaults if there is none"
    )
    parser.add_argument("--root", type=Path, default=Path("/"), help="where paths that are not set lie")
    parser.add_argument("--check", action="store_true", help="change nothing")
    options = parser.parse_args(arguments)
    try:
        hive = _find(options.settings, options.root)
        down = _refuse_running(hive)
        if not options.check:
            _purge(hive, down)
    except HiveError as fault:
        hint = f" ({fault.hint})" if fault.hint else ""
        sys.stderr.write(f"error: {fault.message}{hint}\n")
        return 1
    return 0


def _find(settings_file: Path, root: Path) -> Hive:
    settings = load_settings(settings_file) if settings_file.exists() else Settings()
    named = settings.paths.model_fields_set
    data, run = (
        path if name in named else root / path.relative_to("/")
        for name, path in (("data", settings.paths.data), ("run", settings.paths.run))
    )
    data = data.resolve()
    if data.exists() and not any((data / name).exists() for name in ("hive.db", "lock")):
        raise Conflict(
            f"cannot delete {data}: it has no store of a hive", "look at it, then delete it yourself"
        )
    return Hive(settings, root, data, run.resolve())


def _refuse_running(hive: Hive) -> tuple[ListedContainer, ...]:
    """Return the hive's containers, all of which are down; raises Conflict when one is not."""
    if not hive.data.exists():
        return ()
    settings = hive.settings.engine
    listed = DockerEngine(str(settings.socket), settings.call_timeout_s).list_containers(hive.id)
    alive = sorted(one.name for one in listed if one.state not in _DOWN)
    if alive:
        raise Conflict(
            f"cannot delete hive '{hive.id}': its containers run: {', '.join(alive)}",
            "stop the daemon (systemctl stop hived), then its agents (hived down), then run this again",
        )
    return listed


def _purge(hive: Hive, down: tuple[ListedContainer, ...]) -> None:
    ranges = {(hive.settings.uids.start, hive.settings.uids.count)}
    if hive.data.exists():
        with _locked(hive.data / "lock"):
            ours, recorded = _records(hive)
            _remove_containers(hive, down, ours)
            ranges |= recorded
            _remove_run(hive.run)
            _remove_data(hive.data)
    if hive.settings.uids.reserve:
        subids = tuple(hive.root / file.relative_to("/") for file in SUBID_FILES)
        for start, count in ranges:
            release(start, count, subids=subids, lock=hive.root / LOCK_FILE.relative_to("/"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep every daemon of this hive away meanwhile."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Conflict(f"cannot delete {path.parent}: a hived runs there", "stop it first") from None
    finally:
        os.close(fd)


def _records(hive: Hive) -> tuple[frozenset[str], set[tuple[int, int]]]:
    """Return the ids of the containers this hive made and the uid range it took."""
    if not (hive.data / "hive.db").exists():
        return frozenset(), set()
    store = Store(hive.data / "hive.db")
    try:
        claim_hive_id(store, hive.id)
        found = reserved_uids(store)
        return frozenset(one.id for one in store.containers() if one.id), {found} if found else set()
    finally:
        store.close()


def _remove_containers(hive: Hive, down: tuple[ListedContainer, ...], ours: frozenset[str]) -> None:
    settings = hive.settings.engine
    engine = DockerEngine(str(settings.socket), settings.call_timeout_s)
    for one in down:
        if one.id in ours:
            engine.remove(one.id)
        else:
            sys.stderr.write(
                f"left alone: container {one.name} has this hive's label, but hive did not make it\n"
            )


def _remove_run(run: Path) -> None:
    """Unmount, then remove sockets and empty directories; never deletes into anything."""
    if not run.exists():
        return
    RunDirs(run).teardown()
    for directory, _, names in os.walk(run, topdown=False):
        for name in names:
            path = Path(directory, name)
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        try:
            Path(directory).rmdir()
        except OSError as fault:
            raise Conflict(f"cannot remove {directory}: {fault.strerror}", "look at what is in it") from fault


def _remove_data(data: Path) -> None:
    """Delete the data; a directory that is a mount of its own stays, empty."""
    table = read_mounts()
    if held := table.below(data):
        raise Conflict(
            f"cannot delete {data}: {held[0].target} is mounted below it", f"umount {held[0].target}"
        )
    # Agents make trees deeper than a recursive call reaches; rm walks them, and no agent is left to race it.
    doomed = sorted(data.iterdir()) if table.find(data) else [data]
    done = subprocess.run(["rm", "-rf", "--one-file-system", "--", *map(str, doomed)], check=False)
    if done.returncode != 0:
        raise HiveError(f"cannot delete all of {data}", "rm said why, above")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
