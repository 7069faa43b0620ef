from __future__ import annotations

import os
import pwd
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from hive_core.adapters.repos import ConfigRepos
from hive_core.domain.config_files import ConfigFile
from hive_core.domain.errors import (
    InvalidRequest,
    NameUnavailable,
    NotFound,
    RepoDamaged,
)
from tests.support.repo_rig import (
    BOB,
    CAROL,
    FILES,
    commit_tree,
    loose,
    main_of,
    observed,
    root_git,
    with_manifest,
)

REPO_LAYOUT = {
    ".": ("root", "root", 0o755),
    "HEAD": ("root", "root", 0o644),
    "config": ("root", "root", 0o644),
    "refs": ("root", "root", 0o755),
    "refs/heads": ("root", "root", 0o755),
    "refs/heads/main": ("root", "root", 0o644),
    "refs/heads/proposal": ("hive-git", "hive-git", 0o755),
    "objects": ("root", "hive-git", 0o1775),
    "objects/info": ("root", "root", 0o755),
    "objects/pack": ("hive-git", "hive-git", 0o755),
}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _layout(git_dir: Path) -> dict[str, tuple[str, str, int]]:
    found = {}
    for path in [git_dir, *git_dir.rglob("*")]:
        shown = str(path.relative_to(git_dir))
        if not shown.startswith("objects/") or shown in REPO_LAYOUT:
            status = path.lstat()
            found[shown] = (_user(status.st_uid), path.group(), stat.S_IMODE(status.st_mode))
    return found


def _chown(path: Path) -> None:
    os.chown(path, 12345, -1)


# Create and push.


def test_a_new_repo_has_exactly_the_layout(root_dir: Path, repos: ConfigRepos) -> None:
    old = os.umask(0o077)
    try:
        commit = repos.create(BOB, FILES, "First config")
    finally:
        os.umask(old)
    git_dir = root_dir / "repos/bob.git"
    assert _layout(git_dir) == REPO_LAYOUT
    assert main_of(repos, BOB) == commit
    assert root_git(git_dir, "log", "-1", "--format=%s|%an|%cn", "main") == "First config|hive|hive"
    assert root_git(git_dir, "ls-tree", "-r", "--name-only", "main").split() == ["agent.toml", "bin/run"]
    assert sorted(os.listdir(root_dir / "repos")) == [".hive", "bob.git", "retired"]


def test_an_existing_name_is_refused_and_untouched(root_dir: Path, repos: ConfigRepos) -> None:
    commit = repos.create(BOB, FILES, "x")
    with pytest.raises(NameUnavailable, match="cannot create config repo bob: it exists"):
        repos.create(BOB, with_manifest("other = 1\n"), "x")
    assert main_of(repos, BOB) == commit
    (root_dir / "repos/carol.git").symlink_to("/nonexistent")
    with pytest.raises(NameUnavailable):
        repos.create(CAROL, FILES, "x")


def test_files_that_exclude_each_other_make_no_repo(root_dir: Path, repos: ConfigRepos) -> None:
    with pytest.raises(InvalidRequest, match="both a file and a directory"):
        repos.create(BOB, (ConfigFile("a", b"", False), ConfigFile("a/b", b"", False)), "x")
    assert observed(repos) == {}
    assert sorted(os.listdir(root_dir / "repos")) == [".hive", "retired"]


def test_a_push_replaces_all_files_and_keeps_history(root_dir: Path, repos: ConfigRepos) -> None:
    first = repos.create(BOB, FILES, "x")
    second = repos.push(BOB, (ConfigFile("agent.toml", b"n = 2\n", False),), "Second")
    git_dir = root_dir / "repos/bob.git"
    assert main_of(repos, BOB) == second
    assert root_git(git_dir, "rev-list", "main").split() == [second, first]
    assert root_git(git_dir, "ls-tree", "-r", "--name-only", "main") == "agent.toml"
    root_git(git_dir, "fsck", "--strict", "--full")


def test_the_same_files_move_nothing(repos: ConfigRepos) -> None:
    commit = repos.create(BOB, FILES, "x")
    assert repos.push(BOB, FILES[::-1], "another message") == commit
    assert main_of(repos, BOB) == commit


def test_a_changed_executable_bit_is_a_change(repos: ConfigRepos) -> None:
    commit = repos.create(BOB, FILES, "x")
    plain = tuple(ConfigFile(file.path, file.content, False) for file in FILES)
    assert repos.push(BOB, plain, "x") != commit


