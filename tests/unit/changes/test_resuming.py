"""What becomes of a change whose daemon was killed: the next one takes it up, or says what it cannot know."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hive_core.adapters.journal import KEPT_CHANGES, Journal
from hive_core.adapters.store import Store
from hive_core.domain.changes import Asked, Change, Goal, Part, Progress
from hive_core.domain.errors import Conflict
from hive_core.engine.changes import Changes, Sighting
from hive_core.planning.actions import AgentState, AgentView
from tests.support.plan_inputs import agent, name
from tests.unit.changes.steady_clock import SteadyClock

BOB = name("bob")
EVE = name("eve")


class Daemons:
    """One store, and the changes of one daemon after the other. None is ever ended in order."""

    def __init__(self, path: Path) -> None:
        self.clock = SteadyClock()
        self.store = Store(path)
        self.ended: list[Change] = []
        self.changes = self.next()

    def next(self) -> Changes:
        """Return the changes of the next daemon; the one before was killed."""
        self.changes = Changes(self.clock, Journal(self.store), self.ended.append)
        self.clock.pass_time(5)
        return self.changes

    def begin(self, kind: str, *parts: Part, key: str | None = None) -> Change:
        """Begin a change in the present daemon."""
        return self.changes.release(self.changes.begin(kind, parts, Asked("the tests", key)))

    def look(self, **states: AgentState) -> None:
        """Have a pass see these agents, and no others, in these states."""
        records = {name(one): agent(one) for one in states}
        views = {
            name(one): AgentView(
                name(one), None, state, records[name(one)].desired, None, None, "why", False, False
            )
            for one, state in states.items()
        }
        self.clock.pass_time(1)
        self.changes.review(Sighting(self.clock.now(), self.clock.monotonic(), records, views, frozenset()))


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    """A hive whose first daemon has begun."""
    made = Daemons(tmp_path / "hive.db")
    yield made
    made.store.close()


def test_a_lifecycle_change_goes_on_and_ends(daemons: Daemons) -> None:
    change = daemons.begin("start", Part(BOB, "i-bob", Goal.RUNNING), Part(EVE, "i-eve", Goal.RUNNING))
    daemons.look(bob=AgentState.RUNNING, eve=AgentState.STARTING)
    taken_up = daemons.next().get(change.id)
    assert taken_up.is_resumed
    assert [part.state for part in taken_up.parts] == [Progress.DONE, Progress.PENDING]
    assert daemons.changes.of_agent(EVE) == change.id
    daemons.look(bob=AgentState.BACKOFF, eve=AgentState.RUNNING)
    ended = daemons.changes.get(change.id)
    assert (ended.state, ended.asked, ended.started_at) == (Progress.DONE, change.asked, change.started_at)
    assert [part.text for part in ended.parts] == ["bob is running", "eve is running"]
    assert daemons.ended == [ended]
    assert Journal(daemons.store).running() == ()


def test_a_pass_of_before_the_take_up_proves_nothing(daemons: Daemons) -> None:
    change = daemons.begin("rm", Part(BOB, "i-bob", Goal.GONE))
    before = daemons.clock.monotonic()
    daemons.clock.pass_time(1)
    changes = daemons.next()
    changes.review(Sighting(daemons.clock.now(), before, {}, {}, frozenset()))
    assert changes.get(change.id).state is Progress.RUNNING
    daemons.look()
    assert changes.get(change.id).state is Progress.DONE


def test_it_survives_being_killed_again_and_again(daemons: Daemons) -> None:
    change = daemons.begin("rm", Part(BOB, "i-bob", Goal.GONE))
    for _ in range(3):
        assert daemons.next().get(change.id).state is Progress.RUNNING
    daemons.look()
    assert daemons.next().get(change.id).state is Progress.DONE


def test_a_push_is_told_as_interrupted_once(daemons: Daemons) -> None:
    change = daemons.begin("push", Part(BOB, "i-bob", Goal.LISTED))
    told = daemons.next().get(change.id)
    assert told.state is Progress.FAILED
    assert told.error is not None
    assert "cannot tell how the push ended" in told.error.message
    assert "push again" in told.error.hint
    assert [one.id for one in daemons.ended] == [change.id]
    daemons.look(bob=AgentState.RUNNING)
    again = daemons.next().get(change.id)
    assert (again.state, again.finished_at) == (Progress.FAILED, told.finished_at)
    assert again.error is not None
    assert (again.error.message, again.error.code) == (told.error.message, told.error.code)
    assert len(daemons.ended) == 1


def test_an_init_whose_agent_is_there_is_done(daemons: Daemons) -> None:
    change = daemons.begin("init", Part(BOB, "i-bob", Goal.LISTED, text="bob is made"))
    daemons.next()
    daemons.look(bob=AgentState.UNSPAWNED)
    found = daemons.changes.get(change.id)
    assert (found.state, found.parts[0].text) == (Progress.DONE, "bob is made")


def test_an_init_that_was_taken_back_says_so(daemons: Daemons) -> None:
    change = daemons.begin("init", Part(BOB, "i-bob", Goal.LISTED, text="bob is made"))
    daemons.next()
    daemons.look()
    found = daemons.changes.get(change.id)
    assert found.state is Progress.FAILED
    assert found.parts[0].text == "bob was taken back: the daemon was ended while it was made"


def test_a_reconcile_is_done_with_the_first_quiet_pass(daemons: Daemons) -> None:
    change = daemons.begin("reconcile")
    daemons.next()
    daemons.look()
    assert daemons.changes.get(change.id).state is Progress.DONE


def test_a_change_written_down_but_never_released_is_carried_on(daemons: Daemons) -> None:
    """The daemon was killed between the transaction and what follows it."""
    change = daemons.changes.begin("rm", [Part(BOB, "i-bob", Goal.GONE)], Asked("the tests"))
    daemons.look()
    assert daemons.changes.get(change.id).state is Progress.RUNNING
    daemons.next()
    daemons.look()
    assert daemons.changes.get(change.id).state is Progress.DONE


def test_what_has_ended_is_as_it_was(daemons: Daemons) -> None:
    ended = daemons.begin("rm", Part(BOB, "i-bob", Goal.GONE))
    daemons.look()
    before = daemons.changes.get(ended.id)
    failed = daemons.begin("init", Part(EVE, "i-eve", Goal.LISTED))
    daemons.changes.fail(failed.id, Conflict("cannot create eve: no", "a hint"))
    after = daemons.next()
    assert after.get(ended.id) == before
    error = after.get(failed.id).error
    assert error is not None
    assert (error.code, error.message, error.hint) == (
        Conflict("").code,
        "cannot create eve: no",
        "a hint",
    )
    assert [one.id for one in after.recent()] == [failed.id, ended.id]
    assert len(daemons.ended) == 2


# ---- who is told ------------------------------------------------------------------------------------------


def test_the_end_is_told_once_however_it_comes(daemons: Daemons) -> None:
    at_once = daemons.begin("start", Part(BOB, "i-bob", Goal.LISTED, Progress.DONE, "runs already"))
    by_a_pass = daemons.begin("rm", Part(BOB, "i-bob", Goal.GONE))
    failed = daemons.begin("init", Part(EVE, "i-eve", Goal.LISTED))
    daemons.changes.fail(failed.id, Conflict("no"))
    for _ in range(3):
        daemons.look()
    assert [one.id for one in daemons.ended] == [at_once.id, failed.id, by_a_pass.id]
    assert all(one.finished_at is not None for one in daemons.ended)


# ---- idempotency keys -------------------------------------------------------------------------------------


def test_a_key_stands_for_its_change_over_restarts(daemons: Daemons) -> None:
    change = daemons.begin("rm", Part(BOB, "i-bob", Goal.GONE), key="k-1")
    for changes in (daemons.changes, daemons.next()):
        known = changes.same_as_before("rm", "k-1")
        assert known is not None
        assert known.id == change.id
    daemons.look()
    known = daemons.changes.same_as_before("rm", "k-1")
    assert known is not None
    assert known.state is Progress.DONE


def test_another_key_and_none_are_new(daemons: Daemons) -> None:
    daemons.begin("rm", Part(BOB, "i-bob", Goal.GONE), key="k-1")
    for _ in range(2):
        daemons.begin("rm", Part(BOB, "i-bob", Goal.GONE))
    assert daemons.changes.same_as_before("rm", "k-2") is None
    assert daemons.changes.same_as_before("rm", None) is None


def test_a_key_used_for_something_else_is_refused(daemons: Daemons) -> None:
    daemons.begin("rm", Part(BOB, "i-bob", Goal.GONE), key="k-1")
    with pytest.raises(Conflict, match="cannot start: the idempotency key was used for rm"):
        daemons.changes.same_as_before("start", "k-1")


def test_two_at_once_with_one_key_make_one_change(daemons: Daemons) -> None:
    """The second asked whether the key is known before the first had written it down."""
    assert daemons.changes.same_as_before("reconcile", "k-1") is None
    first = daemons.begin("reconcile", key="k-1")
    with pytest.raises(Conflict, match="a request with this idempotency key is being answered") as refused:
        daemons.begin("reconcile", key="k-1")
    assert first.id in refused.value.hint
    assert [one.id for one in Journal(daemons.store).recent(10)] == [first.id]


# ---- retention --------------------------------------------------------------------------------------------


def test_old_ended_changes_leave_the_journal_and_running_ones_never(daemons: Daemons) -> None:
    journal = Journal(daemons.store)
    done = (Part(BOB, "i-bob", Goal.LISTED, Progress.DONE, "ok"),)
    running = daemons.begin("rm", Part(BOB, "i-bob", Goal.GONE))
    with daemons.store.transaction():
        for _ in range(KEPT_CHANGES + 4):
            daemons.clock.pass_time(1)
            daemons.changes.begin("start", done, Asked("the tests"))
    daemons.clock.pass_time(1)
    last = daemons.changes.begin("start", done, Asked("the tests"))
    kept = [one.id for one in journal.recent(2 * KEPT_CHANGES)]
    assert (kept[0], kept[-1], len(kept)) == (running.id, last.id, KEPT_CHANGES + 1)
