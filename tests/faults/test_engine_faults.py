"""An engine that is slow, silent, gone or lies: the adapter says so in time, and never concludes from it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest

from hive_core.adapters.docker import DockerEngine
from hive_core.domain.errors import EngineRefused, EngineUnavailable
from hive_core.domain.observed import EngineState
from hive_core.domain.ports import ExecRequest
from tests.faults.conftest import CALL_TIMEOUT_S
from tests.support.engine_rig import SLEEP, UID, RealRig, spec_for
from tests.support.fault_proxy import Fault, FaultProxy, Rule
from tests.support.own_engine import own_engine as run_own_engine
from tests.support.paths import wait_until
from tests.support.tiny_image import import_image

pytestmark = [pytest.mark.integration, pytest.mark.faults]

SLACK_S = 3.0  # what a loaded machine may add to a bound


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    took_s = time.monotonic() - began
    assert took_s < limit_s + SLACK_S, f"took {took_s:.1f} s"


def every_call(rig: RealRig, one: str) -> dict[str, Callable[[DockerEngine], object]]:
    request = ExecRequest(("sh", "-c", "exit 0"), UID, UID, (), "/", tty=False)
    spec = rig.spec("new")
    return {
        "version": lambda engine: engine.version(),
        "list": lambda engine: engine.list_containers(rig.hive_id),
        "inspect": lambda engine: engine.inspect(one),
        "find": lambda engine: engine.find_by_name(rig.name()),
        "image": lambda engine: engine.resolve_image("hive-test:tiny"),
        "create": lambda engine: engine.create(spec, rig.labels),
        "start": lambda engine: engine.start(one),
        "stop": lambda engine: engine.stop(one, 0),
        "kill": lambda engine: engine.kill(one),
        "pause": lambda engine: engine.pause(one),
        "unpause": lambda engine: engine.unpause(one),
        "remove": lambda engine: engine.remove(one),
        "logs": lambda engine: list(engine.logs(one, 10, follow=False)),
        "follow": lambda engine: list(engine.logs(one, 10, follow=True)),
        "events": lambda engine: list(engine.events(rig.hive_id, 5)),
        "exec": lambda engine: engine.exec(one, request),
    }


def failures(engine: DockerEngine, rig: RealRig, one: str) -> dict[str, BaseException | None]:
    """Make every call at once and return how each failed."""
    calls = every_call(rig, one)
    with ThreadPoolExecutor(len(calls)) as threads:
        futures = {name: threads.submit(call, engine) for name, call in calls.items()}
        return {name: future.exception(timeout=60) for name, future in futures.items()}


def test_without_a_socket_every_call_says_unavailable_at_once(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy
) -> None:
    one = rig.make(EngineState.RUNNING)
    assert engine.list_containers(rig.hive_id)
    proxy.stop()
    for _ in range(2):
        with within(0):
            found = failures(engine, rig, one)
        for name, fault in found.items():
            assert isinstance(fault, EngineUnavailable), (name, fault)
            assert not fault.hung, name
            assert fault.message.startswith("cannot "), fault.message
    proxy.start()
    (row,) = engine.list_containers(rig.hive_id)
    assert (row.id, row.state) == (one, EngineState.RUNNING)


def test_an_adapter_made_before_the_engine_finds_it_later(rig: RealRig, proxy: FaultProxy) -> None:
    proxy.stop()
    engine = DockerEngine(str(proxy.path), CALL_TIMEOUT_S)
    with pytest.raises(
        EngineUnavailable, match="cannot ask the engine for its version: the engine does not answer"
    ):
        engine.version()
    proxy.start()
    assert engine.version().engine


@pytest.mark.parametrize("is_known", [False, True], ids=["at first contact", "later"])
def test_a_silent_engine_costs_each_call_one_timeout_and_is_called_hung(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy, is_known: bool
) -> None:
    one = rig.make(EngineState.RUNNING)
    if is_known:
        engine.version()
    proxy.add(Rule(Fault.SWALLOW))
    with within(CALL_TIMEOUT_S):
        found = failures(engine, rig, one)
    for name, fault in found.items():
        assert isinstance(fault, EngineUnavailable), (name, fault)
        assert fault.hung, name
    assert rig.state(one) is EngineState.RUNNING


def test_a_slow_engine_is_bounded_for_many_callers_at_once(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy
) -> None:
    one = rig.make(EngineState.RUNNING)
    engine.version()
    proxy.add(Rule(Fault.DELAY, delay_s=20))
    with within(CALL_TIMEOUT_S), ThreadPoolExecutor(64) as threads:
        futures = [threads.submit(engine.inspect, one) for _ in range(64)]
        faults = [future.exception(timeout=30) for future in futures]
    assert all(isinstance(fault, EngineUnavailable) and fault.hung for fault in faults)
    proxy.clear()
    assert engine.inspect(one).state is EngineState.RUNNING


def test_a_grace_longer_than_the_call_timeout_is_no_failure(rig: RealRig, engine: DockerEngine) -> None:
    command = ("sh", "-c", "trap '' TERM; echo set; while :; do sleep 1; done")
    one = rig.make(EngineState.RUNNING, command=command)
    wait_until(lambda: b"set" in b"".join(rig.engine.logs(one, 1, follow=False)), "the trap")
    began = time.monotonic()
    engine.stop(one, 4)
    assert time.monotonic() - began > CALL_TIMEOUT_S
    assert rig.state(one) is EngineState.EXITED


@pytest.mark.parametrize("fault", [Fault.REFUSE_AFTER, Fault.CUT])
def test_a_create_whose_answer_is_lost_left_a_container_that_the_name_finds(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy, fault: Fault
) -> None:
    spec = rig.spec()
    engine.version()
    proxy.add(Rule(fault, "POST", "/containers/create", times=1))
    with pytest.raises((EngineRefused, EngineUnavailable)) as failed:
        engine.create(spec, rig.labels)
    if isinstance(failed.value, EngineRefused):
        assert failed.value.status == 500
    wait_until(lambda: engine.find_by_name(spec.name), "the container")
    with pytest.raises(EngineRefused) as refused:
        engine.create(spec, rig.labels)
    assert refused.value.is_conflict


def test_a_remove_that_others_have_begun_waits_for_its_end(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy
) -> None:
    one = rig.make(EngineState.EXITED)
    progress = f"removal of container {one} is already in progress"
    proxy.add(Rule(Fault.REFUSE, "DELETE", "", times=1, status=409, message=progress))
    waiter = ThreadPoolExecutor(1)
    try:
        waiting = waiter.submit(engine.remove, one)
        wait_until(lambda: proxy.count("GET", "/containers/json") >= 2, "it to look again")
        assert not waiting.done()
        rig.remove_by_hand(one)
        waiting.result(timeout=10)
    finally:
        waiter.shutdown()
    assert engine.find_by_name(rig.name()) is None


def test_a_remove_that_never_ends_is_said_to_be_stuck(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy
) -> None:
    one = rig.make(EngineState.EXITED)
    proxy.add(Rule(Fault.REFUSE, "DELETE", "", status=409, message="removal is already in progress"))
    with within(CALL_TIMEOUT_S), pytest.raises(EngineRefused, match="it is still being removed"):
        engine.remove(one)


def test_a_stop_the_engine_only_claims_is_not_believed(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy
) -> None:
    one = rig.make(EngineState.RUNNING)
    proxy.add(Rule(Fault.REFUSE, "POST", "/stop", status=204))
    with within(CALL_TIMEOUT_S), pytest.raises(EngineRefused, match="it is still running"):
        engine.stop(one, 0)


@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.CUT])
def test_an_answer_that_makes_no_sense_is_no_answer(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy, fault: Fault
) -> None:
    rig.make(EngineState.RUNNING)
    assert len(engine.list_containers(rig.hive_id)) == 1
    rule = proxy.add(Rule(fault, "GET", "/containers/json", status=200, pass_bytes=300))
    with pytest.raises(EngineUnavailable, match="cannot list containers"):
        engine.list_containers(rig.hive_id)
    assert rule.hits == 1


def test_a_list_is_one_request_however_many_there_are(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy
) -> None:
    spec = rig.spec()
    for number in range(5):
        rig.engine.create(replace(spec, name=rig.name(f"n{number}")), rig.labels)
    engine.version()
    before = proxy.count()
    assert len(engine.list_containers(rig.hive_id)) == 5
    assert proxy.count() == before + 1


def test_an_old_list_is_repeated_by_the_proxy_until_the_rule_goes(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy
) -> None:
    proxy.add(Rule(Fault.STALE, "GET", "/containers/json"))
    assert engine.list_containers(rig.hive_id) == ()
    one = rig.make(EngineState.CREATED)
    assert engine.list_containers(rig.hive_id) == ()
    proxy.clear()
    assert [row.id for row in engine.list_containers(rig.hive_id)] == [one]


def events_of(engine: DockerEngine, hive_id: str, window_s: float) -> tuple[list[str], list[Exception]]:
    """Start reading one window in a thread; what it saw and how it failed come into the two lists."""
    seen: list[str] = []
    faults: list[Exception] = []

    def read() -> None:
        try:
            seen.extend(event.action for event in stream)
        except Exception as fault:
            faults.append(fault)

    stream = engine.events(hive_id, window_s)
    threading.Thread(target=read, daemon=True).start()
    return seen, faults


def test_a_cut_event_stream_is_unavailable_and_the_list_has_what_was_missed(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy
) -> None:
    one = rig.make(EngineState.RUNNING)
    _, faults = events_of(engine, rig.hive_id, 30)
    proxy.cut()
    wait_until(lambda: faults, "the reader to notice", CALL_TIMEOUT_S + SLACK_S)
    assert isinstance(faults[0], EngineUnavailable)
    rig.engine.kill(one)
    assert [row.state for row in engine.list_containers(rig.hive_id)] == [EngineState.EXITED]
    seen, _ = events_of(engine, rig.hive_id, 10)
    rig.engine.start(one)
    wait_until(lambda: "start" in seen, "an event on the new stream")


def test_an_event_stream_that_looks_alive_and_says_nothing_ends_with_its_window(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy
) -> None:
    one = rig.make(EngineState.RUNNING)
    engine.version()
    proxy.add(Rule(Fault.SILENCE, "GET", "/events"))
    stream = engine.events(rig.hive_id, 1)
    rig.engine.kill(one)
    with within(1 + 2), pytest.raises(EngineUnavailable) as failed:
        list(stream)
    assert failed.value.hung


def test_a_quiet_event_stream_ends_in_time_without_a_fault(rig: RealRig, engine: DockerEngine) -> None:
    with within(1):
        assert list(engine.events(rig.hive_id, 1)) == []


def test_a_cut_log_is_a_fault_and_no_quiet_end(rig: RealRig, engine: DockerEngine, proxy: FaultProxy) -> None:
    one = rig.make(EngineState.RUNNING, command=("sh", "-c", "echo first; sleep 600"))
    stream = engine.logs(one, 10, follow=True)
    assert next(stream) == b"first\n"
    proxy.cut()
    with pytest.raises(EngineUnavailable, match="cannot read the log of"):
        next(stream)


def test_a_cut_command_has_no_exit_code_and_can_be_ended(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy
) -> None:
    one = rig.make(EngineState.RUNNING)
    script = ("sh", "-c", "echo first; exec sleep 601")
    session = engine.exec(one, ExecRequest(script, UID, UID, (), "/", tty=False))
    assert session.read() == (1, b"first\n")
    proxy.cut()
    assert session.read() is None
    with pytest.raises(EngineUnavailable, match="still runs"):
        session.exit_code()
    session.terminate()
    assert session.exit_code() == 137


def test_silent_followers_do_not_keep_a_stop_waiting(
    rig: RealRig, engine: DockerEngine, proxy: FaultProxy
) -> None:
    one = rig.make(EngineState.RUNNING)
    engine.version()
    proxy.add(Rule(Fault.SILENCE, "GET", "/logs"))
    streams = [engine.logs(one, 10, follow=True) for _ in range(64)]
    readers = [threading.Thread(target=list, args=(stream,), daemon=True) for stream in streams]
    try:
        for reader in readers:
            reader.start()
        began = time.monotonic()
        engine.stop(one, 5)
        assert time.monotonic() - began < 1 + SLACK_S
        assert all(reader.is_alive() for reader in readers)
    finally:
        for stream in streams:
            stream.close()
    for reader in readers:
        reader.join(5)
    assert not any(reader.is_alive() for reader in readers)


def test_a_killed_and_a_restarted_engine_are_noticed_and_keep_their_containers() -> None:
    with run_own_engine() as own:
        client = own.client()
        image = import_image(client, "hive-test:tiny")
        client.close()
        engine = DockerEngine(str(own.socket), CALL_TIMEOUT_S)
        labels = {"dev.hive.id": "outage", "dev.hive.agent": "bob", "dev.hive.test": "1"}
        one = engine.create(spec_for("h-bob", image, SLEEP), labels)
        for end in (own.kill, own.restart):
            engine.start(one)
            _, faults = events_of(engine, "outage", 30)
            end()
            wait_until(faults.__len__, "the reader to notice")
            assert isinstance(faults[0], EngineUnavailable)
            if end == own.kill:
                with pytest.raises(EngineUnavailable):
                    engine.list_containers("outage")
                own.start()
            (row,) = engine.list_containers("outage")
            assert (row.id, row.state) == (one, EngineState.EXITED)
