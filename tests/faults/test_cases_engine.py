"""An engine that lags, sticks on one container or changes its mind while nobody can see it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.support.fault_proxy import Fault, FaultProxy, Rule
from tests.support.live_hive import LiveHive, Settings, live_hive
from tests.support.own_engine import OwnEngine

pytestmark = [pytest.mark.integration, pytest.mark.faults]

SETTINGS: Settings = {"engine": {"call_timeout_s": 1, "event_window_s": 5}}
CREATE, LIST = "^/containers/create", r"^/containers/json\?.*label"


@pytest.fixture(scope="module")
def shared(own_engine: OwnEngine, agent_image: str) -> Iterator[LiveHive]:
    """A hive behind a fault proxy, with little patience."""
    with live_hive(own_engine, agent_image, SETTINGS, with_proxy=True) as hive:
        yield hive.start().settle()


@pytest.fixture
def hive(shared: LiveHive) -> Iterator[LiveHive]:
    """That hive without any agent, whole again afterwards."""
    yield shared
    proxy = _proxy(shared)
    proxy.clear()
    proxy.cut()
    shared.wait_for(lambda: shared.status()["engine"]["state"] == "ok", "the engine")
    shared.remove(*shared.rows())


def _proxy(hive: LiveHive) -> FaultProxy:
    assert hive.proxy is not None
    return hive.proxy


def test_twenty_requests_on_a_stale_list_make_one_container_and_end_none(hive: LiveHive) -> None:
    hive.init("bob")
    hive.spawn("carol")
    before, seq = hive.lives(), hive.last_seq()
    stale = _proxy(hive).add(Rule(Fault.STALE, "GET", LIST))
    hive.wait_for(lambda: stale.answers, "a list that gets old")
    asking = [_hivectl(hive, "spawn", "bob", "--no-wait") for _ in range(20)]
    assert sorted(one.wait(30) for one in asking).count(0) == 1
    hive.wait_for(lambda: hive.containers("bob"), "the container")
    hive.wait_for(lambda: stale.hits >= 5, "further looks at the old list")
    made = [one["Id"] for one in hive.containers("bob")]
    _proxy(hive).clear()
    row = hive.wait_state("bob", "running")
    hive.settle()
    assert [one["Id"] for one in hive.containers("bob")] == made == [row["container_id"]]
    assert before.items() <= hive.lives().items()
    assert not [one for one in hive.events("container_removed") if one["seq"] > seq]


def _hivectl(hive: LiveHive, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        hive.hivectl_argv(*arguments),
        env=hive.hivectl_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_a_container_without_an_answer_is_named_and_the_others_are_mended(hive: LiveHive) -> None:
    for name in ("bob", "carol"):
        hive.spawn(name)
    before = hive.rows()
    stuck = before["bob"]["container_id"]
    _proxy(hive).add(Rule(Fault.SWALLOW, "GET", f"^/containers/{stuck}/json"))
    row = hive.wait_state("bob", "unknown")
    assert "does not answer for it" in row["reason"]
    assert hive.status()["engine"]["state"] == "ok"
    hive.wait_for(lambda: stuck[:12] in hive.problems().get("stuck_container", ""), "the problem")
    seq = hive.last_seq()
    hive.raw.kill(before["carol"]["container_id"])
    hive.wait_event("started", "carol", seq)
    assert hive.row("bob")["state"] == "unknown"
    _proxy(hive).clear()
    assert hive.wait_state("bob", "running")["started_at"] == before["bob"]["started_at"]
    hive.wait_for(lambda: "stuck_container" not in hive.problems(), "the end of the problem")
    assert len(hive.containers()) == 2


def test_a_container_resumed_while_nobody_could_see_it_runs(hive: LiveHive) -> None:
    before = hive.spawn("bob")
    hive.raw.pause(before["container_id"])
    hive.wait_state("bob", "paused")
    _proxy(hive).stop()
    hive.wait_state("bob", "unknown")
    hive.raw.unpause(before["container_id"])
    _proxy(hive).start()
    assert hive.wait_state("bob", "running")["started_at"] == before["started_at"]


def test_an_update_waits_for_the_name_however_slow_the_removal(hive: LiveHive) -> None:
    """The engine answers for the removal long after the call has timed out; only then the name is free."""
    before = hive.spawn("bob")["container_id"]
    slow = _proxy(hive).add(Rule(Fault.DELAY, "DELETE", "^/containers/", delay_s=3, times=1))
    hive.hivectl("update", "bob", expect=None)
    hive.wait_for(lambda: hive.row("bob")["container_id"] not in (None, before), "the new container")
    hive.wait_state("bob", "running")
    assert slow.hits == 1
    assert [one["Id"] for one in hive.containers()] == [hive.row("bob")["container_id"]]
