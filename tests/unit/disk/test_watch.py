"""Who is over a disk budget, when it is no longer, and the reserve for the worst hour."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hive_core.adapters import mounts
from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.disk_usage import free_space
from hive_core.adapters.store import Store
from hive_core.domain.errors import LimitExceeded, StoreUnusable
from hive_core.domain.names import AgentName
from hive_core.engine.disk import BALLAST_BYTES, DiskFacts, DiskWatch
from hive_core.engine.facts import over_budget
from hive_core.settings import Disk
from tests.support.paths import wait_until
from tests.support.plan_inputs import agent, name

MIB = 1024**2
BOB = name("bob")
PLENTY = Disk(budget=10 * MIB, low_water=0, low_water_inodes=0)


class Host:
    """A hive's data directory with bob in it."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.store = Store(data / "hive.db")
        self.dirs = AgentDirs(data / "agents")
        record = agent()
        self.store.add_agent(record)
        self.state = self.dirs.create(BOB, record.uid).state
        self.wakes = 0

    def watch(self, settings: Disk = PLENTY) -> DiskWatch:
        """Return the watch of a daemon that has just begun; it does not measure yet."""
        return DiskWatch(settings, self.data, self.dirs, self.store, self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    def measured(self, settings: Disk = PLENTY) -> DiskFacts:
        """Return the figures of a daemon's first measurement."""
        watch = self.watch(settings)
        first = watch.facts
        watch.start()
        try:
            wait_until(lambda: watch.facts is not first, "a measurement")
            wait_until(lambda: over_budget(self.store).keys() == watch.facts.over.keys(), "it to be kept")
            return watch.facts
        finally:
            watch.stop()

    def hold(self, mib: float, file: str = "fat") -> None:
        """Have bob's state hold so much."""
        (self.state / file).write_bytes(b"x" * int(mib * MIB))


@pytest.fixture
def host(root_dir: Path) -> Iterator[Host]:
    """A host with plenty of room."""
    made = Host(root_dir)
    yield made
    made.store.close()


def test_state_and_home_count_together(host: Host) -> None:
    host.hold(6)
    assert host.measured().over == {}
    (host.dirs.paths(BOB).home / "fat").write_bytes(b"x" * 6 * MIB)
    assert host.measured().over == {BOB: "12 MiB of 10 MiB are used"}
    assert host.wakes >= 1


def test_who_was_over_comes_back_only_when_clearly_below(host: Host) -> None:
    for mib, is_over in ((9.5, False), (10.5, True), (9.5, True), (8.5, False), (9.5, False)):
        host.hold(mib)
        assert (BOB in host.measured().over) is is_over, mib


def test_files_count_as_bytes_do(host: Host) -> None:
    settings = PLENTY.model_copy(update={"budget_inodes": 100})
    for number in range(101):
        (host.state / str(number)).touch()
    assert host.measured(settings).over == {BOB: "101 of 100 files are used"}
    for number in range(5):
        (host.state / str(number)).unlink()
    assert host.measured(settings).over == {BOB: "96 of 100 files are used"}
    for number in range(5, 20):
        (host.state / str(number)).unlink()
    assert host.measured(settings).over == {}


def test_who_was_over_is_so_for_the_next_daemon_before_it_has_measured(host: Host) -> None:
    host.hold(11)
    over = host.measured().over
    assert host.watch().facts.over == over != {}


def test_what_cannot_be_measured_stays_as_it_was(host: Host) -> None:
    host.hold(11)
    over = host.measured().over
    host.state.rename(host.state.with_name("away"))
    assert host.measured().over == over
    assert host.measured().usage == {}


def test_whoever_never_was_over_is_not_for_want_of_a_measurement(host: Host) -> None:
    host.state.rename(host.state.with_name("away"))
    assert host.measured().over == {}


def test_nesting_too_deep_to_be_measured_is_no_way_around_the_budget(host: Host) -> None:
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(host.state)
        for _ in range(300):
            os.mkdir("deeper")
            os.chdir("deeper")
    finally:
        os.fchdir(before)
        os.close(before)
    assert host.measured().over == {BOB: "its directories are nested too deep to be measured"}


def test_a_removed_agent_is_forgotten(host: Host) -> None:
    host.hold(11)
    host.measured()
    host.store.end_agent("i-bob", agent().created_at, is_purged=True)
    assert host.measured().over == {}
    assert over_budget(host.store) == {}


# ---- the host's own disk ----------------------------------------------------------------------------------


def test_little_room_is_a_problem_and_refuses_what_would_fill_it(host: Host) -> None:
    watch = host.watch(PLENTY.model_copy(update={"low_water": 1 << 60}))
    (problem,) = watch.problems()
    assert (problem.code, "nearly full" in problem.text) == ("disk_low", True)
    with pytest.raises(LimitExceeded, match=r"cannot spawn: the disk is nearly full \(\d+ MiB left\)"):
        watch.require_space("spawn")


def test_few_inodes_are_little_room_too(host: Host) -> None:
    watch = host.watch(PLENTY.model_copy(update={"low_water_inodes": 1 << 61}))
    assert [problem.code for problem in watch.problems()] == ["disk_low"]


def test_with_plenty_nothing_is_refused(host: Host) -> None:
    watch = host.watch()
    watch.require_space("spawn")
    assert watch.problems() == ()


def test_the_reserve_is_made_and_given_up_once(host: Host) -> None:
    host.measured()
    ballast = host.data / "ballast"
    wait_until(ballast.exists, "the reserve")
    found = ballast.stat()
    assert (found.st_size, found.st_mode & 0o777) == (BALLAST_BYTES, 0o600)
    assert found.st_blocks * 512 >= BALLAST_BYTES
    watch = host.watch()
    assert (watch.make_room(), watch.make_room()) == (True, False)
    assert not ballast.exists()


def test_where_there_is_little_room_no_reserve_is_made(host: Host) -> None:
    small = host.data / "small"
    small.mkdir()
    mounts.mount_tmpfs(small, label="hive-test-ballast", size_bytes=4 * BALLAST_BYTES, mode=0o711)
    on_small = Host(small)
    try:
        assert AgentName("bob") in on_small.measured().usage
        assert not (small / "ballast").exists()
    finally:
        on_small.store.close()


def test_a_store_on_a_full_disk_is_given_the_reserve_and_the_next_write_succeeds(host: Host) -> None:
    small = host.data / "small"
    small.mkdir()
    mounts.mount_tmpfs(small, label="hive-test-full", size_bytes=2 * BALLAST_BYTES, mode=0o711)
    on_small = Host(small)
    try:
        (small / "ballast").write_bytes(b"x" * BALLAST_BYTES)
        on_small.store.on_full = on_small.watch().make_room
        with (small / "fill").open("wb", buffering=0) as fill, suppress(OSError):
            while True:
                fill.write(b"x" * 4096)
        assert free_space(small).free_bytes == 0
        told = _fill(on_small.store)
        assert told.startswith(f"cannot write the store {small}/hive.db")
        assert not (small / "ballast").exists()
        on_small.store.set_fact("after", b"x" * 10_000)
        assert on_small.store.fact("after") == b"x" * 10_000
    finally:
        on_small.store.close()


def _fill(store: Store) -> str:
    try:
        for number in range(100):
            store.set_fact(f"fact-{number}", b"x" * 10_000)
    except StoreUnusable as fault:
        return fault.message
    raise AssertionError("the disk took everything")
