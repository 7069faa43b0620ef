"""Which turns between two passes are told as events, and which are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hive_core.domain.agents import Desired
from hive_core.engine.transitions import News, as_it_is, news, overlay
from hive_core.planning.actions import AgentState, AgentView
from tests.support.plan_inputs import name

BOB = name("bob")
USUAL = AgentView(BOB, None, AgentState.RUNNING, Desired.RUNNING, "id", None, "why", False, False)
PAUSED = replace(USUAL, state=AgentState.PAUSED, reason="paused by hand")
LOOPING = replace(USUAL, state=AgentState.CRASH_LOOPING, reason="5 crashes in a row")
DEGRADED = replace(USUAL, degraded=True, fault="agent.toml: no command")
OUTDATED = replace(USUAL, needs_update=True, differing=("command", "memory"))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(USUAL, USUAL, [], id="nothing"),
        pytest.param(USUAL, PAUSED, [("paused", "paused by hand")], id="paused"),
        pytest.param(PAUSED, PAUSED, [], id="still-paused"),
        pytest.param(PAUSED, USUAL, [], id="no-longer-paused"),
        pytest.param(USUAL, LOOPING, [("crash_looping", "5 crashes in a row")], id="looping"),
        pytest.param(LOOPING, LOOPING, [], id="still-looping"),
        pytest.param(USUAL, DEGRADED, [("degraded", "agent.toml: no command")], id="degraded"),
        pytest.param(DEGRADED, DEGRADED, [], id="still-degraded"),
        pytest.param(DEGRADED, replace(DEGRADED, fault="other"), [("degraded", "other")], id="otherwise"),
        pytest.param(DEGRADED, USUAL, [("recovered", "its config can be used again")], id="recovered"),
        pytest.param(
            USUAL, OUTDATED, [("needs_update", "an update would change: command, memory")], id="outdated"
        ),
        pytest.param(OUTDATED, OUTDATED, [], id="still-outdated"),
        pytest.param(OUTDATED, USUAL, [], id="updated"),
        pytest.param(
            OUTDATED,
            replace(OUTDATED, differing=("memory",)),
            [("needs_update", "an update would change: memory")],
            id="outdated-otherwise",
        ),
        pytest.param(
            USUAL,
            replace(PAUSED, degraded=True, fault="both"),
            [("degraded", "both"), ("paused", "paused by hand")],
            id="two-turns-at-once",
        ),
        *[
            pytest.param(USUAL, replace(USUAL, state=state), [], id=f"told-by-its-action-{state.value}")
            for state in AgentState
            if state not in (AgentState.PAUSED, AgentState.CRASH_LOOPING)
        ],
    ],
)
def test_news(before: AgentView, now: AgentView, expected: list[tuple[str, str]]) -> None:
    views = {BOB: before}, {BOB: now}
    assert news(*views, frozenset()) == tuple(News(kind, BOB, text) for kind, text in expected)
    assert news(*views, frozenset({BOB})) == ()
    assert news({}, {BOB: now}, frozenset()) == ()


def test_the_pause_of_a_quarantine_is_told_by_its_action_and_everything_else_is_news() -> None:
    quarantined = frozenset({BOB})
    assert news({BOB: USUAL}, {BOB: PAUSED}, frozenset(), quarantined) == ()
    turned = replace(PAUSED, degraded=True, fault="no command")
    assert [one.kind for one in news({BOB: USUAL}, {BOB: turned}, frozenset(), quarantined)] == ["degraded"]


def test_who_is_being_made_is_not_degraded_by_having_no_config_yet() -> None:
    shown = overlay({BOB: DEGRADED}, {}, frozenset({BOB}), {}, {})[BOB]
    assert (shown.degraded, shown.fault) == (False, "")
    assert overlay({BOB: DEGRADED}, {}, frozenset(), {}, {})[BOB].degraded
    assert overlay({BOB: DEGRADED}, {BOB: USUAL}, frozenset({BOB}), {}, {})[BOB].degraded


@pytest.mark.parametrize(
    ("planned", "shown"),
    [
        (AgentState.STARTING, AgentState.STOPPED),
        (AgentState.STOPPING, AgentState.RUNNING),
        (AgentState.BACKOFF, AgentState.BACKOFF),
    ],
)
def test_while_automation_is_off_no_row_says_that_something_is_done(
    planned: AgentState, shown: AgentState
) -> None:
    row = as_it_is(replace(USUAL, state=planned))
    assert row.state is shown
    assert row.reason.endswith("why")
    assert ("automation is off" in row.reason) == (planned is not shown)
