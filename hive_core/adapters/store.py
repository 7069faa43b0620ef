"""The store: hive's own memory, one SQLite file behind typed calls.

Opened by `daemon`, used by the engine layer from several threads. Every write is one durable transaction
(WAL, synchronous=FULL); reads of what a pass needs come from memory, since nobody else writes the file.
Rows become the frozen records of `domain` here and nowhere else.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from hive_core.adapters.rows import (
    agent_record,
    container_record,
    event_record,
    exit_record,
    moment,
    stamp,
    when,
)
from hive_core.adapters.schema import MIGRATIONS
from hive_core.domain.agents import (
    AgentRecord,
    ContainerRecord,
    Desired,
    ExitKind,
    ExitRecord,
    Intent,
    Outage,
)
from hive_core.domain.errors import HostUnsuitable, NameUnavailable, StoreUnusable
from hive_core.domain.events import Event
from hive_core.domain.names import AgentName
from hive_core.domain.spec import ContainerSpec, dump, spec_hash

KEPT_EVENTS = 10_000
KEPT_EXITS = 50
KEPT_OUTAGES = 20
# Of so many lives that ended last, purged ones excepted, the ends and the evidence are kept.
KEPT_LIVES = 200
FORGOTTEN_LIVES = (
    "SELECT incarnation FROM agents WHERE ended_at IS NOT NULL AND (is_purged OR incarnation NOT IN "
    "(SELECT incarnation FROM agents WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT ?))"
)
_TRIM_EVERY = 500


class Store:
    """Typed access to one hive's database. Thread-safe; use `transaction` to make several writes one."""

    def __init__(self, path: Path) -> None:
        """Open or create the database at `path`; `StoreUnusable` when it is damaged or from a newer hive."""
        self._path = path
        self._lock = threading.RLock()
        self._depth = 0
        self._agents: tuple[AgentRecord, ...] | None = None
        self._containers: tuple[ContainerRecord, ...] | None = None
        # Told of a full disk, to make room for the next try.
        self.on_full: Callable[[], object] = lambda: None
        hint = "restore a backup, or move the file aside"
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
        except sqlite3.Error as fault:
            raise StoreUnusable(f"cannot open the store {path}: {fault}", hint) from None
        try:
            self._set_up()
        except sqlite3.Error as fault:
            self._db.close()
            raise StoreUnusable(f"cannot open the store {path}: {fault}", hint) from None
        except StoreUnusable:
            self._db.close()
            raise

    def _set_up(self) -> None:
        self._db.row_factory = sqlite3.Row
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            self._db.execute(f"PRAGMA {pragma}")
        found = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        self._migrate()

    def _migrate(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise StoreUnusable(
                f"the store {self._path} has version {version}; this hive knows up to {len(MIGRATIONS)}",
                "run the newer hive again, or restore the copy it made before it changed the store",
            )
        if 0 < version < len(MIGRATIONS):
            self._copy_before(version)
        for number in range(version, len(MIGRATIONS)):
            step = f"BEGIN IMMEDIATE; {MIGRATIONS[number]}; PRAGMA user_version={number + 1}; COMMIT;"
            self._db.executescript(step)

    def _copy_before(self, version: int) -> None:
        """Keep the store as the older hive knew it: the way back, should the newer one not suit."""
        kept = self._path.with_name(f"{self._path.name}.v{version}")
        kept.touch(0o600)
        copy = sqlite3.connect(kept)
        try:
            self._db.backup(copy)
        finally:
            copy.close()
        kept.chmod(0o600)

    def backup(self, target: Path) -> None:
        """Write a consistent copy of the whole store to a new file, while it is in use. StoreUnusable."""
        try:
            copy = sqlite3.connect(target)
            try:
                with self._lock:
                    self._db.backup(copy)
            finally:
                copy.close()
        except sqlite3.Error as fault:
            raise StoreUnusable(f"cannot copy the store: {fault}", "look at the disk: df -h") from fault

    def close(self) -> None:
        """Close the database; the store is not used afterwards."""
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self, *, is_note: bool = False) -> Iterator[sqlite3.Connection]:
        """Make every write inside one durable step: all of them happen, or none.

        `is_note`: nothing that is kept in memory changes. Raises `StoreUnusable` when the disk is full, or
        refuses for another reason.
        """
        with self._lock:
            self._depth += 1
            try:
                if self._depth == 1:
                    self._db.execute("BEGIN IMMEDIATE")
                yield self._db
                if self._depth == 1:
                    self._db.execute("COMMIT")
            except BaseException as fault:
                if self._depth == 1 and self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if isinstance(fault, sqlite3.OperationalError):
                    if "full" in str(fault):
                        self.on_full()
                    raise StoreUnusable(
                        f"cannot write the store {self._path}: {fault}", "look at the disk: df -h"
                    ) from fault
                raise
            finally:
                self._depth -= 1
                if not is_note:
                    self._agents = self._containers = None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection for a read."""
        with self._lock:
            yield self._db

    # ---- facts ---------------------------------------------------------------------------------------------

    def fact(self, key: str) -> bytes | None:
        """Return a single remembered value."""
        with self._lock:
            row = self._db.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row["value"])

    def set_fact(self, key: str, value: bytes | None) -> None:
        """Remember a single value; None forgets it."""
        with self.transaction(is_note=True):
            if value is None:
                self._db.execute("DELETE FROM facts WHERE key = ?", (key,))
            else:
                self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (key, value))

    # ---- agents --------------------------------------------------------------------------------------------

    def agents(self) -> tuple[AgentRecord, ...]:
        """Return the live incarnations in name order."""
        with self._lock:
            if self._agents is None:
                exits = self._exits()
                rows = self._db.execute("SELECT * FROM agents WHERE ended_at IS NULL ORDER BY name")
                self._agents = tuple(agent_record(row, exits.get(row["incarnation"], ())) for row in rows)
            return self._agents

    def agent(self, name: AgentName) -> AgentRecord | None:
        """Return the live incarnation of a name."""
        return next((one for one in self.agents() if one.name == name), None)

    def is_retired(self, name: AgentName) -> bool:
        """Whether an ended incarnation of this name left retired data behind."""
        return self.last_retired(name) is not None

    def last_retired(self, name: AgentName) -> tuple[str, int] | None:
        """Return (incarnation, uid) of the last ended, not purged incarnation of a name."""
        query = (
            "SELECT incarnation, uid FROM agents WHERE name = ? AND ended_at IS NOT NULL AND is_purged = 0 "
            "ORDER BY ended_at DESC LIMIT 1"
        )
        with self._lock:
            row = self._db.execute(query, (name,)).fetchone()
        return None if row is None else (row["incarnation"], row["uid"])

    def next_uid(self, start: int, count: int) -> int:
        """Return a uid of the range that no incarnation ever had."""
        with self._lock:
            row = self._db.execute(
                "SELECT MAX(uid) AS last FROM agents WHERE uid >= ? AND uid < ?", (start, start + count)
            ).fetchone()
        uid = start if row["last"] is None else int(row["last"]) + 1
        if uid >= start + count:
            raise HostUnsuitable(
                f"all {count} uids from {start} on have been used",
                "give the hive a further range: uids.start",
            )
        return uid

    def add_agent(self, record: AgentRecord) -> None:
        """Insert a new incarnation; `NameUnavailable` when the name is live already."""
        try:
            with self.transaction():
                self._db.execute(
                    "INSERT INTO agents (incarnation, name, uid, parent, is_root, created_at, desired, "
                    "desired_reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        record.incarnation,
                        record.name,
                        record.uid,
                        record.parent,
                        record.is_root,
                        stamp(record.created_at),
                        record.desired.value,
                        record.desired_reason,
                    ),
                )
        except sqlite3.IntegrityError:
            raise NameUnavailable(
                f"cannot create {record.name}: the name is taken", "choose another"
            ) from None

    def set_desired(
        self,
        incarnation: str,
        desired: Desired,
        reason: str,
        intent: Intent | None = None,
        crashes_reset_at: datetime | None = None,
    ) -> None:
        """Set the desired run state, who asked, and the wish on top (None clears an earlier one)."""
        with self.transaction():
            self._db.execute(
                "UPDATE agents SET desired = ?, desired_reason = ?, intent = ?, intent_at = ?, "
                "intent_grace_s = ?, intent_purge = ?, crashes_reset_at = COALESCE(?, crashes_reset_at) "
                "WHERE incarnation = ?",
                (
                    desired.value,
                    reason,
                    intent.kind.value if intent else None,
                    stamp(intent.at) if intent else None,
                    intent.grace_s if intent else None,
                    intent.purge if intent else None,
                    stamp(crashes_reset_at),
                    incarnation,
                ),
            )

    def clear_intent(self, incarnation: str, intent: Intent) -> None:
        """Forget a wish that was carried out, unless another one took its place meanwhile."""
        with self.transaction():
            self._db.execute(
                "UPDATE agents SET intent = NULL, intent_at = NULL, intent_grace_s = NULL, "
                "intent_purge = NULL WHERE incarnation = ? AND intent = ? AND intent_at = ?",
                (incarnation, intent.kind.value, stamp(intent.at)),
            )

    def set_applied(
        self, incarnation: str, spec: ContainerSpec, previous: ContainerSpec | None = None
    ) -> None:
        """Set the full spec the agent is to run with, and the one to go back to should it not start."""
        with self.transaction():
            self._db.execute(
                "UPDATE agents SET applied_spec = ?, applied_hash = ?, applied_commit = ?, previous_spec = ? "
                "WHERE incarnation = ?",
                (
                    dump(spec),
                    spec_hash(spec),
                    spec.commit,
                    None if previous is None else dump(previous),
                    incarnation,
                ),
            )

    def forget_previous(self, incarnation: str) -> None:
        """Drop the spec to go back to: the applied one has proved itself."""
        with self.transaction():
            self._db.execute("UPDATE agents SET previous_spec = NULL WHERE incarnation = ?", (incarnation,))

    def set_quarantined(self, incarnation: str, at: datetime | None) -> None:
        """Put an agent into quarantine, or with None out of it."""
        with self.transaction():
            self._db.execute(
                "UPDATE agents SET quarantined_at = ? WHERE incarnation = ?", (stamp(at), incarnation)
            )

    def end_agent(self, incarnation: str, at: datetime, *, is_purged: bool) -> None:
        """End an incarnation; its children move to its own parent. Ends of runs of old lives are dropped."""
        with self.transaction():
            row = self._db.execute(
                "SELECT name, parent FROM agents WHERE incarnation = ? AND ended_at IS NULL", (incarnation,)
            ).fetchone()
            if row is None:
                return
            self._db.execute(
                "UPDATE agents SET ended_at = ?, is_purged = ?, intent = NULL WHERE incarnation = ?",
                (stamp(at), is_purged, incarnation),
            )
            self._db.execute(
                "UPDATE agents SET parent = ? WHERE parent = ? AND ended_at IS NULL",
                (row["parent"], row["name"]),
            )
            self._db.execute(
                f"DELETE FROM exits WHERE incarnation IN ({FORGOTTEN_LIVES})",  # noqa: S608  # a constant
                (KEPT_LIVES,),
            )

    # ---- containers ----------------------------------------------------------------------------------------

    def containers(self) -> tuple[ContainerRecord, ...]:
        """Return the journalled creates whose container has not been removed by hive."""
        query = (
            "SELECT containers.*, agents.name AS agent FROM containers JOIN agents USING (incarnation) "
            "ORDER BY containers.created_at"
        )
        with self._lock:
            if self._containers is None:
                self._containers = tuple(container_record(row) for row in self._db.execute(query))
            return self._containers

    def journal_create(self, nonce: str, incarnation: str, at: datetime) -> None:
        """Write down a create before it is asked of the engine."""
        with self.transaction():
            self._db.execute(
                "INSERT INTO containers (nonce, incarnation, created_at) VALUES (?, ?, ?)",
                (nonce, incarnation, stamp(at)),
            )

    def confirm_create(self, nonce: str, container_id: str) -> None:
        """Write down the id the engine gave a journalled create.

        Creates come one at a time per incarnation and only when it has no container, so any other record
        of it is of one that is gone.
        """
        with self.transaction():
            self._db.execute("UPDATE containers SET id = ? WHERE nonce = ?", (container_id, nonce))
            self._db.execute(
                "DELETE FROM containers WHERE nonce != ? AND incarnation = "
                "(SELECT incarnation FROM containers WHERE nonce = ?)",
                (nonce, nonce),
            )

    def forget_create(self, nonce: str) -> None:
        """Drop a journalled create that made no container, or whose container is removed."""
        with self.transaction():
            self._db.execute("DELETE FROM containers WHERE nonce = ?", (nonce,))

    def forget_container(self, container_id: str) -> None:
        """Drop the record of a container that no longer exists."""
        with self.transaction():
            self._db.execute("DELETE FROM containers WHERE id = ?", (container_id,))

    def request_stop(self, container_id: str, at: datetime) -> None:
        """Write down that hive stops a container, before it does: the exit that follows is no crash."""
        with self.transaction():
            self._db.execute(
                "UPDATE containers SET stop_requested_at = ? WHERE id = ?", (stamp(at), container_id)
            )

    # ---- exits and outages ---------------------------------------------------------------------------------

    def record_exit(self, incarnation: str, one: ExitRecord) -> bool:
        """Remember an exit; False when it was known already. Old ones beyond a fixed number are dropped.

        Failed starts are counted apart from ends of runs: a start that fails for hours must not push out
        the end it follows, which would then look new in every pass.
        """
        with self.transaction():
            added = self._db.execute(
                "INSERT OR IGNORE INTO exits VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    one.container_id,
                    stamp(one.finished_at),
                    incarnation,
                    stamp(one.started_at),
                    one.exit_code,
                    one.oom_killed,
                    one.kind.value,
                    one.text,
                ),
            ).rowcount
            self._db.execute(
                "DELETE FROM exits WHERE incarnation = :of AND (kind = 'start_failed') = :failed "
                "AND finished_at < (SELECT finished_at FROM exits WHERE incarnation = :of "
                "AND (kind = 'start_failed') = :failed ORDER BY finished_at DESC LIMIT 1 OFFSET :kept)",
                {"of": incarnation, "failed": one.kind is ExitKind.START_FAILED, "kept": KEPT_EXITS - 1},
            )
        return bool(added)

    def _exits(self) -> dict[str, tuple[ExitRecord, ...]]:
        found: dict[str, list[ExitRecord]] = {}
        for row in self._db.execute("SELECT * FROM exits ORDER BY finished_at"):
            found.setdefault(row["incarnation"], []).append(exit_record(row))
        return {incarnation: tuple(exits) for incarnation, exits in found.items()}

    def outages(self) -> tuple[Outage, ...]:
        """Return the last times the engine was away, oldest first."""
        with self._lock:
            rows = self._db.execute("SELECT * FROM outages ORDER BY lost_at").fetchall()
        return tuple(Outage(when(row["lost_at"]), moment(row["returned_at"])) for row in rows)

    def open_outage(self, at: datetime) -> None:
        """Remember that the engine went away, unless it is away already."""
        with self.transaction(is_note=True):
            self._db.execute(
                "INSERT INTO outages SELECT ?, NULL WHERE NOT EXISTS "
                "(SELECT 1 FROM outages WHERE returned_at IS NULL)",
                (stamp(at),),
            )

    def close_outage(self, at: datetime) -> None:
        """Remember that the engine is back; costs nothing when it was not away."""
        with self._lock:
            away = self._db.execute("SELECT 1 FROM outages WHERE returned_at IS NULL").fetchone()
        if away is None:
            return
        with self.transaction(is_note=True):
            self._db.execute("UPDATE outages SET returned_at = ? WHERE returned_at IS NULL", (stamp(at),))
            self._db.execute(
                "DELETE FROM outages WHERE lost_at NOT IN "
                "(SELECT lost_at FROM outages ORDER BY lost_at DESC LIMIT ?)",
                (KEPT_OUTAGES,),
            )

    # ---- events --------------------------------------------------------------------------------------------

    def add_event(
        self,
        at: datetime,
        kind: str,
        agent: AgentName | None,
        text: str,
        fields: Mapping[str, str | int | bool | None],
        change_id: str | None = None,
    ) -> Event:
        """Append an event and return it with its number; old ones are dropped now and then."""
        with self.transaction(is_note=True):
            self._db.execute(
                "INSERT INTO events (at, kind, agent, text, fields, change_id) VALUES (?, ?, ?, ?, ?, ?)",
                (stamp(at), kind, agent, text, json.dumps(dict(fields)), change_id),
            )
            seq = int(self._db.execute("SELECT last_insert_rowid()").fetchone()[0])
            if seq % _TRIM_EVERY == 0:
                self._db.execute("DELETE FROM events WHERE seq <= ?", (seq - KEPT_EVENTS,))
        return Event(seq, at, kind, agent, text, dict(fields))

    def events_after(self, seq: int, limit: int) -> tuple[Event, ...]:
        """Return the first `limit` events after a number, oldest first."""
        query = "SELECT * FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        with self._lock:
            return tuple(event_record(row) for row in self._db.execute(query, (seq, limit)))

    def events_of_change(self, change_id: str) -> tuple[Event, ...]:
        """Return the steps of a change that are still kept, oldest first."""
        query = "SELECT * FROM events WHERE change_id = ? ORDER BY seq"
        with self._lock:
            return tuple(event_record(row) for row in self._db.execute(query, (change_id,)))

    def events_of_agent(self, agent: AgentName, limit: int) -> tuple[Event, ...]:
        """Return the last events of an agent, oldest first."""
        query = "SELECT * FROM (SELECT * FROM events WHERE agent = ? ORDER BY seq DESC LIMIT ?) ORDER BY seq"
        with self._lock:
            return tuple(event_record(row) for row in self._db.execute(query, (agent, limit)))

    def last_events(self, limit: int) -> tuple[Event, ...]:
        """Return the last `limit` events, oldest first."""
        query = "SELECT * FROM (SELECT * FROM events ORDER BY seq DESC LIMIT ?) ORDER BY seq"
        with self._lock:
            return tuple(event_record(row) for row in self._db.execute(query, (limit,)))
