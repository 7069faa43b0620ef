from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hive_core.adapters.sockets import bind_socket, peer_of
from hive_core.domain.errors import Conflict, UnsafePath
from tests.support.paths import AGENT_UID, OTHER_UID

GROUP = 1_987_650_000


def _look(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(path)) == 0


@pytest.mark.parametrize(
    ("mode", "uid", "gid"), [(0o660, 0, GROUP), (0o600, AGENT_UID, AGENT_UID), (0o600, 0, 0)]
)
@pytest.mark.parametrize("umask", [0, 0o077, 0o177])
def test_a_socket_has_its_owner_and_mode_and_answers(
    root_dir: Path, mode: int, uid: int, gid: int, umask: int
) -> None:
    path = root_dir / "admin.sock"
    before = os.umask(umask)
    try:
        with bind_socket(path, mode, uid, gid) as listener:
            assert _look(path) == (mode, uid, gid)
            assert _connects(path)
            assert not listener.get_inheritable()
            assert os.listdir(root_dir) == ["admin.sock"]
    finally:
        os.umask(before)


def test_it_is_never_seen_with_another_mode_or_owner(root_dir: Path) -> None:
    path, ended, seen = root_dir / "admin.sock", threading.Event(), set()

    def look() -> None:
        while not ended.is_set():
            try:
                seen.add(_look(path))
            except FileNotFoundError:
                continue

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(200):
            bind_socket(path, 0o660, AGENT_UID, GROUP).close()
    finally:
        ended.set()
        looking.join(10)
    assert seen == {(0o660, AGENT_UID, GROUP)}


