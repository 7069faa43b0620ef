"""Events: what happened, numbered, for people and programs that follow along.

Written by the engine layer, kept by the store, shown by `hivectl events`. `seq` grows over restarts of the
daemon, so a follower that remembers one number misses nothing that is still kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from hive_core.domain.names import AgentName


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `fields` adds machine-readable detail, as text or numbers."""

    seq: int
    at: datetime
    kind: str
    agent: AgentName | None
    text: str
    fields: Mapping[str, str | int | bool | None] = field(default_factory=dict)


def timestamp(at: datetime | None) -> str | None:
    """Return RFC 3339 UTC with milliseconds, the one form of times that leave the daemon; None stays None."""
    if at is None:
        return None
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"
