"""Config repos with everything git can be talked into.

Every canary is first shown to fire under plain git run by root: a test of an attack that does not work
proves nothing.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import hive_core
from hive_core.adapters.exports import export_commit
from hive_core.adapters.git_objects import Kind
from hive_core.adapters.git_process import GitLimits
from hive_core.adapters.repos import ConfigRepos
from hive_core.domain.config_files import ConfigFile
from hive_core.domain.errors import HiveError, RepoDamaged, TimedOut
from tests.support.paths import root_dir, wait_until
from tests.support.repo_rig import (
    ALICE,
    BOB,
    FILES,
    HIVE_ID,
    Account,
    commit_tree,
    git_account,
    loose,
    main_of,
    observed,
    repos,
    root_git,
    with_manifest,
    write_object,
)

__all__ = ["git_account", "repos", "root_dir"]
pytestmark = [pytest.mark.security, pytest.mark.timeout(60)]


@pytest.fixture
def bob(root_dir: Path, repos: ConfigRepos) -> Path:
    """A sound repo of bob's."""
    repos.create(BOB, FILES, "x")
    return root_dir / "repos/bob.git"


class Canary:
    """A program that leaves a mark when anybody runs it."""

    def __init__(self, root_dir: Path) -> None:
        self._hits = root_dir / "hits"
        self._hits.mkdir(mode=0o777)
        self._hits.chmod(0o777)
        self.path = root_dir / "canary"
        self.path.write_text(f'#!/bin/sh\n: > {self._hits}/$(id -u)\n[ "$1" = clean ] && cat\nexit 0\n')
        self.path.chmod(0o755)

    def take(self) -> list[str]:
        """Return the uids it ran as since last asked."""
        found = os.listdir(self._hits)
        for name in found:
            (self._hits / name).unlink()
        return found


@pytest.fixture
def canary(root_dir: Path) -> Canary:
    return Canary(root_dir)


def _lose_manifest(repo: Path) -> None:
    loose(repo, root_git(repo, "rev-parse", "main:agent.toml")).unlink()


def _promise(repo: Path, *lines: str) -> None:
    """Make it a partial clone that lacks the manifest: git wants to fetch it from the remote."""
    _lose_manifest(repo)
    settings = [
        "core.repositoryformatversion=1",
        "extensions.partialClone=o",
        "remote.o.promisor=true",
        *lines,
    ]
    _configure(repo, *settings)


def _configure(repo: Path, *settings: str) -> None:
    for setting in settings:
        key, _, value = setting.partition("=")
        root_git(repo, "config", key, value)


def _hook(repo: Path, directory: str, canary: Path) -> None:
    (repo / directory).mkdir()
    for name in ("reference-transaction", "post-index-change", "pre-receive", "update", "post-update"):
        (repo / directory / name).symlink_to(canary)
    _configure(repo, f"core.hooksPath={repo / directory}")


def _driver(repo: Path, kind: str, setting: str) -> None:
    """Make every file go through a driver named x."""
    (repo / "info").mkdir()
    (repo / "info/attributes").write_text(f"* {kind}=x\n")
    _configure(repo, f"{kind}.x.{setting}")


