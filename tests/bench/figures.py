"""How the benchmarks measure: times, the floor straight through the engine's API, and the table."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from hive_core.adapters.docker_body import create_body
from hive_core.adapters.store import Store
from hive_core.domain.spec import ContainerSpec
from tests.support.live_hive import LiveHive, config, wire

CALLS = 30
START_THREADS = 4
STOP_THREADS = 8
FLOOR_LABEL = "dev.hive.test.floor"


def seconds(work: Callable[[], object]) -> float:
    """Return how long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def median_s(work: Callable[[], object], calls: int = CALLS) -> float:
    """Return the median time of several calls."""
    return statistics.median(seconds(work) for _ in range(calls))


Row = tuple[str, float, float | None, float | None]


def report(title: str, rows: Sequence[Row]) -> None:
    """Print figures (seconds unless the row says otherwise) beside the floor's and docker-compose's."""
    print(f"\n{title} ({platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})")
    print(f"  {'work':<38}{'hive':>10}{'floor':>10}{'ratio':>7}{'compose':>10}{'ratio':>7}")
    for work, own, floor, compose in rows:
        beside = "".join(_beside(own, other) for other in (floor, compose))
        print(f"  {work:<38}{own:>10.4f}{beside}")


def _beside(own: float, other: float | None) -> str:
    return " " * 17 if other is None else f"{other:>10.4f}{own / other:>7.2f}"


def make_fleet(hive: LiveHive, count: int) -> list[str]:
    """Make agents that are not spawned."""
    names = [f"b{number}" for number in range(count)]
    for name in names:
        hive.api.post("/v1/agents", {"name": name, "files": wire(config(name))})
    hive.reconcile()
    return names


def specs(hive: LiveHive) -> list[ContainerSpec]:
    """Return the applied specs."""
    store = Store(hive.data / "hive.db")
    try:
        return [record.applied for record in store.agents() if record.applied is not None]
    finally:
        store.close()


class Floor:
    """The same containers, made through the API with threads and nothing else."""

    def __init__(self, hive: LiveHive, wanted: Sequence[ContainerSpec]) -> None:
        self._raw = hive.raw
        self._specs = [replace(spec, name=f"{spec.name}-floor") for spec in wanted]
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
