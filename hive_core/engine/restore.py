"""Restore: a hive made from a backup, whole or not at all, and paused until somebody has looked at it.

Called by `daemon` for `hived restore`, with the hive's lock held. Everything is laid out below one directory
inside the data directory, which may be a mount of its own; then it is moved into place, the store last. Where
that was interrupted there is no store, and no daemon starts.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.archive import FORMAT, Archive, opened_archive
from hive_core.adapters.archive_extract import AUDIT, META, STORE, TREES, Extraction, Owners, make_durable
from hive_core.adapters.audit import AuditLog
from hive_core.adapters.clock import Clock
from hive_core.adapters.files import make_dir, opened_directory, write_atomic
from hive_core.adapters.moved_store import agent_uids, end_pending, forget_evidence, live_agents, move_specs
from hive_core.adapters.repo_tree import remove_tree
from hive_core.adapters.schema import MIGRATIONS
from hive_core.adapters.store import Store
from hive_core.domain.errors import Conflict, HiveError, owned
from hive_core.engine.audit import Audit
from hive_core.engine.backup import Origin
from hive_core.engine.event_log import EventLog
from hive_core.engine.facts import claim_hive_id, forget_uids, published_roster, remember_paused
from hive_core.engine.publish import FILE_NAME

_STAGING = ".restoring"
_UNCOUNTED = frozenset({"lock", "lost+found", _STAGING})
_BY = "restore"


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored, for people."""

    made_at: str
    version: str
    agents: int
    with_state: bool
    skipped: Mapping[str, int]
    took_s: float


@dataclass(frozen=True, slots=True)
class _Manifest:
    hive_id: str
    version: str
    schema: int
    made_at: str
    data: str
    run: str
    git: tuple[int, int]
    with_state: bool


def refuse_half_restored(data: Path) -> None:
    """Raise Conflict when a restore into this directory was interrupted; remains of one that ended go."""
    staging = data / _STAGING
    if not os.path.lexists(staging):
        return
    if not (data / STORE).exists():
        raise Conflict(
            f"cannot start in {data}: a restore was interrupted", "run it again: hived restore FILE"
        )
    with opened_directory(data) as data_fd:
        remove_tree(data_fd, _STAGING)


def restore(file: Path, here: Origin, uids: range, clock: Clock) -> Restored:
    """Make the hive of a backup in `here.data`. Raises HiveError; that is then as empty as before."""
    began = time.monotonic()
    with opened_archive(file) as archive:
        manifest = _read_manifest(archive)
        _require_ours(archive, manifest, here.hive_id)
        _require_empty(here.data)
        with _staged(here.data) as staging:
            owners = Owners(manifest.git, (here.git_uid, here.git_gid), uids)
            _lay_out(archive, staging, owners)
            agents = _settle(archive, manifest, staging, here, clock)
            _move_into_place(staging, here.data)
        skipped = archive.seal.get("skipped")
    return Restored(
        manifest.made_at,
        manifest.version,
        agents,
        manifest.with_state,
        skipped if isinstance(skipped, dict) else {},
        time.monotonic() - began,
    )


# ---- what may be restored ---------------------------------------------------------------------------------


def _read_manifest(archive: Archive) -> _Manifest:
    untrusted = archive.manifest
    version = untrusted.get("format")
    if not isinstance(version, int):
        raise archive.refused("its manifest names no format")
    if version > FORMAT:
        made_by = ascii(untrusted.get("version"))[:40]
        raise archive.refused(
            f"its format is {version}, this hive knows up to {FORMAT}",
            f"restore it with a hive as new as the one that made it: {made_by}",
        )
    try:
        return _parsed(untrusted)
    except (KeyError, TypeError, ValueError):
        raise archive.refused("its manifest is not what it must be") from None


def _parsed(untrusted: Mapping[str, Any]) -> _Manifest:
    git_uid, git_gid = untrusted["git"]
    paths = untrusted["paths"]
    return _Manifest(
        hive_id=_text(untrusted["hive"]),
        version=_text(untrusted["version"]),
        schema=int(untrusted["schema"]),
        made_at=_text(untrusted["made_at"]),
        data=_text(paths["data"]),
        run=_text(paths["run"]),
        git=(int(git_uid), int(git_gid)),
        with_state=bool(untrusted["state"]),
    )


def _text(untrusted: object) -> str:
    if not isinstance(untrusted, str) or not untrusted.isprintable():
        raise ValueError("no text")
    return untrusted


