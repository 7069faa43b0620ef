"""The reconcile loop: one thread that observes, plans, publishes and dispatches, for ever.

Started by `daemon`. Level-triggered: a wake says only that it is worth looking now. One pass at a time;
what a pass decides is carried out by `engine.dispatch`, so a pass is short whatever an agent does.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from hive_core.adapters.clock import Clock
from hive_core.adapters.store import Store
from hive_core.adapters.systemd import notify_ready, notify_status, notify_watchdog, watchdog_period_s
from hive_core.domain.agents import AgentRecord
from hive_core.domain.errors import EngineUnavailable, HiveError
from hive_core.domain.names import AgentName
from hive_core.domain.observed import Observed, Unknown
from hive_core.domain.ports import Engine
from hive_core.domain.roster import state_word
from hive_core.engine.audit import Audit
from hive_core.engine.changes import Changes, Sighting
from hive_core.engine.dispatch import Dispatcher
from hive_core.engine.event_log import EventLog
from hive_core.engine.facts import first_edges, forget_first_edges, paused_by
from hive_core.engine.observe import Observer
from hive_core.engine.publish import Publisher
from hive_core.engine.snapshot import EngineHealth, Phase, Snapshot
from hive_core.engine.transitions import as_it_is, news, overlay
from hive_core.planning.actions import AgentState, AgentView, Plan, Problem
from hive_core.planning.desired import DesiredState
from hive_core.planning.plan import plan

log = logging.getLogger(__name__)

_JITTER = 0.1
_GAP_S = 0.03
_LONGEST_GAP_S = 0.1
_REST_SHARE = 3
_SECOND_LOOK_S = 0.25
_WATCHDOG_SHARE = 3
_STUCK_AFTER = 3
_NOT_PUBLISHED = "roster_not_published"


class Housekeeping(Protocol):
    """What is done before a pass looks, as making the root agent; returns the problems it met."""

    def __call__(self) -> tuple[Problem, ...]: ...


class Reconciler:
    """The loop and its snapshot."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        observer: Observer,
        dispatcher: Dispatcher,
        publisher: Publisher,
        changes: Changes,
        events: EventLog,
        audit: Audit,
        clock: Clock,
        interval_s: float,
    ) -> None:
        self._store = store
        self._engine = engine
        self._observer = observer
        self._dispatcher = dispatcher
        self._publisher = publisher
        self._changes = changes
        self._events = events
        self._audit = audit
        self._clock = clock
        self._interval_s = interval_s
        self._woken = threading.Event()
        self._stopping = threading.Event()
        known = frozenset(one.id for one in store.containers() if one.id is not None)
        rows = {one.name: _not_seen_yet(one) for one in store.agents()}
        self._snapshot = Snapshot(container_ids=known, views=rows)
        self._first_plan: frozenset[AgentName] | None = None
        self._wake_at: datetime | None = None
        self._look_again_at: float | None = None
        self._thread: threading.Thread | None = None
        self.housekeeping: Housekeeping = tuple
        self.host_problems: Callable[[], tuple[Problem, ...]] = tuple

    @property
    def snapshot(self) -> Snapshot:
        """The last pass's view."""
        return self._snapshot

    def wake(self) -> None:
        """Ask for a pass; any number of asks before it begins are one."""
        self._woken.set()

    def wake_twice(self) -> None:
        """Ask for a pass now and for one in a moment: the engine tells of some changes, as of a pause, a
        little before its list shows them.
        """
        self._look_again_at = self._clock.monotonic() + _SECOND_LOOK_S
        self._woken.set()

    def start(self) -> None:
        """Start the loop on its own thread."""
        self._thread = threading.Thread(target=self._run, name="reconcile", daemon=True)
        self._thread.start()

    def stop(self, limit_s: float) -> None:
        """End the loop after the pass it is in, waiting at most `limit_s`."""
        self._snapshot = replace(self._snapshot, phase=Phase.STOPPING)
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(limit_s)

    def preview(self) -> Plan:
        """Return what a pass would do now, doing nothing (the dry run)."""
        began = self._clock.monotonic()
        desired, observed = self._observer.observe(frozenset())
        busy = self._dispatcher.busy(began)
        return plan(desired, replace(observed, busy=busy), self._clock.now())

    # ---- the loop ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                self._audit.flush()
                self._pass()
            except Exception as fault:
                log.exception("a pass broke")
                self._note_broken(fault)
            self._rest()

    def _rest(self) -> None:
        """Wait for a wake or the timer, beating the watchdog meanwhile.

        A long pass is followed by a longer rest, so that many wakes in a row take a share of the machine
        and not all of it.
        """
        self._stopping.wait(max(_GAP_S, min(_LONGEST_GAP_S, _REST_SHARE * (self._snapshot.duration_s or 0))))
        deadline = self._deadline()
        beat_s = watchdog_period_s()
        while not self._stopping.is_set():
            notify_watchdog()
            left_s = deadline - self._clock.monotonic()
            if left_s <= 0 or self._woken.wait(min(left_s, beat_s / _WATCHDOG_SHARE if beat_s else left_s)):
                return

    def _deadline(self) -> float:
        now = self._clock.monotonic()
        times = [now + self._interval_s * (1 + random.uniform(-_JITTER, _JITTER))]  # jitter, no secret
        if self._wake_at is not None:
            times.append(now + max(0.0, (self._wake_at - self._clock.now()).total_seconds()))
        release = self._dispatcher.next_release()
        if release is not None:
            times.append(release)
        if self._look_again_at is not None:
            times.append(self._look_again_at)
        return min(times)

    def _pass(self) -> None:
        problems = () if paused_by(self._store) is not None else self.housekeeping()
        began = self._clock.monotonic()
        if self._look_again_at is not None and began >= self._look_again_at:
            self._look_again_at = None
        desired, observed = self._observer.observe(frozenset())
        observed = replace(observed, busy=self._dispatcher.busy(began))
        decided = plan(desired, observed, self._clock.now())
        if self._stopping.is_set():
            return
        is_paused = paused_by(self._store) is not None
        if is_paused:
            asked_for = tuple(one for one in decided.agents if self._changes.of_agent(one.agent))
            left_out = frozenset(one.agent for one in decided.agents if one not in asked_for)
            views = tuple(as_it_is(one) if one.name in left_out else one for one in decided.views)
            decided = replace(decided, agents=asked_for, roster=None, views=views)
        problems = (*problems, *self._publish(decided))
        self._dispatcher.submit(decided.agents)
        self._wake_at = decided.wake_at
        if self._first_plan is None and not decided.is_partial:
            self._first_plan = frozenset(one.agent for one in decided.agents)
        self._show(began, desired, observed, decided, problems)
        if not decided.is_partial and not decided.agents and first_edges(self._store) is not None:
            forget_first_edges(self._store)

    def _publish(self, decided: Plan) -> tuple[Problem, ...]:
        if decided.roster is None:
            return ()
        try:
            self._publisher.publish(decided.roster)
        except (HiveError, OSError) as fault:
            log.warning("cannot publish the roster: %s", fault)
            return (Problem(_NOT_PUBLISHED, f"cannot publish topology.json: {fault}"),)
        return ()

    # ---- what to show --------------------------------------------------------------------------------------

    def _show(
        self,
        began: float,
        desired: DesiredState,
        observed: Observed,
        decided: Plan,
        problems: tuple[Problem, ...],
    ) -> None:
        previous = self._snapshot
        views = {one.name: one for one in decided.views}
        holds = self._dispatcher.holds()
        views = overlay(views, previous.views, observed.busy, self._dispatcher.working(), holds)
        health, version = self._health(observed)
        everything = (*decided.problems, *problems, *self.host_problems())
        phase = self._phase(decided, everything)
        is_published = decided.roster is not None and all(one.code != _NOT_PUBLISHED for one in problems)
        self._snapshot = Snapshot(
            phase=phase,
            seen_at=self._clock.monotonic(),
            duration_s=self._clock.monotonic() - began,
            actions=len(decided.actions),
            engine=health,
            engine_version=version,
            roster_state="present" if is_published else state_word(observed.roster),
            shape=desired.shape,
            views=views,
            problems=everything,
            container_ids=frozenset(desired.containers),
        )
        self._tell_phase(previous.phase, phase)
        records = {one.record.name: one.record for one in desired.agents}
        frozen = frozenset(name for name, one in records.items() if one.quarantined_at is not None)
        # What the daemon has not seen before in its life has not turned.
        known = previous.views if previous.seen_at is not None else {}
        for turn in news(known, views, observed.busy, frozen):
            self._events.add(turn.kind, turn.agent, turn.text)
        self._changes.review(
            Sighting(
                at=observed.at,
                began=began,
                records=records,
                views=views,
                busy=(observed.busy - holds.keys()) | {one.agent for one in decided.agents},
                stuck={
                    **{name: hold.reason for name, hold in holds.items() if hold.count >= _STUCK_AFTER},
                    **self._dispatcher.reservations(),
                },
                words=self._dispatcher.words(),
            )
        )

    def _phase(self, decided: Plan, problems: tuple[Problem, ...]) -> Phase:
        if self._stopping.is_set():
            return Phase.STOPPING
        if paused_by(self._store) is not None:
            return Phase.PAUSED
        if decided.is_partial or any(one.code == _NOT_PUBLISHED for one in problems):
            return Phase.DEGRADED
        unfinished = (self._first_plan or frozenset()) & self._dispatcher.working().keys()
        if self._snapshot.phase is Phase.RECOVERING and unfinished:
            return Phase.RECOVERING
        return Phase.RUNNING

    def _tell_phase(self, before: Phase, now: Phase) -> None:
        if before is now:
            return
        if before is Phase.RECOVERING:
            notify_ready()
        notify_status(f"phase {now.value}")
        self._events.add("phase", None, f"the daemon is {now.value}", before=before.value)

    def _health(self, observed: Observed) -> tuple[EngineHealth, str | None]:
        known = self._snapshot.engine_version
        if isinstance(observed.containers, Unknown):
            hung = self._observer.engine_is_hung
            return (EngineHealth.HUNG if hung else EngineHealth.UNREACHABLE), known
        if known is None or self._snapshot.engine is not EngineHealth.OK:
            try:
                known = self._engine.version().engine
            except HiveError:
                known = None
        return EngineHealth.OK, known

    def _note_broken(self, fault: Exception) -> None:
        """A pass that broke is our own fault: say so, keep what was known, try again at the timer."""
        kind = (
            "the engine went away during a pass" if isinstance(fault, EngineUnavailable) else "a pass broke"
        )
        problem = Problem("pass_broken", f"{kind}: {type(fault).__name__}; the daemon's log has the details")
        kept = tuple(one for one in self._snapshot.problems if one.code != problem.code)
        self._snapshot = replace(self._snapshot, phase=Phase.DEGRADED, problems=(*kept, problem))


def _not_seen_yet(record: AgentRecord) -> AgentView:
    """Return the row of an agent that this daemon's life has not looked at yet."""
    return AgentView(
        name=record.name,
        parent=record.parent,
        state=AgentState.UNKNOWN,
        desired=record.desired,
        container_id=None,
        started_at=None,
        reason="the daemon has just started; no pass has looked yet",
        needs_update=False,
        degraded=False,
    )
