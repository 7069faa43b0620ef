"""Rows of the store as records of the domain, and times as the text that is stored."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from functools import lru_cache

from hive_core.domain.agents import (
    AgentRecord,
    ContainerRecord,
    Desired,
    ExitKind,
    ExitRecord,
    Intent,
    IntentKind,
)
from hive_core.domain.events import Event
from hive_core.domain.names import AgentName
from hive_core.domain.spec import ContainerSpec, load


def stamp(at: datetime | None) -> str | None:
    """Return fixed-width UTC text that sorts as time does."""
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


def when(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


@lru_cache(maxsize=2048)
def _spec(text: str) -> ContainerSpec:
    """Return the stored spec; the same text gives the same object, which makes comparing it cheap."""
    return load(text)


def agent_record(row: sqlite3.Row, exits: tuple[ExitRecord, ...]) -> AgentRecord:
    intent = None
    if row["intent"] is not None:
        kind = IntentKind(row["intent"])
        intent = Intent(kind, when(row["intent_at"]), row["intent_grace_s"], bool(row["intent_purge"]))
    return AgentRecord(
        name=AgentName(row["name"]),
        incarnation=row["incarnation"],
        uid=row["uid"],
        parent=None if row["parent"] is None else AgentName(row["parent"]),
        is_root=bool(row["is_root"]),
        created_at=when(row["created_at"]),
        desired=Desired(row["desired"]),
        desired_reason=row["desired_reason"],
        intent=intent,
        applied=None if row["applied_spec"] is None else _spec(row["applied_spec"]),
        applied_hash=row["applied_hash"],
        applied_commit=row["applied_commit"],
        crashes_reset_at=moment(row["crashes_reset_at"]),
        previous=None if row["previous_spec"] is None else _spec(row["previous_spec"]),
        quarantined_at=moment(row["quarantined_at"]),
        exits=exits,
    )


def container_record(row: sqlite3.Row) -> ContainerRecord:
    return ContainerRecord(
        nonce=row["nonce"],
        incarnation=row["incarnation"],
        agent=AgentName(row["agent"]),
        id=row["id"],
        created_at=when(row["created_at"]),
        stop_requested_at=moment(row["stop_requested_at"]),
    )


def exit_record(row: sqlite3.Row) -> ExitRecord:
    return ExitRecord(
        container_id=row["container_id"],
        started_at=moment(row["started_at"]),
        finished_at=when(row["finished_at"]),
        exit_code=row["exit_code"],
        oom_killed=bool(row["oom_killed"]),
        kind=ExitKind(row["kind"]),
        text=row["text"],
    )


def event_record(row: sqlite3.Row) -> Event:
    agent = None if row["agent"] is None else AgentName(row["agent"])
    return Event(row["seq"], when(row["at"]), row["kind"], agent, row["text"], json.loads(row["fields"]))
