"""What a pass makes of one agent's part of a change: every goal against everything that can be seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from hive_core.domain.agents import AgentRecord, Desired, IntentKind
from hive_core.domain.changes import ROLLED_BACK, Goal, Part, Progress
from hive_core.engine.changes import Sighting
from hive_core.planning.actions import AgentState, AgentView
from tests.support.plan_inputs import NOW, agent, name, wish
from tests.unit.changes.kept_changes import begun, new_changes
from tests.unit.changes.steady_clock import SteadyClock

BOB = name("bob")
DONE, FAILED, PENDING = Progress.DONE, Progress.FAILED, Progress.PENDING


@dataclass(frozen=True)
class Seen:
    """What the pass saw of bob."""

    state: AgentState | None
    desired: Desired = Desired.RUNNING
    has_wish: bool = False
    is_busy: bool = False
    stuck: str = ""
    word: str = ""
    incarnation: str = "i-bob"
    exists: bool = True
    late_s: float = 0.0
    is_quarantined: bool = False


def _judged(goal: Goal, seen: Seen) -> Part:
    clock = SteadyClock()
    changes = new_changes(clock)
    change = begun(changes, "test", [Part(BOB, "i-bob", goal)])
    clock.pass_time(seen.late_s)
    record: AgentRecord = agent(
        desired=seen.desired,
        incarnation=seen.incarnation,
        intent=wish(IntentKind.RESTART) if seen.has_wish else None,
    )
    if seen.is_quarantined:
        record = replace(record, quarantined_at=NOW)
    view = None
    if seen.state is not None:
        view = AgentView(BOB, None, seen.state, seen.desired, "id-bob", None, "a reason", False, False)
    changes.review(
        Sighting(
            at=clock.now(),
            began=clock.monotonic(),
            records={BOB: record} if seen.exists else {},
            views={} if view is None else {BOB: view},
            busy=frozenset({BOB} if seen.is_busy else ()),
            stuck={BOB: seen.stuck} if seen.stuck else {},
            words={BOB: seen.word} if seen.word else {},
        )
    )
    return changes.get(change.id).parts[0]


_S = AgentState


def _cases() -> Iterator[tuple[str, Goal, Seen, Progress, str]]:
    for goal in Goal:
        is_gone = goal is Goal.GONE
        gone = (DONE, "bob is removed") if is_gone else (FAILED, "bob was removed meanwhile")
        yield "removed", goal, Seen(None, exists=False), *gone
        yield "another-life", goal, Seen(_S.RUNNING, incarnation="i-new"), *gone
        yield "stuck", goal, Seen(_S.STARTING, stuck="disk full"), FAILED, "bob: disk full; hive keeps trying"
        yield "unseen", goal, Seen(None), PENDING, ""
        yield "late-unknown", goal, Seen(_S.UNKNOWN, late_s=21), FAILED, "not done yet: a reason"
        unsure = {
            Goal.LISTED: (DONE, "bob is unknown"),
            Goal.PAUSED: (FAILED, "bob was released meanwhile"),
        }.get(goal, (PENDING, ""))
        desired = Desired.STOPPED if goal is Goal.STOPPED else Desired.RUNNING
        yield "unknown", goal, Seen(_S.UNKNOWN, desired), *unsure
        yield "busy", goal, Seen(_S.RUNNING, is_busy=True), PENDING, ""
    for state in AgentState:
        yield f"in-{state.value}", Goal.LISTED, Seen(state), DONE, f"bob is {state.value}"
        yield f"in-{state.value}", Goal.GONE, Seen(state, Desired.STOPPED), PENDING, ""
    yield "as-asked", Goal.RUNNING, Seen(_S.RUNNING), DONE, "bob is running"
    yield "before-its-restart", Goal.RUNNING, Seen(_S.RUNNING, has_wish=True), PENDING, ""
    for state in (_S.STARTING, _S.STOPPING, _S.REMOVING, _S.UNSPAWNED):
        yield f"in-{state.value}", Goal.RUNNING, Seen(state), PENDING, ""
    for state in (_S.FAILED, _S.BACKOFF, _S.CRASH_LOOPING, _S.PAUSED, _S.STOPPED):
        yield f"in-{state.value}", Goal.RUNNING, Seen(state), FAILED, f"bob is {state.value}: a reason"
    yield (
        "overruled",
        Goal.RUNNING,
        Seen(_S.STOPPED, Desired.STOPPED),
        FAILED,
        "bob was told to stop meanwhile",
    )
    down = Desired.STOPPED
    yield "as-asked", Goal.STOPPED, Seen(_S.STOPPED, down), DONE, "bob is stopped"
    yield "told-how", Goal.STOPPED, Seen(_S.STOPPED, down, word="graceful"), DONE, "bob is stopped (graceful)"
    yield "wish-open", Goal.STOPPED, Seen(_S.STOPPED, down, has_wish=True), PENDING, ""
    for state in (_S.RUNNING, _S.STOPPING, _S.PAUSED, _S.REMOVING):
        yield f"in-{state.value}", Goal.STOPPED, Seen(state, down), PENDING, ""
    for state in AgentState:
        is_over = state not in (_S.RUNNING, _S.STARTING, _S.STOPPING)
        ended = (DONE, f"bob is in quarantine ({state.value})") if is_over else (PENDING, "")
        yield f"in-{state.value}", Goal.PAUSED, Seen(state, is_quarantined=True), *ended
    went_back = f"{ROLLED_BACK} exit code 1"
    yield "rolled-back", Goal.RUNNING, Seen(_S.RUNNING, word=went_back), FAILED, f"bob {went_back}"
    yield "overruled", Goal.STOPPED, Seen(_S.RUNNING), FAILED, "bob was told to run meanwhile"


@pytest.mark.parametrize(
    ("goal", "seen", "progress", "text"),
    [pytest.param(*case[1:], id=f"{case[1].value}-{case[0]}") for case in _cases()],
)
def test_part(goal: Goal, seen: Seen, progress: Progress, text: str) -> None:
    part = _judged(goal, seen)
    assert part.state is progress
    assert text in part.text
    assert bool(part.text) is (progress is not PENDING)
