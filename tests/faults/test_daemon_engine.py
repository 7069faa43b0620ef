"""A live daemon on an engine that loses answers, hangs, goes away or restarts: nothing is doubled or lost."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import pytest

from tests.support.engine_fixtures import AGENT_IMAGE, BUILD_DEADLINE_S, BUILD_IMAGE
from tests.support.fault_proxy import Fault, FaultProxy, Rule
from tests.support.live_hive import LiveHive, Settings, live_hive
from tests.support.own_engine import OwnEngine
from tests.support.own_engine import own_engine as run_own_engine

pytestmark = [pytest.mark.integration, pytest.mark.faults]

CREATE, START, LIST, EVENTS = "^/containers/create", "/start$", r"^/containers/json", "^/events"
FAST_S = 0.2
SETTINGS: Settings = {"engine": {"call_timeout_s": 1, "event_window_s": 5}}


@pytest.fixture(scope="module")
def shared(own_engine: OwnEngine, agent_image: str) -> Iterator[LiveHive]:
    """A hive behind a fault proxy, with little patience and a timer that is too slow to help."""
    with live_hive(own_engine, agent_image, SETTINGS, with_proxy=True) as hive:
        yield hive.start().settle()


@pytest.fixture
def hive(shared: LiveHive) -> Iterator[LiveHive]:
    """That hive without any agent, whole again afterwards."""
    assert shared.proxy is not None
    yield shared
    _heal(shared.proxy)
    shared.wait_for(lambda: shared.status()["engine"]["state"] == "ok", "the engine")
    shared.remove(*shared.rows())
    assert shared.containers() == []


@pytest.fixture
def proxy(hive: LiveHive) -> FaultProxy:
    """The proxy of that hive."""
    assert hive.proxy is not None
    return hive.proxy


def _heal(proxy: FaultProxy) -> None:
    proxy.clear()
    proxy.cut()


def _is_fast(hive: LiveHive) -> bool:
    """Whether status answers at once, most of the time on a busy machine."""
    times = []
    for _ in range(9):
        began = time.monotonic()
        hive.status()
        times.append(time.monotonic() - began)
    return sorted(times)[len(times) // 2] < FAST_S


# ---- creates and starts of which the answer is lost -------------------------------------------------------


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(Rule(Fault.REFUSE_AFTER, "POST", CREATE, times=1), id="done-but-500"),
        pytest.param(Rule(Fault.CUT, "POST", CREATE, times=1), id="done-but-cut"),
        pytest.param(
            Rule(Fault.CUT, "POST", CREATE, times=1, pass_bytes=120), id="done-but-cut-in-the-answer"
        ),
        pytest.param(Rule(Fault.SWALLOW, "POST", CREATE, times=1), id="never-arrived"),
        pytest.param(Rule(Fault.REFUSE, "POST", CREATE, times=2), id="refused-twice"),
        pytest.param(Rule(Fault.REFUSE_AFTER, "POST", START, times=1), id="started-but-500"),
        pytest.param(Rule(Fault.CUT, "POST", START, times=1), id="started-but-cut"),
        pytest.param(Rule(Fault.SWALLOW, "POST", START, times=1), id="start-never-arrived"),
    ],
)
def test_one_container_runs_whatever_answer_is_lost(hive: LiveHive, proxy: FaultProxy, rule: Rule) -> None:
    hive.init("bob")
    proxy.add(rule)
    hive.hivectl("spawn", "bob", expect=None)
    row = hive.wait_state("bob", "running")
    hive.settle()
    assert [one["Id"] for one in hive.containers()] == [row["container_id"]]
    assert rule.hits == rule.times


@pytest.mark.parametrize(
    ("fault", "path"),
    [
        pytest.param(Fault.SWALLOW, START, id="between-create-and-start"),
        pytest.param(Fault.CUT, CREATE, id="before-the-answer-of-create"),
        pytest.param(Fault.CUT, START, id="before-the-answer-of-start"),
    ],
)
def test_a_daemon_killed_in_the_middle_doubles_nothing(
    hive: LiveHive, proxy: FaultProxy, fault: Fault, path: str
) -> None:
    hive.init("bob")
    rule = proxy.add(Rule(fault, "POST", path))
    hive.hivectl("spawn", "bob", "--no-wait")
    hive.wait_for(lambda: rule.hits, "the call")
    hive.kill9()
    made = [one["Id"] for one in hive.containers()]
    _heal(proxy)
    hive.start()
    row = hive.wait_state("bob", "running")
    hive.settle()
    assert [one["Id"] for one in hive.containers()] == [row["container_id"]]
    assert made in ([], [row["container_id"]])


def test_a_stale_list_makes_nothing_twice(hive: LiveHive, proxy: FaultProxy) -> None:
    hive.init("bob")
    tries = proxy.count("POST", CREATE)
    stale = proxy.add(Rule(Fault.STALE, "GET", r"^/containers/json\?.*label"))
    hive.hivectl("spawn", "bob", "--no-wait")
    hive.wait_for(hive.containers, "the container")
    hive.wait_for(lambda: proxy.count("POST", CREATE) >= tries + 2, "a second try on the stale view")
    made = [one["Id"] for one in hive.containers()]
    assert stale.hits > 1
    _heal(proxy)
    row = hive.wait_state("bob", "running")
    hive.settle()
    assert [one["Id"] for one in hive.containers()] == made == [row["container_id"]]


def test_a_name_the_engine_holds_for_nobody_is_waited_for_without_a_hot_loop(
    hive: LiveHive, proxy: FaultProxy
) -> None:
    hive.init("bob")
    rule = proxy.add(Rule(Fault.REFUSE, "POST", CREATE, status=409, message="the name is already in use"))
    refused = hive.hivectl("spawn", "bob", expect=None)
    assert refused.status in (1, 6)
    row = hive.wait_state("bob", "failed")
    assert "shows no such container" in row["reason"]
    hive.wait_for(lambda: rule.hits >= 4, "further tries")
    began, hits = time.monotonic(), rule.hits
    hive.wait_for(lambda: rule.hits >= hits + 2, "two more tries")
    assert time.monotonic() - began > 0.5
    _heal(proxy)
    hive.wait_state("bob", "running")


def test_a_slow_removal_is_waited_for(hive: LiveHive, proxy: FaultProxy) -> None:
    before = hive.spawn("bob")["container_id"]
    proxy.add(Rule(Fault.DELAY, "DELETE", "^/containers/", delay_s=0.8))
    hive.hivectl("update", "bob")
    assert [one["Id"] for one in hive.containers()] == [hive.row("bob")["container_id"]] != [before]


# ---- an engine that is away, hung or slow -----------------------------------------------------------------


def _gone(proxy: FaultProxy) -> None:
    proxy.stop()


def _hung(proxy: FaultProxy) -> None:
    proxy.add(Rule(Fault.SWALLOW))
    proxy.cut()


def _back(proxy: FaultProxy) -> None:
    proxy.start()


@pytest.mark.parametrize(
    ("lose", "give_back", "word"),
    [
        pytest.param(_gone, _back, "unreachable", id="gone"),
        pytest.param(_hung, _heal, "hung", id="hung"),
    ],
)
def test_without_an_engine_nothing_is_done_and_everything_is_said(
    hive: LiveHive,
    proxy: FaultProxy,
    lose: Callable[[FaultProxy], None],
    give_back: Callable[[FaultProxy], None],
    word: str,
) -> None:
    for name in ("a", "b", "c"):
        hive.spawn(name)
    hive.verb("stop", "c")
    hive.settle()
    lives, rows, roster, seq = hive.lives(), hive.rows(), hive.roster_file.read_bytes(), hive.last_seq()
    lose(proxy)
    hive.wait_for(lambda: hive.status()["engine"]["state"] == word, f"engine {word}")
    assert _is_fast(hive)
    status = hive.hivectl("status", "-o", "json").json
    assert status["phase"] == "degraded"
    assert "engine_unknown" in {one["code"] for one in status["problems"]}
    unknown = hive.rows()
    assert {row["state"] for row in unknown.values()} == {"unknown"}
    assert {name: row["desired"] for name, row in unknown.items()} == {
        name: row["desired"] for name, row in rows.items()
    }
    hive.hivectl("exec", "a", "--", "true", expect=125, limit_s=20)
    assert hive.roster_file.read_bytes() == roster
    assert hive.lives() == lives
    give_back(proxy)
    hive.wait_for(lambda: hive.status()["engine"]["state"] == "ok", "the engine")
    hive.settle()
    assert hive.lives() == lives
    assert hive.rows() == rows
    assert [one for one in hive.events() if one["seq"] > seq and one["kind"] != "phase"] == []


def test_what_is_asked_while_the_engine_is_away_is_done_when_it_is_back(
    hive: LiveHive, proxy: FaultProxy
) -> None:
    hive.spawn("bob")
    proxy.stop()
    hive.wait_state("bob", "unknown")
    change = hive.hivectl("stop", "bob", "--no-wait", "-o", "json").json
    assert hive.row("bob")["desired"] in ("running", "stopped")
    assert change["state"] == "running"
    proxy.start()
    hive.wait_state("bob", "stopped")
    assert [one["State"] for one in hive.containers("bob")] == ["exited"]


def test_a_daemon_that_starts_without_an_engine_adopts_when_it_comes(
    hive: LiveHive, proxy: FaultProxy
) -> None:
    hive.spawn("bob")
    lives = hive.lives()
    hive.kill9()
    proxy.stop()
    hive.start()
    hive.wait_for(lambda: hive.status()["phase"] == "degraded", "phase degraded")
    assert hive.status()["roster"]["agents"] == 1
    proxy.start()
    hive.wait_state("bob", "running")
    assert hive.lives() == lives


def test_a_slow_engine_leaves_status_fast(hive: LiveHive, proxy: FaultProxy) -> None:
    hive.spawn("bob")
    proxy.add(Rule(Fault.DELAY, path="^/containers/", delay_s=0.7))
    proxy.cut()
    hive.hivectl("stop", "bob", "--no-wait")
    assert _is_fast(hive)
    hive.wait_state("bob", "stopped")


@pytest.mark.parametrize("fault", [Fault.SILENCE, Fault.SWALLOW, Fault.CUT, Fault.REFUSE])
def test_a_crash_is_seen_though_no_event_comes(hive: LiveHive, proxy: FaultProxy, fault: Fault) -> None:
    """The stream's own deadline, or its end, has to be enough."""
    before = hive.spawn("bob")
    seen, seq = proxy.count("GET", EVENTS), hive.last_seq()
    proxy.add(Rule(fault, "GET", EVENTS))
    proxy.cut()
    hive.wait_for(lambda: proxy.count("GET", EVENTS) > seen, "a new stream")
    hive.raw.kill(before["container_id"])
    hive.wait_event("started", "bob", seq, limit_s=15)
    assert hive.wait_state("bob", "running")["container_id"] == before["container_id"]


