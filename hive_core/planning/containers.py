"""The declared × observed table: what to do about one agent's container.

Called by `planning.plan` for every agent that is not busy. Each cell of desired run state × engine state is
defined here, wishes (restart, update, ...) included; each returns actions with reasons and what to show.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from hive_core.domain.agents import AgentRecord, Desired, ExitKind, ExitRecord, Intent, IntentKind
from hive_core.domain.observed import EngineState, OurContainer
from hive_core.planning.actions import (
    Action,
    AgentState,
    Approve,
    ClearIntent,
    Create,
    Pause,
    RecordExit,
    Remove,
    Retire,
    RollBack,
    Start,
    Stop,
    Unpause,
)
from hive_core.planning.crashes import classify_exit, crash_state
from hive_core.planning.desired import DesiredState
from hive_core.planning.probation import FIRST_LOOK, PROBATION, failure, proves_itself_at

_SILENT = "the engine does not tell of its container"
_DOWN = (EngineState.CREATED, EngineState.EXITED, EngineState.DEAD)


@dataclass(frozen=True, slots=True)
class Cell:
    """The outcome of one cell: what to do, what to show, and when to look again."""

    actions: tuple[Action, ...]
    state: AgentState
    reason: str
    wake_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One agent as one pass finds it. `container` is None when the engine has none for it."""

    record: AgentRecord
    container: OurContainer | None
    desired: DesiredState
    now: datetime

    @property
    def name(self) -> str:
        """The agent's name, for sentences."""
        return self.record.name

    @property
    def incarnation(self) -> str:
        """The agent's incarnation."""
        return self.record.incarnation


def plan_container(case: Case) -> Cell:
    """Return the cell of one agent."""
    record = case.record
    if record.intent is not None and record.intent.kind is IntentKind.REMOVE:
        return _remove(case, record.intent)
    if record.quarantined_at is not None:
        return _quarantined(case)
    if record.name in case.desired.over_budget and record.desired is Desired.RUNNING:
        return _disk_full(case, case.desired.over_budget[record.name])
    match record.desired:
        case Desired.UNSPAWNED:
            return _unspawned(case)
        case Desired.STOPPED:
            return _stopped(case)
        case Desired.RUNNING:
            return _running(case)
    assert_never(record.desired)


def _unspawned(case: Case) -> Cell:
    if case.container is not None:
        return Cell((), AgentState.UNKNOWN, "has a container although it was never spawned; left alone")
    return Cell((), AgentState.UNSPAWNED, f"waits for: hivectl spawn {case.name}")


def _disk_full(case: Case, excess: str) -> Cell:
    """An agent over its disk budget is kept down, its state untouched, until it is clearly below again."""
    container = case.container
    text = f"disk full: {excess}; it starts again once it holds less"
    if container is None:
        return Cell((), AgentState.STOPPED, text)
    if container.state is EngineState.REMOVING:
        return _removing(case)
    if container.state in _DOWN:
        return Cell(_new_exit(case, container), AgentState.STOPPED, text)
    stop = Stop(case.record.name, container.id, case.desired.grace_s, text)
    return Cell((stop,), AgentState.STOPPING, text)


def _quarantined(case: Case) -> Cell:
    """Nothing runs and nothing is undone: frozen where it runs, left as it is where it has ended."""
    container = case.container
    text = f"in quarantine; hivectl release {case.name} ends it"
    if container is None:
        return Cell((), AgentState.STOPPED, text)
    match container.state:
        case EngineState.RUNNING:
            return Cell((Pause(case.record.name, container.id, text),), AgentState.PAUSED, text)
        case EngineState.PAUSED:
            return Cell((), AgentState.PAUSED, text)
        case EngineState.RESTARTING:
            return Cell((), AgentState.STARTING, "in quarantine; frozen once the engine has restarted it")
        case EngineState.REMOVING:
            return _removing(case)
        case EngineState.CREATED | EngineState.EXITED | EngineState.DEAD:
            return Cell(_new_exit(case, container), AgentState.STOPPED, text)
    assert_never(container.state)


