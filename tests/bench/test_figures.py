"""A hive beside the raw engine API and docker-compose, on one engine, with the identical container spec.

Run by scripts/bench, which prints the tables. Figures are medians where runs are cheap. The bars asserted
are loose on purpose: they catch a mistake, not a noisy machine; what to hold a hive to is in
docs/explanation/performance.md.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import pytest

from tests.bench.compose import Compose
from tests.bench.figures import CALLS, FLOOR_LABEL, Floor, make_fleet, median_s, report, seconds, specs
from tests.support.fault_proxy import Fault, Rule
from tests.support.hive_fixtures import MakeHive
from tests.support.live_hive import LiveHive

pytestmark = [pytest.mark.bench, pytest.mark.integration, pytest.mark.timeout(900)]

SLOWEST = 2.5
SETTINGS = {"uids": {"count": 600}, "container": {"memory": "32m", "pids": 16}}


@pytest.fixture(params=[20, 50])
def fleet(hive: LiveHive, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Agents that are made and not spawned."""
    names = make_fleet(hive, request.param)
    yield names
    hive.remove(*names)


def test_up_and_down(hive: LiveHive, fleet: list[str]) -> None:
    up_s = seconds(lambda: hive.verb("spawn", *fleet))
    assert {hive.row(name)["state"] for name in fleet} == {"running"}
    wanted = specs(hive)
    down_s = seconds(lambda: hive.verb("stop", *fleet))
    floor = Floor(hive, wanted)
    compose = Compose(hive.root, hive.engine_socket, FLOOR_LABEL, wanted)
    try:
        floor_up_s = seconds(floor.up)
        floor_down_s = seconds(floor.down)
        floor.remove()
        compose_up_s = seconds(lambda: compose.run("up", "-d"))
        compose_again_s = seconds(lambda: compose.run("up", "-d"))
        compose_down_s = seconds(lambda: compose.run("stop", "-t", "5"))
    finally:
        floor.remove()
    pass_s = hive.status()["last_pass"]["duration_s"]
    report(
        f"up and down of {len(fleet)} agents",
        [
            ("up: one request to all seen running", up_s, floor_up_s, compose_up_s),
            ("down: one request to all seen down", down_s, floor_down_s, compose_down_s),
            ("nothing to do (compose: up -d again)", pass_s, None, compose_again_s),
        ],
    )
    assert up_s < floor_up_s * SLOWEST
    assert down_s < floor_down_s * SLOWEST + 1


@pytest.fixture
def hundred(make_hive: MakeHive) -> LiveHive:
    """A hive of a hundred running agents."""
    hive = make_hive(SETTINGS).start().settle()
    hive.verb("spawn", *make_fleet(hive, 100))
    return hive


def test_a_hundred_agents_at_rest(hundred: LiveHive) -> None:
    hive = hundred
    hive.reconcile()
    passes: list[float] = []
    for _ in range(CALLS):
        hive.reconcile()
        found = hive.status()["last_pass"]
        assert found["actions"] == 0
        passes.append(found["duration_s"])
    label = {"label": f"dev.hive.id={hive.id}"}
    listing_s = median_s(lambda: hive.raw.containers(all=True, filters=label))
    ps_s = median_s(lambda: hive.hivectl("ps"), 10)
    before = cpu_s(hive)
    time.sleep(20)  # the measured thing: nothing is asked of the daemon for this long
    idle = (cpu_s(hive) - before) / 20
    report(
        "100 agents at rest",
        [
            ("pass without drift / one list call", statistics.median(passes), listing_s, None),
            ("hivectl ps, cold process", ps_s, None, None),
            ("idle, cores", idle, None, None),
            ("memory of hived, MB", rss_mb(hive), None, None),
        ],
    )
    assert statistics.median(passes) < 0.2
    assert rss_mb(hive) < 300


def test_an_engine_change_is_seen_soon(hive: LiveHive) -> None:
    names = make_fleet(hive, 5)
    hive.verb("spawn", *names)
    try:
        lags: list[float] = []
        for round_ in range(20):
            name = names[round_ % len(names)]
            seq = hive.last_seq()
            began = time.perf_counter()
            hive.raw.pause(hive.container(name))
            hive.wait_event("paused", name, after=seq)
            lags.append(time.perf_counter() - began)
            hive.verb("start", name)
        lags.sort()
        report("an engine change", [("seen after, p95 of 20", lags[18], None, None)])
        assert lags[18] < 2
    finally:
        hive.remove(*names)


def test_status_answers_while_the_engine_hangs(make_hive: MakeHive) -> None:
    hive = make_hive({"engine": {"call_timeout_s": 2}}, with_proxy=True).start().settle()
    hive.spawn("bob")
    assert hive.proxy is not None
    hive.proxy.add(Rule(Fault.SWALLOW))
    hive.wait_for(lambda: hive.status()["engine"]["state"] == "hung", "the engine to count as hung", 60)
    times = sorted(seconds(hive.status) for _ in range(300))
    hive.proxy.clear()
    report("the engine hangs", [("hived status, p99 of 300", times[296], None, None)])
    assert times[296] < 1


@pytest.mark.slow
def test_a_thousand_passes_without_a_change_do_nothing(hive: LiveHive) -> None:
    names = make_fleet(hive, 20)
    hive.verb("spawn", *names)
    try:
        before = hive.lives()
        for _ in range(1000):
            hive.reconcile()
            assert hive.status()["last_pass"]["actions"] == 0
        assert hive.lives() == before
    finally:
        hive.remove(*names)


def cpu_s(hive: LiveHive) -> float:
    """Return the processor seconds the daemon has used."""
    assert hive.process is not None
    with open(f"/proc/{hive.process.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def rss_mb(hive: LiveHive) -> float:
    """Return the daemon's resident memory."""
    assert hive.process is not None
    with open(f"/proc/{hive.process.pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096 / 1e6
