"""The store: hive's own memory, one SQLite file behind typed calls.

Opened by `daemon`, used by the engine layer from several threads. Every write is one durable transaction
(WAL, synchronous=FULL); reads of what a pass needs come from memory, since nobody else writes the file.
Rows become the frozen records of `domain` here and nowhere else.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from hive_core.adapters.schema import MIGRATIONS
from hive_core.domain.agents import (
    AgentRecord,
    ContainerRecord,
    Desired,
    ExitKind,
    ExitRecord,
    Intent,
    IntentKind,
    Outage,
)
from hive_core.domain.errors import HostUnsuitable, NameUnavailable, StoreUnusable
from hive_core.domain.events import Event
from hive_core.domain.names import AgentName
from hive_core.domain.spec import ContainerSpec, dump, load, spec_hash

KEPT_EVENTS = 10_000
KEPT_EXITS = 50
KEPT_OUTAGES = 20
_TRIM_EVERY = 500


def _stamp(at: datetime | None) -> str | None:
    """Return fixed-width UTC text that sorts as time does."""
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def _when(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


class Store:
    """Typed access to one hive's database. Thread-safe; use `transaction` to make several writes one."""

    def __init__(self, path: Path) -> None:
        """Open or create the database at `path`; `StoreUnusable` when it is damaged or from a newer hive."""
        self._path = path
        self._lock = threading.RLock()
        self._depth = 0
        self._agents: tuple[AgentRecord, ...] | None = None
        self._containers: tuple[ContainerRecord, ...] | None = None
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
        for number in range(version, len(MIGRATIONS)):
            step = f"BEGIN IMMEDIATE; {MIGRATIONS[number]}; PRAGMA user_version={number + 1}; COMMIT;"
            self._db.executescript(step)

    def close(self) -> None:
        """Close the database; the store is not used afterwards."""
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self, *, is_note: bool = False) -> Iterator[None]:
        """Make every write inside one durable step: all of them happen, or none.

        `is_note`: nothing that is kept in memory changes. Raises `StoreUnusable` when the disk is full, or
        refuses for another reason.
        """
        with self._lock:
            self._depth += 1
            try:
                if self._depth == 1:
                    self._db.execute("BEGIN IMMEDIATE")
                yield
                if self._depth == 1:
                    self._db.execute("COMMIT")
            except BaseException as fault:
                if self._depth == 1 and self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if isinstance(fault, sqlite3.OperationalError):
                    raise StoreUnusable(
                        f"cannot write the store {self._path}: {fault}", "look at the disk: df -h"
                    ) from fault
                raise
            finally:
                self._depth -= 1
                if not is_note:
                    self._agents = self._containers = None

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
                self._agents = tuple(_agent(row, exits.get(row["incarnation"], ())) for row in rows)
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
                        _stamp(record.created_at),
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
                    _stamp(intent.at) if intent else None,
                    intent.grace_s if intent else None,
                    intent.purge if intent else None,
                    _stamp(crashes_reset_at),
                    incarnation,
                ),
            )

    def clear_intent(self, incarnation: str, intent: Intent) -> None:
        """Forget a wish that was carried out, unless another one took its place meanwhile."""
        with self.transaction():
            self._db.execute(
                "UPDATE agents SET intent = NULL, intent_at = NULL, intent_grace_s = NULL, "
                "intent_purge = NULL WHERE incarnation = ? AND intent = ? AND intent_at = ?",
                (incarnation, intent.kind.value, _stamp(intent.at)),
            )

    def set_applied(self, incarnation: str, spec: ContainerSpec) -> None:
        """Set the full spec the agent is to run with."""
        with self.transaction():
            self._db.execute(
                "UPDATE agents SET applied_spec = ?, applied_hash = ?, applied_commit = ? "
                "WHERE incarnation = ?",
                (dump(spec), spec_hash(spec), spec.commit, incarnation),
            )

    def end_agent(self, incarnation: str, at: datetime, *, is_purged: bool) -> None:
        """End an incarnation; its children move to its own parent."""
        with self.transaction():
            row = self._db.execute(
                "SELECT name, parent FROM agents WHERE incarnation = ? AND ended_at IS NULL", (incarnation,)
            ).fetchone()
            if row is None:
                return
            self._db.execute(
                "UPDATE agents SET ended_at = ?, is_purged = ?, intent = NULL WHERE incarnation = ?",
                (_stamp(at), is_purged, incarnation),
            )
            self._db.execute(
                "UPDATE agents SET parent = ? WHERE parent = ? AND ended_at IS NULL",
                (row["parent"], row["name"]),
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
                self._containers = tuple(_container(row) for row in self._db.execute(query))
            return self._containers

    def journal_create(self, nonce: str, incarnation: str, at: datetime) -> None:
        """Write down a create before it is asked of the engine."""
        with self.transaction():
            self._db.execute(
                "INSERT INTO containers (nonce, incarnation, created_at) VALUES (?, ?, ?)",
                (nonce, incarnation, _stamp(at)),
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
                "UPDATE containers SET stop_requested_at = ? WHERE id = ?", (_stamp(at), container_id)
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
                    _stamp(one.finished_at),
                    incarnation,
                    _stamp(one.started_at),
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
            found.setdefault(row["incarnation"], []).append(_exit(row))
        return {incarnation: tuple(exits) for incarnation, exits in found.items()}

    def outages(self) -> tuple[Outage, ...]:
        """Return the last times the engine was away, oldest first."""
        with self._lock:
            rows = self._db.execute("SELECT * FROM outages ORDER BY lost_at").fetchall()
        return tuple(Outage(_when(row["lost_at"]), _moment(row["returned_at"])) for row in rows)

    def open_outage(self, at: datetime) -> None:
        """Remember that the engine went away, unless it is away already."""
        with self.transaction(is_note=True):
            self._db.execute(
                "INSERT INTO outages SELECT ?, NULL WHERE NOT EXISTS "
                "(SELECT 1 FROM outages WHERE returned_at IS NULL)",
                (_stamp(at),),
            )

    def close_outage(self, at: datetime) -> None:
        """Remember that the engine is back; costs nothing when it was not away."""
        with self._lock:
            away = self._db.execute("SELECT 1 FROM outages WHERE returned_at IS NULL").fetchone()
        if away is None:
            return
        with self.transaction(is_note=True):
            self._db.execute("UPDATE outages SET returned_at = ? WHERE returned_at IS NULL", (_stamp(at),))
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
    ) -> Event:
        """Append an event and return it with its number; old ones are dropped now and then."""
        with self.transaction(is_note=True):
            self._db.execute(
                "INSERT INTO events (at, kind, agent, text, fields) VALUES (?, ?, ?, ?, ?)",
                (_stamp(at), kind, agent, text, json.dumps(dict(fields))),
            )
            seq = int(self._db.execute("SELECT last_insert_rowid()").fetchone()[0])
            if seq % _TRIM_EVERY == 0:
                self._db.execute("DELETE FROM events WHERE seq <= ?", (seq - KEPT_EVENTS,))
        return Event(seq, at, kind, agent, text, dict(fields))

    def events_after(self, seq: int, limit: int) -> tuple[Event, ...]:
        """Return the first `limit` events after a number, oldest first."""
        query = "SELECT * FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
        with self._lock:
            return tuple(_event(row) for row in self._db.execute(query, (seq, limit)))

    def last_events(self, limit: int) -> tuple[Event, ...]:
        """Return the last `limit` events, oldest first."""
        query = "SELECT * FROM (SELECT * FROM events ORDER BY seq DESC LIMIT ?) ORDER BY seq"
        with self._lock:
            return tuple(_event(row) for row in self._db.execute(query, (limit,)))


@lru_cache(maxsize=2048)
def _spec(text: str) -> ContainerSpec:
    """Return the stored spec; the same text gives the same object, which makes comparing it cheap."""
    return load(text)


def _agent(row: sqlite3.Row, exits: tuple[ExitRecord, ...]) -> AgentRecord:
    intent = None
    if row["intent"] is not None:
        kind = IntentKind(row["intent"])
        intent = Intent(kind, _when(row["intent_at"]), row["intent_grace_s"], bool(row["intent_purge"]))
    return AgentRecord(
        name=AgentName(row["name"]),
        incarnation=row["incarnation"],
        uid=row["uid"],
        parent=None if row["parent"] is None else AgentName(row["parent"]),
        is_root=bool(row["is_root"]),
        created_at=_when(row["created_at"]),
        desired=Desired(row["desired"]),
        desired_reason=row["desired_reason"],
        intent=intent,
        applied=None if row["applied_spec"] is None else _spec(row["applied_spec"]),
        applied_hash=row["applied_hash"],
        applied_commit=row["applied_commit"],
        crashes_reset_at=_moment(row["crashes_reset_at"]),
        exits=exits,
    )


def _container(row: sqlite3.Row) -> ContainerRecord:
    return ContainerRecord(
        nonce=row["nonce"],
        incarnation=row["incarnation"],
        agent=AgentName(row["agent"]),
        id=row["id"],
        created_at=_when(row["created_at"]),
        stop_requested_at=_moment(row["stop_requested_at"]),
    )


def _exit(row: sqlite3.Row) -> ExitRecord:
    return ExitRecord(
        container_id=row["container_id"],
        started_at=_moment(row["started_at"]),
        finished_at=_when(row["finished_at"]),
        exit_code=row["exit_code"],
        oom_killed=bool(row["oom_killed"]),
        kind=ExitKind(row["kind"]),
        text=row["text"],
    )


def _event(row: sqlite3.Row) -> Event:
    agent = None if row["agent"] is None else AgentName(row["agent"])
    return Event(row["seq"], _when(row["at"]), row["kind"], agent, row["text"], json.loads(row["fields"]))
