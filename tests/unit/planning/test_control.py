"""Who is kept from running although it is desired to: in quarantine, or over its disk budget.

A cell reads as in `test_table`, and p is a pause.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from hive_core.domain.agents import AgentRecord, Desired, IntentKind
from hive_core.domain.observed import Containers, EngineState
from hive_core.planning.actions import AgentState, Pause, Stop
from hive_core.planning.containers import Case, Cell, plan_container
from hive_core.planning.shutdown import plan_shutdown
from tests.support.plan_inputs import GRACE_S, NOW, agent, ago, container, desired_state, journal, spec, wish
from tests.unit.planning.test_table import COLUMNS, WISHES, shown

# The same for all that is desired and wished, except the wish to remove.
QUARANTINED = [
    "> stopped", "> stopped", "p > paused", "> paused", "> starting", "X > stopped", "X > stopped",
    "> removing",
]  # fmt: skip
DISK_FULL = [
    "> stopped", "> stopped", "t > stopping", "t > stopping", "t > stopping", "X > stopped", "X > stopped",
    "> removing",
]  # fmt: skip
EXCESS = "12 MiB of 10 MiB are used"


def _cell(record: AgentRecord, column: str, over: str = "") -> Cell:
    wanted = desired_state(record)
    one = None if column == "absent" else container(record, EngineState(column))
    if one is not None:
        wanted = desired_state(record, journalled=[journal(one, NOW)])
    wanted = replace(wanted, over_budget={record.name: over} if over else {})
    return plan_container(Case(record, one, wanted, NOW))


def _record(desired: Desired, wished: str = "none") -> AgentRecord:
    intent = None if wished == "none" else wish(IntentKind(wished))
    return agent(desired=desired, applied=spec("bob"), intent=intent)


@pytest.mark.parametrize("wished", WISHES)
@pytest.mark.parametrize("desired", list(Desired))
@pytest.mark.parametrize("column", COLUMNS)
def test_quarantined(column: str, desired: Desired, wished: str) -> None:
    """Nothing is started, stopped or replaced; no wish is fulfilled, none forgotten. Removal goes before."""
    record = replace(_record(desired, wished), quarantined_at=ago(10))
    cell = _cell(record, column, EXCESS)
    if wished == "remove":
        assert shown(cell) == shown(_cell(replace(record, quarantined_at=None), column))
        return
    assert shown(cell) == QUARANTINED[COLUMNS.index(column)]
    assert "quarantine" in cell.reason or column == "removing"


def test_what_is_frozen_is_the_container_that_runs() -> None:
    record = replace(agent(), quarantined_at=ago(10))
    (action,) = _cell(record, "running").actions
    assert action == Pause(record.name, "id-bob", "in quarantine; hivectl release bob ends it")


def test_a_failing_update_is_not_taken_back_in_quarantine() -> None:
    record = replace(agent(reset_at=ago(100)), previous=spec("bob", commit="d" * 40), quarantined_at=ago(10))
    one = container(record, EngineState.EXITED, started_at=ago(62), finished_at=ago(60), exit_code=1)
    cell = plan_container(Case(record, one, desired_state(record, journalled=[journal(one)]), NOW))
    assert shown(cell) == "X > stopped"


@pytest.mark.parametrize("wished", WISHES)
@pytest.mark.parametrize("column", COLUMNS)
def test_disk_full(column: str, wished: str) -> None:
    cell = _cell(_record(Desired.RUNNING, wished), column, EXCESS)
    if wished == "remove":
        assert shown(cell) == shown(_cell(_record(Desired.RUNNING, wished), column))
        return
    assert shown(cell) == DISK_FULL[COLUMNS.index(column)]
    assert EXCESS in cell.reason or column == "removing"


@pytest.mark.parametrize("wished", WISHES)
@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("desired", [Desired.STOPPED, Desired.UNSPAWNED])
def test_a_full_disk_changes_nothing_for_who_is_down_anyway(
    desired: Desired, column: str, wished: str
) -> None:
    record = _record(desired, wished)
    assert _cell(record, column, EXCESS) == _cell(record, column)


def test_a_full_disk_stops_within_the_usual_grace() -> None:
    (action,) = _cell(agent(), "running", EXCESS).actions
    assert isinstance(action, Stop)
    assert action.grace_s == GRACE_S


def test_below_its_budget_again_it_starts_without_a_wait() -> None:
    record = agent()
    assert _cell(record, "exited").state is AgentState.STARTING


# ---- the whole hive down ----------------------------------------------------------------------------------


def test_a_shutdown_stops_what_is_up_and_nothing_else() -> None:
    ours = [
        container(agent(f"a-{number}"), state, container_id=f"id-{state.value}")
        for number, state in enumerate(EngineState)
    ]
    plans = plan_shutdown(Containers(tuple(ours), ()), 7)
    stopped = [action for one in plans for action in one.actions]
    assert {one.container_id for one in stopped if isinstance(one, Stop)} == {
        "id-running",
        "id-paused",
        "id-restarting",
    }
    assert len(stopped) == len(plans) == 3
    assert all(isinstance(one, Stop) and one.grace_s == 7 for one in stopped)
    assert all(one.after is None for one in plans)


def test_several_containers_of_one_agent_are_one_sequence() -> None:
    both = (container(agent(), container_id="one"), container(agent(), container_id="two"))
    (only,) = plan_shutdown(Containers(both, ()), 7)
    assert [one.container_id for one in only.actions if isinstance(one, Stop)] == ["one", "two"]


def test_an_empty_hive_is_down() -> None:
    assert plan_shutdown(Containers((), ()), 7) == ()
