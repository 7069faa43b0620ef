from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hive_core.adapters.meta import MetaRepo
from hive_core.domain.errors import HiveError, UnsafePath
from tests.support.repo_rig import root_git


@pytest.fixture
def meta(root_dir: Path) -> MetaRepo:
    made = MetaRepo(root_dir / "meta")
    assert made.prepare() == ()
    return made


def _commits(root_dir: Path) -> list[str]:
    return root_git(root_dir / "meta/.git", "log", "--format=%s|%an|%ae|%cn").splitlines()


def test_a_commit_holds_the_files_and_says_who(root_dir: Path, meta: MetaRepo) -> None:
    commit = meta.commit({"topology.json": b'{"bob": null}\n', "inputs.lock": b"x\n"}, "Add bob")
    git_dir = root_dir / "meta/.git"
    assert commit == root_git(git_dir, "rev-parse", "main")
    assert _commits(root_dir) == ["Add bob|hive|hive@localhost|hive"]
    assert root_git(git_dir, "show", "main:topology.json") == '{"bob": null}'
    assert (root_dir / "meta/topology.json").read_bytes() == b'{"bob": null}\n'
    root_git(git_dir, "fsck", "--strict")


def test_everything_is_readable_and_nothing_writable_for_others(root_dir: Path) -> None:
    old = os.umask(0o077)
    try:
        meta = MetaRepo(root_dir / "meta")
        meta.prepare()
        for number in range(3):
            meta.commit({"topology.json": b"%d" % number}, "x")
    finally:
        os.umask(old)
    for path in [root_dir / "meta", *(root_dir / "meta").rglob("*")]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        wanted = 0o755 if path.is_dir() else 0o444
        assert mode & wanted == wanted, path
        assert not mode & 0o022, path
        assert path.owner() == "root"


def test_unchanged_files_make_no_commit(root_dir: Path, meta: MetaRepo) -> None:
    assert meta.commit({"topology.json": b"1"}, "x")
    inode = (root_dir / "meta/topology.json").stat().st_ino
    assert meta.commit({"topology.json": b"1"}, "x") is None
    assert (root_dir / "meta/topology.json").stat().st_ino == inode
    assert len(_commits(root_dir)) == 1


def test_what_a_crash_left_written_or_staged_is_committed_next(root_dir: Path, meta: MetaRepo) -> None:
    meta.commit({"topology.json": b"1"}, "One")
    (root_dir / "meta/topology.json").write_bytes(b"2")
    assert meta.commit({"topology.json": b"2"}, "Two")
    (root_dir / "meta/topology.json").write_bytes(b"3")
    root_git(root_dir / "meta/.git", f"--work-tree={root_dir}/meta", "add", "topology.json")
    assert meta.commit({"topology.json": b"3"}, "Three")
    assert len(_commits(root_dir)) == 3


def test_only_the_given_files_are_committed(root_dir: Path, meta: MetaRepo) -> None:
    """Neither what lies about, nor what somebody has staged by hand."""
    meta.commit({"topology.json": b"1"}, "x")
    for name in ("notes", "staged"):
        (root_dir / "meta" / name).write_text("mine")
    root_git(root_dir / "meta/.git", f"--work-tree={root_dir}/meta", "add", "staged")
    meta.commit({"topology.json": b"2"}, "y")
    assert root_git(root_dir / "meta/.git", "ls-tree", "-r", "--name-only", "main") == "topology.json"
    assert (root_dir / "meta/notes").read_text() == "mine"


