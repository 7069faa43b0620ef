from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hive_core.adapters.files import (
    check_parent,
    check_source,
    make_dir,
    open_path,
    read_regular,
    read_roster,
    write_atomic,
)
from hive_core.domain.errors import UnsafePath
from hive_core.domain.roster import MAX_BYTES, Absent, Present, Unreadable
from tests.support.paths import AGENT_UID, OTHER_UID


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _directory(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def _device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)


ODD = [
    pytest.param(_link, "is a symbolic link", id="link"),
    pytest.param(_directory, "is a directory", id="directory"),
    pytest.param(_fifo, "is a FIFO", id="fifo"),
    pytest.param(_socket, "is a socket", id="socket"),
    pytest.param(_device, "is a character device", id="dev-zero"),
    pytest.param(_large, f"larger than {MAX_BYTES} bytes", id="too-large"),
]


@pytest.mark.parametrize(("make", "reason"), ODD)
def test_what_is_no_plain_file_is_not_read(root_dir: Path, make: Callable[[Path], None], reason: str) -> None:
    path = root_dir / "topology.json"
    make(path)
    assert read_roster(path) == Unreadable(reason)
    with pytest.raises(UnsafePath, match=reason) as refused:
        read_regular(path, MAX_BYTES)
    assert str(path) in refused.value.message


def test_a_roster_is_absent_or_present_or_garbled(root_dir: Path) -> None:
    path = root_dir / "topology.json"
    assert read_roster(path) == Absent()
    path.write_bytes(b'["bob"]')
    found = read_roster(path)
    assert isinstance(found, Present)
    assert list(found.roster) == ["bob"]
    path.write_bytes(b'["bob"')
    assert isinstance(read_roster(path), Unreadable)


def test_a_roster_below_a_file_is_unreadable(root_dir: Path) -> None:
    (root_dir / "meta").write_bytes(b"")
    assert read_roster(root_dir / "meta" / "topology.json") == Unreadable("not a directory")


def test_a_roster_one_may_not_read_is_unreadable(root_dir: Path) -> None:
    path = root_dir / "topology.json"
    path.write_bytes(b"[]")
    path.chmod(0)
    program = "import sys, pathlib; from hive_core.adapters.files import read_roster\n"
    program += "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
    program += "print(read_roster(pathlib.Path(sys.argv[1])).reason)"
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout == "permission denied\n", done.stderr


def test_a_file_of_exactly_the_limit_is_read(root_dir: Path) -> None:
    path = root_dir / "file"
    path.write_bytes(b"x" * 100)
    assert read_regular(path, 100) == b"x" * 100
    with pytest.raises(UnsafePath, match="larger than 99 bytes"):
        read_regular(path, 99)
    with pytest.raises(FileNotFoundError):
        read_regular(root_dir / "absent", 100)


def test_open_path_follows_no_link_anywhere(root_dir: Path) -> None:
    (root_dir / "real" / "leaf").mkdir(parents=True)
    (root_dir / "link").symlink_to("real")
    (root_dir / "real" / "file").write_bytes(b"")
    for path in (root_dir / "link", root_dir / "link" / "leaf"):
        with pytest.raises(UnsafePath, match=f"{root_dir}/link is a symbolic link"):
            open_path(path, directory=True)
    with pytest.raises(UnsafePath, match="file is a regular file"):
        open_path(root_dir / "real" / "file", directory=True)
    with pytest.raises(UnsafePath, match="is a directory"):
        open_path(root_dir / "real", directory=False)
    with pytest.raises(FileNotFoundError):
        open_path(root_dir / "absent", directory=True)
    with pytest.raises(UnsafePath, match="symbolic link"):
        open_path(Path("/proc/self/root"), directory=True)


