"""Why an agent is as it is: its last transitions, told in sentences.

Called by the surfaces for `hivectl why`. Nothing is guessed: each sentence is an event or an end that was
recorded when it happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hive_core.domain.events import Event, timestamp
from hive_core.planning.actions import AgentState, AgentView

_TOLD = frozenset(
    {
        "adopted", "created", "crash_looping", "degraded", "exited",
        "frozen", "paused", "recovered", "resumed", "rolled_back", "start_failed", "started", "stopped",
    }
)  # fmt: skip
_WORDS = {
    "exited": "it ended",
    "frozen": "it was frozen",
    "paused": "it was paused",
    "resumed": "it was resumed",
    "rolled_back": "it went back to the spec that ran before",
    "start_failed": "it could not be started",
    "crash_looping": "hive gave up starting it",
}


@dataclass(frozen=True, slots=True)
class Account:
    """An agent's state in one sentence, and how it came to it, oldest first."""

    summary: str
    sentences: tuple[str, ...]


def account(view: AgentView, events: Sequence[Event], limit: int) -> Account:
    """Return the account of an agent from its row and its last events."""
    told = [one for one in events if one.kind in _TOLD][-limit:]
    return Account(_summary(view, told), tuple(_sentence(one) for one in told))


def _summary(view: AgentView, told: Sequence[Event]) -> str:
    since = _since(view, told)
    when = f" since {_shown(since)}" if since is not None else ""
    degraded = f"; its config cannot be used: {view.fault}" if view.degraded else ""
    return f"{view.name} is {view.state.value}{when}: {view.reason}{degraded}"


def _since(view: AgentView, told: Sequence[Event]) -> datetime | None:
    """Return since when it is so: a run has a beginning, anything else came with the last transition."""
    if view.state is AgentState.UNKNOWN:
        return None
    if view.state is AgentState.RUNNING and view.started_at is not None:
        return view.started_at
    return told[-1].at if told else None


def _sentence(one: Event) -> str:
    word = _WORDS.get(one.kind, f"it was {one.kind}")
    return f"{_shown(one.at)} {word}: {one.text}"


def _shown(at: datetime) -> str:
    return timestamp(at) or "at an unknown time"