# ---- an engine that restarts ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spare_engine() -> Iterator[OwnEngine]:
    """An engine that these tests may restart and kill."""
    with run_own_engine() as engine:
        loading = [str(BUILD_IMAGE), "--load", "--host", f"unix://{engine.socket}", "--tag", AGENT_IMAGE]
        subprocess.run(loading, check=True, capture_output=True, timeout=BUILD_DEADLINE_S)
        yield engine


def _started_chain(hive: LiveHive) -> list[str]:
    """Run a root agent and a chain of three below it, whose alphabetical order is the wrong one."""
    hive.start()
    hive.wait_state("zoe", "running")
    chain = ["zoe", "c", "b", "a"]
    for parent, name in pairwise(chain):
        hive.init(name, parent=parent)
    hive.init("idle", parent="zoe")
    hive.verb("spawn", *chain[1:], "idle")
    hive.verb("stop", "idle")
    hive.settle()
    return chain


def _await_new_runs(hive: LiveHive, before: dict[str, dict[str, str]], chain: list[str]) -> None:
    for name in chain:
        hive.wait_for(partial(_has_new_run, hive, before, name), f"{name}'s next run")
    hive.settle()
    after = hive.rows()
    assert after["idle"]["state"] == "stopped"
    assert {name: row["container_id"] for name, row in after.items()} == {
        name: row["container_id"] for name, row in before.items()
    }
    assert not {one["code"] for one in hive.status()["problems"]}


