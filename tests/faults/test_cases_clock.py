"""A wall clock that is set back or forward by two hours: what hive waits for takes as long as ever."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from hive_core.domain.agents import IntentKind
from hive_core.domain.changes import Goal, Part, Progress
from hive_core.domain.observed import EngineState
from hive_core.engine.changes import Sighting
from hive_core.planning.actions import Action, AgentState, ClearIntent, Create, Remove, Start, Stop
from hive_core.planning.plan import plan
from tests.support.plan_inputs import (
    NOW,
    agent,
    ago,
    container,
    crash,
    desired_state,
    journal,
    name,
    observed,
    wish,
)
from tests.unit.changes.kept_changes import begun, new_changes
from tests.unit.changes.steady_clock import SteadyClock

pytestmark = pytest.mark.faults

TWO_HOURS = timedelta(hours=2)
JUMPS = [pytest.param(-TWO_HOURS, id="back"), pytest.param(TWO_HOURS, id="forward")]


class JumpingClock(SteadyClock):
    """A clock whose wall time can be set; its monotonic time goes on as before."""

    def __init__(self) -> None:
        super().__init__()
        self.jump = timedelta()

    def now(self) -> datetime:
        return super().now() + self.jump


@pytest.mark.parametrize("kind", [IntentKind.RESTART, IntentKind.UPDATE])
def test_a_wish_after_the_clock_was_set_back_is_carried_out(kind: IntentKind) -> None:
    """The container was made and started two hours from now, as the clock has it."""
    later = NOW + TWO_HOURS
    record = agent(intent=wish(kind, ago(30)))
    one = container(record, created_at=later, started_at=later)
    wanted = desired_state(record, journalled=[journal(one)])
    steps = [type(step) for step in plan(wanted, observed(wanted, one), NOW).actions]
    expected: dict[IntentKind, list[type[Action]]] = {
        IntentKind.RESTART: [Stop, Start, ClearIntent],
        IntentKind.UPDATE: [Stop, Remove, Create, Start, ClearIntent],
    }
    assert steps == expected[kind]


@pytest.mark.parametrize("kind", [IntentKind.RESTART, IntentKind.UPDATE])
def test_a_wish_that_was_carried_out_is_not_repeated(kind: IntentKind) -> None:
    record = agent(intent=wish(kind, ago(30)))
    one = container(record, created_at=ago(1), started_at=ago(1))
    wanted = desired_state(record, journalled=[journal(one)])
    assert [type(step) for step in plan(wanted, observed(wanted, one), NOW).actions] == [ClearIntent]


@pytest.mark.parametrize("jump", JUMPS)
def test_a_backoff_is_over_at_once_and_never_lasts_hours(jump: timedelta) -> None:
    ended_at = ago(1)
    record = agent(exits=[crash(ago(20)), crash(ago(10)), crash(ended_at)])
    one = container(record, EngineState.EXITED, started_at=ago(2), finished_at=ended_at)
    wanted = desired_state(record, journalled=[journal(one)])
    waiting = plan(wanted, observed(wanted, one), NOW)
    assert waiting.views[0].state is AgentState.BACKOFF
    assert waiting.wake_at is not None
    assert waiting.wake_at - NOW < timedelta(seconds=60)
    decided = plan(wanted, observed(wanted, one), NOW + jump)
    assert [type(step) for step in decided.actions] == [Start]


@pytest.mark.parametrize("jump", JUMPS)
def test_a_change_is_waited_for_by_the_monotonic_clock(jump: timedelta) -> None:
    clock = JumpingClock()
    changes = new_changes(clock)
    change = begun(changes, "start", [Part(name("bob"), "i-bob", Goal.RUNNING)])
    clock.jump = jump
    assert changes.wait(change.id, 0).state is Progress.RUNNING
    record = agent()
    wanted = desired_state(record)
    one = container(record, started_at=clock.now())
    clock.pass_time(1)
    decided = plan(wanted, observed(wanted, one), clock.now())
    changes.review(
        Sighting(
            at=clock.now(),
            began=clock.monotonic(),
            records={record.name: record},
            views={view.name: view for view in decided.views},
            busy=frozenset(),
            stuck={},
            words={},
        )
    )
    assert changes.get(change.id).state is Progress.DONE
