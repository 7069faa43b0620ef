import threading
from collections.abc import Callable

import pytest

from hive_core.adapters.clock import Clock
from hive_core.domain.changes import Change, Goal, Part, Progress
from hive_core.domain.errors import Conflict, NotFound, Stopping
from hive_core.engine.changes import Changes, Sighting
from tests.support.paths import wait_until
from tests.support.plan_inputs import agent, name
from tests.unit.changes.kept_changes import begun, new_changes
from tests.unit.changes.steady_clock import SteadyClock

ONE = [Part(name("bob"), "i-bob", Goal.GONE)]
BOTH = [*ONE, Part(name("eve"), "i-eve", Goal.GONE)]


def _sighting(clock: Clock, *alive: str, busy: tuple[str, ...] = (), began: float | None = None) -> Sighting:
    return Sighting(
        at=clock.now(),
        began=clock.monotonic() if began is None else began,
        records={name(one): agent(one) for one in alive},
        views={},
        busy=frozenset(map(name, busy)),
    )


@pytest.fixture
def clock() -> SteadyClock:
    """Time that passes only when told to."""
    return SteadyClock()


@pytest.fixture
def changes(clock: SteadyClock) -> Changes:
    """The changes of a daemon that has just begun."""
    return new_changes(clock)


def test_a_pass_that_began_before_the_request_proves_nothing(changes: Changes, clock: SteadyClock) -> None:
    change = begun(changes, "rm", ONE)
    changes.review(_sighting(clock, began=clock.monotonic() - 0.001))
    assert changes.get(change.id).state is Progress.RUNNING
    changes.review(_sighting(clock))
    assert changes.get(change.id).state is Progress.DONE


def test_a_change_ends_with_its_last_part(changes: Changes, clock: SteadyClock) -> None:
    change = begun(changes, "rm", BOTH)
    changes.review(_sighting(clock, "eve"))
    found = changes.get(change.id)
    assert [part.state for part in found.parts] == [Progress.DONE, Progress.PENDING]
    assert (found.state, found.finished_at) == (Progress.RUNNING, None)
    clock.pass_time(2)
    changes.review(_sighting(clock))
    assert changes.get(change.id).state is Progress.DONE
    assert changes.get(change.id).finished_at == clock.now()


def test_one_failed_part_fails_the_change_once_all_have_ended(changes: Changes, clock: SteadyClock) -> None:
    change = begun(changes, "mixed", [*ONE, Part(name("eve"), "i-eve", Goal.RUNNING)])
    changes.review(_sighting(clock))
    assert changes.get(change.id).state is Progress.FAILED


def test_a_part_that_has_ended_is_not_judged_again(changes: Changes, clock: SteadyClock) -> None:
    change = begun(changes, "rm", BOTH)
    changes.review(_sighting(clock, "eve"))
    first = changes.get(change.id).parts[0]
    changes.review(_sighting(clock, "bob", "eve"))
    assert changes.get(change.id).parts[0] == first


def test_parts_that_need_nothing_end_at_once(changes: Changes) -> None:
    done = Part(name("bob"), "i-bob", Goal.LISTED, Progress.DONE, "bob is running already")
    assert begun(changes, "start", [done]).state is Progress.DONE


def test_a_change_without_parts_is_done_when_nobody_is_busy(changes: Changes, clock: SteadyClock) -> None:
    change = begun(changes, "reconcile", [])
    changes.review(_sighting(clock, busy=("bob",)))
    assert changes.get(change.id).state is Progress.RUNNING
    changes.review(_sighting(clock))
    assert changes.get(change.id).state is Progress.DONE


def test_an_error_ends_a_change(changes: Changes, clock: SteadyClock) -> None:
    change = begun(changes, "init", ONE)
    fault = Conflict("cannot init bob: it is there")
    changes.fail(change.id, fault)
    found = changes.get(change.id)
    assert (found.state, found.error) == (Progress.FAILED, fault)
    changes.review(_sighting(clock))
    assert changes.get(change.id) == found


def test_an_unknown_change_is_not_found(changes: Changes) -> None:
    with pytest.raises(NotFound, match="there is no change 'c-"):
        changes.get("c-\x1b[31m")


def test_old_ended_changes_are_forgotten_and_running_ones_never(changes: Changes, clock: SteadyClock) -> None:
    running = begun(changes, "rm", [Part(name("eve"), "i-eve", Goal.GONE)])
    ended = [begun(changes, "rm", ONE) for _ in range(250)]
    changes.review(_sighting(clock, "eve"))
    last = begun(changes, "rm", ONE)
    kept = [one.id for one in changes.recent()]
    assert kept[0] == last.id
    assert kept[-1] == running.id
    assert len(kept) == 200
    assert ended[0].id not in kept
    assert ended[-1].id in kept


def test_a_daemon_that_stops_takes_no_more(changes: Changes) -> None:
    changes.close()
    with pytest.raises(Stopping, match="cannot start: the daemon is stopping"):
        begun(changes, "start", ONE)


# ---- waiting ----------------------------------------------------------------------------------------------


class _CountingClock(Clock):
    """The host's clock, counting looks: a waiter's second one comes right before it waits."""

    def __init__(self) -> None:
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return super().monotonic()


class _Waiter:
    """Somebody who waits for a change on a thread of its own."""

    def __init__(self, changes: Changes, change_id: str) -> None:
        self.found: Change | None = None
        self._thread = threading.Thread(target=self._wait, args=(changes, change_id), daemon=True)
        self._thread.start()

    def _wait(self, changes: Changes, change_id: str) -> None:
        self.found = changes.wait(change_id, 60)

    @property
    def state(self) -> Progress:
        """Return what it was let go with, in time."""
        self._thread.join(10)
        assert self.found is not None
        return self.found.state


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        pytest.param(lambda one, _: one.close(), Progress.RUNNING, id="close"),
        pytest.param(lambda one, _: one.review(_sighting(Clock())), Progress.DONE, id="done"),
        pytest.param(lambda one, which: one.fail(which, Conflict("no")), Progress.FAILED, id="failed"),
    ],
)
@pytest.mark.parametrize("waits_first", [True, False], ids=["waiting", "too-late"])
def test_who_waits_is_let_go(
    event: Callable[[Changes, str], None], expected: Progress, waits_first: bool
) -> None:
    clock = _CountingClock()
    changes = new_changes(clock)
    change = begun(changes, "rm", ONE)
    if not waits_first:
        event(changes, change.id)
    before = clock.looks
    waiters = [_Waiter(changes, change.id) for _ in range(3)]
    if waits_first:
        wait_until(lambda: clock.looks - before >= 6, "each to look at its deadline twice")
        event(changes, change.id)
    assert [one.state for one in waiters] == [expected] * 3


def test_a_wait_of_no_time_is_a_look(changes: Changes) -> None:
    change = begun(changes, "rm", ONE)
    assert changes.wait(change.id, 0).state is Progress.RUNNING


def test_a_wait_ends_by_time() -> None:
    changes = new_changes(Clock())
    change = begun(changes, "rm", ONE)
    assert changes.wait(change.id, 0.05).state is Progress.RUNNING
