"""The verb × state table, cell by cell as users are promised it."""

import pytest

from hive_core.domain.agents import Desired, IntentKind
from hive_core.planning.actions import AgentState
from hive_core.planning.verbs import (
    TABLE,
    Decision,
    Effect,
    NoEffect,
    Refusal,
    Situation,
    Verb,
    decide,
    situation,
)


def _shown(decision: Decision) -> str:
    match decision:
        case Refusal():
            return f"conflict: {decision.text}"
        case NoEffect():
            return f"ok: {decision.text}"
        case Effect():
            words = [
                decision.desired.value,
                "" if decision.intent is None else decision.intent.value,
                "reset" if decision.resets_crashes else "",
                "config" if decision.applies_config else "",
            ]
            return " + ".join(word for word in words if word)


_NOT_YET = "conflict: not spawned yet"
_ALREADY = "conflict: it is spawned already"
#            unspawned, running, stopped, crashing, paused
CELLS = {
    Verb.SPAWN: ["running + config", _ALREADY, _ALREADY, _ALREADY, _ALREADY],
    Verb.START: [
        _NOT_YET, "ok: is running already", "running + reset", "running + reset", "running + unpause",
    ],
    Verb.STOP: [_NOT_YET, "stopped + stop", "ok: is stopped already", "stopped + stop", "stopped + stop"],
    Verb.RESTART: [
        _NOT_YET, "running + restart", "conflict: it is stopped", "running + reset", "running + restart",
    ],
    Verb.UPDATE: [
        _NOT_YET, "running + update + reset + config", "stopped + update + config",
        "running + update + reset + config", "running + update + reset + config",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "column", "expected"),
    [
        pytest.param(verb, column, expected, id=f"{verb.value}-{column.value}")
        for verb, cells in CELLS.items()
        for column, expected in zip(Situation, cells, strict=True)
    ],
)
def test_verb(verb: Verb, column: Situation, expected: str) -> None:
    assert _shown(TABLE[verb, column]) == expected


def test_the_table_is_complete() -> None:
    assert set(TABLE) == {(verb, column) for verb in Verb for column in Situation}
    assert len(TABLE) == 25


def test_every_refusal_says_the_way_out() -> None:
    refusals = [decision for decision in TABLE.values() if isinstance(decision, Refusal)]
    assert len(refusals) == 9
    assert all(one.hint.format(name="bob") for one in refusals)


def test_no_verb_but_remove_ends_an_agent() -> None:
    wishes = {decision.intent for decision in TABLE.values() if isinstance(decision, Effect)}
    assert IntentKind.REMOVE not in wishes


_CRASHING = {AgentState.BACKOFF, AgentState.CRASH_LOOPING, AgentState.FAILED}


@pytest.mark.parametrize("state", [None, *AgentState], ids=lambda one: one.value if one else "unseen")
@pytest.mark.parametrize("desired", list(Desired), ids=lambda one: one.value)
def test_what_is_desired_decides_and_what_is_seen_refines_running(
    desired: Desired, state: AgentState | None
) -> None:
    expected = {Desired.UNSPAWNED: Situation.UNSPAWNED, Desired.STOPPED: Situation.STOPPED}.get(desired)
    if expected is None and state is AgentState.PAUSED:
        expected = Situation.PAUSED
    elif expected is None:
        expected = Situation.CRASHING if state in _CRASHING else Situation.RUNNING
    assert situation(desired, state) is expected
    assert decide(Verb.STOP, desired, state) == TABLE[Verb.STOP, expected]
