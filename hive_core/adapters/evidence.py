"""Evidence: what is kept of a container before it is removed, so that "why" still has an answer.

Written by `engine.apply`, read by `logs --previous` and `why`. A row in the store tells the end; the last of
the log is a file that only root can read, since agents print secrets.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hive_core.adapters.files import make_dir, read_regular, write_atomic
from hive_core.adapters.rows import stamp, when
from hive_core.adapters.store import FORGOTTEN_LIVES, KEPT_LIVES, Store

LOG_BYTES = 1024 * 1024
KEPT = 5


@dataclass(frozen=True, slots=True)
class Evidence:
    """The end of one container. `differing` are the spec fields that its successor has otherwise."""

    container_id: str
    kept_at: datetime
    exit_code: int
    oom_killed: bool
    reason: str
    differing: tuple[str, ...]
    log_file: str | None


class EvidenceRoom:
    """The evidence of one hive."""

    def __init__(self, directory: Path, store: Store) -> None:
        self._directory = directory
        self._store = store

    def keep(self, incarnation: str, found: Evidence, log: Iterable[bytes]) -> None:
        """Keep an end and the last of its log; the oldest beyond a fixed number per agent go.

        Nothing is kept of a life that was purged.
        """
        if self._is_purged(incarnation):
            return
        make_dir(self._directory, mode=0o700)
        folder = self._directory / incarnation
        make_dir(folder, mode=0o700)
        name = f"{found.container_id[:12]}-{os.urandom(4).hex()}.log"
        write_atomic(folder / name, _last(log), 0o600)
        with self._store.transaction(is_note=True) as db:
            db.execute(
                "INSERT INTO evidence (incarnation, container_id, kept_at, exit_code, oom_killed, reason, "
                "differing, log_file) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    incarnation,
                    found.container_id,
                    stamp(found.kept_at),
                    found.exit_code,
                    found.oom_killed,
                    found.reason,
                    json.dumps(found.differing),
                    name,
                ),
            )
            dropped = db.execute(
                "DELETE FROM evidence WHERE incarnation = ? AND id NOT IN (SELECT id FROM evidence "
                "WHERE incarnation = ? ORDER BY id DESC LIMIT ?) RETURNING log_file",
                (incarnation, incarnation, KEPT),
            ).fetchall()
        for row in dropped:
            (folder / row["log_file"]).unlink(missing_ok=True)

    def drop(self, incarnation: str) -> None:
        """Delete everything that is kept of one incarnation. Safe to repeat."""
        with suppress(FileNotFoundError):
            shutil.rmtree(self._directory / incarnation)
        with self._store.transaction(is_note=True) as db:
            db.execute("DELETE FROM evidence WHERE incarnation = ?", (incarnation,))

    def drop_old(self) -> None:
        """Delete what is kept of lives that ended too long ago. Safe to repeat."""
        with self._store.reading() as db:
            rows = db.execute(
                f"SELECT DISTINCT incarnation FROM evidence WHERE incarnation IN ({FORGOTTEN_LIVES})",  # noqa: S608  # a constant
                (KEPT_LIVES,),
            )
            found = [row["incarnation"] for row in rows]
        for incarnation in found:
            self.drop(incarnation)

    def _is_purged(self, incarnation: str) -> bool:
        with self._store.reading() as db:
            query = "SELECT 1 FROM agents WHERE incarnation = ? AND is_purged"
            return db.execute(query, (incarnation,)).fetchone() is not None

    def of(self, incarnation: str) -> tuple[Evidence, ...]:
        """Return what is kept of an incarnation, oldest first."""
        query = "SELECT * FROM evidence WHERE incarnation = ? ORDER BY id"
        with self._store.reading() as db:
            return tuple(_evidence(row) for row in db.execute(query, (incarnation,)))

    def log(self, incarnation: str, found: Evidence) -> bytes:
        """Return the last of a log, as raw bytes; nothing where its file is gone."""
        if found.log_file is None:
            return b""
        try:
            return read_regular(self._directory / incarnation / found.log_file, LOG_BYTES)
        except FileNotFoundError:
            return b""


def _last(log: Iterable[bytes]) -> bytes:
    """Return the end of a log, holding no more than that of it at any time."""
    kept: deque[bytes] = deque()
    size = 0
    for chunk in log:
        kept.append(chunk)
        size += len(chunk)
        while kept and size - len(kept[0]) >= LOG_BYTES:
            size -= len(kept.popleft())
    return b"".join(kept)[-LOG_BYTES:]


def _evidence(row: sqlite3.Row) -> Evidence:
    return Evidence(
        container_id=row["container_id"],
        kept_at=when(row["kept_at"]),
        exit_code=row["exit_code"],
        oom_killed=bool(row["oom_killed"]),
        reason=row["reason"],
        differing=tuple(json.loads(row["differing"])),
        log_file=row["log_file"],
    )