def _remove(case: Case, intent: Intent) -> Cell:
    reason = case.record.desired_reason
    ending = Retire(case.record.name, case.incarnation, intent.purge, reason)
    if case.container is None:
        return Cell((ending,), AgentState.REMOVING, reason)
    if case.container.state is EngineState.REMOVING:
        return _removing(case)
    return Cell(
        (*_take_down(case, case.container, intent.grace_s, reason), ending), AgentState.REMOVING, reason
    )


def _take_down(case: Case, container: OurContainer, grace_s: int, reason: str) -> tuple[Action, ...]:
    remove = Remove(case.record.name, container.id, reason)
    if container.state in _DOWN:
        return (*_new_exit(case, container), remove)
    return (Stop(case.record.name, container.id, grace_s, reason), remove)


def _removing(case: Case) -> Cell:
    stuck = case.container.stuck if case.container is not None else ""
    return Cell((), AgentState.REMOVING, stuck or "the engine is removing its container")


def _clear(case: Case, reason: str) -> tuple[Action, ...]:
    intent = case.record.intent
    return () if intent is None else (ClearIntent(case.record.name, case.incarnation, intent, reason),)


# ---- desired: stopped -------------------------------------------------------------------------------------


def _stopped(case: Case) -> Cell:
    record, container = case.record, case.container
    reason = record.desired_reason
    if container is None:
        return Cell(_clear(case, reason), AgentState.STOPPED, reason)
    if container.state is EngineState.REMOVING:
        return _removing(case)
    if record.intent is not None and record.intent.kind is IntentKind.UPDATE:
        actions = _take_down(
            case, container, record.intent.grace_s, "update: the next start makes a new container"
        )
        return Cell((*actions, *_clear(case, "updated")), AgentState.STOPPED, reason)
    if container.state not in _DOWN:
        grace_s = record.intent.grace_s if record.intent is not None else case.desired.grace_s
        stop = Stop(record.name, container.id, grace_s, reason)
        return Cell((stop, *_clear(case, reason)), AgentState.STOPPING, reason)
    ended = _new_exit(case, container)
    return Cell((*ended, *_clear(case, reason)), AgentState.STOPPED, reason)


# ---- desired: running -------------------------------------------------------------------------------------


def _running(case: Case) -> Cell:
    container = case.container
    failed = _go_back(case)
    if failed is not None:
        return failed
    if container is None:
        return _absent(case)
    wished = None if container.state is EngineState.REMOVING else _wish(case, container)
    return _undisturbed(case, container) if wished is None else wished


def _undisturbed(case: Case, container: OurContainer) -> Cell:
    """Return the cell of an agent that nobody wishes anything of but to run."""
    match container.state:
        case EngineState.RUNNING:
            return _up(case, container)
        case EngineState.PAUSED:
            text = f"paused by hand; resume it with: hivectl start {case.name}"
            return Cell((), AgentState.PAUSED, text)
        case EngineState.RESTARTING:
            return Cell((), AgentState.STARTING, "the engine is restarting it")
        case EngineState.CREATED:
            return _created(case, container)
        case EngineState.EXITED | EngineState.DEAD:
            return _ended(case, container)
        case EngineState.REMOVING:
            return _removing(case)
    assert_never(container.state)


def _up(case: Case, container: OurContainer) -> Cell:
    """A container that runs: nothing to do, except to end a probation that was passed."""
    if container.detail is None:
        return Cell((), AgentState.UNKNOWN, f"{container.stuck or _SILENT}; it is left alone")
    reason, cleared = _why_running(case), _clear(case, "done")
    proves_at = proves_itself_at(case.record, container)
    if proves_at is None:
        return Cell(cleared, AgentState.RUNNING, reason)
    if proves_at > case.now:
        first_look = proves_at - PROBATION + FIRST_LOOK
        return Cell(cleared, AgentState.RUNNING, reason, first_look if first_look > case.now else proves_at)
    passed = Approve(case.record.name, case.incarnation, "the updated spec runs")
    return Cell((*cleared, passed), AgentState.RUNNING, reason)


