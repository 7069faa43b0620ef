from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from hive_core.domain.agents import ContainerRecord, ExitKind, ExitRecord, Outage
from hive_core.domain.observed import ContainerDetail, EngineState
from hive_core.planning.crashes import classify_exit, crash_state
from hive_core.planning.desired import CrashPolicy
from tests.support.plan_inputs import BOOT, NOW, agent, ago, container, crash, journal

POLICY = CrashPolicy()
PATIENT = CrashPolicy(loop_count=10_000)


def _in_a_row(count: int, every_s: float = 700.0, **facts: object) -> list[ExitRecord]:
    """Crashes far enough apart to be no loop, the last one right now."""
    return [crash(ago(every_s * (count - 1 - number)), **facts) for number in range(count)]  # type: ignore[arg-type]


def _wait_s(exits: Sequence[ExitRecord], policy: CrashPolicy = POLICY, now: datetime = NOW) -> float:
    state = crash_state(exits, None, policy, now)
    assert state.start_at is not None
    return (state.start_at - exits[-1].finished_at).total_seconds()


# ---- backoff ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ran_s", [0, 1, 5, 31, 59.9])
def test_the_very_first_crash_is_backed_off(ran_s: float) -> None:
    state = crash_state([crash(NOW, ran_s)], None, POLICY, NOW)
    assert (state.streak, state.is_looping) == (1, False)
    assert 0.9 <= _wait_s([crash(NOW, ran_s)]) <= 1.1


@pytest.mark.parametrize(
    ("count", "expected_s"),
    [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16), (8, 128), (9, 256), (10, 300), (11, 300), (45, 300)],
)
def test_the_wait_doubles_up_to_a_limit(count: int, expected_s: float) -> None:
    wait_s = _wait_s(_in_a_row(count), PATIENT)
    assert 0.9 * expected_s <= wait_s <= 1.1 * expected_s


def test_a_streak_without_end_overflows_nothing() -> None:
    assert _wait_s(_in_a_row(5000, every_s=0.001), PATIENT) <= 330


def test_jitter_spreads_agents_and_repeats_itself() -> None:
    waits = [_wait_s([crash(NOW, of=f"id-{number}")]) for number in range(200)]
    assert len(set(waits)) > 100
    assert min(waits) >= 0.9
    assert max(waits) <= 1.1
    assert max(waits) - min(waits) > 0.15
    assert waits == [_wait_s([crash(NOW, of=f"id-{number}")]) for number in range(200)]


def test_the_settings_of_the_backoff_are_used() -> None:
    quick = CrashPolicy(backoff_initial_s=0.1, backoff_max_s=0.3, loop_count=1000)
    assert [round(_wait_s(_in_a_row(count), quick), 1) for count in (1, 2, 3, 9)] == [0.1, 0.2, 0.3, 0.3]


@pytest.mark.parametrize(
    ("exits", "streak"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([crash(ago(90)), crash(ago(30), 59)], 2, id="short-run"),
        pytest.param([crash(ago(90)), crash(ago(30), 60)], 1, id="stable-run-starts-anew"),
        pytest.param([crash(ago(9), 99), crash(ago(5)), crash(ago(1))], 3, id="stable-run-counts-itself"),
        *(
            pytest.param([crash(ago(9)), crash(ago(5), kind=kind)], 0, id=f"{kind.value}-clears")
            for kind in (ExitKind.REQUESTED, ExitKind.HOST_RESTART, ExitKind.ENGINE_RESTART)
        ),
        pytest.param([crash(ago(9)), crash(ago(5), kind=ExitKind.START_FAILED)], 2, id="start-failed-counts"),
    ],
)
def test_which_crashes_are_in_a_row(exits: list[ExitRecord], streak: int) -> None:
    assert crash_state(exits, None, POLICY, NOW).streak == streak


# ---- crash loops ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exits", "is_looping"),
    [
        pytest.param(_in_a_row(4, 10), False, id="four"),
        pytest.param(_in_a_row(5, 10), True, id="five"),
        pytest.param(_in_a_row(5, 150), True, id="five-in-exactly-ten-minutes"),
        pytest.param(_in_a_row(5, 150.1), False, id="five-in-a-little-more"),
        pytest.param(_in_a_row(5, 10, ran_s=60), False, id="five-stable-runs"),
        pytest.param(_in_a_row(50, 10, kind=ExitKind.START_FAILED), False, id="starts-that-fail"),
        pytest.param(
            [*_in_a_row(5, 10), crash(NOW, kind=ExitKind.START_FAILED)], False, id="a-failed-start-last"
        ),
        pytest.param(
            [*_in_a_row(4, 10), crash(NOW, kind=ExitKind.START_FAILED), crash(NOW)],
            True,
            id="a-failed-start-between",
        ),
    ],
)
def test_what_is_a_crash_loop(exits: list[ExitRecord], is_looping: bool) -> None:
    state = crash_state(exits, None, POLICY, NOW)
    assert state.is_looping is is_looping
    assert (state.start_at is None) is is_looping


def test_a_loop_does_not_pass_by_itself() -> None:
    assert crash_state(_in_a_row(5, 10), None, POLICY, NOW + timedelta(days=365)).is_looping


