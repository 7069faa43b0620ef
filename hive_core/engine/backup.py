"""Backups: the whole hive as one archive, made while it runs.

Asked for by the surfaces, restored by `engine.restore`. The store is copied first, at one consistent moment;
the trees are read after it. So everything the store names is in the archive unless it was removed meanwhile,
and what was added meanwhile is in it as what a crash at that moment would have left.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hive_core import __version__
from hive_core.adapters.agent_dirs import RETIRED
from hive_core.adapters.archive import FORMAT, MANIFEST, ArchiveWriter
from hive_core.adapters.archive_extract import AGENTS, AUDIT, EVIDENCE, META, PRIVATE, REPOS, STORE
from hive_core.adapters.archive_trees import TreeReader, gathered
from hive_core.adapters.clock import Clock
from hive_core.adapters.files import opened_directory
from hive_core.adapters.repo_tree import opened
from hive_core.adapters.repos import MARKER
from hive_core.adapters.repos import RETIRED as RETIRED_REPOS
from hive_core.adapters.schema import MIGRATIONS
from hive_core.adapters.store import Store
from hive_core.domain.errors import HiveError, InvalidName, UnsafePath
from hive_core.domain.events import timestamp
from hive_core.domain.names import parse_name

_COPY = ".backup-"


@dataclass(frozen=True, slots=True)
class Origin:
    """What an archive says of the hive it is of: where its roots are, and which account its git is."""

    hive_id: str
    data: Path
    run: Path
    git_uid: int
    git_gid: int


class Backup:
    """Makes backups of one hive. Thread-safe: several may be under way."""

    def __init__(self, origin: Origin, store: Store, clock: Clock) -> None:
        self._origin = origin
        self._store = store
        self._clock = clock
        self._copying = threading.Lock()

    def pieces(self, *, with_state: bool) -> Iterator[bytes]:
        """Yield the archive. Raises HiveError before the first piece when the store cannot be copied."""
        return gathered(self._members(ArchiveWriter(), with_state))

    def _members(self, writer: ArchiveWriter, with_state: bool) -> Iterator[bytes]:
        plain = TreeReader(writer, with_links=False)
        with self._copied_store() as store_fd, opened_directory(self._origin.data) as data_fd:
            yield from writer.document(MANIFEST, self._manifest(with_state))
            yield from plain.file(store_fd, STORE)
            yield from plain.tree(data_fd, META, META)
            yield from self._repos(plain, data_fd)
            yield from plain.tree(data_fd, AUDIT, AUDIT)
            if with_state:
                yield from self._agents(TreeReader(writer, with_links=True), data_fd)
                if _is_directory(data_fd, EVIDENCE):
                    yield from plain.tree(data_fd, EVIDENCE, EVIDENCE)
            yield from writer.seal()

    def _manifest(self, with_state: bool) -> dict[str, Any]:
        origin = self._origin
        trees = [META, REPOS, AUDIT, *((AGENTS, EVIDENCE) if with_state else ())]
        return {
            "format": FORMAT,
            "hive": origin.hive_id,
            "version": __version__,
            "schema": len(MIGRATIONS),
            "made_at": timestamp(self._clock.now()),
            "paths": {"data": str(origin.data), "run": str(origin.run)},
            "git": [origin.git_uid, origin.git_gid],
            "state": with_state,
            "content": [STORE, *trees],
        }

    @contextmanager
    def _copied_store(self) -> Iterator[int]:
        """Hold a consistent copy of the store open; it has no name any more, so it cannot be left behind."""
        with self._copying:
            self._sweep()
            target = self._origin.data / f"{_COPY}{secrets.token_hex(8)}"
            try:
                self._store.backup(target)
                fd = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError as fault:
                raise HiveError(
                    f"cannot back up: the store cannot be copied: {fault}", "look at the disk: df -h"
                ) from fault
            finally:
                self._sweep()
        try:
            yield fd
        finally:
            os.close(fd)

    def _sweep(self) -> None:
        """Remove the copies that have a name: this one's, and those of a daemon that was killed."""
        for left in self._origin.data.glob(f"{_COPY}*"):
            with suppress(OSError):
                left.unlink()

    def _repos(self, reader: TreeReader, data_fd: int) -> Iterator[bytes]:
        """Yield the repos that are whole: what is being made or thrown away has a dotted name."""
        if not _is_directory(data_fd, REPOS):
            return
        yield from reader.directory(REPOS, 0o710, self._origin.git_gid)
        with opened(data_fd, REPOS) as repos_fd:
            for name in sorted(os.listdir(repos_fd)):
                if name in (MARKER, RETIRED_REPOS) or (name.endswith(".git") and not name.startswith(".")):
                    yield from reader.tree(repos_fd, name, f"{REPOS}/{name}")

    def _agents(self, reader: TreeReader, data_fd: int) -> Iterator[bytes]:
        """Yield each agent's state and home; its config and generated files are made again when needed."""
        if not _is_directory(data_fd, AGENTS):
            return
        yield from reader.directory(AGENTS, 0o700)
        with opened(data_fd, AGENTS) as agents_fd:
            for name in sorted(os.listdir(agents_fd)):
                if _is_agent_name(name):
                    yield from _agent(reader, agents_fd, name, f"{AGENTS}/{name}")
            if _is_directory(agents_fd, RETIRED):
                yield from reader.directory(f"{AGENTS}/{RETIRED}", 0o700)
                with opened(agents_fd, RETIRED) as retired_fd:
                    for name in sorted(os.listdir(retired_fd)):
                        yield from _agent(reader, retired_fd, name, f"{AGENTS}/{RETIRED}/{name}")


def _agent(reader: TreeReader, parent_fd: int, name: str, path: str) -> Iterator[bytes]:
    # Removed since it was listed: then it is not in the archive.
    with suppress(FileNotFoundError, UnsafePath), opened(parent_fd, name) as agent_fd:
        yield from reader.directory(path, 0o755)
        for private in sorted(PRIVATE):
            if _is_directory(agent_fd, private):
                yield from reader.tree(agent_fd, private, f"{path}/{private}")


def _is_directory(parent_fd: int, name: str) -> bool:
    try:
        with opened(parent_fd, name):
            return True
    except (OSError, UnsafePath):
        return False


def _is_agent_name(untrusted_name: str) -> bool:
    try:
        parse_name(untrusted_name)
    except InvalidName:
        return False
    return True