def _go_back(case: Case) -> Cell | None:
    """Return the way back to the spec that ran before, when the applied one shows that it does not run."""
    record, container = case.record, case.container
    if record.previous is None or (container is not None and container.state is EngineState.REMOVING):
        return None
    is_down = container is not None and container.state in _DOWN
    ended = _new_exit(case, container) if container is not None and is_down else ()
    found = failure(record, container, (*record.exits, *(one.exit for one in ended)))
    if found is None or (container is not None and not is_down):
        return None
    reason = f"update failed: {found.text}"
    clean_up = () if container is None else (Remove(record.name, container.id, reason),)
    actions = (
        *ended,
        RollBack(record.name, case.incarnation, record.previous, reason),
        *clean_up,
        Create(record.name, case.incarnation, record.previous, reason),
        Start(record.name, None, reason),
    )
    return Cell(actions, AgentState.STARTING, reason)


def _why_running(case: Case) -> str:
    last = case.record.exits[-1] if case.record.exits else None
    container = case.container
    started_at = (
        container.detail.started_at if container is not None and container.detail is not None else None
    )
    if last is None or started_at is None or last.kind is ExitKind.REQUESTED or _is_forgiven(case, last):
        return case.record.desired_reason
    ago_s = (started_at - last.finished_at).total_seconds()
    is_its_cause = 0 <= ago_s <= case.desired.crashes.backoff_max_s * 2
    return f"started again after: {last.text}" if is_its_cause else case.record.desired_reason


def _wish(case: Case, container: OurContainer) -> Cell | None:
    """Return the cell of a restart, update or unpause that is still to be done, None when there is none."""
    intent = case.record.intent
    if intent is None:
        return None
    if container.detail is None:
        return Cell((), AgentState.UNKNOWN, f"{intent.kind} waits for what the engine says of its container")
    match intent.kind:
        case IntentKind.UPDATE:
            is_done = _is_since(intent, container.detail.created_at, case.now)
            return None if is_done else _replace(case, container, intent)
        case IntentKind.RESTART:
            is_done = _is_since(intent, container.detail.started_at, case.now)
            return None if is_done else _restart(case, container, intent)
        case IntentKind.UNPAUSE if container.state is EngineState.PAUSED:
            reason = case.record.desired_reason
            resume = Unpause(case.record.name, container.id, reason)
            return Cell((resume, *_clear(case, "resumed")), AgentState.STARTING, reason)
        case IntentKind.UNPAUSE | IntentKind.STOP | IntentKind.REMOVE:
            return None
    assert_never(intent.kind)


def _is_since(intent: Intent, done_at: datetime | None, now: datetime) -> bool:
    """Whether something was done after the wish for it. What lies in the future was done before the clock was
    set back, and shows nothing.
    """
    return done_at is not None and intent.at < done_at <= now


def _replace(case: Case, container: OurContainer, intent: Intent) -> Cell:
    reason = "update: new container from the applied spec"
    actions = (
        *_take_down(case, container, intent.grace_s, reason),
        *_make(case, reason),
        *_clear(case, "updated"),
    )
    return Cell(actions, AgentState.STARTING, reason)


def _restart(case: Case, container: OurContainer, intent: Intent) -> Cell:
    reason = case.record.desired_reason
    if container.state is EngineState.DEAD:
        remake = (
            *_take_down(case, container, intent.grace_s, reason),
            *_make(case, reason),
            *_clear(case, "restarted"),
        )
        return Cell(remake, AgentState.STARTING, reason)
    start = (Start(case.record.name, container.id, reason), *_clear(case, "restarted"))
    if container.state not in _DOWN:
        stop = Stop(case.record.name, container.id, intent.grace_s, reason)
        return Cell((stop, *start), AgentState.STARTING, reason)
    # Down, yet not started: the start failed, or it crashed before its stop. Trying at once would never end.
    ended = _new_exit(case, container)
    waits = _wait(case, (*case.record.exits, *(one.exit for one in ended)), ended)
    return waits or Cell((*ended, *start), AgentState.STARTING, reason)


def _make(case: Case, reason: str) -> tuple[Action, ...]:
    if case.record.applied is None:
        return ()
    name = case.record.name
    return (Create(name, case.incarnation, case.record.applied, reason), Start(name, None, reason))