def test_start_forgives_everything_before_it() -> None:
    exits = _in_a_row(5, 10)
    assert crash_state(exits, NOW, POLICY, NOW).streak == 0
    assert crash_state(
        [*exits, crash(NOW + timedelta(seconds=1))], NOW, POLICY, NOW + timedelta(seconds=2)
    ) == (crash_state([crash(NOW + timedelta(seconds=1))], None, POLICY, NOW + timedelta(seconds=2)))


# ---- a clock that was set back ----------------------------------------------------------------------------

BEFORE = NOW + timedelta(hours=2)  # what the clock said when it was set back to NOW


def test_a_wait_ends_when_the_clock_is_set_back() -> None:
    state = crash_state([crash(BEFORE)], None, POLICY, NOW)
    assert state.start_at is None or state.start_at <= NOW


def test_crashes_after_the_clock_was_set_back_are_backed_off_like_others() -> None:
    """Kept in time order, the old ones come last; they must not hide the new."""
    for count in (1, 2, 3):
        state = crash_state([*_in_a_row(count, 5), crash(BEFORE)], None, POLICY, NOW)
        assert state.streak == count
        assert state.start_at is not None
        assert state.start_at > NOW
    assert crash_state([*_in_a_row(5, 5), crash(BEFORE)], None, POLICY, NOW).is_looping


def test_start_resets_a_loop_from_before_the_clock_was_set_back() -> None:
    loop = [crash(BEFORE + timedelta(seconds=number)) for number in range(5)]
    assert crash_state(loop, NOW, POLICY, NOW).streak == 0


# ---- what an end means ------------------------------------------------------------------------------------


def _ended(**facts: object) -> tuple[ContainerDetail, ContainerRecord]:
    one = container(agent(), EngineState.EXITED, **facts)  # type: ignore[arg-type]
    assert one.detail is not None
    return one.detail, journal(one)


STARTED, FINISHED = ago(3600), ago(60)


def _outage(lost_ago_s: float, back_ago_s: float | None) -> Outage:
    return Outage(ago(lost_ago_s), None if back_ago_s is None else ago(back_ago_s))


@pytest.mark.parametrize(
    ("stop_at", "boot_at", "outages", "expected"),
    [
        pytest.param(None, BOOT, [], ExitKind.CRASH, id="by-itself"),
        pytest.param(ago(61), BOOT, [], ExitKind.REQUESTED, id="asked-just-before"),
        pytest.param(STARTED, BOOT, [], ExitKind.REQUESTED, id="asked-at-its-start"),
        pytest.param(ago(3601), BOOT, [], ExitKind.CRASH, id="asked-during-an-earlier-run"),
        pytest.param(None, ago(3599), [], ExitKind.HOST_RESTART, id="began-before-this-boot"),
        pytest.param(None, ago(3600), [], ExitKind.CRASH, id="began-at-this-boot"),
        pytest.param(ago(61), ago(10), [], ExitKind.REQUESTED, id="asked-then-rebooted"),
        pytest.param(None, BOOT, [_outage(100, 20)], ExitKind.ENGINE_RESTART, id="while-engine-away"),
        pytest.param(None, BOOT, [_outage(100, None)], ExitKind.ENGINE_RESTART, id="engine-still-away"),
        pytest.param(None, BOOT, [_outage(45, 20)], ExitKind.ENGINE_RESTART, id="15-s-before-it-was-lost"),
        pytest.param(None, BOOT, [_outage(44.9, 20)], ExitKind.CRASH, id="more-than-15-s-before"),
        pytest.param(None, BOOT, [_outage(100, 60)], ExitKind.ENGINE_RESTART, id="at-its-return"),
        pytest.param(None, BOOT, [_outage(100, 61)], ExitKind.CRASH, id="after-its-return"),
        pytest.param(
            None, BOOT, [_outage(900, 800), _outage(70, 50)], ExitKind.ENGINE_RESTART, id="second-outage"
        ),
    ],
)
def test_why_a_run_ended(
    stop_at: datetime | None, boot_at: datetime, outages: list[Outage], expected: ExitKind
) -> None:
    one = container(agent(), EngineState.EXITED, started_at=STARTED, finished_at=FINISHED, exit_code=1)
    assert one.detail is not None
    found = classify_exit(one.detail, journal(one, stop_at), boot_at, outages)
    assert found.kind is expected
    assert (found.container_id, found.started_at, found.finished_at) == (one.id, STARTED, FINISHED)


def test_without_a_record_an_end_is_a_crash() -> None:
    detail, _ = _ended(exit_code=3)
    assert classify_exit(detail, None, BOOT, []).kind is ExitKind.CRASH


@pytest.mark.parametrize(
    ("exit_code", "oom_killed", "text"),
    [
        pytest.param(0, False, "its program ended by itself with exit code 0", id="clean"),
        pytest.param(3, False, "its program ended by itself with exit code 3", id="code"),
        pytest.param(137, True, "killed: out of memory (exit code 137)", id="oom"),
        pytest.param(137, False, "killed by a signal from outside hive (exit code 137)", id="by-hand"),
        pytest.param(1, True, "killed: out of memory (exit code 1)", id="child-oom"),
    ],
)
def test_a_crash_is_told_in_words(exit_code: int, oom_killed: bool, text: str) -> None:
    detail, record = _ended(exit_code=exit_code, oom_killed=oom_killed)
    found = classify_exit(detail, record, BOOT, [])
    assert (found.text, found.exit_code, found.oom_killed) == (text, exit_code, oom_killed)
