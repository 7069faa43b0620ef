"""What a sequence of actions reported stays until somebody asks for something else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from hive_core.domain.agents import IntentKind
from hive_core.domain.changes import ROLLED_BACK
from hive_core.domain.errors import Conflict
from hive_core.engine.apply import Applier
from hive_core.engine.dispatch import Dispatcher
from hive_core.planning.actions import Action, AgentPlan, Approve, ClearIntent, Start
from tests.support.plan_inputs import name, wish
from tests.unit.changes.steady_clock import SteadyClock

BOB = name("bob")
BACK = f"{ROLLED_BACK} update failed"
CLEAR = ClearIntent(BOB, "i-bob", wish(IntentKind.UPDATE), "done")


class _Reporting:
    """Carries out nothing, and reports the word it was given."""

    word = BACK

    def apply(self, actions: tuple[Action, ...], at_step: Callable[[Action], None]) -> str:
        return self.word


@pytest.fixture
def applier() -> _Reporting:
    return _Reporting()


@pytest.fixture
def dispatcher(applier: _Reporting) -> Iterator[Dispatcher]:
    done = threading.Event()
    made = Dispatcher(cast(Applier, applier), SteadyClock(), 1, 1, done.set)
    yield made
    made.close(5)


def _do(dispatcher: Dispatcher, *actions: Action) -> None:
    """Carry out a plan for bob, and wait until it has ended."""
    dispatcher.submit([AgentPlan(BOB, actions)])
    with dispatcher._lock:
        assert dispatcher._lock.wait_for(lambda: not dispatcher._working, 5)


@pytest.mark.parametrize("note", [CLEAR, Approve(BOB, "i-bob", "it runs")], ids=["clear", "approve"])
def test_writing_something_down_keeps_the_word(
    dispatcher: Dispatcher, applier: _Reporting, note: Action
) -> None:
    _do(dispatcher, Start(BOB, None, "back"))
    applier.word = ""
    _do(dispatcher, note)
    assert dispatcher.words() == {BOB: BACK}


def test_doing_something_takes_the_word_away(dispatcher: Dispatcher, applier: _Reporting) -> None:
    _do(dispatcher, Start(BOB, None, "back"))
    applier.word = ""
    _do(dispatcher, Start(BOB, None, "again"))
    assert dispatcher.words() == {}


def test_a_request_takes_the_word_away(dispatcher: Dispatcher) -> None:
    _do(dispatcher, Start(BOB, None, "back"))
    dispatcher.release(BOB)
    assert dispatcher.words() == {}


def test_only_what_may_last_is_told_as_a_reservation(dispatcher: Dispatcher) -> None:
    with dispatcher.reserve(BOB):
        assert dispatcher.reservations() == {}
    with dispatcher.reserve(BOB, "a shell is open"):
        assert dispatcher.reservations() == {BOB: "a shell is open"}
        with pytest.raises(Conflict, match="a shell is open"), dispatcher.reserve(BOB):
            pass
    assert dispatcher.reservations() == {}