def test_a_name_of_107_bytes_is_bound_and_108_are_refused(root_dir: Path) -> None:
    longest = root_dir / ("s" * (107 - len(os.fsencode(root_dir)) - 1))
    with bind_socket(longest, 0o600, 0, 0):
        assert _connects(longest)
    with pytest.raises(UnsafePath, match="its path needs 108 bytes, the limit is 107"):
        bind_socket(Path(f"{longest}s"), 0o600, 0, 0)
    with pytest.raises(UnsafePath, match="needs 126 bytes"):
        bind_socket(root_dir / ("é" * ((126 - len(os.fsencode(root_dir)) - 1) // 2)), 0o600, 0, 0)


def _link(path: Path) -> None:
    with bind_socket(path.with_name("other"), 0o600, 0, 0):
        path.symlink_to("other")


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere")


def _file(path: Path) -> None:
    path.write_bytes(b"precious")


def _directory(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _foreign(path: Path) -> None:
    bind_socket(path, 0o600, OTHER_UID, 0).close()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(_link, "is a symbolic link", id="link-to-a-socket"),
        pytest.param(_dangling, "is a symbolic link", id="dangling-link"),
        pytest.param(_file, "is a regular file", id="file"),
        pytest.param(_directory, "is a directory", id="directory"),
        pytest.param(_fifo, "is a FIFO", id="fifo"),
        pytest.param(_foreign, f"belongs to uid {OTHER_UID}", id="foreign-socket"),
    ],
)
def test_what_is_in_the_way_is_left_untouched(
    root_dir: Path, make: Callable[[Path], None], words: str
) -> None:
    path = root_dir / "admin.sock"
    make(path)
    before, entries = path.lstat(), sorted(os.listdir(root_dir))
    with pytest.raises(UnsafePath, match=words) as refused:
        bind_socket(path, 0o600, 0, 0)
    assert refused.value.message.startswith(f"cannot listen on {path}: ")
    assert path.lstat() == before
    assert sorted(os.listdir(root_dir)) == entries


@pytest.mark.parametrize("uid", [0, AGENT_UID], ids=["admin", "agent"])
def test_a_socket_nobody_listens_on_is_replaced(root_dir: Path, uid: int) -> None:
    path = root_dir / "hive.sock"
    bind_socket(path, 0o600, uid, uid).close()
    assert not _connects(path)
    with bind_socket(path, 0o660, uid, uid):
        assert _connects(path)
        assert _look(path) == (0o660, uid, uid)


def test_a_live_socket_is_never_taken(root_dir: Path) -> None:
    path = root_dir / "admin.sock"
    with bind_socket(path, 0o600, 0, 0) as first:
        with pytest.raises(Conflict, match="another process listens on it"):
            bind_socket(path, 0o600, 0, 0)
        first.settimeout(5)
        accepted, _ = first.accept()
        accepted.close()
        assert _connects(path)


def test_a_live_socket_that_is_too_busy_to_answer_is_never_taken(root_dir: Path) -> None:
    path = root_dir / "admin.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(Conflict, match="another process listens on it"):
            bind_socket(path, 0o600, 0, 0)


def test_a_live_datagram_socket_is_never_taken(root_dir: Path) -> None:
    path = root_dir / "admin.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with pytest.raises(Conflict):
            bind_socket(path, 0o600, 0, 0)


def test_leftovers_of_an_interrupted_bind_are_no_obstacle(root_dir: Path) -> None:
    (root_dir / ".b").mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as torn:
        torn.bind(str(root_dir / ".b" / "s"))
    with bind_socket(root_dir / "admin.sock", 0o600, 0, 0):
        assert os.listdir(root_dir) == ["admin.sock"]


def test_a_directory_others_can_write_is_refused(root_dir: Path) -> None:
    root_dir.chmod(0o777)
    with pytest.raises(UnsafePath, match="others can write it"):
        bind_socket(root_dir / "admin.sock", 0o600, 0, 0)
    assert os.listdir(root_dir) == []


def test_listeners_of_different_directories_have_different_names(root_dir: Path) -> None:
    for name in ("alice", "bob"):
        (root_dir / name).mkdir()
    with (
        bind_socket(root_dir / "alice" / "hive.sock", 0o600, 0, 0) as alice,
        bind_socket(root_dir / "bob" / "hive.sock", 0o600, 0, 0) as bob,
    ):
        assert alice.getsockname() != bob.getsockname()


CONNECT = """
import os, socket, sys
path, uid, gid, groups = sys.argv[1], *map(int, sys.argv[2:4]), [int(group) for group in sys.argv[4:]]
os.setgroups(groups); os.setgid(gid); os.setuid(uid)
client = socket.socket(socket.AF_UNIX); client.connect(path)
sys.stdin.read()
"""


def _connect_as(path: Path, uid: int, gid: int, groups: list[int]) -> subprocess.Popen[bytes]:
    arguments = [str(number) for number in (uid, gid, *groups)]
    return subprocess.Popen([sys.executable, "-c", CONNECT, str(path), *arguments], stdin=subprocess.PIPE)


@pytest.mark.parametrize("count", [0, 2, 63, 64, 65, 300], ids=lambda count: f"{count}-groups")
def test_the_peer_is_who_the_kernel_says(root_dir: Path, count: int) -> None:
    groups = [GROUP + number for number in range(count)]
    with bind_socket(root_dir / "s.sock", 0o666, 0, 0) as listener:
        listener.settimeout(10)
        with _connect_as(root_dir / "s.sock", AGENT_UID, OTHER_UID, groups) as process:
            connection, _ = listener.accept()
            with connection:
                peer = peer_of(connection)
            assert (peer.pid, peer.uid, peer.gid) == (process.pid, AGENT_UID, OTHER_UID)
            assert peer.groups == frozenset(groups)
            assert peer.cgroup_text == Path(f"/proc/{process.pid}/cgroup").read_text()
            assert process.stdin
            process.stdin.close()
    assert peer.is_in_group(OTHER_UID)
    assert peer.is_in_group(GROUP + 1) is (count > 1)
    assert not peer.is_in_group(0)


def test_a_peer_that_is_gone_has_no_cgroup(root_dir: Path) -> None:
    with bind_socket(root_dir / "s.sock", 0o666, 0, 0) as listener:
        listener.settimeout(10)
        with _connect_as(root_dir / "s.sock", AGENT_UID, AGENT_UID, []) as process:
            connection, _ = listener.accept()
            assert process.stdin
            process.stdin.close()
        with connection:
            peer = peer_of(connection)
    assert (peer.uid, peer.cgroup_text) == (AGENT_UID, None)


def test_what_is_no_unix_connection_has_no_peer() -> None:
    with (
        socket.socket(socket.AF_INET) as other,
        pytest.raises(OSError, match="cannot learn the peer's groups"),
    ):
        peer_of(other)
