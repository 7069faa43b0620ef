"""A directory that the product accepts as a hive's root: root-owned, with root-owned ancestors.

pytest's own temporary directories lie below /tmp, which others can write and hive therefore refuses. Import
the fixture into a conftest to use it. It needs root, like the daemon itself.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hive_core.adapters import mounts
from hive_core.adapters.mountinfo import read_mounts

BASE = Path("/var/lib")
PREFIX = "hive-test-"
# Ids that no account of the host has: the owner of an agent's files, and somebody unrelated.
AGENT_UID = 1_987_654_321
OTHER_UID = 1_987_654_322


def make_root() -> Path:
    """Make a fresh root-owned directory; short, so that socket paths below it fit."""
    root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=BASE))
    root.chmod(0o755)
    return root


def remove_root(root: Path) -> None:
    """Unmount what is left below a test root, deepest first, and delete it; never deletes into a mount."""
    # Read again each time: unmounting one may take its copies elsewhere with it. A busy one raises here.
    while left := read_mounts().below(root):
        mounts.unmount(left[0].target)
    shutil.rmtree(root)


@pytest.fixture
def root_dir() -> Iterator[Path]:
    """A root-owned 0755 directory below /var/lib, gone with all its mounts after the test."""
    if os.geteuid() != 0:
        pytest.skip("needs root, like the daemon")
    root = make_root()
    try:
        yield root
    finally:
        remove_root(root)


def wait_until(condition: Callable[[], object], what: str, limit_s: float = 10.0) -> None:
    """Return once a condition holds; fails the test with `what` when it does not in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {limit_s:g} s for {what}"
        time.sleep(0.01)
