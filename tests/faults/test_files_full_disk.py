from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from hive_core.adapters import mounts
from hive_core.adapters.files import read_roster, write_atomic
from hive_core.domain.roster import Present
from tests.support.paths import root_dir

__all__ = ["root_dir"]
pytestmark = pytest.mark.faults


@pytest.fixture
def small_disk(root_dir: Path) -> Path:
    disk = root_dir / "disk"
    disk.mkdir()
    mounts.mount_tmpfs(disk, label="hive-test-disk", size_bytes=64 * 1024, mode=0o755)
    return disk


def _fill(disk: Path) -> None:
    with (disk / "fill").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    free = os.statvfs(disk)
    assert free.f_bavail == 0


def test_a_full_disk_leaves_the_published_roster_whole(small_disk: Path) -> None:
    path = small_disk / "topology.json"
    write_atomic(path, b'["alice", "bob"]\n', 0o644)
    before = path.stat()
    _fill(small_disk)
    with pytest.raises(OSError, match="No space left") as failed:
        write_atomic(path, b'["alice"]\n', 0o644)
    assert failed.value.errno == errno.ENOSPC
    assert path.read_bytes() == b'["alice", "bob"]\n'
    assert path.stat() == before
    assert sorted(os.listdir(small_disk)) == ["fill", "topology.json"]

    (small_disk / "fill").unlink()
    write_atomic(path, b'["alice"]\n', 0o644)
    found = read_roster(path)
    assert isinstance(found, Present)
    assert list(found.roster) == ["alice"]


def test_a_file_that_does_not_fit_leaves_no_torso(small_disk: Path) -> None:
    path = small_disk / "file"
    write_atomic(path, b"old", 0o600)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"x" * 256 * 1024, 0o600)
    assert path.read_bytes() == b"old"
    assert os.listdir(small_disk) == ["file"]
    # Nothing is held back: the space of the failed attempt is free again.
    write_atomic(path, b"y" * 32 * 1024, 0o600)
