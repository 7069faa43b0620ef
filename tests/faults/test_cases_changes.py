"""A hive that is asked for thousands of things: old changes are forgotten, and no pass stumbles over them."""

from __future__ import annotations

import pytest

from hive_core.domain.changes import Goal, Part, Progress
from hive_core.engine.changes import Sighting
from tests.support.plan_inputs import name
from tests.unit.changes.kept_changes import begun, new_changes
from tests.unit.changes.steady_clock import SteadyClock

pytestmark = pytest.mark.faults


def test_a_change_that_had_nothing_to_do_is_forgotten_without_a_trace() -> None:
    clock = SteadyClock()
    changes = new_changes(clock)
    done = Part(name("bob"), "i-bob", Goal.LISTED, Progress.DONE, "bob is running already")
    pending = Part(name("bob"), "i-bob", Goal.GONE)
    first = begun(changes, "start", [done])
    assert first.state is Progress.DONE
    for _ in range(300):
        begun(changes, "start", [done])
    asked = begun(changes, "remove", [pending])
    clock.pass_time(1)
    changes.review(Sighting(clock.now(), clock.monotonic(), records={}, views={}, busy=frozenset()))
    assert changes.get(asked.id).state is Progress.DONE
    assert first.id not in {one.id for one in changes.recent()}