def _absent(case: Case) -> Cell:
    waits = _wait(case, case.record.exits, ())
    if waits is not None:
        return waits
    removed = any(
        known.incarnation == case.incarnation and known.id is not None
        for known in case.desired.containers.values()
    )
    reason = (
        "its container was removed outside hive; made again from the applied spec"
        if removed
        else case.record.desired_reason
    )
    return Cell((*_make(case, reason), *_clear(case, reason)), AgentState.STARTING, reason)


def _created(case: Case, container: OurContainer) -> Cell:
    """A container that was made and never ran: start it, or make it anew when the spec moved on since."""
    waits = _wait(case, case.record.exits, ())
    if waits is not None:
        return waits
    reason = case.record.desired_reason
    if container.spec_label != case.record.applied_hash:
        remake = (
            Remove(case.record.name, container.id, "made from an earlier spec, never ran"),
            *_make(case, reason),
        )
        return Cell((*remake, *_clear(case, reason)), AgentState.STARTING, reason)
    start = Start(case.record.name, container.id, reason)
    return Cell((start, *_clear(case, reason)), AgentState.STARTING, reason)


def _ended(case: Case, container: OurContainer) -> Cell:
    if container.detail is None:
        return Cell((), AgentState.UNKNOWN, "its container ended; waiting for the engine to tell how")
    ended = _new_exit(case, container)
    exits = (*case.record.exits, *(one.exit for one in ended))
    waits = _wait(case, exits, ended)
    if waits is not None:
        return waits
    reason = _why_start(case, exits)
    name = case.record.name
    if container.state is EngineState.DEAD:
        again: tuple[Action, ...] = (
            Remove(name, container.id, "the engine calls it dead"),
            *_make(case, reason),
        )
    else:
        again = (Start(name, container.id, reason),)
    return Cell((*ended, *again, *_clear(case, reason)), AgentState.STARTING, reason)


def _why_start(case: Case, exits: tuple[ExitRecord, ...]) -> str:
    if not exits or exits[-1].kind is ExitKind.REQUESTED or _is_forgiven(case, exits[-1]):
        return case.record.desired_reason
    return f"started again after: {exits[-1].text}"


def _is_forgiven(case: Case, last: ExitRecord) -> bool:
    reset_at = case.record.crashes_reset_at
    return reset_at is not None and last.finished_at <= reset_at


def _new_exit(case: Case, container: OurContainer) -> tuple[RecordExit, ...]:
    """Return the record of the end of a container that is down, unless it is recorded already."""
    detail = container.detail
    if detail is None or container.state not in (EngineState.EXITED, EngineState.DEAD):
        return ()
    known = {(one.container_id, one.finished_at) for one in case.record.exits}
    found = classify_exit(
        detail, case.desired.containers.get(container.id), case.desired.boot_at, case.desired.outages
    )
    if (found.container_id, found.finished_at) in known:
        return ()
    return (RecordExit(case.record.name, case.incarnation, found, found.text),)


def _wait(case: Case, exits: tuple[ExitRecord, ...], ended: tuple[RecordExit, ...]) -> Cell | None:
    """Return the cell of an agent that may not start now: in backoff, failing to start, or looping."""
    state = crash_state(exits, case.record.crashes_reset_at, case.desired.crashes, case.now)
    if state.is_looping:
        text = f"{state.streak} crashes in a row, last: {exits[-1].text}"
        return Cell(ended, AgentState.CRASH_LOOPING, f"{text}; try again with: hivectl start {case.name}")
    if state.start_at is None or state.start_at <= case.now:
        return None
    word = AgentState.FAILED if exits[-1].kind is ExitKind.START_FAILED else AgentState.BACKOFF
    seconds = max(1, round((state.start_at - case.now).total_seconds()))
    # What could not be started did not crash.
    count = f"{'failure' if word is AgentState.FAILED else 'crash'} {state.streak}"
    return Cell(ended, word, f"{exits[-1].text}; next try in {seconds} s ({count})", state.start_at)
