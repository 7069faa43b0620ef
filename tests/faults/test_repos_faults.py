"""Config repos when the disk is full, the daemon is killed, or power was lost in the middle of a write."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hive_core.adapters import mounts
from hive_core.adapters.exports import export_commit
from hive_core.adapters.meta import MetaRepo
from hive_core.adapters.repos import ConfigRepos
from hive_core.domain.config_files import ConfigFile
from hive_core.domain.errors import HiveError, RepoDamaged
from hive_core.domain.names import parse_name
from hive_core.domain.observed import Unknown
from tests.support.paths import root_dir, wait_until
from tests.support.repo_rig import (
    ALICE,
    BOB,
    FILES,
    HIVE_ID,
    Account,
    git_account,
    loose,
    main_of,
    observed,
    repos,
    root_git,
    with_manifest,
)

__all__ = ["git_account", "repos", "root_dir"]
pytestmark = pytest.mark.faults


# A full disk.


@pytest.fixture
def small(root_dir: Path, git_account: Account) -> ConfigRepos:
    """Repos on a disk of one megabyte."""
    disk = root_dir / "disk"
    disk.mkdir(mode=0o755)
    mounts.mount_tmpfs(disk, label="hive-test-disk", size_bytes=1024 * 1024, mode=0o755)
    made = ConfigRepos(disk / "repos", git_account.uid, git_account.gid)
    assert made.prepare(HIVE_ID, expect_marker=False) is None
    return made


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        _write_for_ever(file)


def _write_for_ever(file: io.FileIO) -> None:
    while True:
        file.write(b"x" * 4096)


def test_a_full_disk_makes_no_repo_and_leaves_no_rest(root_dir: Path, small: ConfigRepos) -> None:
    _fill(root_dir / "disk/fill")
    with pytest.raises((HiveError, OSError)):
        small.create(BOB, FILES, "x")
    assert observed(small) == {}
    assert sorted(os.listdir(root_dir / "disk/repos")) == [".hive", "retired"]
    (root_dir / "disk/fill").unlink()
    assert small.create(BOB, FILES, "x") == main_of(small, BOB)


def test_a_push_that_does_not_fit_moves_nothing(root_dir: Path, small: ConfigRepos) -> None:
    commit = small.create(BOB, FILES, "x")
    large = (*FILES, ConfigFile("large", os.urandom(2 * 1024 * 1024), False))
    with pytest.raises(HiveError, match=r"cannot store the config in .*: git failed") as refused:
        small.push(BOB, large, "x")
    assert "disk full" in refused.value.hint
    assert main_of(small, BOB) == commit
    assert small.read_all(BOB, commit) == FILES
    assert small.push(BOB, with_manifest("n = 1\n"), "x") == main_of(small, BOB)


def test_an_export_that_does_not_fit_leaves_no_torso(root_dir: Path, repos: ConfigRepos) -> None:
    commit = repos.create(BOB, (*FILES, ConfigFile("large", os.urandom(200_000), False)), "x")
    disk = root_dir / "disk"
    disk.mkdir(mode=0o755)
    mounts.mount_tmpfs(disk, label="hive-test-disk", size_bytes=64 * 1024, mode=0o755)
    with pytest.raises(OSError, match="No space left"):
        export_commit(repos, BOB, commit, disk / commit)
    assert os.listdir(disk) == []


# kill -9.

_WORKER = """
import sys
from pathlib import Path
from hive_core.adapters.exports import export_commit
from hive_core.adapters.meta import MetaRepo
from hive_core.adapters.repos import ConfigRepos
from hive_core.domain.config_files import ConfigFile
from hive_core.domain.names import parse_name
root, uid, gid, first = Path(sys.argv[1]), *map(int, sys.argv[2:5])
repos = ConfigRepos(root / "repos", uid, gid)
assert repos.prepare("test", expect_marker=True) is None
meta = MetaRepo(root / "meta")
meta.prepare()
print("ready", flush=True)
bob = parse_name("bob")
for number in range(first, first + 1000):
    files = [ConfigFile("agent.toml", b"n = %d" % number, False), ConfigFile("x", b"x" * number, True)]
    commit = repos.push(bob, files, "x")
    export_commit(repos, bob, commit, root / "config" / commit)
    repos.create(parse_name(f"n{number}"), files, "x")
    meta.commit({"topology.json": b"%d" % number}, "x")
    if number % 2:
        repos.retire(parse_name(f"n{number}"), "inc1")
    else:
        repos.purge(parse_name(f"n{number}"))
