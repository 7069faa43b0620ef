"""Config repos for tests: a repos directory below a root-owned one, and hands of root and of git's account.

Import the fixtures into a conftest or a test module, together with `root_dir`. They need root and the
account hive-git.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hive_core.adapters.git_objects import Kind
from hive_core.adapters.repos import ConfigRepos
from hive_core.domain.config_files import ConfigFile
from hive_core.domain.names import AgentName, parse_name
from hive_core.domain.observed import ObservedRepo, Repos

HIVE_ID = "test"
ALICE = parse_name("alice")
BOB = parse_name("bob")
CAROL = parse_name("carol")
MANIFEST = ConfigFile("agent.toml", b'name = "bob"\n', False)
PROGRAM = ConfigFile("bin/run", b"#!/bin/sh\necho hello\n", True)
FILES = (MANIFEST, PROGRAM)


@dataclass(frozen=True, slots=True)
class Account:
    """The uid and gid that git runs with."""

    uid: int
    gid: int

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command as this account, without waiting longer than ten seconds."""
        return subprocess.run(
            argv,
            user=self.uid,
            group=self.gid,
            extra_groups=[],
            env={"PATH": os.environ["PATH"], **(env or {})},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )


@pytest.fixture
def git_account() -> Account:
    try:
        found = pwd.getpwnam("hive-git")
    except KeyError:
        pytest.fail("no user hive-git on this host: scripts/test makes it")
    return Account(found.pw_uid, found.pw_gid)


@pytest.fixture
def repos(root_dir: Path, git_account: Account) -> ConfigRepos:
    """A prepared, empty repos directory at root_dir/repos."""
    made = ConfigRepos(root_dir / "repos", git_account.uid, git_account.gid)
    assert made.prepare(HIVE_ID, expect_marker=False) is None
    return made


def observed(repos: ConfigRepos) -> Mapping[AgentName, ObservedRepo]:
    """Return what an observation knows; fails the test when it is unknown."""
    found = repos.observe()
    assert isinstance(found, Repos), found
    return found.repos


def main_of(repos: ConfigRepos, name: AgentName) -> str:
    """Return the commit of a sound repo."""
    found = observed(repos)[name]
    assert found.main is not None, found.fault
    return found.main


def with_manifest(text: str) -> tuple[ConfigFile, ...]:
    """Return the usual files with another manifest."""
    return (ConfigFile("agent.toml", text.encode(), False), PROGRAM)


def root_git(git_dir: Path, *arguments: str, stdin: bytes = b"", config: Sequence[str] = ()) -> str:
    """Run plain git as root, the way nothing in the product does, and return its output."""
    settings = [word for setting in config for word in ("-c", setting)]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@localhost",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@localhost",
    }
    done = subprocess.run(
        ["git", f"--git-dir={git_dir}", *settings, *arguments],
        input=stdin,
        env=environment,
        capture_output=True,
        check=True,
        timeout=30,
    )
    return done.stdout.decode().strip()


def write_object(git_dir: Path, kind: Kind, content: bytes) -> str:
    """Put an object into a repo that git itself would refuse to make, readable for git's account."""
    made = root_git(git_dir, "hash-object", "-w", "-t", kind, "--literally", "--stdin", stdin=content)
    shutil.chown(loose(git_dir, made), "hive-git")
    return made


def commit_tree(git_dir: Path, *entries: tuple[str, bytes, str]) -> str:
    """Make a commit of a tree with exactly these (mode, name, id) entries, valid or not; main stays."""
    content = b"".join(
        mode.encode() + b" " + name + b"\0" + bytes.fromhex(each) for mode, name, each in entries
    )
    tree = write_object(git_dir, Kind.TREE, content)
    text = f"tree {tree}\nauthor a <a@localhost> 1 +0000\ncommitter a <a@localhost> 1 +0000\n\nx\n"
    return write_object(git_dir, Kind.COMMIT, text.encode())


def loose(git_dir: Path, object_id: str) -> Path:
    """Return the file of a loose object."""
    return git_dir / "objects" / object_id[:2] / object_id[2:]
