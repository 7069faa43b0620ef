from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hive_core.adapters.exports import export_commit
from hive_core.adapters.git_objects import Kind
from hive_core.adapters.repos import ConfigRepos
from hive_core.domain.config_files import ConfigFile
from hive_core.domain.errors import RepoDamaged, UnsafePath
from tests.support.repo_rig import BOB, FILES, commit_tree, root_git, with_manifest, write_object


@pytest.fixture
def config(root_dir: Path) -> Path:
    """The directory that exports of one agent go into."""
    made = root_dir / "config"
    made.mkdir(mode=0o755)
    return made


def _tree(top: Path) -> dict[str, tuple[int, int, bytes | None]]:
    found: dict[str, tuple[int, int, bytes | None]] = {}
    for path in [top, *top.rglob("*")]:
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        found[str(path.relative_to(top))] = (status.st_uid, stat.S_IMODE(status.st_mode), content)
    return found


def test_an_export_holds_the_files_of_the_commit_and_is_roots(repos: ConfigRepos, config: Path) -> None:
    commit = repos.create(BOB, (*FILES, ConfigFile("bin/lib/x", b"", False)), "x")
    old = os.umask(0o077)
    try:
        export_commit(repos, BOB, commit, config / commit)
    finally:
        os.umask(old)
    assert _tree(config / commit) == {
        ".": (0, 0o755, None),
        "agent.toml": (0, 0o644, FILES[0].content),
        "bin": (0, 0o755, None),
        "bin/run": (0, 0o755, FILES[1].content),
        "bin/lib": (0, 0o755, None),
        "bin/lib/x": (0, 0o644, b""),
    }
    assert os.listdir(config) == [commit]


def test_an_export_that_is_there_is_kept(repos: ConfigRepos, config: Path) -> None:
    commit = repos.create(BOB, FILES, "x")
    export_commit(repos, BOB, commit, config / commit)
    before = (config / commit).stat()
    repos.purge(BOB)
    export_commit(repos, BOB, commit, config / commit)
    assert (config / commit).stat() == before


def test_exports_of_two_commits_stand_side_by_side(repos: ConfigRepos, config: Path) -> None:
    first = repos.create(BOB, FILES, "x")
    second = repos.push(BOB, with_manifest("n = 2\n"), "x")
    for commit in (first, second):
        export_commit(repos, BOB, commit, config / commit)
    assert (config / first / "agent.toml").read_bytes() == FILES[0].content
    assert (config / second / "agent.toml").read_bytes() == b"n = 2\n"


def test_what_a_crash_left_is_replaced(repos: ConfigRepos, config: Path) -> None:
    commit = repos.create(BOB, FILES, "x")
    for name in (f".partial-{commit}", ".partial-older"):
        (config / name / "bin").mkdir(parents=True)
        (config / name / "bin" / "torso").write_text("half")
    export_commit(repos, BOB, commit, config / commit)
    assert os.listdir(config) == [commit]
    assert not (config / commit / "bin" / "torso").exists()


def test_the_same_export_from_many_threads_is_one(repos: ConfigRepos, config: Path) -> None:
    commit = repos.create(BOB, FILES, "x")
    failures: list[BaseException] = []

    def export() -> None:
        try:
            export_commit(repos, BOB, commit, config / commit)
        except BaseException as fault:
            failures.append(fault)

    threads = [threading.Thread(target=export) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert os.listdir(config) == [commit]


def _mkdir_for(path: Path, uid: int) -> None:
    path.mkdir()
    os.chown(path, uid, -1)


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "link": lambda path: path.symlink_to("/etc"),
    "file": lambda path: path.touch(),
    "fifo": os.mkfifo,
    "directory of another": lambda path: _mkdir_for(path, 12345),
}


@pytest.mark.parametrize("make", IN_THE_WAY.values(), ids=IN_THE_WAY.keys())
def test_what_is_no_export_is_neither_used_nor_replaced(
    repos: ConfigRepos, config: Path, make: Callable[[Path], object]
) -> None:
    commit = repos.create(BOB, FILES, "x")
    make(config / commit)
    before = (config / commit).lstat()
    with pytest.raises(UnsafePath, match="is in its place"):
        export_commit(repos, BOB, commit, config / commit)
    assert (config / commit).lstat() == before


