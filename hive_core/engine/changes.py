"""Changes: what a mutating request turned into, with an id to ask after.

Begun by `engine.lifecycle`, judged after every pass by `review`: an agent's part is done once a pass that
began after the request has seen it as asked. So "bob is running" is something that was observed. Kept in
memory; what was asked for is durable on its own, as desired state.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from hive_core.adapters.clock import Clock
from hive_core.domain.agents import AgentRecord
from hive_core.domain.errors import HiveError, NotFound, Stopping
from hive_core.domain.names import AgentName
from hive_core.planning.actions import AgentState, AgentView

_KEPT = 200
_PATIENCE_S = 20.0


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
    LISTED = "listed"
    GONE = "gone"


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
    """A long-running mutation. `error` is set when it failed as a whole."""

    id: str
    kind: str
    parts: tuple[Part, ...]
    started_at: datetime
    began: float
    state: Progress = Progress.RUNNING
    finished_at: datetime | None = None
    error: HiveError | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one pass has to say to the changes.

    `began` is its monotonic start, `busy` the agents something is still being done to, `stuck` why the
    actions on an agent keep failing, `words` what the last ones reported (as in "graceful").
    """

    began: float
    records: Mapping[AgentName, AgentRecord]
    views: Mapping[AgentName, AgentView]
    busy: frozenset[AgentName]
    stuck: Mapping[AgentName, str] = field(default_factory=dict)
    words: Mapping[AgentName, str] = field(default_factory=dict)


class Changes:
    """The changes of this daemon's life; the oldest finished ones are forgotten."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moved = threading.Condition()
        self._changes: OrderedDict[str, Change] = OrderedDict()
        self._closed = False

    def begin(self, kind: str, parts: Sequence[Part]) -> Change:
        """Register a change that the coming passes carry out."""
        change = Change(
            id=f"c-{secrets.token_hex(6)}",
            kind=kind,
            parts=tuple(parts),
            started_at=self._clock.now(),
            began=self._clock.monotonic(),
        )
        with self._moved:
            if self._closed:
                raise Stopping(f"cannot {kind}: the daemon is stopping", "try again once it is back")
            self._changes[change.id] = self._settled(change) if parts else change
            self._forget_old()
            return self._changes[change.id]

    def fail(self, change_id: str, error: HiveError) -> None:
        """End a change with an error."""
        with self._moved:
            change = self._changes[change_id]
            self._changes[change_id] = replace(
                change, state=Progress.FAILED, finished_at=self._clock.now(), error=error
            )
            self._moved.notify_all()

    def get(self, change_id: str) -> Change:
        """Return a change; `NotFound` when it is unknown or forgotten."""
        with self._moved:
            found = self._changes.get(change_id)
        if found is None:
            raise NotFound(f"there is no change {change_id[:40]!a}", "list them: hivectl changes")
        return found

    def recent(self) -> tuple[Change, ...]:
        """Return the known changes, newest first."""
        with self._moved:
            return tuple(reversed(self._changes.values()))

    def wait(self, change_id: str, wait_s: float) -> Change:
        """Return a change, waiting up to `wait_s` for it to end."""
        deadline = self._clock.monotonic() + wait_s
        while True:
            change = self.get(change_id)
            left_s = deadline - self._clock.monotonic()
            with self._moved:
                if change.state is not Progress.RUNNING or left_s <= 0 or self._closed:
                    return change
                if self._changes.get(change_id) is change:
                    self._moved.wait(left_s)

    def review(self, seen: Sighting) -> None:
        """Let a pass judge every running change that it began after."""
        with self._moved:
            for change in tuple(self._changes.values()):
                if change.state is Progress.RUNNING and seen.began >= change.began:
                    is_late = seen.began - change.began > _PATIENCE_S
                    parts = tuple(_judge(part, seen, is_late) for part in change.parts)
                    if parts or not seen.busy:
                        self._changes[change.id] = self._settled(replace(change, parts=parts))
            self._moved.notify_all()

    def close(self) -> None:
        """Let every waiter go and take no more; the daemon is stopping."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()

    def _settled(self, change: Change) -> Change:
        """Return the change, ended if all its parts are."""
        states = {part.state for part in change.parts}
        if Progress.PENDING in states:
            return change
        failed = Progress.FAILED in states
        return replace(
            change, state=Progress.FAILED if failed else Progress.DONE, finished_at=self._clock.now()
        )

    def _forget_old(self) -> None:
        ended = [one.id for one in self._changes.values() if one.state is not Progress.RUNNING]
        for change_id in ended[: max(0, len(self._changes) - _KEPT)]:
            del self._changes[change_id]


def _judge(part: Part, seen: Sighting, is_late: bool) -> Part:
    if part.state is not Progress.PENDING:
        return part
    record = seen.records.get(part.name)
    if record is None or record.incarnation != part.incarnation:
        if part.goal is Goal.GONE:
            return replace(part, state=Progress.DONE, text=f"{part.name} is removed")
        return replace(part, state=Progress.FAILED, text=f"{part.name} was removed meanwhile")
    view = seen.views.get(part.name)
    if part.name in seen.stuck:
        text = f"{part.name}: {seen.stuck[part.name]}; hive keeps trying"
        return replace(part, state=Progress.FAILED, text=text)
    if view is not None and view.state is AgentState.UNKNOWN and is_late:
        text = f"{part.name}: asked for, not done yet: {view.reason}; hive does it when it can"
        return replace(part, state=Progress.FAILED, text=text)
    if part.name in seen.busy or view is None:
        return part
    if part.goal is Goal.LISTED:
        return replace(part, state=Progress.DONE, text=part.text or f"{part.name} is {view.state.value}")
    return _JUDGES[part.goal](part, view, record, seen.words.get(part.name, ""))


def _judge_running(part: Part, view: AgentView, record: AgentRecord, word: str) -> Part:
    if view.state is AgentState.RUNNING and record.intent is None:
        return replace(part, state=Progress.DONE, text=f"{part.name} is running")
    if view.state in (AgentState.FAILED, AgentState.BACKOFF, AgentState.CRASH_LOOPING, AgentState.PAUSED):
        return replace(part, state=Progress.FAILED, text=f"{part.name} is {view.state.value}: {view.reason}")
    if view.desired.value != Goal.RUNNING.value:
        return replace(part, state=Progress.FAILED, text=f"{part.name} was told to stop meanwhile")
    return part


def _judge_stopped(part: Part, view: AgentView, record: AgentRecord, word: str) -> Part:
    if view.desired.value != Goal.STOPPED.value:
        return replace(part, state=Progress.FAILED, text=f"{part.name} was told to run meanwhile")
    if view.state is AgentState.STOPPED and record.intent is None:
        how = f" ({word})" if word else ""
        return replace(part, state=Progress.DONE, text=f"{part.name} is stopped{how}")
    return part


def _judge_gone(part: Part, view: AgentView, record: AgentRecord, word: str) -> Part:
    return part


_JUDGES: dict[Goal, Callable[[Part, AgentView, AgentRecord, str], Part]] = {
    Goal.RUNNING: _judge_running,
    Goal.STOPPED: _judge_stopped,
    Goal.GONE: _judge_gone,
}