def test_a_push_to_nobody_is_not_found(repos: ConfigRepos) -> None:
    with pytest.raises(NotFound, match="cannot find config repo carol"):
        repos.push(CAROL, FILES, "x")


def test_a_push_into_an_unsound_layout_is_refused(root_dir: Path, repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    _chown(root_dir / "repos/bob.git/refs")
    with pytest.raises(RepoDamaged, match="cannot use config repo bob: refs belongs to uid 12345") as refused:
        repos.push(BOB, with_manifest("n = 1\n"), "x")
    assert "chown root" in refused.value.hint


def test_pushes_at_the_same_time_all_land_one_after_the_other(root_dir: Path, repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    commits: list[str] = []

    def push(number: int) -> None:
        commits.append(repos.push(BOB, with_manifest(f"n = {number}\n"), f"Push {number}"))

    threads = [threading.Thread(target=push, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = root_git(root_dir / "repos/bob.git", "rev-list", "main").split()
    assert len(history) == 9
    assert set(commits) == set(history[:-1])
    assert main_of(repos, BOB) == history[0]


# Reading.


def test_a_file_is_read_by_commit_not_by_branch(repos: ConfigRepos) -> None:
    first = repos.create(BOB, FILES, "x")
    second = repos.push(BOB, with_manifest("n = 2\n"), "x")
    assert repos.read_file(BOB, first, "agent.toml", 1000) == b'name = "bob"\n'
    assert repos.read_file(BOB, second, "agent.toml", 1000) == b"n = 2\n"
    assert repos.read_file(BOB, second, "bin/run", 1000) == FILES[1].content
    assert repos.read_all(BOB, first) == FILES


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("agent.json", r"has no agent\.json"),
        ("bin", "bin is a directory"),
        ("bin/missing", "has no bin/missing"),
        ("agent.toml/x", r"has no agent\.toml/x"),
        ("agent.*", r"has no agent\.\*"),
    ],
)
def test_what_cannot_be_read_is_named(repos: ConfigRepos, path: str, reason: str) -> None:
    commit = repos.create(BOB, FILES, "x")
    with pytest.raises(RepoDamaged, match=f"cannot read config repo bob: .*{reason}"):
        repos.read_file(BOB, commit, path, 1000)


def test_the_size_limit_is_exact(repos: ConfigRepos) -> None:
    commit = repos.create(BOB, FILES, "x")
    assert repos.read_file(BOB, commit, "agent.toml", 13)
    with pytest.raises(RepoDamaged, match=r"agent\.toml has 13 bytes, at most 12 are allowed"):
        repos.read_file(BOB, commit, "agent.toml", 12)


@pytest.mark.parametrize(
    "commit",
    [
        "main",
        "HEAD",
        "",
        "-x",
        "--upload-pack=/bin/sh",
        "ab" * 19,
        "AB" * 20,
        "ab" * 20 + "\n",
        "refs/heads/../../x",
    ],
    ids=ascii,
)
def test_only_a_full_commit_id_is_taken(repos: ConfigRepos, commit: str) -> None:
    repos.create(BOB, FILES, "x")
    with pytest.raises(InvalidRequest, match="not 40 hexadecimal digits"):
        repos.read_file(BOB, commit, "agent.toml", 1000)
    with pytest.raises(InvalidRequest, match="not 40 hexadecimal digits"):
        repos.read_all(BOB, commit)


@pytest.mark.parametrize("path", ["../config", "/etc/passwd", "-x\n", "a//b", ".git/config"])
def test_only_a_plain_path_is_taken(repos: ConfigRepos, path: str) -> None:
    commit = repos.create(BOB, FILES, "x")
    with pytest.raises(InvalidRequest, match="cannot read"):
        repos.read_file(BOB, commit, path, 1000)


def test_an_unknown_commit_and_an_unknown_repo_are_damage(repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    with pytest.raises(RepoDamaged, match="could not read commit abababababab"):
        repos.read_file(BOB, "ab" * 20, "agent.toml", 1000)
    with pytest.raises(RepoDamaged, match="cannot read config repo carol"):
        repos.read_file(CAROL, "ab" * 20, "agent.toml", 1000)


def test_gits_own_words_are_not_in_the_message(repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    with pytest.raises(RepoDamaged) as failed:
        repos.read_file(BOB, "ab" * 20, "agent.toml", 1000)
    assert "fatal" not in failed.value.message + failed.value.hint
    assert "fatal" in failed.value.detail  # type: ignore[attr-defined]


def test_an_id_of_another_kind_is_no_commit(root_dir: Path, repos: ConfigRepos) -> None:
    commit = repos.create(BOB, FILES, "x")
    git_dir = root_dir / "repos/bob.git"
    for name in (f"{commit}^{{tree}}", f"{commit}:agent.toml"):
        other = root_git(git_dir, "rev-parse", name)
        with pytest.raises(RepoDamaged):
            repos.read_file(BOB, other, "agent.toml", 1000)
        with pytest.raises(RepoDamaged):
            repos.read_all(BOB, other)


def test_an_empty_tree_is_an_empty_config(root_dir: Path, repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    assert repos.read_all(BOB, commit_tree(root_dir / "repos/bob.git")) == ()


# A repo that an operator placed by hand.


def _place(root_dir: Path, *, shared: bool = False) -> str:
    """Make bob.git the way an operator does: a bare clone made as root under a strict umask."""
    work = root_dir / "work"
    subprocess.run(["git", "init", "-q", "-b", "main", str(work)], check=True)
    (work / "agent.toml").write_text("n = 1\n")
    root_git(work / ".git", f"--work-tree={work}", "add", ".")
    root_git(work / ".git", f"--work-tree={work}", "commit", "-q", "-m", "By hand")
    root_git(work / ".git", "branch", "other")
    old = os.umask(0o077)
    try:
        options = ["--shared"] if shared else ["--no-hardlinks"]
        target = str(root_dir / "repos/bob.git")
        subprocess.run(["git", "clone", "-q", "--bare", *options, str(work), target], check=True)
    finally:
        os.umask(old)
    return root_git(work / ".git", "rev-parse", "main")


def test_a_repo_placed_by_hand_works_once_adopted(root_dir: Path, repos: ConfigRepos) -> None:
    commit = _place(root_dir)
    assert main_of(repos, BOB) == commit
    repos.adopt(BOB)
    git_dir = root_dir / "repos/bob.git"
    assert (git_dir / "refs/heads/main").read_text() == f"{commit}\n"
    assert "refs/heads/main" not in (git_dir / "packed-refs").read_text()
    assert "refs/heads/other" in (git_dir / "packed-refs").read_text()
    assert {path: owner for path, owner in _layout(git_dir).items() if path in REPO_LAYOUT} == REPO_LAYOUT
    assert repos.read_file(BOB, commit, "agent.toml", 100) == b"n = 1\n"
    pushed = repos.push(BOB, FILES, "By hive")
    assert root_git(git_dir, "rev-list", "main").split() == [pushed, commit]


def test_adopting_twice_is_adopting_once(root_dir: Path, repos: ConfigRepos) -> None:
    commit = repos.create(BOB, FILES, "x")
    repos.adopt(BOB)
    repos.adopt(BOB)
    assert _layout(root_dir / "repos/bob.git") == REPO_LAYOUT
    assert main_of(repos, BOB) == commit


def test_a_repo_that_borrows_objects_is_not_adopted(root_dir: Path, repos: ConfigRepos) -> None:
    _place(root_dir, shared=True)
    with pytest.raises(RepoDamaged, match="borrows its objects from another repo"):
        repos.adopt(BOB)
    assert "borrows its objects" in observed(repos)[BOB].fault


@pytest.mark.parametrize("path", [".", "HEAD", "config", "refs", "refs/heads", "objects"])
def test_a_repo_of_somebody_elses_is_not_adopted(root_dir: Path, repos: ConfigRepos, path: str) -> None:
    _place(root_dir)
    _chown(root_dir / "repos/bob.git" / path)
    before = _layout(root_dir / "repos/bob.git")
    with pytest.raises(RepoDamaged, match="belongs to uid 12345"):
        repos.adopt(BOB)
    assert _layout(root_dir / "repos/bob.git") == before


def test_a_push_takes_a_repo_placed_by_hand_over(root_dir: Path, repos: ConfigRepos) -> None:
    commit = _place(root_dir)
    pushed = repos.push(BOB, FILES, "x")
    assert root_git(root_dir / "repos/bob.git", "rev-list", "main").split() == [pushed, commit]


def test_an_empty_repo_placed_by_hand_waits_for_a_push(root_dir: Path, repos: ConfigRepos) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(root_dir / "repos/bob.git")], check=True)
    assert "has no main branch yet; push a config to it" in observed(repos)[BOB].fault
    repos.adopt(BOB)
    assert "has no main branch yet; push a config to it" in observed(repos)[BOB].fault
    assert repos.push(BOB, FILES, "x") == main_of(repos, BOB)


# Retire, revive, purge.


def test_a_retired_repo_is_out_of_sight_and_can_come_back(root_dir: Path, repos: ConfigRepos) -> None:
    commit = repos.create(BOB, FILES, "x")
    assert repos.retire(BOB, "inc1") is True
    assert observed(repos) == {}
    assert stat.S_IMODE((root_dir / "repos/retired").stat().st_mode) == 0o700
    repos.revive(BOB, "inc1")
    assert main_of(repos, BOB) == commit
    assert os.listdir(root_dir / "repos/retired") == []


def test_retire_and_revive_finish_what_a_crash_interrupted(repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    assert [repos.retire(BOB, "inc1"), repos.retire(BOB, "inc1")] == [True, True]
    repos.revive(BOB, "inc1")
    repos.revive(BOB, "inc1")
    assert BOB in observed(repos)


def test_there_may_be_nothing_to_retire(repos: ConfigRepos) -> None:
    assert repos.retire(CAROL, "inc1") is False
    with pytest.raises(NotFound, match="cannot revive config repo carol: it was not kept"):
        repos.revive(CAROL, "inc1")


def test_a_revived_repo_replaces_nobody(repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    repos.retire(BOB, "inc1")
    second = repos.create(BOB, with_manifest("n = 2\n"), "x")
    with pytest.raises(NameUnavailable, match="there is one already"):
        repos.revive(BOB, "inc1")
    assert main_of(repos, BOB) == second


def test_incarnations_of_one_name_are_kept_apart(root_dir: Path, repos: ConfigRepos) -> None:
    for incarnation in ("inc1", "inc2"):
        repos.create(BOB, with_manifest(f"i = '{incarnation}'\n"), "x")
        repos.retire(BOB, incarnation)
    repos.discard_retired(BOB, "inc1")
    assert os.listdir(root_dir / "repos/retired") == ["bob-inc2.git"]
    repos.discard_retired(BOB, "inc1")


@pytest.mark.parametrize("incarnation", ["", "../x", "a/b", "A", "x\n", "é"], ids=ascii)
def test_an_incarnation_is_no_path(repos: ConfigRepos, incarnation: str) -> None:
    repos.create(BOB, FILES, "x")
    with pytest.raises(InvalidRequest, match="cannot name a retired repo"):
        repos.retire(BOB, incarnation)
    assert BOB in observed(repos)


def test_a_purged_repo_is_gone_and_purging_again_is_fine(root_dir: Path, repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    repos.purge(BOB)
    repos.purge(BOB)
    assert sorted(os.listdir(root_dir / "repos")) == [".hive", "retired"]


def test_a_damaged_object_is_replaced_by_pushing_it_again(root_dir: Path, repos: ConfigRepos) -> None:
    commit = repos.create(BOB, FILES, "x")
    git_dir = root_dir / "repos/bob.git"
    blob = root_git(git_dir, "rev-parse", f"{commit}:agent.toml")
    path = loose(git_dir, blob)
    path.unlink()
    path.touch()
    with pytest.raises(RepoDamaged):
        repos.read_all(BOB, commit)
    extra = ConfigFile("extra", b"x", False)
    pushed = repos.push(BOB, (*FILES, extra), "x")
    assert repos.read_all(BOB, pushed) == (*FILES, extra)
    assert repos.read_all(BOB, commit) == FILES


def test_pushing_the_very_same_files_repairs_too(root_dir: Path, repos: ConfigRepos) -> None:
    commit = repos.create(BOB, FILES, "x")
    git_dir = root_dir / "repos/bob.git"
    loose(git_dir, root_git(git_dir, "rev-parse", f"{commit}:bin/run")).unlink()
    pushed = repos.push(BOB, FILES, "x")
    assert repos.read_all(BOB, pushed) == FILES
    root_git(git_dir, "fsck", "--strict", "--full")


def test_a_main_that_cannot_be_read_is_replaced_and_said_so(root_dir: Path, repos: ConfigRepos) -> None:
    repos.create(BOB, FILES, "x")
    git_dir = root_dir / "repos/bob.git"
    lost = "ab" * 20
    (git_dir / "refs/heads/main").write_text(lost + "\n")
    pushed = repos.push(BOB, FILES, "Repair")
    assert main_of(repos, BOB) == pushed
    assert f"Replaces {lost}, which could not be read." in root_git(
        git_dir, "log", "-1", "--format=%B", "main"
    )
