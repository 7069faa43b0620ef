"""A data directory with a store, a config repo and one agent's trees, and what becomes of it in a backup.

Also archives that no backup ever wrote: the same seal around other members.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.archive import ArchiveWriter
from hive_core.adapters.audit import AuditLog
from hive_core.adapters.clock import Clock
from hive_core.adapters.repos import ConfigRepos
from hive_core.adapters.store import Store
from hive_core.engine.audit import Audit
from hive_core.engine.backup import Backup, Origin
from hive_core.engine.facts import claim_hive_id, remember_published, remember_uids
from hive_core.engine.restore import Restored, restore
from tests.support.paths import AGENT_UID
from tests.support.plan_inputs import NOW, agent, spec
from tests.support.repo_rig import BOB, FILES

HIVE = "small"
UIDS = range(AGENT_UID, AGENT_UID + 16)
GIT = (987_001, 987_002)
ROSTER = b'{"bob": null}\n'
INCARNATION = "i-1"


class SmallHive:
    """One hive that is not running, below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.data.mkdir(0o711)
        self.origin = Origin(HIVE, self.data, root / "run", *GIT)
        self.dirs = AgentDirs(self.data / "agents")
        self.paths = self.dirs.create(BOB, AGENT_UID)
        self.repos = ConfigRepos(self.data / "repos", *GIT)
        self.repos.prepare(HIVE, expect_marker=False)
        self.commit = self.repos.create(BOB, FILES, "first")
        git_dir = self.data / "meta" / ".git" / "objects" / "ab"
        git_dir.mkdir(parents=True)
        (git_dir / "cdef").write_text("an object")
        (self.data / "meta" / "topology.json").write_bytes(ROSTER)
        self.audit = Audit(AuditLog(self.data / "audit"), Clock())
        self.audit.asked("uid 0", "spawn", "bob")
        self.store = Store(self.data / "hive.db")
        claim_hive_id(self.store, HIVE)
        remember_published(self.store, ROSTER)
        remember_uids(self.store, UIDS.start, len(UIDS))
        self.store.add_agent(replace(agent("bob", incarnation=INCARNATION), uid=AGENT_UID))
        self.store.set_applied(INCARNATION, spec("bob"))
        self.store.journal_create("nonce", INCARNATION, NOW)

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    @property
    def backup(self) -> Backup:
        """What makes backups of it."""
        return Backup(self.origin, self.store, Clock())

    def back_up(self, *, with_state: bool = True) -> Path:
        """Write a backup to a file."""
        file = self.root / "backup.tar"
        with file.open("wb") as target:
            target.writelines(self.backup.pieces(with_state=with_state))
        return file

    def elsewhere(self, name: str = "other") -> Origin:
        """Return the place of a hive with the same id on another root, its data directory empty."""
        data = self.root / name
        data.mkdir(0o711, exist_ok=True)
        return Origin(HIVE, data, self.root / f"{name}-run", *GIT)

    def restored(self, file: Path, here: Origin | None = None, uids: range = UIDS) -> Restored:
        """Restore a file, elsewhere unless it is said where."""
        return restore(file, here or self.elsewhere(), uids, Clock())


def names(file: Path) -> list[str]:
    """Return the names of an archive's members, as any tar reads them."""
    with tarfile.open(file, errors="surrogateescape") as tar:
        return tar.getnames()


def sealed(file: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]], manifest: Mapping[str, Any]) -> Path:
    """Write an archive of these members with a manifest and a seal that holds."""
    writer = ArchiveWriter()
    with file.open("wb") as target:
        target.writelines(writer.document("manifest.json", manifest))
        for member, content in members:
            member.size = len(content)
            target.writelines(writer.header(member))
            target.writelines(writer.pieces(content))
            target.writelines(writer.padding(len(content)))
        target.writelines(writer.seal())
    return file


def copied(file: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    """Return the members of a backup between its manifest and its seal."""
    with tarfile.open(fileobj=io.BytesIO(file.read_bytes()), errors="surrogateescape") as tar:
        members = tar.getmembers()[1:-1]
        found = []
        for member in members:
            content = tar.extractfile(member) if member.isreg() else None
            found.append((member, content.read() if content is not None else b""))
    return found


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", **fields: int) -> tarfile.TarInfo:
    """Return the header of a member."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Return all that is below a directory: kind and mode, owner, and content or link target."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(folder) / name
            seen = path.lstat()
            content: object = None
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file():
                content = path.read_bytes()
            found[str(path.relative_to(root))] = (oct(seen.st_mode), seen.st_uid, seen.st_gid, content)
    return found
