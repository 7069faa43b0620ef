"""The journal: changes as rows of the store, so that none is forgotten with the daemon that began it.

Used by `engine.changes`. Shares the store's connection and transactions: a change is on disk exactly when
what it asks for is.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from hive_api.errors import ErrorCode
from hive_core.adapters.rows import moment, stamp, when
from hive_core.adapters.store import Store
from hive_core.domain.changes import Asked, Change, Goal, Part, Progress
from hive_core.domain.errors import Conflict, HiveError
from hive_core.domain.names import AgentName

KEPT_CHANGES = 1000


class Journal:
    """The table of changes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, change: Change) -> None:
        """Write a new change down; the oldest ended ones beyond a fixed number are dropped.

        `Conflict` when another one with its idempotency key is written already.
        """
        with self._store.transaction(is_note=True) as db:
            taken = None if change.asked.key is None else self.by_key(change.asked.key)
            if taken is not None:
                raise Conflict(
                    f"cannot {change.kind}: a request with this idempotency key is being answered",
                    f"look at what it became: hivectl changes {taken.id}",
                )
            db.execute(
                "INSERT INTO changes (id, kind, asked_by, key, state, parts, started_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    change.id,
                    change.kind,
                    change.asked.by,
                    change.asked.key,
                    change.state.value,
                    _dump_parts(change.parts),
                    stamp(change.started_at),
                ),
            )
            db.execute(
                "DELETE FROM changes WHERE state != 'running' AND started_at < "
                "(SELECT started_at FROM changes ORDER BY started_at DESC LIMIT 1 OFFSET ?)",
                (KEPT_CHANGES - 1,),
            )

    def save(self, change: Change) -> None:
        """Write down how far a change has come."""
        error = None
        if change.error is not None:
            error = json.dumps([change.error.code.value, change.error.message, change.error.hint])
        with self._store.transaction(is_note=True) as db:
            db.execute(
                "UPDATE changes SET state = ?, parts = ?, error = ?, finished_at = ? WHERE id = ?",
                (change.state.value, _dump_parts(change.parts), error, stamp(change.finished_at), change.id),
            )

    def recent(self, limit: int) -> tuple[Change, ...]:
        """Return the last changes, oldest first."""
        query = "SELECT * FROM (SELECT * FROM changes ORDER BY started_at DESC LIMIT ?) ORDER BY started_at"
        with self._store.reading() as db:
            return tuple(_change(row) for row in db.execute(query, (limit,)))

    def running(self) -> tuple[Change, ...]:
        """Return the changes that have not ended, oldest first."""
        with self._store.reading() as db:
            rows = db.execute("SELECT * FROM changes WHERE state = 'running' ORDER BY started_at")
            return tuple(_change(row) for row in rows)

    def get(self, change_id: str) -> Change | None:
        """Return a change by its id."""
        return self._one("SELECT * FROM changes WHERE id = ?", change_id)

    def by_key(self, key: str) -> Change | None:
        """Return the change that was asked for with an idempotency key."""
        return self._one("SELECT * FROM changes WHERE key = ?", key)

    def _one(self, query: str, value: str) -> Change | None:
        with self._store.reading() as db:
            row = db.execute(query, (value,)).fetchone()
        return None if row is None else _change(row)


def _dump_parts(parts: tuple[Part, ...]) -> str:
    return json.dumps(
        [[part.name, part.incarnation, part.goal.value, part.state.value, part.text] for part in parts]
    )


def _change(row: sqlite3.Row) -> Change:
    parts: list[list[Any]] = json.loads(row["parts"])
    error = None
    if row["error"] is not None:
        code, message, hint = json.loads(row["error"])
        error = HiveError(message, hint, code=ErrorCode(code))
    return Change(
        id=row["id"],
        kind=row["kind"],
        asked=Asked(row["asked_by"], row["key"]),
        parts=tuple(
            Part(AgentName(name), incarnation, Goal(goal), Progress(state), text)
            for name, incarnation, goal, state, text in parts
        ),
        started_at=when(row["started_at"]),
        state=Progress(row["state"]),
        finished_at=moment(row["finished_at"]),
        error=error,
    )