ROOTED: Settings = {"hive": {"ruthless": False, "root_agent": "zoe"}, "crashes": {"backoff_max_s": 60}}


def test_after_a_crash_of_the_engine_everything_comes_back_in_order(spare_engine: OwnEngine) -> None:
    with live_hive(spare_engine, AGENT_IMAGE, ROOTED) as hive:
        chain = _started_chain(hive)
        before, seq = hive.rows(), hive.last_seq()
        spare_engine.kill()
        spare_engine.start()
        _await_new_runs(hive, before, chain)
        started = [one for one in hive.events("started") if one["seq"] > seq]
        assert [one["agent"] for one in started] == chain
        for name in chain:
            assert "restart of the engine" in hive.row(name)["reason"]
            assert {one["kind"] for one in hive.show(name)["exits"]} <= {"engine_restart", "requested"}


def test_after_a_polite_restart_of_the_engine_everything_comes_back(spare_engine: OwnEngine) -> None:
    with live_hive(spare_engine, AGENT_IMAGE, ROOTED) as hive:
        chain = _started_chain(hive)
        before = hive.rows()
        spare_engine.restart()
        _await_new_runs(hive, before, chain)


def _has_new_run(hive: LiveHive, before: dict[str, dict[str, str]], name: str) -> bool:
    row = hive.row(name)
    return bool(row["state"] == "running" and row["started_at"] > before[name]["started_at"])