def _require_ours(archive: Archive, manifest: _Manifest, hive_id: str) -> None:
    if manifest.hive_id != hive_id:
        raise archive.refused(
            f"it is of hive '{manifest.hive_id}', the settings say '{hive_id}'",
            f'set id = "{manifest.hive_id}" below [hive], or name another backup',
        )
    if manifest.schema > len(MIGRATIONS):
        raise archive.refused(
            f"its store has version {manifest.schema}, this hive knows up to {len(MIGRATIONS)}",
            f"restore it with a hive as new as the one that made it: {manifest.version}",
        )


def _require_empty(data: Path) -> None:
    with opened_directory(data) as data_fd:
        found = set(os.listdir(data_fd))
        if _STAGING in found and STORE not in found:
            # An earlier restore into a directory that was empty: all of this is its.
            for name in (*TREES, _STAGING):
                remove_tree(data_fd, name)
            found = set(os.listdir(data_fd))
    left = sorted(found - _UNCOUNTED)
    if left:
        what = "there is a hive" if STORE in left else f"it is not empty ({ascii(left[0])[:80]})"
        raise Conflict(f"cannot restore into {data}: {what}", f"move it away first: mv {data} {data}.before")


# ---- laying it out ----------------------------------------------------------------------------------------


@contextmanager
def _staged(data: Path) -> Iterator[Path]:
    """Hold a directory to lay out in; whatever is left of it afterwards is removed."""
    staging = data / _STAGING
    make_dir(staging, mode=0o700)
    try:
        yield staging
    except OSError as fault:
        hint = "free some disk space" if fault.errno in (errno.ENOSPC, errno.EDQUOT) else owned(fault).hint
        raise HiveError(f"cannot restore into {data}: {fault.strerror or fault}", hint) from fault
    finally:
        with opened_directory(data) as data_fd:
            remove_tree(data_fd, _STAGING)


def _lay_out(archive: Archive, staging: Path, owners: Owners) -> None:
    extraction = Extraction(archive, staging, owners)
    try:
        extraction.store()
        _require_uids(archive, staging, owners.uids)
        extraction.trees()
    finally:
        extraction.close()


def _require_uids(archive: Archive, staging: Path, uids: range) -> None:
    """Refuse agents whose uids this hive may not use, before anything of theirs is written."""
    store = Store(staging / STORE)
    try:
        known = agent_uids(store)
    finally:
        store.close()
    for name, uid in known:
        if uid not in uids:
            raise archive.refused(
                f"agent {name} has uid {uid}, and the settings' range is {uids.start}-{uids.stop - 1}",
                f"set uids.start and uids.count so that {known[0][1]}-{known[-1][1]} is inside",
            )


def _settle(archive: Archive, manifest: _Manifest, staging: Path, here: Origin, clock: Clock) -> int:
    """End what was under way, and let everything speak of where it is now; return the number of agents."""
    store = Store(staging / STORE)
    try:
        if claim_hive_id(store, here.hive_id):
            raise archive.refused("its store belongs to no hive")
        now = clock.now()
        end_pending(store, now)
        move_specs(store, {manifest.data: str(here.data), manifest.run: str(here.run)})
        forget_uids(store)
        remember_paused(store, _BY)
        events = EventLog(store, clock)
        events.add("restored", None, f"restored from a backup of {manifest.made_at}; automation is paused")
        agents = live_agents(store)
        if not manifest.with_state:
            forget_evidence(store)
            dirs = AgentDirs(staging / "agents")
            for name, uid in agents.items():
                dirs.create(name, uid)
        published = published_roster(store)
    finally:
        store.close()
    if published is not None:
        # The store's word: the file may have been read a moment later.
        make_dir(staging / META, mode=0o755)
        write_atomic(staging / META / FILE_NAME, published, 0o644)
    Audit(AuditLog(staging / AUDIT), clock).asked("uid 0", _BY, None, backup=manifest.made_at)
    return len(agents)


def _move_into_place(staging: Path, data: Path) -> None:
    """Make all of it durable, then move it: trees first, and the store, with which it becomes a hive."""
    with opened_directory(staging) as staging_fd, opened_directory(data) as data_fd:
        make_durable(staging_fd)
        moved: list[str] = []
        try:
            for name in (*TREES, STORE):
                with suppress(FileNotFoundError):
                    os.rename(name, name, src_dir_fd=staging_fd, dst_dir_fd=data_fd)
                    moved.append(name)
            os.fsync(data_fd)
        except OSError:
            for name in moved:
                os.rename(name, name, src_dir_fd=data_fd, dst_dir_fd=staging_fd)
            raise
