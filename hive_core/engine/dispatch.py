"""Dispatch: the workers that carry out plans, and who is busy.

Fed by `engine.reconcile` after each pass. One agent has at most one sequence of actions in flight, so what
is done to it is in order; different agents are worked on at once, starts and stops with limits of their
own. A pass leaves busy agents out, so one slow stop holds up nobody else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from hive_core.adapters.clock import Clock
from hive_core.domain.errors import Conflict, EngineUnavailable, HiveError, owned
from hive_core.domain.names import AgentName
from hive_core.engine.apply import Applier, StartFailed
from hive_core.planning.actions import (
    Action,
    AgentPlan,
    Approve,
    ClearIntent,
    RecordExit,
    Remove,
    Retire,
    Stop,
)

log = logging.getLogger(__name__)

_FIRST_HOLD_S = 1.0
_LONGEST_HOLD_S = 60.0


@dataclass(slots=True)
class _Work:
    """An agent's sequence, queued or in flight; `action` is the one being done, or the first."""

    plan: AgentPlan
    action: Action
    is_started: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """An agent left alone for a while after an action failed: until when, why, how often in a row."""

    until: float
    reason: str
    count: int


class Dispatcher:
    """Runs plans on worker threads."""

    def __init__(
        self,
        applier: Applier,
        clock: Clock,
        start_workers: int,
        stop_workers: int,
        on_done: Callable[[], None],
    ) -> None:
        self._applier = applier
        self._clock = clock
        self._on_done = on_done
        self._starts = ThreadPoolExecutor(start_workers, thread_name_prefix="start")
        self._stops = ThreadPoolExecutor(stop_workers, thread_name_prefix="stop")
        self._lock = threading.Condition()
        self._working: dict[AgentName, _Work] = {}
        self._reserved: dict[AgentName, str] = {}
        self._ended_at: dict[AgentName, float] = {}
        self._holds: dict[AgentName, Hold] = {}
        self._followers: dict[AgentName, list[AgentPlan]] = {}
        self._words: dict[AgentName, str] = {}
        self._is_closed = False

    def busy(self, began: float) -> frozenset[AgentName]:
        """Return who must be left out of a pass that began to observe at `began` (monotonic)."""
        now = self._clock.monotonic()
        with self._lock:
            held = {name for name, hold in self._holds.items() if hold.until > now}
            recent = {name for name, at in self._ended_at.items() if at >= began}
            return frozenset(self._working.keys() | self._reserved.keys() | held | recent)

    def working(self) -> dict[AgentName, Action]:
        """Return what is being done now, by agent."""
        with self._lock:
            return {name: work.action for name, work in self._working.items()}

    def holds(self) -> dict[AgentName, Hold]:
        """Return the agents that are left alone after a failure."""
        now = self._clock.monotonic()
        with self._lock:
            return {name: hold for name, hold in self._holds.items() if hold.until > now}

    def next_release(self) -> float | None:
        """Return the monotonic time at which the first agent left alone may be looked at again."""
        return min((hold.until for hold in self.holds().values()), default=None)

    def words(self) -> dict[AgentName, str]:
        """Return what the last sequence that did something to each agent reported."""
        with self._lock:
            return dict(self._words)

    def reservations(self) -> dict[AgentName, str]:
        """Return the agents that are kept for something that may last, with what that is."""
        with self._lock:
            return {name: reason for name, reason in self._reserved.items() if reason}

    @contextmanager
    def reserve(self, name: AgentName, reason: str = "") -> Iterator[None]:
        """Keep passes off an agent while a verb makes or unmakes it.

        A `reason` says that this may last: whoever asks for something meanwhile is told instead of waiting.
        """
        with self._lock:
            if name in self._working or name in self._reserved:
                known = self._reserved.get(name)
                raise Conflict(
                    f"{name} is being worked on{f': {known}' if known else ''}", "try again in a moment"
                )
            self._reserved[name] = reason
        try:
            yield
        finally:
            with self._lock:
                del self._reserved[name]
                self._ended_at[name] = self._clock.monotonic()
            self._on_done()

    def release(self, name: AgentName) -> None:
        """Let the next pass at an agent at once: somebody asked for something.

        What was reported so far is not about that.
        """
        with self._lock:
            self._holds.pop(name, None)
            self._words.pop(name, None)

    def submit(self, plans: Sequence[AgentPlan]) -> None:
        """Start working on plans; one that comes after an ancestor's start waits for that to end."""
        with self._lock:
            if self._is_closed:
                return
            fresh = [
                one for one in plans if one.agent not in self._working and one.agent not in self._reserved
            ]
            for one in fresh:
                self._working[one.agent] = _Work(one, one.actions[0])
                if not _is_record_only(one):
                    self._words.pop(one.agent, None)
            for one in fresh:
                if one.after is not None and one.after in self._working:
                    self._followers.setdefault(one.after, []).append(one)
                else:
                    self._send(one)

    def _send(self, plan: AgentPlan) -> None:
        goes_down = any(isinstance(action, Stop | Remove | Retire) for action in plan.actions)
        (self._stops if goes_down else self._starts).submit(self._work, plan)

    def _work(self, plan: AgentPlan) -> None:
        hold: Hold | None = None
        word = ""
        with self._lock:
            self._working[plan.agent].is_started = True
        try:
            word = self._applier.apply(plan.actions, lambda action: self._note(plan.agent, action))
        except StartFailed as fault:
            log.warning("%s", fault.message)
        except (HiveError, OSError) as fault:
            hold = self._hold(plan.agent, owned(fault))
            log.warning("%s: %s", plan.agent, owned(fault).message)
        except Exception:
            log.exception("an action on %s broke", plan.agent)
            hold = self._hold(plan.agent, HiveError("internal error; the daemon's log has the details"))
        self._end(plan.agent, hold, word)

    def _note(self, name: AgentName, action: Action) -> None:
        with self._lock:
            self._working[name].action = action

    def _hold(self, name: AgentName, fault: HiveError) -> Hold:
        """Wait longer with each failure in a row; for an engine that is away, only briefly."""
        with self._lock:
            before = self._holds.get(name)
        count = before.count + 1 if before is not None else 1
        longest_s = 2.0 if isinstance(fault, EngineUnavailable) else _LONGEST_HOLD_S
        wait_s = min(_FIRST_HOLD_S * 2 ** min(count - 1, 10), longest_s)
        return Hold(self._clock.monotonic() + wait_s, fault.message, count)

    def _end(self, name: AgentName, hold: Hold | None, word: str) -> None:
        with self._lock:
            del self._working[name]
            self._ended_at[name] = self._clock.monotonic()
            if hold is None:
                self._holds.pop(name, None)
                if word:
                    self._words[name] = word
            else:
                self._holds[name] = hold
            for follower in self._followers.pop(name, ()):
                if not self._is_closed:
                    self._send(follower)
            self._lock.notify_all()
        self._on_done()

    def close_when_idle(self, limit_s: float) -> frozenset[AgentName]:
        """Wait for everything submitted, queued included, then take no more; return who was not done."""
        deadline = self._clock.monotonic() + limit_s
        with self._lock:
            while self._working and (left_s := deadline - self._clock.monotonic()) > 0:
                self._lock.wait(left_s)
        return self.close(0)

    def close(self, limit_s: float) -> frozenset[AgentName]:
        """Take no more work and wait for what is under way; return who was not done in time.

        What is left is not lost: a later daemon plans it again.
        """
        deadline = self._clock.monotonic() + limit_s
        with self._lock:
            self._is_closed = True
            self._followers.clear()
        self._starts.shutdown(wait=False, cancel_futures=True)
        self._stops.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._working = {name: work for name, work in self._working.items() if work.is_started}
            while self._working and (left_s := deadline - self._clock.monotonic()) > 0:
                self._lock.wait(left_s)
            return frozenset(self._working)


def _is_record_only(plan: AgentPlan) -> bool:
    """Whether a plan only writes something down: then the word about what was done before still stands."""
    return all(isinstance(action, RecordExit | ClearIntent | Approve) for action in plan.actions)