@pytest.mark.parametrize("path", ["state", "/var/../etc", "../x"])
def test_relative_paths_and_dot_dot_are_refused(path: str) -> None:
    with pytest.raises(UnsafePath, match="not absolute"):
        open_path(Path(path), directory=True)
    with pytest.raises(UnsafePath, match="not absolute"):
        check_source(Path(path), directory=True)


def test_open_path_opens_the_directory_itself(root_dir: Path) -> None:
    fd = open_path(root_dir, directory=True)
    try:
        assert os.fstat(fd).st_ino == root_dir.stat().st_ino
        assert not os.get_inheritable(fd)
        os.fsync(fd)
    finally:
        os.close(fd)


def test_write_atomic_sets_the_exact_mode_and_leaves_nothing_beside(root_dir: Path) -> None:
    path = root_dir / "file"
    before = os.umask(0o077)
    try:
        write_atomic(path, b"one", 0o644)
    finally:
        os.umask(before)
    first = path.stat()
    write_atomic(path, b"two", 0o644)
    assert path.read_bytes() == b"two"
    assert path.stat().st_ino != first.st_ino
    assert stat.S_IMODE(first.st_mode) == 0o644
    assert os.listdir(root_dir) == ["file"]


def test_write_atomic_replaces_a_link_instead_of_writing_through_it(root_dir: Path) -> None:
    canary = root_dir / "canary"
    canary.write_bytes(b"canary")
    (root_dir / "file").symlink_to(canary)
    write_atomic(root_dir / "file", b"new", 0o600)
    assert canary.read_bytes() == b"canary"
    assert not (root_dir / "file").is_symlink()


def test_write_atomic_onto_a_directory_fails_clean(root_dir: Path) -> None:
    (root_dir / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomic(root_dir / "file", b"new", 0o600)
    assert os.listdir(root_dir) == ["file"]


def test_write_atomic_refuses_a_linked_directory(root_dir: Path) -> None:
    (root_dir / "real").mkdir()
    (root_dir / "link").symlink_to("real")
    with pytest.raises(UnsafePath):
        write_atomic(root_dir / "link" / "file", b"new", 0o600)
    assert os.listdir(root_dir / "real") == []


def test_make_dir_is_idempotent_and_corrects_owner_and_mode(root_dir: Path) -> None:
    path = root_dir / "state"
    for _ in range(2):
        make_dir(path, mode=0o700, uid=AGENT_UID, gid=AGENT_UID)
        found = path.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (AGENT_UID, AGENT_UID, 0o700)
        path.chmod(0o777)
    os.chown(path, 0, 0)
    make_dir(path, mode=0o700, uid=AGENT_UID, gid=AGENT_UID)
    assert path.stat().st_uid == AGENT_UID


def test_make_dir_leaves_what_is_somebody_elses(root_dir: Path) -> None:
    path = root_dir / "state"
    path.mkdir(mode=0o755)
    os.chown(path, OTHER_UID, OTHER_UID)
    for uid in (0, AGENT_UID):
        with pytest.raises(UnsafePath, match=f"belongs to uid {OTHER_UID}"):
            make_dir(path, mode=0o700, uid=uid, gid=uid)
    found = path.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (OTHER_UID, 0o755)


@pytest.mark.parametrize("make", [_link, _fifo, _socket, _large], ids=["link", "fifo", "socket", "file"])
def test_make_dir_refuses_what_is_no_directory(root_dir: Path, make: Callable[[Path], None]) -> None:
    make(root_dir / "state")
    before = (root_dir / "state").lstat()
    with pytest.raises(UnsafePath, match="not a directory"):
        make_dir(root_dir / "state", mode=0o700, uid=AGENT_UID)
    assert (root_dir / "state").lstat() == before


def test_check_parent_takes_a_name_that_is_free(root_dir: Path) -> None:
    check_parent(root_dir / "absent")
    root_dir.chmod(0o775)
    with pytest.raises(UnsafePath, match=r"others can write it \(mode 0775\)"):
        check_parent(root_dir / "absent")
