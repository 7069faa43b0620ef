"""Changes: kept, waited for, and judged by what passes see.

Begun by `engine.lifecycle` and `engine.creation`, judged after every pass by `review`: an agent's part is
done once a pass that began after the request has seen it as asked. So "bob is running" is something that
was observed. Each is journalled as it moves; one that a killed daemon left is taken up again, or told as
interrupted.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hive_core.adapters.clock import Clock
from hive_core.adapters.journal import Journal
from hive_core.domain.agents import AgentRecord
from hive_core.domain.changes import ROLLED_BACK, Asked, Change, Goal, Part, Progress
from hive_core.domain.errors import Conflict, HiveError, NotFound, Stopping
from hive_core.domain.names import AgentName
from hive_core.planning.actions import AgentState, AgentView
from hive_core.planning.probation import FIRST_LOOK

_KEPT = 200
_PUSH = "push"
_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one pass has to say to the changes.

    `at` is when it looked, `began` its monotonic start, `busy` the agents something is still being done to,
    `stuck` why the actions on an agent keep failing, `words` what the last ones reported.
    """

    at: datetime
    began: float
    records: Mapping[AgentName, AgentRecord]
    views: Mapping[AgentName, AgentView]
    busy: frozenset[AgentName]
    stuck: Mapping[AgentName, str] = field(default_factory=dict)
    words: Mapping[AgentName, str] = field(default_factory=dict)


class Changes:
    """The changes of a hive. Thread-safe."""

    def __init__(self, clock: Clock, journal: Journal, on_end: Callable[[Change], None]) -> None:
        """`on_end` is told of every change that ends; what is still running on disk is taken up again."""
        self._clock = clock
        self._journal = journal
        self._on_end = on_end
        self._moved = threading.Condition()
        self._changes: OrderedDict[str, Change] = OrderedDict()
        self._began: dict[str, float] = {}
        self._closed = False
        for change in journal.recent(_KEPT):
            self._changes[change.id] = change
        for change in journal.running():
            self._take_up(replace(change, is_resumed=True))

    def begin(self, kind: str, parts: Sequence[Part], asked: Asked) -> Change:
        """Journal a change that the coming passes carry out.

        Called inside the transaction that writes what is asked for; `released` then lets passes judge it.
        """
        # The caller may hold the store, which `review` takes while it holds `_moved`: no lock here.
        if self._closed:
            raise Stopping(f"cannot {kind}: the daemon is stopping", "try again once it is back")
        change = Change(f"c-{secrets.token_hex(6)}", kind, asked, tuple(parts), self._clock.now())
        if parts:
            change = self._settled(change)
        self._journal.add(change)
        if change.state is not Progress.RUNNING:
            self._journal.save(change)
        return change

    def release(self, change: Change) -> Change:
        """Let passes that begin from now on judge a change that is on disk."""
        with self._moved:
            self._changes[change.id] = change
            if change.state is Progress.RUNNING:
                self._began[change.id] = self._clock.monotonic()
            self._forget_old()
        if change.state is not Progress.RUNNING:
            self._on_end(change)
        return change

    def same_as_before(self, kind: str, key: str | None) -> Change | None:
        """Return the change that this idempotency key already stands for, None for a new key."""
        known = None if key is None else self._journal.by_key(key)
        if known is not None and known.kind != kind:
            raise Conflict(f"cannot {kind}: the idempotency key was used for {known.kind}", "use a key once")
        return known

    def fail(self, change_id: str, error: HiveError) -> Change:
        """End a change with an error."""
        with self._moved:
            change = self._changes[change_id]
            ended = replace(change, state=Progress.FAILED, finished_at=self._clock.now(), error=error)
            self._keep(ended)
            self._moved.notify_all()
        return ended

    def of_agent(self, name: AgentName) -> str | None:
        """Return the id of the youngest running change that is about an agent."""
        with self._moved:
            for change in reversed(self._changes.values()):
                if change.state is Progress.RUNNING and any(part.name == name for part in change.parts):
                    return change.id
        return None

    def _take_up(self, change: Change) -> None:
        """Go on with a change of a daemon that ended. A push is over either way, but how is not known."""
        if change.kind == _PUSH:
            text = "cannot tell how the push ended: the daemon was ended in the middle of it"
            error = HiveError(text, "push again: the same files make no new commit")
            change = replace(change, state=Progress.FAILED, finished_at=self._clock.now(), error=error)
            self._keep(change)
            return
        self._changes[change.id] = change
        self._began[change.id] = self._clock.monotonic()

    def _keep(self, change: Change) -> None:
        """Put a change that moved in its place, in memory and on disk."""
        self._changes[change.id] = change
        self._journal.save(change)
        if change.state is not Progress.RUNNING:
            self._began.pop(change.id, None)
            self._on_end(change)

    def get(self, change_id: str) -> Change:
        """Return a change; `NotFound` when it is unknown or forgotten."""
        with self._moved:
            found = self._changes.get(change_id)
        found = found or self._journal.get(change_id)
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
            for change_id, began in tuple(self._began.items()):
                if seen.began >= began:
                    self._judge(self._changes[change_id], seen, is_late=seen.began - began > _PATIENCE_S)
            self._moved.notify_all()

    def _judge(self, change: Change, seen: Sighting, *, is_late: bool) -> None:
        parts = tuple(_judge(part, seen, is_late) for part in change.parts)
        if parts == change.parts and (parts or seen.busy):
            return
        if change.is_resumed:
            parts = tuple(_told_as_interrupted(part, seen) for part in parts)
        self._keep(self._settled(replace(change, parts=parts)))

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