"""


def _check_whole(root_dir: Path, repos: ConfigRepos) -> None:
    found = observed(repos)
    assert {repo.fault for repo in found.values()} == {""}
    for name, repo in found.items():
        assert repo.main is not None
        assert len(repos.read_all(name, repo.main)) == 2
    for export in (root_dir / "config").iterdir():
        if not export.name.startswith("."):
            written = {path.name: path.read_bytes() for path in export.iterdir()}
            assert written == {file.path: file.content for file in repos.read_all(BOB, export.name)}


def test_killed_at_any_instant_every_repo_and_export_is_whole(
    root_dir: Path, repos: ConfigRepos, git_account: Account
) -> None:
    repos.create(BOB, with_manifest("n = 0\n"), "x")
    (root_dir / "config").mkdir(mode=0o755)
    for round_number in range(12):
        command = [
            sys.executable,
            "-c",
            _WORKER,
            root_dir,
            git_account.uid,
            git_account.gid,
            1 + round_number * 1000,
        ]
        with subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, start_new_session=True) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"ready\n"
            # Not a wait for something: the instant of death is what varies.
            threading.Event().wait(0.02 * round_number)
            worker.kill()
        assert worker.returncode == -signal.SIGKILL
        assert repos.prepare(HIVE_ID, expect_marker=True) is None
        left = [name for name in os.listdir(root_dir / "repos") if name.startswith(".") and name != ".hive"]
        assert left == []
        _check_whole(root_dir, repos)
    meta = MetaRepo(root_dir / "meta")
    meta.prepare()
    assert meta.commit({"topology.json": b"end"}, "end")
    root_git(root_dir / "meta/.git", "fsck", "--strict")


def test_a_killed_daemon_takes_its_git_along(
    root_dir: Path, git_account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = root_dir / "git"
    program.write_text("#!/bin/sh\nexec sleep 60.0625\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{root_dir}:{os.environ['PATH']}")
    code = (
        "from pathlib import Path\nfrom hive_core.adapters.git_process import GitRunner\n"
        f"GitRunner({git_account.uid}, {git_account.gid}).run(Path('/x'), ['x'], max_output_bytes=1)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as daemon:
        wait_until(lambda: _sleepers(git_account), "git to run")
        daemon.kill()
    wait_until(lambda: not _sleepers(git_account), "git to be gone")


def _sleepers(account: Account) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if path.stat().st_uid == account.uid and b"60.0625" in (path / "cmdline").read_bytes():
                found.append(path.name)
        except OSError:
            continue
    return found


def test_left_overs_of_a_crash_are_swept_at_start_and_invisible_before(
    root_dir: Path, repos: ConfigRepos
) -> None:
    repos.create(BOB, FILES, "x")
    root = root_dir / "repos"
    before = repos.observe()
    for name in (".new-0123456789abcdef", ".gone-0123456789abcdef"):
        shutil.copytree(root / "bob.git", root / name)
    (root / ".new-mine").mkdir()
    assert repos.observe() == before
    assert repos.prepare(HIVE_ID, expect_marker=True) is None
    assert sorted(os.listdir(root)) == [".hive", ".new-mine", "bob.git", "retired"]


# After power was lost.

LOST: dict[str, Callable[[Path, str], object]] = {
    "commit empty": lambda git_dir, commit: _truncate(git_dir, commit, 0),
    "tree empty": lambda git_dir, commit: _truncate(git_dir, f"{commit}^{{tree}}", 0),
    "blob empty": lambda git_dir, commit: _truncate(git_dir, f"{commit}:agent.toml", 0),
    "blob cut off": lambda git_dir, commit: _truncate(git_dir, f"{commit}:agent.toml", 10),
    "blob missing": lambda git_dir, commit: os.unlink(_object(git_dir, f"{commit}:agent.toml")),
    "subtree missing": lambda git_dir, commit: os.unlink(_object(git_dir, f"{commit}:bin")),
    "blob of zeros": lambda git_dir, commit: _zero(git_dir, f"{commit}:agent.toml"),
}  # fmt: skip


def _object(git_dir: Path, name: str) -> Path:
    return loose(git_dir, root_git(git_dir, "rev-parse", name))


def _truncate(git_dir: Path, name: str, size: int) -> None:
    path = _object(git_dir, name)
    path.chmod(0o644)
    os.truncate(path, size)


def _zero(git_dir: Path, name: str) -> None:
    path = _object(git_dir, name)
    size = path.stat().st_size
    path.unlink()
    path.write_bytes(bytes(size))


@pytest.mark.parametrize("lose", LOST.values(), ids=LOST.keys())
def test_a_lost_object_costs_that_repo_alone_until_the_next_push(
    root_dir: Path, repos: ConfigRepos, lose: Callable[[Path, str], object]
) -> None:
    healthy = repos.create(ALICE, FILES, "x")
    commit = repos.create(BOB, FILES, "x")
    git_dir = root_dir / "repos/bob.git"
    lose(git_dir, commit)
    with pytest.raises(RepoDamaged, match="cannot read config repo bob"):
        export_commit(repos, BOB, commit, root_dir / commit)
    assert not (root_dir / commit).exists()
    assert repos.read_all(ALICE, healthy) == FILES
    pushed = repos.push(BOB, FILES, "Repair")
    assert repos.read_all(BOB, pushed) == FILES
    export_commit(repos, BOB, pushed, root_dir / pushed)


@pytest.mark.parametrize("content", [b"", bytes(41), b"ab", b"ref: refs/heads/x\n"], ids=ascii)
def test_a_lost_main_is_replaced_by_the_next_push(root_dir: Path, repos: ConfigRepos, content: bytes) -> None:
    repos.create(BOB, FILES, "x")
    (root_dir / "repos/bob.git/refs/heads/main").write_bytes(content)
    assert observed(repos)[BOB].main is None
    pushed = repos.push(BOB, FILES, "x")
    assert main_of(repos, BOB) == pushed
    assert repos.read_all(BOB, pushed) == FILES


def test_gits_account_cannot_stop_a_pass(root_dir: Path, repos: ConfigRepos, git_account: Account) -> None:
    """Its directories full of rubbish cost an observation nothing: it does not look there."""
    repos.create(BOB, FILES, "x")
    fill = "i=0; while [ $i -lt 3000 ]; do : > $i; i=$((i+1)); done"
    rubbish = f"cd {root_dir}/repos/bob.git/refs/heads/proposal && {fill}"
    assert git_account.run("sh", "-c", rubbish).returncode == 0
    started_s = time.monotonic()
    assert main_of(repos, BOB)
    assert time.monotonic() - started_s < 2


def test_a_directory_that_cannot_be_listed_is_unknown(root_dir: Path, repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    (root_dir / "repos").rename(root_dir / "away")
    (root_dir / "repos").symlink_to(root_dir / "away")
    found = repos.observe()
    assert isinstance(found, Unknown)
    assert "symbolic link" in found.reason


def test_names_that_come_and_go_during_observation_do_no_harm(repos: ConfigRepos) -> None:
    stop = threading.Event()
    names = [parse_name(f"n{number}") for number in range(3)]
    failures: list[BaseException] = []

    def churn() -> None:
        try:
            while not stop.is_set():
                for name in names:
                    repos.create(name, FILES, "x")
                for name in names:
                    repos.purge(name)
        except BaseException as fault:
            failures.append(fault)

    commit = repos.create(BOB, FILES, "x")
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(300):
            assert observed(repos)[BOB].main == commit
    finally:
        stop.set()
        thread.join()
    assert failures == []