def test_a_parent_that_is_a_link_is_refused(repos: ConfigRepos, config: Path, root_dir: Path) -> None:
    commit = repos.create(BOB, FILES, "x")
    (root_dir / "link").symlink_to(config)
    with pytest.raises(UnsafePath, match="is a symbolic link"):
        export_commit(repos, BOB, commit, root_dir / "link" / commit)
    assert os.listdir(config) == []


REFUSED = {
    "link": ("120000", b"a", "a is a symbolic link, not a regular file"),
    "submodule": ("160000", b"a", "a is a submodule, not a regular file"),
    "git directory": ("100644", b".git", "lies in a git directory"),
    "git in capitals": ("100644", b".GIT", "lies in a git directory"),
    "parent": ("100644", b"..", r"component '\.\.'"),
    "newline": ("100644", b"a\nb", "control or invisible character"),
    "escape": ("100644", b"a\x1b[2J", "control or invisible character"),
    "not utf-8": ("100644", b"a\xff", "not UTF-8"),
}


@pytest.mark.parametrize(("mode", "name", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_a_commit_with_what_no_config_may_hold_is_not_exported(
    repos: ConfigRepos, config: Path, root_dir: Path, mode: str, name: bytes, reason: str
) -> None:
    commit = repos.create(BOB, FILES, "x")
    git_dir = root_dir / "repos/bob.git"
    blob = root_git(git_dir, "rev-parse", f"{commit}:agent.toml")
    bad = commit_tree(git_dir, (mode, name, commit if mode == "160000" else blob))
    with pytest.raises(RepoDamaged, match=f"cannot read config repo bob: .*{reason}") as refused:
        export_commit(repos, BOB, bad, config / bad)
    assert refused.value.message.isprintable()
    assert os.listdir(config) == []


def test_too_many_files_are_not_exported(repos: ConfigRepos, config: Path, root_dir: Path) -> None:
    repos.create(BOB, FILES, "x")
    git_dir = root_dir / "repos/bob.git"
    blob = write_object(git_dir, Kind.BLOB, b"")
    many = [("100644", f"f{number:05}".encode(), blob) for number in range(2001)]
    bad = commit_tree(git_dir, *many)
    with pytest.raises(RepoDamaged, match="more than 2000 files"):
        export_commit(repos, BOB, bad, config / bad)
    good = commit_tree(git_dir, *many[:50])
    export_commit(repos, BOB, good, config / good)
    assert len(os.listdir(config / good)) == 50


def test_too_many_bytes_are_not_exported(repos: ConfigRepos, config: Path, root_dir: Path) -> None:
    """Also when it is one blob many times over, which costs the repo next to nothing."""
    repos.create(BOB, FILES, "x")
    git_dir = root_dir / "repos/bob.git"
    blob = write_object(git_dir, Kind.BLOB, bytes(4 * 1024 * 1024))
    bad = commit_tree(git_dir, *[("100644", f"f{number}".encode(), blob) for number in range(5)])
    with pytest.raises(RepoDamaged, match="more than 16777216 bytes together"):
        export_commit(repos, BOB, bad, config / bad)
    assert os.listdir(config) == []


def test_attributes_in_a_repo_change_nothing(repos: ConfigRepos, config: Path, root_dir: Path) -> None:
    files = (
        ConfigFile(".gitattributes", b"secret export-ignore\nsubst export-subst\n* text eol=crlf\n", False),
        ConfigFile("secret", b"kept\n", False),
        ConfigFile("subst", b"$Format:%H$\n", False),
    )
    commit = repos.create(BOB, files, "x")
    archive = root_git(root_dir / "repos/bob.git", "archive", "--format=tar", commit)
    assert commit in archive
    assert "kept" not in archive
    export_commit(repos, BOB, commit, config / commit)
    assert {path.name: path.read_bytes() for path in (config / commit).iterdir()} == {
        file.path: file.content for file in files
    }
