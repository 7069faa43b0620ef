"""Makes a store that came out of a backup fit for where it is now.

Called by `engine.restore` on the store before any daemon opens it. What the store says of the engine and the
host it was made on is over: containers are records of another engine's life, pending work was somebody's who
is gone, and every path is one of the old roots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from hive_core.adapters.journal import Journal
from hive_core.adapters.rows import stamp
from hive_core.adapters.store import Store
from hive_core.domain.changes import Progress
from hive_core.domain.errors import HiveError
from hive_core.domain.names import AgentName
from hive_core.domain.spec import ContainerSpec, dump, load, spec_hash

_ENDED = "ended by a restore"


def agent_uids(store: Store) -> list[tuple[str, int]]:
    """Return (name, uid) of every incarnation whose files may be in a backup, lowest uid first."""
    query = "SELECT name, uid FROM agents WHERE ended_at IS NULL OR is_purged = 0 ORDER BY uid"
    with store.reading() as db:
        return [(row["name"], row["uid"]) for row in db.execute(query)]


def end_pending(store: Store, now: datetime) -> None:
    """End what was under way: changes, wishes, the containers' records and the engine's outages."""
    journal = Journal(store)
    with store.transaction() as db:
        for change in journal.running():
            parts = tuple(
                replace(part, state=Progress.FAILED, text=_ENDED) if part.state is Progress.PENDING else part
                for part in change.parts
            )
            error = HiveError(f"cannot {change.kind}: {_ENDED}", "ask for it again")
            journal.save(replace(change, state=Progress.FAILED, parts=parts, finished_at=now, error=error))
        db.execute(
            "UPDATE agents SET intent = NULL, intent_at = NULL, intent_grace_s = NULL, intent_purge = NULL"
        )
        db.execute("DELETE FROM containers")
        db.execute("UPDATE outages SET returned_at = ? WHERE returned_at IS NULL", (stamp(now),))


def move_specs(store: Store, roots: Mapping[str, str]) -> None:
    """Let the specs that agents run with mount what is below the new roots, by old root."""
    query = "SELECT incarnation, applied_spec, previous_spec FROM agents WHERE applied_spec IS NOT NULL"
    with store.transaction() as db:
        for row in db.execute(query).fetchall():
            applied = _moved(load(row["applied_spec"]), roots)
            previous = row["previous_spec"]
            db.execute(
                "UPDATE agents SET applied_spec = ?, applied_hash = ?, previous_spec = ? "
                "WHERE incarnation = ?",
                (
                    dump(applied),
                    spec_hash(applied),
                    None if previous is None else dump(_moved(load(previous), roots)),
                    row["incarnation"],
                ),
            )


def _moved(spec: ContainerSpec, roots: Mapping[str, str]) -> ContainerSpec:
    mounts = tuple(replace(mount, source=_moved_path(mount.source, roots)) for mount in spec.mounts)
    return replace(spec, mounts=mounts)


def _moved_path(path: str, roots: Mapping[str, str]) -> str:
    # The longest root first: one may lie below another.
    for before in sorted(roots, key=len, reverse=True):
        if path.startswith(f"{before}/"):
            return roots[before] + path[len(before) :]
    return path


def forget_evidence(store: Store) -> None:
    """Drop the records of logs that are not in a backup without state."""
    with store.transaction(is_note=True) as db:
        db.execute("DELETE FROM evidence")


def live_agents(store: Store) -> dict[AgentName, int]:
    """Return the uids of the live agents."""
    return {record.name: record.uid for record in store.agents()}
