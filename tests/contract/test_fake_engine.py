"""What only the fake does: failing on cue, and what a test does to it behind the port's back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from hive_core.domain.errors import EngineRefused, EngineUnavailable
from hive_core.domain.observed import EngineState
from hive_core.domain.ports import Engine, ExecRequest
from tests.support.engine_rig import UID, FakeRig
from tests.support.fake_engine import FakeEngine
from tests.support.fake_exec import ExecAnswer
from tests.support.paths import wait_until

REQUEST = ExecRequest(("id",), UID, UID, (), "/", tty=False)


@pytest.fixture
def rig() -> FakeRig:
    return FakeRig()


def test_it_is_an_engine() -> None:
    engine: Engine = FakeEngine()
    assert engine.list_containers("mine") == ()


def test_a_call_fails_as_often_as_asked_and_changes_nothing(rig: FakeRig) -> None:
    one = rig.make(EngineState.CREATED)
    rig.fake.fail_next("start", EngineRefused("cannot start bob: busy", status=500), times=2)
    for _ in range(2):
        with pytest.raises(EngineRefused, match="busy"):
            rig.fake.start(one)
        assert rig.state(one) is EngineState.CREATED
    rig.fake.start(one)
    assert rig.state(one) is EngineState.RUNNING
    assert rig.fake.calls["start"] == 3


def test_an_answer_can_get_lost_after_the_deed(rig: FakeRig) -> None:
    rig.fake.fail_next("create", EngineUnavailable("cannot create: cut"), after=True)
    with pytest.raises(EngineUnavailable):
        rig.fake.create(rig.spec(), rig.labels)
    assert rig.fake.find_by_name(rig.name()) is not None


@pytest.mark.parametrize("hung", [False, True])
def test_while_it_is_away_nothing_answers_and_nothing_is_lost(rig: FakeRig, hung: bool) -> None:
    one = rig.make(EngineState.RUNNING)
    stream = rig.fake.events(rig.hive_id, 60)
    rig.fake.go_away(hung=hung)
    calls: list[Callable[[], object]] = [
        rig.fake.version,
        lambda: rig.fake.kill(one),
        lambda: next(iter(stream)),
    ]
    for call in calls:
        with pytest.raises(EngineUnavailable):
            call()
    with pytest.raises(EngineUnavailable) as away:
        rig.fake.list_containers(rig.hive_id)
    assert away.value.hung is hung
    rig.fake.come_back()
    assert [row.id for row in rig.fake.list_containers(rig.hive_id)] == [one]


def test_a_restart_ends_what_ran_and_breaks_the_stream(rig: FakeRig) -> None:
    made = {state: rig.make(state, f"a{number}") for number, state in enumerate(
        (EngineState.CREATED, EngineState.RUNNING, EngineState.PAUSED))}  # fmt: skip
    stream = rig.fake.events(rig.hive_id, 60)
    rig.fake.restart()
    with pytest.raises(EngineUnavailable):
        list(stream)
    assert {rig.state(one) for one in made.values()} == {EngineState.CREATED, EngineState.EXITED}
    assert list(rig.fake.events(rig.hive_id, 0)) == []


def test_what_happens_behind_hive_s_back_shows(rig: FakeRig) -> None:
    eater, frozen = rig.make(EngineState.RUNNING, "ann"), rig.make(EngineState.RUNNING, "ben")
    rig.fake.run_out_of_memory(eater)
    rig.fake.pause_by_hand(frozen)
    detail = rig.fake.inspect(eater)
    assert (detail.state, detail.exit_code, detail.oom_killed) == (EngineState.EXITED, 137, True)
    assert rig.state(frozen) is EngineState.PAUSED
    assert rig.fake.calls["pause"] == 0
    rig.fake.start(eater)
    assert rig.fake.inspect(eater).oom_killed is False


def test_a_stuck_container_stays_stuck(rig: FakeRig) -> None:
    one = rig.make(EngineState.EXITED)
    with rig.fake.changing(one) as container:
        container.state = EngineState.REMOVING
    with pytest.raises(EngineRefused, match="still being removed"):
        rig.fake.remove(one)
    with pytest.raises(EngineRefused) as refused:
        rig.fake.start(one)
    assert refused.value.is_conflict


def test_a_program_that_ignores_the_signal_is_killed(rig: FakeRig) -> None:
    one = rig.make(EngineState.RUNNING)
    with rig.fake.changing(one) as container:
        container.ignores_term = True
    rig.fake.stop(one, 10)
    assert rig.fake.inspect(one).exit_code == 137


def test_a_hook_can_hold_up_one_call_while_others_go_on(rig: FakeRig) -> None:
    one, other = rig.make(EngineState.RUNNING, "ann"), rig.make(EngineState.RUNNING, "ben")
    gate = threading.Event()
    rig.fake.before_call = lambda method, target: (
        None if (method, target) != ("stop", one) else wait_for(gate)
    )
    stopping = threading.Thread(target=rig.fake.stop, args=(one, 10), daemon=True)
    stopping.start()
    rig.fake.stop(other, 10)
    assert (rig.state(one), rig.state(other)) == (EngineState.RUNNING, EngineState.EXITED)
    gate.set()
    stopping.join(5)
    assert rig.state(one) is EngineState.EXITED


def wait_for(gate: threading.Event) -> None:
    assert gate.wait(10)


def test_logs_have_a_tail_and_can_be_followed(rig: FakeRig) -> None:
    one = rig.make(EngineState.RUNNING)
    rig.fake.write_log(one, b"one\ntwo\nthree\n")
    assert b"".join(rig.fake.logs(one, 2, follow=False)) == b"two\nthree\n"
    assert [list(rig.fake.logs(one, tail, follow=False)) for tail in (0, -1)] == [[], []]
    pieces: list[bytes] = []
    stream = rig.fake.logs(one, 1, follow=True)
    reader = threading.Thread(target=lambda: pieces.extend(stream), daemon=True)
    reader.start()
    rig.fake.write_log(one, b"four\n")
    wait_until(lambda: b"".join(pieces) == b"three\nfour\n", "the new line")
    rig.fake.crash(one)
    reader.join(5)
    assert not reader.is_alive()
    with rig.fake.changing(one) as container:
        container.keeps_log = False
    with pytest.raises(EngineRefused) as refused:
        rig.fake.logs(one, 1, follow=False)
    assert refused.value.status == 501


def test_a_command_answers_what_the_test_laid_down(rig: FakeRig) -> None:
    one = rig.make(EngineState.RUNNING)
    rig.fake.exec_answer = lambda request: ExecAnswer(((1, request.argv[0].encode()), (2, b"err")), 3)
    session = rig.fake.exec(one, REQUEST)
    session.write(b"in")
    session.close_stdin()
    session.resize(1, 2)
    assert [session.read() for _ in range(3)] == [(1, b"id"), (2, b"err"), None]
    assert session.exit_code() == 3
    (known,) = rig.fake.execs
    assert (known.written, known.stdin_closed, known.sizes, known.is_terminated) == (
        b"in",
        True,
        [(1, 2)],
        False,
    )


def test_a_command_that_runs_on_ends_when_it_is_ended(rig: FakeRig) -> None:
    rig.fake.exec_answer = lambda _request: ExecAnswer(runs_on=True)
    session = rig.fake.exec(rig.make(EngineState.RUNNING), REQUEST)
    seen: list[object] = []
    reader = threading.Thread(target=lambda: seen.append(session.read()), daemon=True)
    reader.start()
    session.terminate()
    session.terminate()
    reader.join(5)
    assert (seen, session.exit_code()) == ([None], 137)


def test_times_come_from_the_test_s_clock() -> None:
    now = datetime(2024, 5, 1, tzinfo=UTC)
    fake = FakeEngine(clock=lambda: now)
    one = fake.run_foreign("x", {})
    assert fake.inspect(one).started_at == now


def test_a_rebuilt_image_has_another_id(rig: FakeRig) -> None:
    first, second = rig.fake.add_image("a:1"), rig.fake.add_image("a:1")
    assert first.id != second.id
    assert rig.fake.resolve_image("a:1") == second
    assert rig.fake.resolve_image(first.id) == first
