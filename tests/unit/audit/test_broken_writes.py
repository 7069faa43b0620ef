"""What the power, a full disk or a second writer does to the log."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hive_core.adapters import mounts
from hive_core.adapters.audit import AuditLog
from hive_core.adapters.clock import Clock
from hive_core.domain.errors import StoreUnusable
from hive_core.engine.audit import Audit
from tests.unit.audit.written import segments, written


@pytest.mark.parametrize("left", [1, 30, -1])
def test_a_torn_last_line_is_taken_out_and_kept_aside(directory: Path, left: int) -> None:
    kept = written(directory, 3).head
    written(directory, 1)
    (path,) = segments(directory)
    *whole, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole) + last[:left])
    again = AuditLog(directory)
    assert again.head == kept
    assert "the last audit record was torn" in again.torn
    (aside,) = directory.glob("*.torn-*")
    assert aside.read_bytes() == last[:left]
    assert aside.stat().st_mode & 0o777 == 0o600
    again.append({"target": "goes on"})
    assert again.verify(kept).count == 4
    assert AuditLog(directory).torn == ""


def test_a_second_torn_line_does_not_replace_the_first(directory: Path) -> None:
    written(directory, 1)
    (path,) = segments(directory)
    for number in range(2):
        with path.open("ab") as file:
            file.write(b'{"torn": %d' % number)
        assert AuditLog(directory).verify().count == 1
    assert {one.read_bytes() for one in directory.glob("*.torn-*")} == {b'{"torn": 0', b'{"torn": 1'}


def test_the_first_line_of_a_new_segment_torn(directory: Path) -> None:
    kept = written(directory, 2, segment_bytes=400).head
    (directory / "000000000003.jsonl").write_bytes(b'{"operat')
    again = written(directory, 3, segment_bytes=400)
    assert again.verify(kept).count == 5
    assert len(segments(directory)) == 3


def test_a_segment_that_was_only_begun_is_used(directory: Path) -> None:
    written(directory, 2, segment_bytes=400)
    (directory / "000000000003.jsonl").touch(0o600)
    assert written(directory, 1, segment_bytes=400).verify().count == 3


# ---- a full disk ------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(root_dir: Path) -> Path:
    """A file system of a few pages."""
    disk = root_dir / "disk"
    disk.mkdir()
    mounts.mount_tmpfs(disk, label="hive-test-audit", size_bytes=32 * 1024, mode=0o755)
    return disk


def _filled(log: AuditLog) -> OSError:
    """Append until nothing fits, with records that end within a page."""
    for number in range(1000):
        try:
            log.append({"target": "x" * 1500, "number": number})
        except OSError as fault:
            return fault
    raise AssertionError("the disk never filled")


def test_a_full_disk_leaves_the_chain_whole(small_disk: Path) -> None:
    log = AuditLog(small_disk / "audit")
    assert _filled(log).errno == errno.ENOSPC
    full = log.head
    assert log.verify(full).head == full
    again = AuditLog(small_disk / "audit")
    assert (again.torn, again.head) == ("", full)


def test_a_new_segment_that_does_not_fit_is_begun_later(small_disk: Path) -> None:
    (small_disk / "reserve").write_bytes(b"r" * 4096)
    log = AuditLog(small_disk / "audit", segment_bytes=1)
    assert _filled(log).errno == errno.ENOSPC
    full = log.head
    (small_disk / "reserve").unlink()
    log.append({"target": "after"})
    assert log.verify(full).head.seq == full.seq + 1


def _ask_for_ever(audit: Audit) -> None:
    while True:
        audit.asked("uid 0", "kill", "x" * 1500)


def test_the_reserve_is_given_up_once_for_a_record_and_then_refused(small_disk: Path) -> None:
    (small_disk / "reserve").write_bytes(b"r" * 8192)
    chain = AuditLog(small_disk / "audit")
    audit = Audit(chain, Clock())
    gave_up: list[int] = []

    def make_room() -> bool:
        gave_up.append(chain.head.seq)
        (small_disk / "reserve").unlink(missing_ok=True)
        return len(gave_up) == 1

    audit.make_room = make_room
    while len(gave_up) < 1:
        audit.asked("uid 0", "kill", "x" * 1500)
    assert chain.head.seq == gave_up[0] + 1
    with pytest.raises(StoreUnusable, match="cannot kill: it cannot be recorded in the audit log"):
        _ask_for_ever(audit)
    assert len(gave_up) == 2
    assert chain.verify().count == gave_up[1] > gave_up[0]


# ---- a second writer --------------------------------------------------------------------------------------


def test_a_second_daemon_does_not_get_as_far_as_the_log(root_dir: Path) -> None:
    """The hive's lock is what makes the daemon the only writer."""
    data = root_dir / "data"
    data.mkdir(mode=0o711)
    settings = root_dir / "hive.toml"
    settings.write_text(f'[paths]\ndata = "{data}"\nrun = "{root_dir / "run"}"\n')
    settings.chmod(0o600)
    with (data / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        second = subprocess.run(
            [sys.executable, "-c", f"from hive_core.daemon import main; main(['--settings', '{settings}'])"],
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert second.returncode == 1
    assert f"another hived (pid {os.getpid()}) is already running" in second.stderr
    assert not (data / "audit").exists()
