"""What every engine has to do: each test runs on the fake and on a real one, so that neither drifts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hive_core.domain.errors import EngineRefused, ImageUnusable
from hive_core.domain.observed import EngineEvent, EngineState
from hive_core.domain.ports import Engine, ExecRequest
from hive_core.domain.spec import LABEL_AGENT, LABEL_HIVE, BindMount
from tests.support.engine_fixtures import EngineImages
from tests.support.engine_rig import A_FILE, CRASH_CODE, UID, Rig
from tests.support.paths import wait_until

CREATED, RUNNING, PAUSED, EXITED = (
    EngineState.CREATED,
    EngineState.RUNNING,
    EngineState.PAUSED,
    EngineState.EXITED,
)
NOBODY = "f" * 64
IMAGES = EngineImages()


def run(engine: Engine, container_id: str) -> None:
    """Run a command to its end."""
    session = engine.exec(container_id, ExecRequest(("sh", "-c", "exit 0"), UID, UID, (), "/", tty=False))
    while session.read() is not None:
        pass
    assert session.exit_code() == 0


def read_log(engine: Engine, container_id: str) -> bytes:
    return b"".join(engine.logs(container_id, tail=10, follow=False))


Operation = Callable[[Engine, str], object]

OPERATIONS: dict[str, Operation] = {
    "start": lambda engine, one: engine.start(one),
    "stop": lambda engine, one: engine.stop(one, 5),
    "kill": lambda engine, one: engine.kill(one),
    "pause": lambda engine, one: engine.pause(one),
    "unpause": lambda engine, one: engine.unpause(one),
    "remove": lambda engine, one: engine.remove(one),
    "exec": run,
    "logs": read_log,
}

# (state before, operation) -> the state after, None when it is gone, or the status of the refusal.
CELLS: dict[tuple[EngineState, str], EngineState | int | None] = {
    (CREATED, "start"): RUNNING,
    (CREATED, "stop"): CREATED,
    (CREATED, "kill"): CREATED,
    (CREATED, "pause"): 409,
    (CREATED, "unpause"): 409,
    (CREATED, "remove"): None,
    (CREATED, "exec"): 409,
    (CREATED, "logs"): CREATED,
    (RUNNING, "start"): RUNNING,
    (RUNNING, "stop"): EXITED,
    (RUNNING, "kill"): EXITED,
    (RUNNING, "pause"): PAUSED,
    (RUNNING, "unpause"): 409,
    (RUNNING, "remove"): 409,
    (RUNNING, "exec"): RUNNING,
    (RUNNING, "logs"): RUNNING,
    (PAUSED, "start"): 409,
    (PAUSED, "stop"): EXITED,
    (PAUSED, "kill"): EXITED,
    (PAUSED, "pause"): 409,
    (PAUSED, "unpause"): RUNNING,
    (PAUSED, "remove"): 409,
    (PAUSED, "exec"): 409,
    (PAUSED, "logs"): PAUSED,
    (EXITED, "start"): RUNNING,
    (EXITED, "stop"): EXITED,
    (EXITED, "kill"): EXITED,
    (EXITED, "pause"): 409,
    (EXITED, "unpause"): 409,
    (EXITED, "remove"): None,
    (EXITED, "exec"): 409,
    (EXITED, "logs"): EXITED,
}


@pytest.mark.parametrize(
    ("before", "operation", "expected"),
    [pytest.param(*cell, expected, id=f"{cell[0]}-{cell[1]}") for cell, expected in CELLS.items()],
)
def test_every_operation_in_every_state(
    rig: Rig, before: EngineState, operation: str, expected: EngineState | int | None
) -> None:
    one = rig.make(before)
    if isinstance(expected, int):
        with pytest.raises(EngineRefused, match=r"^cannot ") as refused:
            OPERATIONS[operation](rig.engine, one)
        assert refused.value.status == expected
        assert rig.state(one) is before
        return
    OPERATIONS[operation](rig.engine, one)
    if expected is None:
        assert rig.engine.find_by_name(rig.name()) is None
        assert rig.engine.list_containers(rig.hive_id) == ()
    else:
        assert rig.state(one) is expected
        assert [row.state for row in rig.engine.list_containers(rig.hive_id)] == [expected]


@pytest.mark.parametrize("operation", [name for name in OPERATIONS if name != "remove"])
def test_an_id_that_nobody_has_is_404(rig: Rig, operation: str) -> None:
    with pytest.raises(EngineRefused) as refused:
        OPERATIONS[operation](rig.engine, NOBODY)
    assert refused.value.is_gone


def test_removing_what_is_gone_is_fine(rig: Rig) -> None:
    one = rig.make(CREATED)
    rig.engine.remove(one)
    rig.engine.remove(one)
    rig.engine.remove(NOBODY)


def test_a_name_or_an_id_prefix_never_addresses_a_container(rig: Rig) -> None:
    one = rig.make(RUNNING)
    acts: dict[str, Operation] = {**OPERATIONS, "inspect": lambda engine, target: engine.inspect(target)}
    for operation in sorted(acts.keys() - {"remove"}):
        for address in (one[:4], one[:12], one[:63], rig.name(), "", "../" + one):
            with pytest.raises(EngineRefused) as refused:
                acts[operation](rig.engine, address)
            assert refused.value.is_gone, (operation, address)
    rig.engine.stop(one, 5)
    for address in (one[:4], one[:63], rig.name()):
        rig.engine.remove(address)
    assert rig.state(one) is EXITED


def test_a_name_that_is_the_prefix_of_an_id_finds_nobody(rig: Rig) -> None:
    one = rig.make(CREATED)
    assert rig.engine.find_by_name(one[:4]) is None
    assert rig.engine.find_by_name(rig.name()[:-1]) is None
    assert rig.engine.find_by_name(rig.name().replace("-", ".")) is None
    named_like_an_id = rig.run_by_hand(one[:12])
    found = rig.engine.find_by_name(one[:12])
    assert found is not None
    assert found.id == named_like_an_id


def test_a_name_is_found_where_it_is_now(rig: Rig) -> None:
    one = rig.make(RUNNING)
    rig.rename_by_hand(one, rig.name("other"))
    assert rig.engine.find_by_name(rig.name()) is None
    found = rig.engine.find_by_name(rig.name("other"))
    assert found is not None
    assert (found.id, found.name, found.state) == (one, rig.name("other"), RUNNING)


def test_a_taken_name_is_409_and_names_the_container(rig: Rig) -> None:
    rig.make(EXITED)
    with pytest.raises(EngineRefused, match=f"^cannot create {rig.name()}: ") as refused:
        rig.engine.create(rig.spec(), rig.labels)
    assert refused.value.is_conflict
    assert len(rig.engine.list_containers(rig.hive_id)) == 1


def test_creating_from_an_image_that_is_gone_is_404(rig: Rig) -> None:
    spec = rig.spec()
    object.__setattr__(spec, "image_id", f"sha256:{NOBODY}")
    with pytest.raises(EngineRefused) as refused:
        rig.engine.create(spec, rig.labels)
    assert refused.value.status == 404


def test_a_missing_mount_source_is_refused_at_create_and_never_made(rig: Rig, tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    spec = rig.spec(mounts=(BindMount("/state", str(absent)),))
    with pytest.raises(EngineRefused, match="absent") as refused:
        rig.engine.create(spec, rig.labels)
    assert refused.value.status == 400
    assert not absent.exists()
    assert rig.engine.list_containers(rig.hive_id) == ()


def test_a_mount_source_that_vanished_is_refused_at_start_and_never_made(rig: Rig, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    one = rig.engine.create(rig.spec(mounts=(BindMount("/state", str(source)),)), rig.labels)
    source.rmdir()
    with pytest.raises(EngineRefused) as refused:
        rig.engine.start(one)
    assert refused.value.status == 400
    assert not source.exists()
    assert rig.state(one) is CREATED


def test_a_failed_start_stays_created_with_127_and_says_why(rig: Rig, tmp_path: Path) -> None:
    one = rig.engine.create(rig.spec(mounts=(BindMount(A_FILE, str(tmp_path)),)), rig.labels)
    for _ in range(3):
        with pytest.raises(EngineRefused, match=r"^cannot start ") as refused:
            rig.engine.start(one)
        assert refused.value.status == 400
    detail = rig.engine.inspect(one)
    assert (detail.state, detail.exit_code, detail.started_at) == (CREATED, 127, None)
    assert "not a directory" in detail.error
    assert len(rig.engine.list_containers(rig.hive_id)) == 1
    rig.engine.remove(one)


def test_an_image_without_the_entrypoint_starts_and_ends_with_127(rig: Rig) -> None:
    one = rig.engine.create(rig.spec(image=IMAGES.bare), rig.labels)
    rig.engine.start(one)
    wait_until(lambda: rig.state(one) is EXITED, "the container's end")
    detail = rig.engine.inspect(one)
    assert (detail.exit_code, detail.error) == (127, "")
    assert detail.started_at is not None


def test_how_it_ended_shows_in_the_exit_code(rig: Rig) -> None:
    asked, forced, frozen, crashed = (rig.make(RUNNING, agent) for agent in ("ann", "ben", "cy", "dan"))
    rig.engine.pause(frozen)
    rig.engine.stop(asked, 5)
    rig.engine.kill(forced)
    rig.engine.stop(frozen, 5)
    rig.crash(crashed)
    codes = {one: rig.engine.inspect(one).exit_code for one in (asked, forced, frozen, crashed)}
    assert codes == {asked: 143, forced: 137, frozen: 143, crashed: CRASH_CODE}


def test_the_detail_tells_the_times_and_the_pid_of_a_life(rig: Rig) -> None:
    one = rig.make(CREATED)
    fresh = rig.engine.inspect(one)
    assert (fresh.started_at, fresh.finished_at, fresh.pid, fresh.restart_policy) == (None, None, 0, "no")
    rig.engine.start(one)
    running = rig.engine.inspect(one)
    assert running.started_at is not None
    assert running.started_at > fresh.created_at
    assert running.created_at.utcoffset() == fresh.created_at.utcoffset()
    assert running.pid > 1
    rig.engine.stop(one, 5)
    ended = rig.engine.inspect(one)
    assert ended.finished_at is not None
    assert ended.finished_at > running.started_at
    assert (ended.pid, ended.oom_killed, ended.started_at) == (0, False, running.started_at)


def test_the_list_has_this_hive_s_containers_in_any_state_and_no_others(rig: Rig) -> None:
    mine = {
        state: rig.make(state, f"a{number}")
        for number, state in enumerate((CREATED, RUNNING, PAUSED, EXITED))
    }
    rig.run_by_hand(f"hand-{rig.hive_id}")
    rows = rig.engine.list_containers(rig.hive_id)
    assert {row.state: row.id for row in rows} == mine
    assert {row.name for row in rows} == {rig.name(f"a{number}") for number in range(4)}
    assert {row.image_id for row in rows} == {rig.spec().image_id}
    assert all(row.status for row in rows)
    assert rig.engine.list_containers("nobody") == ()
    assert rig.engine.list_containers(rig.hive_id[:-1]) == ()


def test_labels_of_the_image_do_not_make_a_container_ours(rig: Rig) -> None:
    one = rig.engine.create(rig.spec(image=IMAGES.loud), rig.labels)
    (row,) = rig.engine.list_containers(rig.hive_id)
    assert (row.labels[LABEL_HIVE], row.labels[LABEL_AGENT]) == (rig.hive_id, "bob")
    detail = rig.engine.inspect(one)
    assert detail.labels[LABEL_HIVE] == rig.hive_id
    assert all(row.id != one for row in rig.engine.list_containers("other"))


def test_four_at_once_may_remove_a_container(rig: Rig) -> None:
    one = rig.make(EXITED)
    barrier = threading.Barrier(4)

    def remove() -> None:
        barrier.wait()
        rig.engine.remove(one)
        assert rig.engine.find_by_name(rig.name()) is None

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(remove) for _ in range(4)]:
            done.result(timeout=30)
    rig.make(CREATED)


def test_stop_kill_and_start_at_once_all_return_and_leave_a_state(rig: Rig) -> None:
    one = rig.make(RUNNING)
    deeds = [OPERATIONS[name] for name in ("stop", "kill", "start", "stop", "kill", "start")]
    with ThreadPoolExecutor(6) as threads:
        for _ in range(3):
            for done in [threads.submit(deed, rig.engine, one) for deed in deeds]:
                fault = done.exception(timeout=60)
                assert fault is None or isinstance(fault, EngineRefused), fault
    rig.engine.kill(one)
    assert rig.state(one) is EXITED


def test_the_list_never_fails_while_containers_come_and_go(rig: Rig) -> None:
    stays = rig.make(CREATED, "stays")
    specs = [rig.spec(f"c{number}") for number in range(3)]
    rounds = [0] * len(specs)
    is_over = threading.Event()

    def churn(number: int) -> None:
        while not is_over.is_set():
            rig.engine.remove(rig.engine.create(specs[number], rig.labels))
            rounds[number] += 1

    listed = 0
    with ThreadPoolExecutor(len(specs)) as threads:
        churners = [threads.submit(churn, number) for number in range(len(specs))]
        try:
            while listed < 100 or min(rounds) < 10:
                assert stays in [row.id for row in rig.engine.list_containers(rig.hive_id)]
                listed += 1
                assert not any(churner.done() for churner in churners)
        finally:
            is_over.set()
    for churner in churners:
        churner.result()


def test_one_removed_by_hand_is_404_for_all_but_remove(rig: Rig) -> None:
    one = rig.make(RUNNING)
    rig.remove_by_hand(one)
    for operation in ("start", "stop", "kill", "pause", "unpause", "exec", "logs"):
        with pytest.raises(EngineRefused) as refused:
            OPERATIONS[operation](rig.engine, one)
        assert refused.value.is_gone, operation
    rig.engine.remove(one)


def test_an_image_tells_what_it_would_add(rig: Rig) -> None:
    usual, loud = rig.engine.resolve_image(IMAGES.usual), rig.engine.resolve_image(IMAGES.loud)
    assert usual.id.startswith("sha256:")
    assert (usual.env_names, usual.volumes) == (("FROM_IMAGE", "PATH"), ())
    assert (loud.env_names, loud.volumes) == (("LD_PRELOAD", "PATH"), ("/stray",))
    assert rig.engine.resolve_image(usual.id) == usual


def test_an_image_that_is_not_there_is_unusable_and_named(rig: Rig) -> None:
    usual = rig.engine.resolve_image(IMAGES.usual)
    for reference in ("hive-test:absent", "absent", "Not A Reference", usual.id[7:11], usual.id[:20]):
        with pytest.raises(ImageUnusable, match=f"cannot use image '{reference}'"):
            rig.engine.resolve_image(reference)


def test_the_engine_tells_its_version(rig: Rig) -> None:
    version = rig.engine.version()
    assert version.engine
    assert tuple(int(part) for part in version.api.split(".")) >= (1, 41)
    assert version.live_restore is False


def test_events_tell_of_this_hive_s_containers_and_of_images(rig: Rig) -> None:
    one = rig.make(CREATED)
    seen: list[EngineEvent] = []
    stream = rig.engine.events(rig.hive_id, 3.0)
    reader = threading.Thread(target=lambda: seen.extend(stream), daemon=True)
    reader.start()
    rig.run_by_hand(f"hand-{rig.hive_id}")
    rig.engine.start(one)
    rig.engine.kill(one)
    rig.tag_image(f"hive-test:{rig.hive_id}")
    reader.join(10)
    assert not reader.is_alive()
    ours = [event for event in seen if event.kind == "container"]
    assert {event.id for event in ours} == {one}
    assert [event.action for event in ours if event.action in ("start", "die")] == ["start", "die"]
    assert "tag" in [event.action for event in seen if event.kind == "image"]


def test_the_next_window_has_what_happened_in_between(rig: Rig) -> None:
    one = rig.make(CREATED)
    list(rig.engine.events(rig.hive_id, 0.2))
    rig.engine.start(one)
    following = list(rig.engine.events(rig.hive_id, 0.2))
    assert [(event.action, event.id) for event in following if event.kind == "container"] == [("start", one)]


def test_a_followed_log_ends_with_the_container(rig: Rig) -> None:
    one = rig.make(RUNNING)
    pieces: list[bytes] = []
    stream = rig.engine.logs(one, tail=10, follow=True)
    reader = threading.Thread(target=lambda: pieces.extend(stream), daemon=True)
    reader.start()
    rig.engine.kill(one)
    wait_until(lambda: not reader.is_alive(), "the log's end")
    assert pieces == []
