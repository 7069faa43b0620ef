from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.domain.errors import Conflict, InvalidRequest, UnsafePath
from hive_core.domain.names import parse_name
from tests.support.paths import AGENT_UID, OTHER_UID

BOB = parse_name("bob")
ONE, TWO = "1" * 40, "2" * 64


@pytest.fixture
def dirs(root_dir: Path) -> AgentDirs:
    return AgentDirs(root_dir / "agents")


def _owner_and_mode(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def test_create_makes_every_directory_with_its_owner_and_mode(dirs: AgentDirs) -> None:
    before = os.umask(0o077)
    try:
        paths = dirs.create(BOB, AGENT_UID)
    finally:
        os.umask(before)
    agents, root = (AGENT_UID, AGENT_UID, 0o700), (0, 0, 0o755)
    assert _owner_and_mode(dirs.root) == (0, 0, 0o700)
    assert {path.name: _owner_and_mode(path) for path in paths.root.iterdir()} == {
        "state": agents,
        "home": agents,
        "config": root,
        "etc": root,
    }
    assert _owner_and_mode(paths.root) == root
    assert _owner_and_mode(paths.passwd) == _owner_and_mode(paths.group) == (0, 0, 0o644)


def test_the_generated_files_name_root_and_the_agent(dirs: AgentDirs) -> None:
    paths = dirs.create(BOB, AGENT_UID)
    users = [line.split(":") for line in paths.passwd.read_text().splitlines()]
    assert [user[0] for user in users] == ["root", "agent", "nobody"]
    assert users[1][2:] == [str(AGENT_UID), str(AGENT_UID), "agent", "/home/agent", "/bin/sh"]
    groups = [line.split(":") for line in paths.group.read_text().splitlines()]
    assert ["agent", "x", str(AGENT_UID), ""] in groups


def test_create_again_changes_nothing_and_looks_into_nothing(dirs: AgentDirs) -> None:
    paths = dirs.create(BOB, AGENT_UID)
    (paths.state / "foreign").write_bytes(b"")
    os.chown(paths.state / "foreign", OTHER_UID, OTHER_UID)
    before = paths.passwd.stat()
    dirs.create(BOB, AGENT_UID)
    assert paths.passwd.stat() == before
    assert (paths.state / "foreign").stat().st_uid == OTHER_UID


def test_create_rewrites_generated_files_that_differ(dirs: AgentDirs) -> None:
    paths = dirs.create(BOB, AGENT_UID)
    good = paths.passwd.read_bytes()
    paths.passwd.write_bytes(b"root:x:0:0::/:/bin/sh\n")
    paths.group.unlink()
    dirs.create(BOB, AGENT_UID)
    assert paths.passwd.read_bytes() == good
    assert paths.group.exists()


def _link(path: Path) -> None:
    path.rmdir()
    path.symlink_to("/etc")


def _file(path: Path) -> None:
    path.rmdir()
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    os.chown(path, OTHER_UID, OTHER_UID)


@pytest.mark.parametrize("break_it", [_link, _file, _foreign], ids=["link", "file", "foreign"])
@pytest.mark.parametrize("part", ["state", "home", "config", "etc"])
def test_create_leaves_a_part_that_is_not_its_own(
    dirs: AgentDirs, part: str, break_it: Callable[[Path], None]
) -> None:
    path = dirs.create(BOB, AGENT_UID).root / part
    for generated in path.iterdir():
        generated.unlink()
    break_it(path)
    before = path.lstat()
    with pytest.raises(UnsafePath, match=f"cannot use {path}"):
        dirs.create(BOB, AGENT_UID)
    assert path.lstat() == before


def test_create_refuses_a_root_others_could_replace(root_dir: Path, dirs: AgentDirs) -> None:
    root_dir.chmod(0o777)
    with pytest.raises(UnsafePath, match="others can write it"):
        dirs.create(BOB, AGENT_UID)
    assert not dirs.root.exists()


def test_retire_and_revive_move_the_tree_whole(dirs: AgentDirs) -> None:
    paths = dirs.create(BOB, AGENT_UID)
    (paths.state / "work").write_bytes(b"work")
    inode = paths.state.stat().st_ino
    for _ in range(2):
        dirs.retire(BOB, "inc1")
    retired = dirs.root / ".retired"
    assert _owner_and_mode(retired) == (0, 0, 0o700)
    assert os.listdir(retired) == ["bob-inc1"]
    assert not paths.root.exists()
    for _ in range(2):
        dirs.revive(BOB, "inc1")
    assert (paths.state / "work").read_bytes() == b"work"
    assert paths.state.stat().st_ino == inode
    assert os.listdir(retired) == []


def test_revive_never_replaces_a_living_agent(dirs: AgentDirs) -> None:
    dirs.create(BOB, AGENT_UID)
    dirs.retire(BOB, "inc1")
    # Even an empty directory: that is what a rename would take silently.
    dirs.paths(BOB).root.mkdir()
    with pytest.raises(Conflict, match="cannot revive bob"):
        dirs.revive(BOB, "inc1")
    assert (dirs.root / ".retired" / "bob-inc1" / "state").is_dir()


def test_retire_refuses_when_both_places_are_taken(dirs: AgentDirs) -> None:
    dirs.create(BOB, AGENT_UID)
    dirs.retire(BOB, "inc1")
    dirs.create(BOB, AGENT_UID)
    with pytest.raises(Conflict, match="cannot retire bob"):
        dirs.retire(BOB, "inc1")
    assert dirs.paths(BOB).state.is_dir()


def test_revive_says_when_nothing_was_kept(dirs: AgentDirs) -> None:
    with pytest.raises(Conflict, match="cannot revive bob: its state is not kept"):
        dirs.revive(BOB, "inc1")


def test_what_never_was_is_retired_and_purged_without_fuss(dirs: AgentDirs) -> None:
    dirs.retire(BOB, "inc1")
    dirs.purge(BOB, AGENT_UID)
    dirs.create(parse_name("alice"), AGENT_UID)
    dirs.retire(BOB, "inc1")
    dirs.purge(BOB, AGENT_UID)
    assert dirs.exported(BOB) == frozenset()


@pytest.mark.parametrize("incarnation", ["", "..", "../x", "a/b", ".hidden", "a\n", "-x", "i" * 65])
def test_an_incarnation_is_never_a_path(dirs: AgentDirs, incarnation: str) -> None:
    dirs.create(BOB, AGENT_UID)
    with pytest.raises(InvalidRequest, match="not an incarnation"):
        dirs.retire(BOB, incarnation)
    with pytest.raises(InvalidRequest, match="not an incarnation"):
        dirs.revive(BOB, incarnation)


@pytest.mark.parametrize(
    "commit", ["", "main", "1" * 39, "1" * 41, "A" * 40, "../" + "1" * 40, "1" * 40 + "\n"]
)
def test_only_full_commits_have_a_config(dirs: AgentDirs, commit: str) -> None:
    with pytest.raises(InvalidRequest, match="not a full commit id"):
        dirs.paths(BOB).config_dir(commit)


def test_exports_are_listed_and_dropped_by_commit(dirs: AgentDirs) -> None:
    paths = dirs.create(BOB, AGENT_UID)
    for commit in (ONE, TWO):
        (paths.config_dir(commit) / "skills").mkdir(parents=True)
        (paths.config_dir(commit) / "agent.toml").write_bytes(b"")
    (paths.configs / ".being-made").mkdir()
    assert dirs.exported(BOB) == {ONE, TWO}
    dirs.drop_config(BOB, {TWO})
    assert dirs.exported(BOB) == {TWO}
    assert (paths.config_dir(TWO) / "agent.toml").exists()
    assert (paths.configs / ".being-made").exists()
    dirs.drop_config(BOB, set())
    assert dirs.exported(BOB) == frozenset()


def test_purge_leaves_no_trace_of_one_agent_only(dirs: AgentDirs) -> None:
    paths = dirs.create(BOB, AGENT_UID)
    (paths.config_dir(ONE)).mkdir()
    (paths.home / ".cache").mkdir()
    os.chown(paths.home / ".cache", AGENT_UID, AGENT_UID)
    dirs.create(parse_name("alice"), OTHER_UID)
    dirs.purge(BOB, AGENT_UID)
    assert os.listdir(dirs.root) == ["alice"]


def test_what_cannot_be_deleted_is_named(dirs: AgentDirs) -> None:
    paths = dirs.create(BOB, AGENT_UID)
    stuck = paths.state / "stuck"
    stuck.write_bytes(b"")
    if not _set_immutable(stuck, True):
        pytest.skip("this filesystem has no immutable files")
    try:
        with pytest.raises(UnsafePath, match="stuck' cannot be removed"):
            dirs.purge(BOB, AGENT_UID)
    finally:
        _set_immutable(stuck, False)
    dirs.purge(BOB, AGENT_UID)
    assert not paths.root.exists()


def _set_immutable(path: Path, is_set: bool) -> bool:
    """As chattr +i or -i does."""
    get_flags, set_flags, immutable = 0x80086601, 0x40086602, 0x10
    fd = os.open(path, os.O_RDONLY)
    try:
        flags = bytearray(8)
        fcntl.ioctl(fd, get_flags, flags)
        now = int.from_bytes(flags, "little")
        changed = now | immutable if is_set else now & ~immutable
        fcntl.ioctl(fd, set_flags, changed.to_bytes(8, "little"))
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
