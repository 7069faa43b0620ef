from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hive_core.adapters.repos import ConfigRepos
from hive_core.domain.errors import (
    UnsafePath,
)
from hive_core.domain.observed import Repos, Unknown
from tests.support.repo_rig import (
    ALICE,
    BOB,
    CAROL,
    FILES,
    HIVE_ID,
    Account,
    main_of,
    observed,
    root_git,
    with_manifest,
)

# The directory: mounted, unmounted, another's.


def test_the_first_start_makes_the_directory_with_its_marker(root_dir: Path, repos: ConfigRepos) -> None:
    root = root_dir / "repos"
    assert (root.owner(), root.group(), stat.S_IMODE(root.stat().st_mode)) == ("root", "hive-git", 0o710)
    assert (root / ".hive").read_text() == f"{HIVE_ID}\n"
    assert repos.observe() == Repos({}, ())


def test_an_unmounted_directory_is_unknown_and_left_alone(root_dir: Path, git_account: Account) -> None:
    root = root_dir / "repos"
    root.mkdir(mode=0o755)
    later = ConfigRepos(root, git_account.uid, git_account.gid)
    found = later.prepare(HIVE_ID, expect_marker=True)
    assert isinstance(found, Unknown)
    assert "not mounted" in found.reason
    assert os.listdir(root) == []
    assert isinstance(later.observe(), Unknown)


def test_a_missing_directory_is_unknown_where_there_was_one(root_dir: Path, git_account: Account) -> None:
    later = ConfigRepos(root_dir / "repos", git_account.uid, git_account.gid)
    assert isinstance(later.prepare(HIVE_ID, expect_marker=True), Unknown)
    assert not (root_dir / "repos").exists()


def test_a_directory_with_something_in_it_is_not_taken_over(root_dir: Path, git_account: Account) -> None:
    root = root_dir / "repos"
    (root / "bob.git").mkdir(parents=True)
    first = ConfigRepos(root, git_account.uid, git_account.gid)
    assert isinstance(first.prepare(HIVE_ID, expect_marker=False), Unknown)
    assert not (root / ".hive").exists()


def test_a_first_start_that_died_with_half_a_marker_is_repeated(root_dir: Path, git_account: Account) -> None:
    root = root_dir / "repos"
    root.mkdir()
    (root / "..hive.0123456789abcdef").touch()
    (root / "lost+found").mkdir()
    first = ConfigRepos(root, git_account.uid, git_account.gid)
    assert first.prepare(HIVE_ID, expect_marker=False) is None
    assert first.observe() == Repos({}, ())


def test_another_hives_directory_is_unknown(root_dir: Path, git_account: Account, repos: ConfigRepos) -> None:
    other = ConfigRepos(root_dir / "repos", git_account.uid, git_account.gid)
    found = other.prepare("other", expect_marker=False)
    assert isinstance(found, Unknown)
    assert "belongs to the hive 'test'" in found.reason
    with pytest.raises(UnsafePath, match="belongs to the hive"):
        other.create(BOB, FILES, "x")


