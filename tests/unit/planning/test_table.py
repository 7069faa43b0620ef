"""The declared × observed table: every cell of desired × engine state × wish, written down.

A cell reads "actions > state". Actions: X record the exit, C create, S start the container made before,
s start the one that is there, t stop, u unpause, r remove, c clear the wish, E end the incarnation.
"""

from dataclasses import replace

import pytest

from hive_core.domain.agents import Desired, IntentKind
from hive_core.domain.observed import EngineState
from hive_core.planning.actions import (
    Action,
    ClearIntent,
    Create,
    Pause,
    RecordExit,
    Remove,
    Retire,
    Start,
    Stop,
    Unpause,
)
from hive_core.planning.containers import Case, Cell, plan_container
from tests.support.plan_inputs import NOW, agent, ago, container, desired_state, journal, spec, wish

COLUMNS = ["absent", "created", "running", "paused", "restarting", "exited", "dead", "removing"]
WISHES = ["none", *(kind.value for kind in IntentKind)]

# Nothing but its removal is done to an agent that was never spawned.
_UNSPAWNED = ["> unspawned", *["> unknown"] * 7]
# An agent that is to be down is taken down, and its wish is then fulfilled.
_DOWN = [
    "c > stopped", "c > stopped", "tc > stopping", "tc > stopping", "tc > stopping", "Xc > stopped",
    "Xc > stopped", "> removing",
]  # fmt: skip
# Wishes that are about nothing here, or are fulfilled by the agent running.
_UP = [
    "CSc > starting", "sc > starting", "c > running", "> paused", "> starting", "Xsc > starting",
    "XrCSc > starting", "> removing",
]  # fmt: skip
_GONE = [
    "E > removing", "rE > removing", "trE > removing", "trE > removing", "trE > removing", "XrE > removing",
    "XrE > removing", "> removing",
]  # fmt: skip

TABLE: dict[tuple[Desired, str], list[str]] = {
    **{(Desired.UNSPAWNED, one): _UNSPAWNED for one in WISHES if one != "remove"},
    (Desired.STOPPED, "none"): [
        "> stopped", "> stopped", "t > stopping", "t > stopping", "t > stopping", "X > stopped",
        "X > stopped", "> removing",
    ],
    (Desired.STOPPED, "stop"): _DOWN,
    (Desired.STOPPED, "restart"): _DOWN,
    (Desired.STOPPED, "unpause"): _DOWN,
    (Desired.STOPPED, "update"): [
        "c > stopped", "rc > stopped", "trc > stopped", "trc > stopped", "trc > stopped", "Xrc > stopped",
        "Xrc > stopped", "> removing",
    ],
    (Desired.RUNNING, "none"): [
        "CS > starting", "s > starting", "> running", "> paused", "> starting", "Xs > starting",
        "XrCS > starting", "> removing",
    ],
    (Desired.RUNNING, "stop"): _UP,
    (Desired.RUNNING, "restart"): [
        "CSc > starting", "sc > starting", "tsc > starting", "tsc > starting", "tsc > starting",
        "Xsc > starting", "XrCSc > starting", "> removing",
    ],
    (Desired.RUNNING, "update"): [
        "CSc > starting", "rCSc > starting", "trCSc > starting", "trCSc > starting", "trCSc > starting",
        "XrCSc > starting", "XrCSc > starting", "> removing",
    ],
    (Desired.RUNNING, "unpause"): [
        "CSc > starting", "sc > starting", "c > running", "uc > starting", "> starting", "Xsc > starting",
        "XrCSc > starting", "> removing",
    ],
    **{(one, "remove"): _GONE for one in Desired},
}  # fmt: skip


_LETTERS: dict[type[Action], str] = {
    RecordExit: "X",
    Create: "C",
    Start: "s",
    Stop: "t",
    Pause: "p",
    Unpause: "u",
    Remove: "r",
    ClearIntent: "c",
    Retire: "E",
}


def _letter(action: Action) -> str:
    return "S" if isinstance(action, Start) and action.container_id is None else _LETTERS[type(action)]


def shown(cell: Cell) -> str:
    letters = "".join(map(_letter, cell.actions))
    return f"{letters} > {cell.state.value}".lstrip()


def _cell(desired: Desired, column: str, wished: str) -> Cell:
    """The cell of an agent whose container, if any, was started before the wish and asked to end."""
    record = agent(
        desired=desired,
        applied=spec("bob"),
        intent=None if wished == "none" else wish(IntentKind(wished)),
    )
    if column == "absent":
        return plan_container(Case(record, None, desired_state(record), NOW))
    one = container(record, EngineState(column))
    wanted = desired_state(record, journalled=[journal(one, NOW)])
    return plan_container(Case(record, one, wanted, NOW))


CELLS = [
    pytest.param(desired, column, wished, cells[number], id=f"{desired.value}-{column}-{wished}")
    for (desired, wished), cells in TABLE.items()
    for number, column in enumerate(COLUMNS)
]


