"""What is read of the host, on files made for it; and what is found out by doing, on this host."""

from __future__ import annotations

import gzip
import os
import socket
import stat
from pathlib import Path

import pytest

from hive_core.adapters import host_facts, probes
from hive_core.domain.errors import EngineUnavailable, HostUnsuitable, UnsafePath
from tests.support.paths import AGENT_UID, root_dir

__all__ = ["root_dir"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, like the daemon")
CVES = ("CVE-2024-21626", "CVE-2025-31133")
CHANGELOG = b"""runc (1.1.5+ds1-1+deb12u1) bookworm-security; urgency=high

  * CVE-2024-21626: leaked fds

runc (1.1.5+ds1-1) unstable; urgency=medium
"""


@pytest.fixture
def changelog(tmp_path: Path) -> Path:
    """The changelog of an installed package, and above it the directory of all of them."""
    path = tmp_path / "runc" / "changelog.Debian.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(CHANGELOG))
    return path


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("1.1.5+ds1-1+deb12u1", {"CVE-2024-21626"}),
        ("1.1.5", {"CVE-2024-21626"}),
        ("1.1.4", set()),
        ("1.1.5+ds1-1+deb12u2", set()),
        ("", set()),
    ],
)
def test_a_fix_counts_only_for_the_version_that_is_installed(
    changelog: Path, version: str, found: set[str]
) -> None:
    assert host_facts.backported("runc", version, CVES, changelog.parents[1]) == found


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not gzip", id="not-gzip"),
        pytest.param(gzip.compress(b"\xff\xfe no entry"), id="no-entry"),
    ],
)
def test_an_odd_changelog_says_nothing(changelog: Path, content: bytes) -> None:
    changelog.write_bytes(content)
    assert host_facts.backported("runc", "1.1.5", CVES, changelog.parents[1]) == frozenset()


def test_a_missing_changelog_says_nothing_and_a_fifo_does_not_hang(changelog: Path) -> None:
    changelog.unlink()
    assert host_facts.backported("runc", "1.1.5", CVES, changelog.parents[1]) == frozenset()
    os.mkfifo(changelog)
    assert host_facts.backported("runc", "1.1.5", CVES, changelog.parents[1]) == frozenset()


def test_a_compressed_flood_is_read_in_part(changelog: Path) -> None:
    changelog.write_bytes(gzip.compress(CHANGELOG + b"\n" * (64 * 1024 * 1024)))
    assert host_facts.backported("runc", "1.1.5", CVES, changelog.parents[1]) == {"CVE-2024-21626"}


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ([], "/etc/default.toml"),
        (["run"], "/etc/default.toml"),
        (["--settings", "/x/y.toml"], "/x/y.toml"),
        (["--settings=/x/y.toml", "run"], "/x/y.toml"),
        (["--settings", "/x/../z.toml", "--other"], "/z.toml"),
    ],
)
def test_the_settings_file_is_the_one_of_the_command_line(arguments: list[str], path: str) -> None:
    assert host_facts.settings_file(arguments, Path("/etc/default.toml")) == Path(path)


def _process(proc: Path, pid: int, links: dict[str, str], watches: int = 0) -> None:
    for folder in ("fd", "fdinfo"):
        (proc / str(pid) / folder).mkdir(parents=True)
    for fd, target in links.items():
        (proc / str(pid) / "fd" / fd).symlink_to(target)
        (proc / str(pid) / "fdinfo" / fd).write_text("pos: 0\n" + "inotify wd:1 ino:2\n" * watches)


@needs_root
def test_inotify_of_root_is_counted(tmp_path: Path) -> None:
    limits = tmp_path / "sys" / "fs" / "inotify"
    limits.mkdir(parents=True)
    (limits / "max_user_instances").write_text("128\n")
    (limits / "max_user_watches").write_text("9000\n")
    _process(tmp_path, 10, {"3": "anon_inode:inotify", "4": "/dev/null"}, watches=3)
    _process(tmp_path, 11, {"5": "anon_inode:inotify"}, watches=2)
    _process(tmp_path, 12, {"5": "anon_inode:inotify"}, watches=2)
    os.chown(tmp_path / "12", AGENT_UID, AGENT_UID)
    (tmp_path / "13").mkdir()  # it ended while we looked
    assert host_facts.inotify_use(tmp_path) == host_facts.InotifyUse(2, 128, 5, 9000)


def test_this_host_answers() -> None:
    use = host_facts.inotify_use()
    assert use.max_instances > 0
    assert host_facts.git_version()[0].isdigit()
    assert host_facts.file_system(Path("/proc/self")) == "proc"
    assert host_facts.space(Path("/")).free_bytes > 0
    assert host_facts.account("root").uid == 0
    assert "root" in host_facts.members("root")


def test_accounts_that_are_not_there_are_named() -> None:
    with pytest.raises(HostUnsuitable, match="no user 'nobody-here'"):
        host_facts.account("nobody-here")
    with pytest.raises(HostUnsuitable, match="no group 'nobody-here'"):
        host_facts.members("nobody-here")


def test_an_entry_is_never_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    found = host_facts.entry(tmp_path / "link")
    assert found is not None
    assert stat.S_ISLNK(found.mode)
    assert host_facts.entry(tmp_path / "nothing") is None


# ---- by doing ---------------------------------------------------------------------------------------------


@needs_root
def test_an_id_mapped_mount_can_be_made_here_and_nobody_sees_it(root_dir: Path) -> None:
    before = os.stat(root_dir)
    assert probes.idmap_refusal(root_dir) == ""
    after = os.stat(root_dir)
    assert (after.st_uid, after.st_dev, after.st_ino) == (before.st_uid, before.st_dev, before.st_ino)
    assert str(root_dir) not in Path("/proc/self/mountinfo").read_text()


@needs_root
def test_a_file_system_without_id_mapping_says_which_step_failed() -> None:
    assert probes.idmap_refusal(Path("/proc")) == "mount_setattr: Invalid argument"


def test_a_directory_that_is_not_there_is_a_reason() -> None:
    assert "No such file or directory" in probes.idmap_refusal(Path("/nonexistent"))


def test_paths_are_opened_safely_here(tmp_path: Path) -> None:
    assert probes.open_safely(tmp_path) == ""
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(UnsafePath, match="symbolic link"):
        probes.open_safely(tmp_path / "link")


@needs_root
def test_whether_another_user_can_enter_is_tried(root_dir: Path) -> None:
    assert probes.can_enter(AGENT_UID, AGENT_UID, root_dir)
    root_dir.chmod(0o750)
    assert not probes.can_enter(AGENT_UID, AGENT_UID, root_dir)
    os.chown(root_dir, 0, AGENT_UID)
    assert probes.can_enter(AGENT_UID, AGENT_UID, root_dir)


def test_the_namespace_of_who_listens_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        found = probes.namespaces(path)
    assert found.engine_pid == os.getpid()
    assert found.engines == found.ours == os.readlink("/proc/self/ns/mnt")


def test_a_socket_nobody_listens_on_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="cannot connect"):
        probes.namespaces(tmp_path / "none.sock")