def test_an_ignored_file_is_committed_all_the_same(root_dir: Path, meta: MetaRepo) -> None:
    (root_dir / "meta/.gitignore").write_text("*\n")
    assert meta.commit({"topology.json": b"1"}, "x")


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", ".git", ".hidden", "a/b", "-x", "", "A", "x\n"], ids=ascii
)
def test_only_a_plain_name_is_written(root_dir: Path, meta: MetaRepo, name: str) -> None:
    with pytest.raises(UnsafePath, match="not a plain file name"):
        meta.commit({name: b"x"}, "x")
    assert os.listdir(root_dir / "meta") == [".git"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: os.symlink("/etc/hostname", path)], ids=["fifo", "link"]
)
def test_what_lies_in_a_files_place_is_replaced(
    root_dir: Path, meta: MetaRepo, make: Callable[[Path], object]
) -> None:
    hostname = Path("/etc/hostname").read_bytes()
    make(root_dir / "meta/topology.json")
    assert meta.commit({"topology.json": b"1"}, "x")
    assert (root_dir / "meta/topology.json").read_bytes() == b"1"
    assert Path("/etc/hostname").read_bytes() == hostname


def test_the_log_is_newest_first_and_limited(meta: MetaRepo) -> None:
    assert meta.log(5) == ()
    made = [meta.commit({"topology.json": b"%d" % number}, f"Change {number}\n\nbody") for number in range(4)]
    found = meta.log(2)
    assert [entry.id for entry in found] == made[:1:-1]
    assert [entry.subject for entry in found] == ["Change 3", "Change 2"]
    assert abs(found[0].at_s - time.time()) < 60


def test_a_message_is_never_an_option(root_dir: Path, meta: MetaRepo) -> None:
    meta.commit({"topology.json": b"1"}, "--amend --author=x")
    assert meta.log(1)[0].subject == "--amend --author=x"