@pytest.mark.parametrize(("desired", "column", "wished", "expected"), CELLS)
def test_cell(desired: Desired, column: str, wished: str, expected: str) -> None:
    cell = _cell(desired, column, wished)
    assert shown(cell) == expected
    assert cell.reason
    assert all(action.reason for action in cell.actions)


def test_the_table_has_every_cell() -> None:
    assert set(TABLE) == {(desired, wished) for desired in Desired for wished in WISHES}
    assert set(COLUMNS) == {"absent", *(state.value for state in EngineState)}
    assert all(len(cells) == len(COLUMNS) for cells in TABLE.values())
    assert len(CELLS) == 3 * 8 * 6


@pytest.mark.parametrize(("desired", "column", "wished", "expected"), CELLS)
def test_no_cell_starts_what_is_not_to_run(desired: Desired, column: str, wished: str, expected: str) -> None:
    letters = expected.split(">", maxsplit=1)[0]
    if desired is not Desired.RUNNING or wished == "remove":
        assert not set(letters) & set("CSsu")
    if wished != "remove":
        assert "E" not in letters


@pytest.mark.parametrize(
    ("wished", "made_ago_s", "started_ago_s", "expected"),
    [
        pytest.param("restart", 3700, 10, "c > running", id="restarted-since"),
        pytest.param("restart", 3700, 31, "tsc > starting", id="restarted-just-before"),
        pytest.param("restart", 3700, 30, "tsc > starting", id="started-in-the-very-instant"),
        pytest.param("update", 20, 10, "c > running", id="updated-since"),
        pytest.param("update", 31, 10, "trCSc > starting", id="started-since-but-the-old-container"),
    ],
)
def test_a_wish_that_is_fulfilled_is_not_fulfilled_again(
    wished: str, made_ago_s: float, started_ago_s: float, expected: str
) -> None:
    record = agent(intent=wish(IntentKind(wished)))
    one = container(record, created_at=ago(made_ago_s), started_at=ago(started_ago_s))
    wanted = desired_state(record, journalled=[journal(one)])
    assert shown(plan_container(Case(record, one, wanted, NOW))) == expected


@pytest.mark.parametrize("wished", WISHES)
@pytest.mark.parametrize("state", list(EngineState))
def test_nothing_is_concluded_without_an_inspect(state: EngineState, wished: str) -> None:
    """A container that could be listed but not inspected: no wish counts as done, and no end is guessed."""
    record = agent(intent=None if wished == "none" else wish(IntentKind(wished)))
    one = replace(container(record, state), detail=None)
    cell = plan_container(Case(record, one, desired_state(record), NOW))
    assert not [action for action in cell.actions if isinstance(action, RecordExit)]
    if wished == "remove":
        assert bool(cell.actions) is (state is not EngineState.REMOVING)
    elif wished == "none" and state is EngineState.CREATED:
        assert shown(cell) == "s > starting"
    else:
        assert cell.actions == ()


def test_a_container_that_never_ran_is_made_anew_when_the_spec_moved_on() -> None:
    record = agent()
    one = container(record, EngineState.CREATED, of=spec("bob", commit="d" * 40))
    assert shown(plan_container(Case(record, one, desired_state(record), NOW))) == "rCS > starting"


def test_a_container_that_ran_is_never_replaced_for_its_spec_alone() -> None:
    record = agent()
    for state in (EngineState.RUNNING, EngineState.EXITED):
        one = container(record, state, of=spec("bob", commit="d" * 40))
        cell = plan_container(Case(record, one, desired_state(record, journalled=[journal(one, NOW)]), NOW))
        assert not set(shown(cell).split(">")[0]) & set("rC")


@pytest.mark.parametrize(
    ("grace_s", "expected"), [pytest.param(0, 0, id="now"), pytest.param(25, 25, id="its-own")]
)
def test_a_stop_uses_the_grace_of_its_wish(grace_s: int, expected: int) -> None:
    record = agent(desired=Desired.STOPPED, intent=wish(IntentKind.STOP, grace_s=grace_s))
    cell = plan_container(Case(record, container(record), desired_state(record), NOW))
    assert [one.grace_s for one in cell.actions if isinstance(one, Stop)] == [expected]


def test_a_removal_says_whether_it_purges() -> None:
    for purge in (False, True):
        record = agent(desired=Desired.STOPPED, intent=wish(IntentKind.REMOVE, purge=purge))
        cell = plan_container(Case(record, None, desired_state(record), NOW))
        assert [one.purge for one in cell.actions if isinstance(one, Retire)] == [purge]


def test_a_container_removed_by_hand_is_made_again_from_the_applied_spec() -> None:
    record = agent()
    removed = container(record)
    cell = plan_container(Case(record, None, desired_state(record, journalled=[journal(removed)]), NOW))
    assert [one.spec for one in cell.actions if isinstance(one, Create)] == [record.applied]
    assert "removed outside hive" in cell.reason
