"""The first figures: a hive beside the raw engine API on the same engine, with the identical container spec.

Run by scripts/bench, which prints the table. Each figure is a median of several runs where runs are cheap.
The bars are loose on purpose: they catch a mistake, not a noisy machine.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from hive_core.adapters.docker_body import create_body
from hive_core.adapters.store import Store
from hive_core.domain.spec import ContainerSpec
from tests.support.live_hive import LiveHive, config, wire

pytestmark = [pytest.mark.bench, pytest.mark.integration, pytest.mark.timeout(900)]

AGENTS = int(os.environ.get("HIVE_BENCH_AGENTS", "20"))
START_THREADS = 4
STOP_THREADS = 8
CALLS = 30
FLOOR_LABEL = "dev.hive.test.floor"
SLOWEST = 2.5


def seconds(work: Callable[[], object]) -> float:
    """Return how long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def median_s(work: Callable[[], object], calls: int = CALLS) -> float:
    """Return the median time of several calls."""
    return statistics.median(seconds(work) for _ in range(calls))


def report(title: str, rows: Sequence[tuple[str, float, float | None]]) -> None:
    """Print figures in seconds, each with the floor it is to be compared with."""
    print(f"\n{title} ({platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})")
    print(f"  {'work':<34}{'hive':>10}{'floor':>10}{'ratio':>8}")
    for work, own_s, floor_s in rows:
        shown = "" if floor_s is None else f"{floor_s:>10.4f}{own_s / floor_s:>8.2f}"
        print(f"  {work:<34}{own_s:>10.4f}{shown}")


@pytest.fixture
def fleet(hive: LiveHive) -> Iterator[list[str]]:
    """Agents that are made and not spawned."""
    names = [f"b{number}" for number in range(AGENTS)]
    for name in names:
        hive.api.post("/v1/agents", {"name": name, "files": wire(config(name))})
    hive.reconcile()
    yield names
    hive.remove(*names)


def specs(hive: LiveHive) -> list[ContainerSpec]:
    """Return the applied specs, under names of the floor's own."""
    store = Store(hive.data / "hive.db")
    try:
        applied = [record.applied for record in store.agents() if record.applied is not None]
    finally:
        store.close()
    return [replace(spec, name=f"{spec.name}-floor") for spec in applied]


class Floor:
    """The same containers, made through the API with threads and nothing else."""

    def __init__(self, hive: LiveHive) -> None:
        self._raw = hive.raw
        self._specs = specs(hive)
        self._ids: list[str] = []

    def up(self) -> None:
        """Create and start every container."""
        with ThreadPoolExecutor(START_THREADS) as pool:
            self._ids = list(pool.map(self._up_one, self._specs))

    def _up_one(self, spec: ContainerSpec) -> str:
        body = create_body(spec, {FLOOR_LABEL: "1"})
        create: Callable[..., dict[str, str]] = self._raw.create_container_from_config
        container_id = create(body, name=spec.name)["Id"]
        self._raw.start(container_id)
        return container_id

    def down(self) -> None:
        """Stop every container."""
        with ThreadPoolExecutor(STOP_THREADS) as pool:
            list(pool.map(lambda one: self._raw.stop(one, timeout=5), self._ids))

    def remove(self) -> None:
        """Remove whatever there is of the floor's."""
        for one in self._raw.containers(all=True, filters={"label": FLOOR_LABEL}):
            self._raw.remove_container(one["Id"], force=True)


def test_up_pass_ps_and_down_beside_the_raw_api(hive: LiveHive, fleet: list[str]) -> None:
    up_s = seconds(lambda: hive.verb("spawn", *fleet))
    assert {hive.row(name)["state"] for name in fleet} == {"running"}
    floor = Floor(hive)
    try:
        floor_up_s = seconds(floor.up)
        floor_down_s = seconds(floor.down)
    finally:
        floor.remove()

    hive.reconcile()
    passes: list[float] = []
    for _ in range(CALLS):
        hive.reconcile()
        found = hive.status()["last_pass"]
        assert found["actions"] == 0
        passes.append(found["duration_s"])
    listing_s = median_s(lambda: hive.raw.containers(all=True, filters={"label": f"dev.hive.id={hive.id}"}))
    ps_s = median_s(lambda: hive.hivectl("ps"), 10)
    down_s = seconds(lambda: hive.verb("stop", *fleet))

    pass_s = statistics.median(passes)
    report(
        f"{AGENTS} agents",
        [
            ("up: spawn to all seen running", up_s, floor_up_s),
            ("down: stop to all seen stopped", down_s, floor_down_s),
            ("pass without drift / one list call", pass_s, listing_s),
            ("hivectl ps, cold process", ps_s, None),
        ],
    )
    assert up_s < floor_up_s * SLOWEST
    assert down_s < floor_down_s * SLOWEST + 1
    assert pass_s < 0.2
