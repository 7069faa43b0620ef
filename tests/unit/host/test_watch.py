from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hive_core.adapters.files import write_atomic
from hive_core.adapters.watch import DirectoryWatch
from tests.support.paths import wait_until


class Wakes:
    """Counts the wakes of each directory."""

    def __init__(self) -> None:
        self.counts: dict[Path, int] = {}

    def __call__(self, path: Path) -> None:
        self.counts[path] = self.counts.get(path, 0) + 1

    def of(self, path: Path) -> int:
        return self.counts.get(path, 0)


@pytest.fixture
def directories(root_dir: Path) -> tuple[Path, Path]:
    made = (root_dir / "meta", root_dir / "repos")
    for path in made:
        path.mkdir()
    return made


@pytest.fixture
def wakes() -> Wakes:
    return Wakes()


@pytest.fixture
def watching(directories: tuple[Path, Path], wakes: Wakes) -> Iterator[DirectoryWatch]:
    watch = DirectoryWatch(directories, wakes, rearm_s=0.2)
    watch.start()
    # The first wake says that the watch stands: it comes for every directory.
    wait_until(lambda: len(wakes.counts) == 2, "the watch to stand")
    yield watch
    watch.stop()


@pytest.mark.usefixtures("watching")
def test_every_atomic_replace_wakes(directories: tuple[Path, Path], wakes: Wakes) -> None:
    meta, repos = directories
    for number in range(5):
        before = wakes.of(meta)
        write_atomic(meta / "topology.json", b"[]" + b" " * number, 0o644)
        _wait_for_wake(wakes, meta, before, limit_s=2)
    assert wakes.of(repos) == 1


@pytest.mark.usefixtures("watching")
def test_entries_that_come_and_go_wake_their_directory_only(
    directories: tuple[Path, Path], wakes: Wakes
) -> None:
    meta, repos = directories
    (repos / "bob.git").mkdir()
    wait_until(lambda: wakes.of(repos) == 2, "a new repo")
    (repos / "bob.git").rename(repos / "alice.git")
    wait_until(lambda: wakes.of(repos) > 2, "a rename")
    before = wakes.of(repos)
    (repos / "alice.git").rmdir()
    wait_until(lambda: wakes.of(repos) > before, "a removal")
    assert wakes.of(meta) == 1


@pytest.mark.usefixtures("watching")
def test_a_directory_made_again_is_watched_again(directories: tuple[Path, Path], wakes: Wakes) -> None:
    meta, _ = directories
    for number in range(3):
        before = wakes.of(meta)
        shutil.rmtree(meta)
        meta.mkdir()
        # Nothing is written: that it is another directory is change enough.
        _wait_for_wake(wakes, meta, before)
        _settle(wakes, meta)
        before = wakes.of(meta)
        (meta / f"file{number}").write_bytes(b"")
        _wait_for_wake(wakes, meta, before)


@pytest.mark.usefixtures("watching")
def test_a_directory_swapped_by_rename_is_watched_again(
    directories: tuple[Path, Path], root_dir: Path, wakes: Wakes
) -> None:
    meta, _ = directories
    (root_dir / "new").mkdir()
    meta.rename(root_dir / "old")
    (root_dir / "new").rename(meta)
    wait_until(lambda: wakes.of(meta) > 1, "the other directory")
    _settle(wakes, meta)
    before = wakes.of(meta)
    (meta / "file").write_bytes(b"")
    wait_until(lambda: wakes.of(meta) > before, "a file in it")


def _wait_for_wake(wakes: Wakes, path: Path, before: int, limit_s: float = 10) -> None:
    wait_until(lambda: wakes.of(path) > before, f"wake {before + 1} of {path}", limit_s)


def _settle(wakes: Wakes, path: Path) -> None:
    """Wait until wakes of what was done before have all come: none for longer than re-arming takes."""
    quiet, seen = threading.Event(), -1
    while seen != wakes.of(path):
        seen = wakes.of(path)
        quiet.wait(0.6)


def test_a_directory_that_is_missing_at_start_is_picked_up(root_dir: Path, wakes: Wakes) -> None:
    late = root_dir / "late"
    watch = DirectoryWatch([late], wakes, rearm_s=0.1)
    watch.start()
    try:
        late.mkdir()
        wait_until(lambda: wakes.of(late), "the directory")
    finally:
        watch.stop()
    assert watch.problem == ""


def test_stop_is_prompt_and_final(directories: tuple[Path, Path], wakes: Wakes) -> None:
    watch = DirectoryWatch(directories, wakes)
    watch.stop()
    watch = DirectoryWatch(directories, wakes)
    before = threading.active_count()
    inotifies = _open_files().count("anon_inode:inotify")
    watch.start()
    wait_until(lambda: len(wakes.counts) == 2, "the watch to stand")
    watch.stop()
    watch.stop()
    assert threading.active_count() <= before, "one of an earlier test may have ended meanwhile"
    wait_until(
        lambda: _open_files().count("anon_inode:inotify") <= inotifies, "the kernel's watch to be let go"
    )
    assert not [name for name in _open_files() if str(directories[0]) in name]


def _open_files() -> list[str]:
    names = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{entry}"))
        except FileNotFoundError:
            continue
    return names


EXHAUSTED = """
import logging, pathlib, sys, threading
from hive_core.adapters.watch import DirectoryWatch
logging.disable()
path, limit = pathlib.Path(sys.argv[1]), pathlib.Path("/proc/sys/user", sys.argv[2])
limit.write_text("0")
woken = threading.Event()
watch = DirectoryWatch([path], lambda changed: woken.set(), rearm_s=0.1)
watch.start()
assert woken.wait(20), "never armed: " + watch.problem
woken.clear()
(path / "file").write_text("x")
assert woken.wait(20), "polling saw nothing"
print(watch.problem)
watch.stop()
"""


@pytest.mark.parametrize(
    ("limit", "problem"),
    [
        (
            "max_inotify_instances",
            "no inotify instances left; raise the sysctl fs.inotify.max_user_instances",
        ),
        ("max_inotify_watches", "no inotify watches left; raise the sysctl fs.inotify.max_user_watches"),
    ],
)
def test_without_inotify_it_polls_and_names_the_sysctl(root_dir: Path, limit: str, problem: str) -> None:
    """In a user namespace of its own, whose limits are nobody else's."""
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", EXHAUSTED, str(root_dir), limit],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == f"watching directories by polling: {problem}\n", done.stderr