def _told_as_interrupted(part: Part, seen: Sighting) -> Part:
    if part.goal is Goal.LISTED and part.state is Progress.FAILED and part.name not in seen.records:
        return replace(part, text=f"{part.name} was taken back: the daemon was ended while it was made")
    return part


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
    return _JUDGES[part.goal](part, view, record, seen.words.get(part.name, ""), seen.at)


def _is_fresh(view: AgentView, at: datetime) -> bool:
    """Whether it runs for too short a time to tell; never if the clock was set back since its start."""
    return view.started_at is not None and timedelta() <= at - view.started_at < FIRST_LOOK


def _judge_running(part: Part, view: AgentView, record: AgentRecord, word: str, at: datetime) -> Part:
    if word.startswith(ROLLED_BACK):
        return replace(part, state=Progress.FAILED, text=f"{part.name} {word}")
    if view.state is AgentState.RUNNING and record.intent is None:
        if record.previous is not None and _is_fresh(view, at):
            return part
        return replace(part, state=Progress.DONE, text=f"{part.name} is running")
    if view.state in (AgentState.FAILED, AgentState.BACKOFF, AgentState.CRASH_LOOPING, AgentState.PAUSED):
        return replace(part, state=Progress.FAILED, text=f"{part.name} is {view.state.value}: {view.reason}")
    if view.desired.value != Goal.RUNNING.value:
        return replace(part, state=Progress.FAILED, text=f"{part.name} was told to stop meanwhile")
    if view.state is AgentState.STOPPED:
        # Desired to run and yet kept down, as with a full disk: nothing that is asked for happens now.
        return replace(part, state=Progress.FAILED, text=f"{part.name} is stopped: {view.reason}")
    return part


def _judge_stopped(part: Part, view: AgentView, record: AgentRecord, word: str, at: datetime) -> Part:
    if view.desired.value != Goal.STOPPED.value:
        return replace(part, state=Progress.FAILED, text=f"{part.name} was told to run meanwhile")
    if view.state is AgentState.STOPPED and record.intent is None:
        how = f" ({word})" if word else ""
        return replace(part, state=Progress.DONE, text=f"{part.name} is stopped{how}")
    return part


def _judge_paused(part: Part, view: AgentView, record: AgentRecord, word: str, at: datetime) -> Part:
    if record.quarantined_at is None:
        return replace(part, state=Progress.FAILED, text=f"{part.name} was released meanwhile")
    if view.state in (AgentState.RUNNING, AgentState.STARTING, AgentState.STOPPING):
        return part
    return replace(part, state=Progress.DONE, text=f"{part.name} is in quarantine ({view.state.value})")


def _judge_gone(part: Part, view: AgentView, record: AgentRecord, word: str, at: datetime) -> Part:
    return part


_JUDGES: dict[Goal, Callable[[Part, AgentView, AgentRecord, str, datetime], Part]] = {
    Goal.RUNNING: _judge_running,
    Goal.STOPPED: _judge_stopped,
    Goal.PAUSED: _judge_paused,
    Goal.GONE: _judge_gone,
}
