"""An update on probation: kept once it has run, taken back once it has shown that it does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from hive_core.domain.agents import AgentRecord, Desired, ExitKind, ExitRecord, IntentKind
from hive_core.domain.observed import EngineState, OurContainer
from hive_core.domain.spec import spec_hash
from hive_core.planning.actions import Action, AgentState, Approve, Create, Remove, RollBack, Start
from hive_core.planning.containers import Case, Cell, plan_container
from hive_core.planning.probation import FIRST_LOOK, PROBATION, failure, proves_itself_at
from tests.support.plan_inputs import NOW, agent, ago, container, crash, desired_state, journal, spec, wish

OLD = spec("bob", commit="d" * 40)
UPDATED = ago(100)


def _record(exits: tuple[ExitRecord, ...] = (), **changes: object) -> AgentRecord:
    """Bob, updated a while ago."""
    usual = agent(reset_at=UPDATED, exits=exits)
    return replace(usual, previous=OLD, **changes)  # type: ignore[arg-type]  # the test's own field names


def _case(record: AgentRecord, one: OurContainer | None, now: datetime = NOW) -> Case:
    wanted = desired_state(record, journalled=[] if one is None else [journal(one)])
    return Case(record, one, wanted, now)


NEW = container(agent())


@pytest.mark.parametrize(
    ("exits", "one", "is_failure"),
    [
        pytest.param([], NEW, False, id="no-end"),
        pytest.param([crash(ago(50))], NEW, True, id="ended-soon"),
        pytest.param([crash(ago(50), 9.9)], NEW, True, id="ended-just-within"),
        pytest.param([crash(ago(50), 10)], NEW, False, id="ran-long-enough"),
        pytest.param([crash(UPDATED)], NEW, False, id="ended-in-the-instant-of-the-update"),
        pytest.param([crash(ago(101))], NEW, False, id="ended-before-the-update"),
        pytest.param([crash(ago(99.9))], NEW, True, id="ended-right-after-the-update"),
        pytest.param([crash(ago(50), of="id-old")], NEW, False, id="of-another-container"),
        pytest.param([crash(ago(50))], container(agent(), of=OLD), False, id="of-the-old-spec"),
        pytest.param([crash(ago(50))], None, False, id="of-a-container-that-is-gone"),
        pytest.param([crash(ago(50), kind=ExitKind.START_FAILED, of="none")], None, True, id="not-made"),
        pytest.param([crash(ago(50), kind=ExitKind.START_FAILED)], NEW, True, id="not-started"),
        pytest.param(
            [crash(ago(101), kind=ExitKind.START_FAILED)], None, False, id="not-started-before-the-update"
        ),
        *[
            pytest.param([crash(ago(50), kind=kind)], NEW, False, id=kind.value)
            for kind in (ExitKind.REQUESTED, ExitKind.HOST_RESTART, ExitKind.ENGINE_RESTART)
        ],
        pytest.param(
            [crash(ago(50)), crash(ago(40), kind=ExitKind.HOST_RESTART)], NEW, True, id="then-a-reboot"
        ),
    ],
)
def test_failure(exits: list[ExitRecord], one: OurContainer | None, is_failure: bool) -> None:
    record = _record(tuple(exits))
    assert failure(record, one, exits) == (exits[0] if is_failure else None)
    assert failure(replace(record, previous=None), one, exits) is None
    assert failure(replace(record, crashes_reset_at=None), one, exits) is None


@pytest.mark.parametrize("state", list(EngineState))
def test_only_a_run_proves(state: EngineState) -> None:
    one = container(agent(), state, started_at=ago(3))
    expected = ago(3) + PROBATION if state is EngineState.RUNNING else None
    assert proves_itself_at(_record(), one) == expected
    assert proves_itself_at(replace(_record(), previous=None), one) is None
    assert proves_itself_at(_record(), replace(one, detail=None)) is None
    assert proves_itself_at(_record(), container(agent(), state, of=OLD)) is None


# ---- the cells --------------------------------------------------------------------------------------------


def _kinds(cell: Cell) -> list[type[Action]]:
    return [type(action) for action in cell.actions]


_LOOK_S = FIRST_LOOK.total_seconds()


@pytest.mark.parametrize(
    ("ran_s", "is_kept", "wakes_in_s"),
    [
        pytest.param(_LOOK_S - 0.8, False, 0.8, id="before-the-first-look"),
        pytest.param(_LOOK_S, False, 10 - _LOOK_S, id="first-look"),
        pytest.param(9.9, False, 0.1, id="before-its-end"),
        pytest.param(10, True, None, id="passed"),
        pytest.param(3600, True, None, id="long-ago"),
    ],
)
def test_a_running_update_is_looked_at_twice_and_then_kept(
    ran_s: float, is_kept: bool, wakes_in_s: float | None
) -> None:
    one = container(agent(), started_at=ago(ran_s))
    cell = plan_container(_case(_record(), one))
    assert (cell.state, _kinds(cell)) == (AgentState.RUNNING, [Approve] if is_kept else [])
    assert cell.wake_at == (None if wakes_in_s is None else NOW + timedelta(seconds=wakes_in_s))
    assert timedelta() < FIRST_LOOK < PROBATION


def test_it_is_kept_exactly_once() -> None:
    one = container(agent(), started_at=ago(60))
    record = _record()
    assert _kinds(plan_container(_case(record, one))) == [Approve]
    settled = plan_container(_case(replace(record, previous=None), one))
    assert (settled.actions, settled.state, settled.wake_at) == ((), AgentState.RUNNING, None)


FAILED = container(agent(), EngineState.EXITED, started_at=ago(52), finished_at=ago(50), exit_code=3)


def test_the_way_back_removes_what_failed_and_runs_what_ran_before() -> None:
    record = _record()
    cell = plan_container(_case(record, FAILED))
    recorded, back, removed, made, started = cell.actions
    assert isinstance(back, RollBack)
    assert back.spec == OLD
    assert removed == Remove(record.name, "id-bob", cell.reason)
    assert made == Create(record.name, "i-bob", OLD, cell.reason)
    assert started == Start(record.name, None, cell.reason)
    assert cell.state is AgentState.STARTING
    assert cell.reason == f"update failed: {recorded.reason}"
    assert "exit code 3" in cell.reason


def test_an_update_whose_container_could_not_be_made_goes_back_too() -> None:
    record = _record((crash(ago(5), kind=ExitKind.START_FAILED, of="none"),))
    assert _kinds(plan_container(_case(record, None))) == [RollBack, Create, Start]


def test_after_the_way_back_the_old_spec_is_on_no_probation() -> None:
    """As the store is after it: the old spec applied, past crashes forgiven, nothing to go back to."""
    crashed = plan_container(_case(_record(), FAILED)).actions[0].exit  # type: ignore[union-attr]  # RecordExit
    record = replace(agent(applied=OLD, exits=(crashed,), reset_at=NOW), applied_hash=spec_hash(OLD))
    one = container(record, started_at=NOW, created_at=NOW)
    cell = plan_container(_case(record, one, NOW + timedelta(seconds=60)))
    assert (cell.actions, cell.state) == ((), AgentState.RUNNING)


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(container(agent(), started_at=ago(3)), id="it-was-started-again-meanwhile"),
        pytest.param(container(agent(), EngineState.PAUSED), id="paused-by-hand"),
        pytest.param(container(agent(), EngineState.RESTARTING), id="restarting"),
        pytest.param(container(agent(), EngineState.REMOVING), id="removing"),
    ],
)
def test_nothing_that_is_up_or_going_is_taken_back(one: OurContainer) -> None:
    cell = plan_container(_case(_record((crash(ago(50)),)), one))
    assert not {RollBack, Remove, Create} & set(_kinds(cell))


def test_a_stop_or_a_removal_goes_before_the_way_back() -> None:
    for intent in (wish(IntentKind.STOP), wish(IntentKind.REMOVE)):
        record = replace(_record(), desired=Desired.STOPPED, intent=intent)
        assert RollBack not in _kinds(plan_container(_case(record, FAILED)))


def test_a_second_update_while_on_probation_is_carried_out() -> None:
    record = _record(intent=wish(IntentKind.UPDATE), crashes_reset_at=ago(30))
    cell = plan_container(_case(record, container(agent(), of=OLD)))
    made = [action.spec for action in cell.actions if isinstance(action, Create)]
    assert made == [record.applied]