def test_variables_of_the_daemon_lead_nowhere(root_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon started from a hook has GIT_DIR set: git would use that repository instead."""
    other = root_dir / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.name")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "somebody")
    meta = MetaRepo(root_dir / "meta")
    meta.prepare()
    assert meta.commit({"topology.json": b"1"}, "x")
    assert not [name for name in os.environ if name.startswith("GIT_")]
    assert sorted(os.listdir(other)) == [".git"]
    assert _commits(root_dir) == ["x|hive|hive@localhost|hive"]


def test_the_accounts_own_git_settings_do_not_count(root_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = root_dir / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        "[commit]\n\tgpgSign = true\n[init]\n\tdefaultBranch = trunk\n[user]\n\tname = me\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    meta = MetaRepo(root_dir / "meta")
    meta.prepare()
    assert meta.commit({"topology.json": b"1"}, "x") == root_git(root_dir / "meta/.git", "rev-parse", "main")


@pytest.mark.security
def test_no_hook_and_no_monitor_runs(root_dir: Path, meta: MetaRepo) -> None:
    git_dir = root_dir / "meta/.git"
    canary = root_dir / "canary"
    canary.write_text(f"#!/bin/sh\necho $0 >> {root_dir}/hits\n")
    canary.chmod(0o755)
    (git_dir / "hooks").mkdir()
    for hook in (
        "pre-commit",
        "post-commit",
        "reference-transaction",
        "post-index-change",
        "prepare-commit-msg",
    ):
        (git_dir / "hooks" / hook).symlink_to(canary)
    with (git_dir / "config").open("a") as file:
        file.write(f"[core]\n\thooksPath = {git_dir}/hooks\n\tfsmonitor = {canary}\n")
    work = f"--work-tree={root_dir}/meta"
    (root_dir / "meta/control").touch()
    root_git(git_dir, work, "add", "control")
    root_git(git_dir, work, "commit", "-q", "-m", "control")
    assert (root_dir / "hits").exists(), "the canary does not fire under plain git"
    (root_dir / "hits").unlink()
    assert meta.commit({"topology.json": b"1"}, "x")
    assert not (root_dir / "hits").exists()
    meta.prepare()
    assert root_git(git_dir, "config", "--get-all", "core.hooksPath").splitlines()[-1] == "/dev/null"


def test_two_hundred_commits_leave_no_file_and_no_child(meta: MetaRepo) -> None:
    meta.commit({"topology.json": b"first"}, "x")
    before = sorted(os.listdir("/proc/self/fd"))
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    for number in range(200):
        assert meta.commit({"topology.json": b"%d" % number}, "x")
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert Path(f"/proc/self/task/{os.getpid()}/children").read_text() == children


LOCKS = ["index.lock", "HEAD.lock", "refs/heads/main.lock", "config.lock"]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_of_a_dead_git_is_removed_at_start(root_dir: Path, meta: MetaRepo, name: str) -> None:
    meta.commit({"topology.json": b"1"}, "x")
    lock = root_dir / "meta/.git" / name
    lock.touch()
    os.utime(lock, (1, 1))
    later = MetaRepo(root_dir / "meta")
    assert later.prepare() == (f"removed a lock that a dead git had left at {lock}",)
    assert later.commit({"topology.json": b"2"}, "x")


def test_a_lock_younger_than_the_daemon_is_left_alone_and_named(root_dir: Path, meta: MetaRepo) -> None:
    lock = root_dir / "meta/.git/index.lock"
    lock.touch()
    with pytest.raises(HiveError, match=r"cannot add in the meta repo: .*/index\.lock is held") as refused:
        meta.commit({"topology.json": b"1"}, "x")
    assert str(lock) in refused.value.hint
    assert lock.exists()
    assert (root_dir / "meta/topology.json").read_bytes() == b"1"
    lock.unlink()
    assert meta.commit({"topology.json": b"1"}, "x")


def test_an_old_lock_of_a_git_that_still_works_is_left_alone(root_dir: Path, meta: MetaRepo) -> None:
    """`git commit` holds the index locked for as long as its editor is open."""
    meta.commit({"topology.json": b"1"}, "x")
    lock = root_dir / "meta/.git/index.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    with subprocess.Popen(
        ["git", "cat-file", "--batch"], cwd=root_dir / "meta", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as living:
        assert living.stdin is not None
        assert living.stdout is not None
        living.stdin.write(b"HEAD\n")
        living.stdin.flush()
        living.stdout.readline()
        later = MetaRepo(root_dir / "meta")
        assert not any("removed a lock" in note for note in later.prepare())
        assert lock.exists()
        living.stdin.close()
        living.stdout.read()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "head of zeros": lambda git_dir: (git_dir / "HEAD").write_bytes(bytes(20)),
    "head missing": lambda git_dir: os.unlink(git_dir / "HEAD"),
    "index empty": lambda git_dir: (git_dir / "index").write_bytes(b"\0" * 40),
    "main of zeros": lambda git_dir: (git_dir / "refs/heads/main").write_bytes(bytes(41)),
    "main empty": lambda git_dir: (git_dir / "refs/heads/main").write_bytes(b""),
    "config rubbish": lambda git_dir: (git_dir / "config").write_bytes(b"\0[[["),
    "commit object empty": lambda git_dir: _empty_object(git_dir, "HEAD"),
    "tree object empty": lambda git_dir: _empty_object(git_dir, "HEAD^{tree}"),
}


def _empty_object(git_dir: Path, name: str) -> None:
    found = root_git(git_dir, "rev-parse", name)
    path = git_dir / "objects" / found[:2] / found[2:]
    path.unlink()
    path.touch()


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_repo_does_not_stop_the_next_commit(
    root_dir: Path, meta: MetaRepo, damage: Callable[[Path], object]
) -> None:
    meta.commit({"topology.json": b"1"}, "x")
    damage(root_dir / "meta/.git")
    later = MetaRepo(root_dir / "meta")
    notes = later.prepare()
    assert later.commit({"topology.json": b"2"}, "after")
    assert later.log(1)[0].subject == "after"
    root_git(root_dir / "meta/.git", "fsck", "--strict")
    kept = [path for path in (root_dir / "meta").iterdir() if path.name.startswith(".git.damaged-")]
    assert [str(path) in "".join(notes) for path in kept] == [True] * len(kept)


def test_a_link_in_the_directorys_place_is_refused(root_dir: Path) -> None:
    (root_dir / "elsewhere").mkdir()
    (root_dir / "meta").symlink_to(root_dir / "elsewhere")
    with pytest.raises(UnsafePath, match="is a symbolic link"):
        MetaRepo(root_dir / "meta").prepare()
    assert os.listdir(root_dir / "elsewhere") == []
