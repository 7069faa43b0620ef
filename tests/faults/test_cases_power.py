"""Power loss, again and again: engine, containers, daemon and the run directory gone in one moment."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

import pytest
from docker.errors import NotFound

from hive_core.adapters import mounts
from hive_core.adapters.mountinfo import read_mounts
from tests.support.engine_fixtures import AGENT_IMAGE, BUILD_DEADLINE_S, BUILD_IMAGE
from tests.support.host_processes import parent
from tests.support.live_hive import LiveHive, live_hive
from tests.support.own_engine import OwnEngine
from tests.support.own_engine import own_engine as run_own_engine

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]

LOSSES = 5
AGENTS = 10


@pytest.fixture
def engine() -> Iterator[OwnEngine]:
    """An engine that this test may lose."""
    with run_own_engine() as running:
        loading = [str(BUILD_IMAGE), "--load", "--host", f"unix://{running.socket}", "--tag", AGENT_IMAGE]
        subprocess.run(loading, check=True, capture_output=True, timeout=BUILD_DEADLINE_S)
        yield running


def _lose_power(engine: OwnEngine, hive: LiveHive) -> None:
    """End the daemon, the engine, each container's processes and their shims, and all mounts."""
    hive.kill9()
    inits = []
    for one in hive.containers():
        with suppress(NotFound):  # the engine still works on what it was asked for
            inits.append(hive.raw.inspect_container(one["Id"])["State"]["Pid"])
    shims = {parent(pid) for pid in inits if pid}
    engine.kill()
    for pid in (*inits, *shims):
        with suppress(ProcessLookupError):
            if pid > 1:
                os.kill(pid, signal.SIGKILL)
    while left := read_mounts().below(hive.run_dir):
        mounts.unmount(left[0].target)
    shutil.rmtree(hive.run_dir)


def test_after_each_power_loss_everything_runs_and_nothing_is_doubled(engine: OwnEngine) -> None:
    with live_hive(engine, AGENT_IMAGE) as hive:
        hive.start().settle()
        names = [f"a{number}" for number in range(AGENTS)]
        for name in names:
            hive.init(name)
        hive.verb("spawn", *names)
        hive.init("idle")
        roster = hive.roster_file.read_bytes()
        for number in range(LOSSES):
            if number % 2:  # in the middle of something
                hive.hivectl("update", *names, "--no-wait")
            _lose_power(engine, hive)
            engine.start()
            hive.start()
            for name in names:
                hive.wait_state(name, "running")
            hive.settle()
            assert sorted(one["State"] for one in hive.containers()) == ["running"] * AGENTS
            assert hive.row("idle")["state"] == "unspawned"
            assert hive.roster_file.read_bytes() == roster
            assert not {one["code"] for one in hive.status()["problems"]}
