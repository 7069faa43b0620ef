"""Changes: what a mutating request turned into, with an id to ask after.

A change is journalled by the store in the same transaction as what it asks for, carried out by passes, and
judged by `engine.changes`. Its states: running → done, failed; a part of it: pending → done, failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from hive_core.domain.errors import HiveError
from hive_core.domain.names import AgentName


class Progress(StrEnum):
    """How far a change, or one agent's part of it, is."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Goal(StrEnum):
    """What has to be seen for an agent's part to be done."""

    RUNNING = "running"
    STOPPED = "stopped"
    PAUSED = "paused"
    LISTED = "listed"
    GONE = "gone"


# How the word that a sequence of actions hands to its change begins when it had to go back.
ROLLED_BACK = "went back to the spec that ran before:"


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks, in words, and the caller's idempotency key: the same key is the same change."""

    by: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One agent's part of a change. `incarnation` is the one the request was about.

    `text` is what is said once it is done, where the goal itself says too little.
    """

    name: AgentName
    incarnation: str
    goal: Goal
    state: Progress = Progress.PENDING
    text: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A long-running mutation. `error` is set when it failed as a whole.

    `is_resumed`: it was begun by a daemon that ended before the change did.
    """

    id: str
    kind: str
    asked: Asked
    parts: tuple[Part, ...]
    started_at: datetime
    state: Progress = Progress.RUNNING
    finished_at: datetime | None = None
    error: HiveError | None = None
    is_resumed: bool = False