def test_a_directory_that_comes_back_is_known_again(root_dir: Path, repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    before = repos.observe()
    (root_dir / "repos").rename(root_dir / "away")
    assert isinstance(repos.observe(), Unknown)
    (root_dir / "repos").mkdir()
    found = repos.observe()
    assert isinstance(found, Unknown)
    assert "not mounted" in found.reason
    for act in (
        lambda: repos.create(CAROL, FILES, "x"),
        lambda: repos.push(BOB, FILES, "x"),
        lambda: repos.purge(BOB),
    ):
        with pytest.raises(UnsafePath, match="not mounted"):
            act()
    assert os.listdir(root_dir / "repos") == []
    (root_dir / "repos").rmdir()
    (root_dir / "away").rename(root_dir / "repos")
    assert repos.observe() == before


MARKERS: dict[str, Callable[[Path], object]] = {
    "link": lambda path: path.symlink_to("/etc/hostname"),
    "fifo": os.mkfifo,
    "directory": lambda path: path.mkdir(),
    "large": lambda path: path.write_bytes(b"x" * 65),
    "empty": lambda path: path.touch(),
    "binary": lambda path: path.write_bytes(b"\0\xff\x1b[2J"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", MARKERS.values(), ids=MARKERS.keys())
def test_an_odd_marker_makes_it_unknown(
    root_dir: Path, repos: ConfigRepos, make: Callable[[Path], object]
) -> None:
    (root_dir / "repos" / ".hive").unlink()
    make(root_dir / "repos" / ".hive")
    found = repos.observe()
    assert isinstance(found, Unknown)
    assert found.reason.isprintable()


# What is observed.


def test_entries_that_are_no_agents_are_told_apart(root_dir: Path, repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    root = root_dir / "repos"
    for name in (
        "Bob.git",
        "root.git",
        "toolongname.git",
        "alice",
        "x y.git",
        ".hidden.git",
        ".git",
        "a\n.git",
    ):
        (root / name).mkdir()
    (root / "notes.txt").touch()
    (root / os.fsdecode(b"\xff\x1b[2J.git")).mkdir()
    found = repos.observe()
    assert isinstance(found, Repos)
    assert list(found.repos) == [BOB]
    assert set(found.misnamed) == {
        "Bob.git", "root.git", "toolongname.git", "alice", "x y.git", "a\\n.git", "notes.txt",
        "\\udcff\\x1b[2J.git",
    }  # fmt: skip


def _chown(path: Path) -> None:
    os.chown(path, 12345, -1)


def _pack_main(repo: Path, content: str) -> None:
    (repo / "refs/heads/main").unlink()
    (repo / "packed-refs").write_text(content)


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "directory of another": (_chown, r"bob\.git belongs to uid 12345"),
    "directory writable": (lambda repo: repo.chmod(0o775), r"bob\.git can be written by others"),
    "head of another": (lambda repo: _chown(repo / "HEAD"), "HEAD belongs to uid 12345"),
    "head missing": (lambda repo: os.unlink(repo / "HEAD"), "HEAD is missing"),
    "head of zeros": (lambda repo: (repo / "HEAD").write_bytes(bytes(20)), "HEAD is damaged"),
    "head empty": (lambda repo: (repo / "HEAD").write_bytes(b""), "HEAD is damaged"),
    "config missing": (lambda repo: (repo / "config").unlink(), "config is missing"),
    "config writable": (lambda repo: (repo / "config").chmod(0o666), "config can be written by others"),
    "refs of another": (lambda repo: _chown(repo / "refs"), "refs belongs to uid 12345"),
    "heads of another": (lambda repo: _chown(repo / "refs/heads"), "heads belongs to uid 12345"),
    "objects not sticky": (lambda repo: (repo / "objects").chmod(0o775), "objects can be written by others"),
    "objects open to all": (
        lambda repo: (repo / "objects").chmod(0o1777),
        "objects can be written by others",
    ),
    "objects missing": (lambda repo: shutil.rmtree(repo / "objects"), "objects is missing"),
    "info of another": (lambda repo: _chown(repo / "objects/info"), "info belongs to uid 12345"),
    "alternates": (lambda repo: (repo / "objects/info/alternates").write_text("/x\n"), "borrows its objects"),
    "main of another": (lambda repo: _chown(repo / "refs/heads/main"), "main belongs to uid 12345"),
    "main empty": (lambda repo: (repo / "refs/heads/main").write_bytes(b""), "holds no commit id"),
    "main of zeros": (lambda repo: (repo / "refs/heads/main").write_bytes(bytes(41)), "holds no commit id"),
    "main symbolic": (
        lambda repo: (repo / "refs/heads/main").write_text("ref: refs/heads/x\n"),
        "no commit id",
    ),
    "main upper case": (lambda repo: (repo / "refs/heads/main").write_text("AB" * 20), "holds no commit id"),
    "main two lines": (
        lambda repo: (repo / "refs/heads/main").write_text("ab" * 20 + "\n\n"),
        "no commit id",
    ),
    "main sha-256": (lambda repo: (repo / "refs/heads/main").write_text("ab" * 32 + "\n"), "no commit id"),
    "main huge": (lambda repo: (repo / "refs/heads/main").write_bytes(bytes(5000)), "larger than 4096"),
    "main missing": (lambda repo: (repo / "refs/heads/main").unlink(), "has no main branch yet"),
    "packed rubbish": (
        lambda repo: _pack_main(repo, "x refs/heads/main\n"),
        "packed-refs holds no commit id",
    ),
    "packed without main": (lambda repo: _pack_main(repo, "x refs/heads/other\n"), "has no main branch yet"),
}


@pytest.mark.parametrize(("damage", "reason"), FAULTS.values(), ids=FAULTS.keys())
def test_a_damaged_repo_says_what_is_wrong_and_others_are_fine(
    root_dir: Path, repos: ConfigRepos, damage: Callable[[Path], object], reason: str
) -> None:
    repos.create(ALICE, FILES, "x")
    repos.create(BOB, FILES, "x")
    sound = observed(repos)
    assert {repo.fault for repo in sound.values()} == {""}
    damage(root_dir / "repos" / "bob.git")
    found = observed(repos)
    assert found[ALICE] == sound[ALICE]
    assert found[BOB].main is None
    assert re.search(reason, found[BOB].fault), found[BOB].fault
    assert found[BOB].fault.startswith("config repo bob.git: ")
    assert "; " in found[BOB].fault


def test_every_push_is_seen_at_once(repos: ConfigRepos) -> None:
    """Also when main changes back and forth faster than a clock ticks."""
    repos.create(BOB, FILES, "x")
    for number in range(10):
        commit = repos.push(BOB, with_manifest(f"n = {number}\n"), "x")
        assert main_of(repos, BOB) == commit


def test_a_detached_head_changes_nothing(root_dir: Path, repos: ConfigRepos) -> None:
    commit = repos.create(BOB, FILES, "x")
    (root_dir / "repos/bob.git/HEAD").write_text(commit + "\n")
    assert main_of(repos, BOB) == commit


def test_a_main_in_packed_refs_alone_is_found(root_dir: Path, repos: ConfigRepos) -> None:
    commit = repos.create(BOB, FILES, "x")
    root_git(root_dir / "repos/bob.git", "pack-refs", "--all", "--prune")
    assert not (root_dir / "repos/bob.git/refs/heads/main").exists()
    assert main_of(repos, BOB) == commit


def test_a_removed_and_remade_repo_is_another(repos: ConfigRepos) -> None:
    first = repos.create(BOB, FILES, "x")
    repos.purge(BOB)
    assert BOB not in observed(repos)
    second = repos.create(BOB, with_manifest("other = 1\n"), "x")
    assert first != second == main_of(repos, BOB)
