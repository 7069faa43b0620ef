"""git's own account turned against root: what it may not change, and what its lies are worth."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import pytest

from hive_core.adapters.exports import export_commit
from hive_core.adapters.git_objects import GitObject, Kind
from hive_core.adapters.repos import ConfigRepos
from hive_core.domain.errors import RepoDamaged
from tests.support.paths import root_dir
from tests.support.repo_rig import (
    BOB,
    FILES,
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
pytestmark = [pytest.mark.security, pytest.mark.timeout(60)]


@pytest.fixture
def bob(root_dir: Path, repos: ConfigRepos) -> Path:
    """A sound repo of bob's."""
    repos.create(BOB, FILES, "x")
    return root_dir / "repos/bob.git"


DENIED = {
    "move main": "echo 0000000000000000000000000000000000000000 > refs/heads/main",
    "replace main": "mv -f objects/pack/mine refs/heads/main",
    "remove main": "rm -f refs/heads/main",
    "lock main": ": > refs/heads/main.lock",
    "another branch": "echo x > refs/heads/other",
    "replace heads": "mv refs/heads refs/was",
    "replace refs": "mv refs was",
    "write config": "echo '[core]' >> config",
    "replace config": "mv config was",
    "replace head": "rm -f HEAD",
    "plant hooks": "mkdir hooks",
    "plant packed refs": ": > packed-refs",
    "plant a common directory": "echo /etc > commondir",
    "plant attributes": "mkdir info",
    "plant a replacement": "mkdir refs/replace",
    "replace objects": "mv objects was",
    "open objects": "chmod 0777 objects",
    "replace object information": "mv objects/info objects/was",
    "remove object information": "rmdir objects/info",
    "plant alternates": "echo /etc > objects/info/alternates",
    "replace the repo": "mv ../bob.git ../was.git",
    "make a repo": "mkdir ../carol.git",
    "list the repos": "ls ..",
    "see retired ones": "ls ../retired",
    "rewrite the marker": "echo x > ../.hive",
    "hard link a secret": "ln ../../secret objects/pack/x",
}


@pytest.mark.parametrize("command", DENIED.values(), ids=DENIED.keys())
def test_gits_account_cannot(
    root_dir: Path, repos: ConfigRepos, bob: Path, git_account: Account, command: str
) -> None:
    secret = root_dir / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    (bob / "objects/pack/mine").touch()
    os.chown(bob / "objects/pack/mine", git_account.uid, git_account.gid)
    before = repos.observe()
    files = {path: path.lstat().st_ino for path in bob.rglob("*")}
    done = git_account.run("sh", "-c", f"cd {bob} && {command}")
    assert done.returncode != 0, done
    assert "denied" in done.stderr or "not permitted" in done.stderr, done.stderr
    assert {path: path.lstat().st_ino for path in bob.rglob("*")} == files
    assert repos.observe() == before


def test_without_the_sticky_bit_it_could_plant_alternates(
    repos: ConfigRepos, bob: Path, git_account: Account
) -> None:
    """Why `objects/` is sticky, and that a repo that lost the bit is not used."""
    (bob / "objects").chmod(0o775)
    plant = f"cd {bob}/objects && mv info was && mkdir info && echo /elsewhere > info/alternates"
    assert git_account.run("sh", "-c", plant).returncode == 0
    assert "objects can be written by others" in observed(repos)[BOB].fault
    (bob / "objects").chmod(0o1775)
    assert "info belongs to uid" in observed(repos)[BOB].fault


def test_what_it_has_to_be_able_to_do_it_can(bob: Path, git_account: Account) -> None:
    """The denials above are the layout's doing, and not that the account can do nothing at all."""
    command = (
        "echo x > refs/heads/proposal/x && mkdir -p objects/ab && : > objects/ab/x && : > objects/pack/x"
    )
    assert git_account.run("sh", "-c", f"cd {bob} && {command}").returncode == 0


def test_a_tampered_object_is_refused_although_git_itself_returns_it(
    root_dir: Path, repos: ConfigRepos, bob: Path, git_account: Account
) -> None:
    commit = main_of(repos, BOB)
    path = loose(bob, root_git(bob, "rev-parse", f"{commit}:agent.toml"))
    forged = zlib.compress(b"blob 13\0name = 'eve'\n")
    script = f"import os; p={str(path)!r}; os.unlink(p); open(p, 'wb').write({forged!r})"
    assert git_account.run("/usr/bin/env", "python3", "-c", script).returncode == 0
    assert root_git(bob, "cat-file", "-p", f"{commit}:agent.toml") == "name = 'eve'"
    with pytest.raises(RepoDamaged, match="does not match its id"):
        repos.read_file(BOB, commit, "agent.toml", 1000)
    with pytest.raises(RepoDamaged, match="does not match its id"):
        export_commit(repos, BOB, commit, root_dir / commit)
    assert not (root_dir / commit).exists()


@pytest.mark.parametrize("name", ["", "^{tree}"], ids=["commit", "tree"])
def test_a_commit_or_tree_that_stands_for_another_is_refused(
    repos: ConfigRepos, bob: Path, name: str
) -> None:
    """Otherwise whoever owns the objects decides what an approved commit means."""
    commit = main_of(repos, BOB)
    other = repos.push(BOB, with_manifest("name = 'eve'\n"), "x")
    target, source = (loose(bob, root_git(bob, "rev-parse", each + name)) for each in (commit, other))
    content = source.read_bytes()
    target.unlink()
    target.write_bytes(content)
    for read in (
        lambda: repos.read_file(BOB, commit, "agent.toml", 1000),
        lambda: repos.read_all(BOB, commit),
    ):
        with pytest.raises(RepoDamaged):
            read()
    assert repos.read_all(BOB, other)


# Removal.


def test_removing_a_repo_touches_nothing_outside(
    root_dir: Path, repos: ConfigRepos, bob: Path, git_account: Account
) -> None:
    victim = root_dir / "victim"
    (victim / "below").mkdir(parents=True)
    (victim / "below/file").write_text("kept")
    links = f"ln -s {victim} ab && ln -s {victim}/below pack/x && ln -s / pack/all"
    plant = f"cd {bob}/objects && {links} && mkfifo fifo"
    assert git_account.run("sh", "-c", plant).returncode == 0
    assert (bob / "objects/ab").is_symlink()
    repos.purge(BOB)
    assert not bob.exists()
    assert (victim / "below/file").read_text() == "kept"


def test_a_very_deep_repo_is_removed(repos: ConfigRepos, bob: Path, git_account: Account) -> None:
    deep = "import os\nos.chdir({!r})\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\n"
    made = git_account.run("/usr/bin/env", "python3", "-c", deep.format(str(bob / "objects/pack")))
    assert made.returncode == 0, made.stderr
    with pytest.raises((RecursionError, OSError)):
        shutil.rmtree(bob / "objects/pack")
    repos.purge(BOB)
    assert not bob.exists()


def test_taking_a_repo_over_opens_no_file_of_roots(
    root_dir: Path, repos: ConfigRepos, bob: Path, git_account: Account
) -> None:
    """A link that git's account made before, where the kernel does not forbid it, gains it nothing."""
    secret = root_dir / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    os.link(secret, bob / "objects/pack/pack-1.idx")
    repos.adopt(BOB)
    assert secret.stat().st_mode & 0o777 == 0o600
    assert git_account.run("cat", str(bob / "objects/pack/pack-1.idx")).returncode != 0


def test_the_ids_of_objects_are_gits(bob: Path) -> None:
    assert root_git(bob, "rev-parse", "main:agent.toml") == GitObject(Kind.BLOB, FILES[0].content).id
