from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import make_root, remove_root, root_dir
from tests.support.repo_rig import git_account
from tests.unit.backup.small_hive import SmallHive

__all__ = ["git_account", "root_dir"]


@pytest.fixture
def small(root_dir: Path) -> Iterator[SmallHive]:
    """A hive with agent bob, not running."""
    hive = SmallHive(root_dir)
    try:
        yield hive
    finally:
        hive.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[SmallHive]:
    """The same for tests that change nothing of it."""
    if os.geteuid() != 0:
        pytest.skip("needs root, like the daemon")
    root = make_root()
    hive = SmallHive(root)
    try:
        yield hive
    finally:
        hive.close()
        remove_root(root)