SHOW = ("cat-file", "-p", "main:agent.toml")
DIFF = ("show", "--ext-diff", "main")
MOVE = ("update-ref", "refs/heads/other", "main")
# name: (how root's hand arranges it, the plain git command with which it fires)
VECTORS: dict[str, tuple[Callable[[Path, Path], object], tuple[str, ...]]] = {
    "promisor uploadpack": (lambda r, c: _promise(r, f"remote.o.url={r}", f"remote.o.uploadpack={c}"), SHOW),
    "promisor ssh": (lambda r, c: _promise(r, "remote.o.url=a@b.invalid:x", f"core.sshCommand={c}"), SHOW),
    "promisor ext": (lambda r, c: _promise(r, f"remote.o.url=ext::{c}", "protocol.ext.allow=always"), SHOW),
    "hooks": (lambda r, c: _hook(r, "hooks", c), MOVE),
    "hooks path": (lambda r, c: _hook(r, "elsewhere", c), MOVE),
    "external diff": (lambda r, c: _configure(r, f"diff.external={c}"), DIFF),
    "diff driver": (lambda r, c: _driver(r, "diff", f"command={c}"), DIFF),
    "textconv": (lambda r, c: _driver(r, "diff", f"textconv={c}"), ("show", "main")),
    "filter": (
        lambda r, c: _driver(r, "filter", f"smudge={c} clean"),
        ("cat-file", "--filters", "main:agent.toml"),
    ),
    "filter process": (
        lambda r, c: _driver(r, "filter", f"process={c}"),
        ("cat-file", "--filters", "main:agent.toml"),
    ),
    "monitor": (
        lambda r, c: _configure(r, "core.bare=false", "core.worktree=/var/empty", f"core.fsmonitor={c}"),
        (f"--work-tree={Path(__file__).parent}", "status"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arrange", "command"), VECTORS.values(), ids=VECTORS.keys())
def test_no_program_named_in_a_repo_ever_runs(
    root_dir: Path,
    repos: ConfigRepos,
    bob: Path,
    canary: Canary,
    arrange: Callable[[Path, Path], object],
    command: tuple[str, ...],
) -> None:
    commit = main_of(repos, BOB)
    arrange(bob, canary.path)
    for path in (bob, *bob.rglob("*")):
        if not path.is_symlink() and path.owner() == "root" and path.name not in ("objects", "bob.git"):
            path.chmod(0o755)
    subprocess.run(["git", f"--git-dir={bob}", *command], capture_output=True, check=False, timeout=30)
    assert canary.take() == ["0"], "the canary does not fire under plain git"

    for act in (
        lambda: repos.read_file(BOB, commit, "agent.toml", 1000),
        lambda: export_commit(repos, BOB, commit, root_dir / commit),
        lambda: repos.push(BOB, with_manifest("n = 2\n"), "x"),
        lambda: repos.push(BOB, with_manifest("n = 3\n"), "x"),
        lambda: repos.adopt(BOB),
        lambda: repos.read_all(BOB, main_of(repos, BOB)),
        lambda: repos.retire(BOB, "inc1"),
        lambda: repos.discard_retired(BOB, "inc1"),
    ):
        # Some may be refused; what counts is that nothing runs.
        with suppress(HiveError):
            act()
    assert canary.take() == []


# Files that block, leak or lie.

FIFOS = [
    "HEAD",
    "config",
    "refs/heads/main",
    "packed-refs",
    "objects/info/alternates",
    "refs/heads",
    "objects",
    "",
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("path", FIFOS)
def test_a_fifo_never_blocks_a_pass(repos: ConfigRepos, bob: Path, path: str) -> None:
    repos.create(ALICE, FILES, "x")
    place = bob / path
    if place.is_dir():
        shutil.rmtree(place)
    elif place.exists():
        place.unlink()
    if path == "packed-refs":
        (bob / "refs/heads/main").unlink()
    os.mkfifo(place)
    started_s = time.monotonic()
    found = observed(repos)
    assert time.monotonic() - started_s < 1
    assert found[BOB].main is None
    assert "FIFO" in found[BOB].fault or "borrows" in found[BOB].fault
    assert found[ALICE].main is not None


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "path", ["HEAD", "config", "refs/heads/main", "refs/heads", "refs", "objects", "objects/info", ""]
)
def test_a_link_is_not_followed(root_dir: Path, repos: ConfigRepos, bob: Path, path: str) -> None:
    repos.create(ALICE, FILES, "x")
    place = bob / path
    target = root_dir / "repos/alice.git" / path
    if place.is_dir():
        shutil.rmtree(place)
    else:
        place.unlink()
    place.symlink_to(target)
    found = observed(repos)[BOB]
    assert found.main is None
    assert "symbolic link" in found.fault
    others = main_of(repos, ALICE)
    if path == "refs/heads/main":
        # The one fixed file that a push replaces anyway.
        assert repos.push(BOB, with_manifest("n = 1\n"), "x") == main_of(repos, BOB)
    else:
        for change in (lambda: repos.push(BOB, with_manifest("n = 1\n"), "x"), lambda: repos.adopt(BOB)):
            with pytest.raises(RepoDamaged, match="symbolic link"):
                change()
    assert main_of(repos, ALICE) == others


@pytest.mark.timeout(20)
def test_an_endless_device_is_not_read(repos: ConfigRepos, bob: Path) -> None:
    for path in ("refs/heads/main", "HEAD"):
        (bob / path).unlink()
        (bob / path).symlink_to("/dev/zero")
    assert observed(repos)[BOB].main is None


@pytest.mark.parametrize("word", ["include.path", "includeIf.gitdir:/**.path"])
def test_a_file_only_root_can_read_is_never_shown(
    root_dir: Path, repos: ConfigRepos, bob: Path, word: str
) -> None:
    secret = root_dir / "secret"
    secret.write_text("root:$6$canary:1:\n")
    secret.chmod(0o600)
    commit = main_of(repos, BOB)
    root_git(bob, "config", word, str(secret))
    with pytest.raises(RepoDamaged) as refused:
        repos.read_file(BOB, commit, "agent.toml", 1000)
    shown = refused.value.message + refused.value.hint + refused.value.detail  # type: ignore[attr-defined]
    assert "canary" not in shown


@pytest.mark.timeout(20)
def test_a_fifo_for_an_object_costs_only_the_time_limit(
    root_dir: Path, repos: ConfigRepos, bob: Path, git_account: Account
) -> None:
    commit = main_of(repos, BOB)
    path = loose(bob, root_git(bob, "rev-parse", f"{commit}:agent.toml"))
    path.unlink()
    assert git_account.run("mkfifo", str(path)).returncode == 0
    hasty = ConfigRepos(root_dir / "repos", git_account.uid, git_account.gid, GitLimits(wall_s=0.5))
    hasty.prepare(HIVE_ID, expect_marker=True)
    with pytest.raises((TimedOut, RepoDamaged)):
        hasty.read_file(BOB, commit, "agent.toml", 1000)
    wait_until(lambda: not _processes_with(str(bob)), "no git to be left")


def _processes_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if text.encode() in command:
            found.append(path.parent.name)
    return found


# Objects that are too large, too many, or lie about themselves.


def test_a_small_object_that_unfolds_to_a_huge_one_is_refused_by_size(
    root_dir: Path, repos: ConfigRepos, bob: Path
) -> None:
    size = 400 * 1024 * 1024
    header = f"blob {size}\0".encode()
    squeezed = zlib.compressobj(9)
    bomb = squeezed.compress(header)
    # One piece compressed once and repeated: the test itself must not unfold the bomb.
    bomb += squeezed.compress(bytes(4096)) + squeezed.flush(zlib.Z_FULL_FLUSH)
    piece = squeezed.compress(bytes(1 << 20)) + squeezed.flush(zlib.Z_FULL_FLUSH)
    bomb += piece * 399
    made = "ab" * 20
    place = loose(bob, made)
    place.parent.mkdir(exist_ok=True)
    place.parent.chmod(0o755)
    place.write_bytes(bomb)
    place.chmod(0o444)
    assert len(bomb) < size // 100
    assert root_git(bob, "cat-file", "-s", made) == str(size)
    bad = commit_tree(bob, ("100644", b"agent.toml", made))
    started_s = time.monotonic()
    with pytest.raises(RepoDamaged, match=f"agent.toml has {size} bytes, at most 65536 are allowed"):
        repos.read_file(BOB, bad, "agent.toml", 65536)
    with pytest.raises(RepoDamaged, match=f"has {size} bytes"):
        export_commit(repos, BOB, bad, root_dir / bad)
    assert time.monotonic() - started_s < 5


def test_a_tree_of_very_many_names_is_refused(root_dir: Path, repos: ConfigRepos, bob: Path) -> None:
    blob = root_git(bob, "rev-parse", "main:agent.toml")
    entry = b"100644 f%07d\0" + bytes.fromhex(blob)
    tree = write_object(bob, Kind.TREE, b"".join(entry.replace(b"%07d", b"%07d" % n) for n in range(200_000)))
    text = f"tree {tree}\nauthor a <a@x> 1 +0000\ncommitter a <a@x> 1 +0000\n\nx\n"
    bad = write_object(bob, Kind.COMMIT, text.encode())
    with pytest.raises(RepoDamaged, match="wrote more than"):
        repos.read_all(BOB, bad)


def test_trees_that_unfold_without_end_are_refused(repos: ConfigRepos, bob: Path) -> None:
    inner = root_git(bob, "rev-parse", "main^{tree}")
    for _ in range(12):
        content = b"".join(b"40000 d%d\0" % n + bytes.fromhex(inner) for n in range(10))
        inner = write_object(bob, Kind.TREE, content)
    text = f"tree {inner}\nauthor a <a@x> 1 +0000\ncommitter a <a@x> 1 +0000\n\nx\n"
    bad = write_object(bob, Kind.COMMIT, text.encode())
    with pytest.raises(RepoDamaged):
        repos.read_all(BOB, bad)


def test_a_name_that_is_there_twice_is_refused(root_dir: Path, repos: ConfigRepos, bob: Path) -> None:
    """One reader would take the first, another the last: approve one config, run another."""
    harmless = root_git(bob, "rev-parse", "main:agent.toml")
    harmful = write_object(bob, Kind.BLOB, b"name = 'eve'\n")
    bad = commit_tree(bob, ("100644", b"agent.toml", harmless), ("100644", b"agent.toml", harmful))
    with pytest.raises(RepoDamaged):
        repos.read_file(BOB, bad, "agent.toml", 1000)
    with pytest.raises(RepoDamaged, match="twice"):
        export_commit(repos, BOB, bad, root_dir / bad)


MANIFESTS = {
    "link": ("120000", "agent.toml is a symbolic link, not a regular file"),
    "submodule": ("160000", "agent.toml is a submodule, not a regular file"),
    "directory": ("40000", "agent.toml is a directory, not a regular file"),
}


@pytest.mark.parametrize(("mode", "reason"), MANIFESTS.values(), ids=MANIFESTS.keys())
def test_a_manifest_that_is_no_regular_file_is_refused(
    repos: ConfigRepos, bob: Path, mode: str, reason: str
) -> None:
    names = {"120000": "main:agent.toml", "160000": "main", "40000": "main^{tree}"}
    bad = commit_tree(bob, (mode, b"agent.toml", root_git(bob, "rev-parse", names[mode])))
    with pytest.raises(RepoDamaged, match=reason):
        repos.read_file(BOB, bad, "agent.toml", 1000)


def test_replacements_and_grafts_change_nothing(repos: ConfigRepos, bob: Path) -> None:
    commit = main_of(repos, BOB)
    blob = root_git(bob, "rev-parse", f"{commit}:agent.toml")
    other = write_object(bob, Kind.BLOB, b"name = 'eve'\n")
    (bob / "refs/replace").mkdir()
    (bob / "refs/replace" / blob).write_text(other + "\n")
    assert root_git(bob, "cat-file", "-p", f"{commit}:agent.toml") == "name = 'eve'"
    assert repos.read_file(BOB, commit, "agent.toml", 1000) == FILES[0].content


def test_a_repo_of_another_hash_is_damage(root_dir: Path, repos: ConfigRepos) -> None:
    other = root_dir / "repos/bob.git"
    subprocess.run(["git", "init", "-q", "--bare", "--object-format=sha256", str(other)], check=True)
    tree = root_git(other, "write-tree")
    commit = root_git(other, "commit-tree", "-m", "x", tree)
    (other / "refs/heads/main").write_text(commit + "\n")
    assert "holds no commit id" in observed(repos)[BOB].fault


def test_a_shallow_repo_can_be_read(repos: ConfigRepos, bob: Path) -> None:
    commit = repos.push(BOB, with_manifest("n = 1\n"), "x")
    (bob / "shallow").write_text(commit + "\n")
    assert repos.read_file(BOB, commit, "agent.toml", 100) == b"n = 1\n"


@pytest.mark.parametrize("name", ["-x", "--upload-pack=sh", "main;id", "x y"])
def test_other_branches_have_no_say(repos: ConfigRepos, bob: Path, name: str) -> None:
    commit = main_of(repos, BOB)
    (bob / "refs/heads" / name).write_text("ab" * 20 + "\n")
    assert main_of(repos, BOB) == commit
    assert repos.push(BOB, with_manifest("n = 1\n"), "x") == main_of(repos, BOB)


@pytest.mark.parametrize("text", ["--upload-pack=x", "-x", "$(id)", "a;b", "'", '"', "a b"])
def test_odd_but_allowed_names_are_only_names(
    root_dir: Path, repos: ConfigRepos, bob: Path, text: str
) -> None:
    files = (*FILES, ConfigFile(f"{text}/{text}", b"x", False))
    commit = repos.push(BOB, files, text)
    assert repos.read_file(BOB, commit, f"{text}/{text}", 10) == b"x"
    assert {file.path for file in repos.read_all(BOB, commit)} == {file.path for file in files}


def test_a_pack_of_a_lying_git_is_not_published(
    root_dir: Path, repos: ConfigRepos, git_account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A git that says it stored the objects and did not: main is never moved to what cannot be read."""
    commit = repos.create(BOB, FILES, "x")
    (root_dir / "bin").mkdir()
    real = shutil.which("git")
    liar = root_dir / "bin/git"
    liar.write_text(
        f'#!/bin/sh\ncase "$*" in *unpack-objects*) cat >/dev/null;; *) exec {real} "$@";; esac\n'
    )
    liar.chmod(0o755)
    monkeypatch.setenv("PATH", f"{root_dir}/bin:{os.environ['PATH']}")
    deceived = ConfigRepos(root_dir / "repos", git_account.uid, git_account.gid)
    deceived.prepare(HIVE_ID, expect_marker=True)
    with pytest.raises(RepoDamaged):
        deceived.push(BOB, with_manifest("n = 1\n"), "x")
    with pytest.raises(RepoDamaged):
        deceived.create(ALICE, FILES, "x")
    assert main_of(deceived, BOB) == commit
    assert sorted(os.listdir(root_dir / "repos")) == [".hive", "bob.git", "retired"]


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_only_the_meta_repo_is_touched_through_a_git_library() -> None:
    """A git library reads and obeys whatever configuration a repo has, with the daemon's own rights."""
    package = Path(hive_core.__file__).parent
    modules = [*package.rglob("*.py")]
    assert len(modules) > 20
    using = {
        str(path.relative_to(package)) for path in modules if _imports(path) & {"git", "pygit2", "dulwich"}
    }
    assert using == {"adapters/meta.py"}
