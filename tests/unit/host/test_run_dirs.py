from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hive_core.adapters import mounts
from hive_core.adapters.mountinfo import Mount, read_mounts
from hive_core.adapters.run_dirs import RunDirs
from hive_core.domain.errors import Conflict, HostUnsuitable, UnsafePath
from hive_core.domain.names import parse_name
from tests.support.paths import AGENT_UID, OTHER_UID

BOB = parse_name("bob")


@pytest.fixture
def run(root_dir: Path) -> RunDirs:
    return RunDirs(root_dir / "run")


def _mode(path: Path) -> tuple[int, int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


def _mounts_at(target: Path) -> list[Mount]:
    return [mount for mount in read_mounts().mounts if mount.target == target]


def test_prepare_makes_directories_and_mounts_once(run: RunDirs) -> None:
    run.prepare()
    first = (_mounts_at(run.grants), _mounts_at(run.secrets))
    for _ in range(3):
        run.prepare()
    assert (_mounts_at(run.grants), _mounts_at(run.secrets)) == first
    assert [len(stack) for stack in first] == [1, 1]
    assert _mode(run.root) == (0, 0, 0o755)
    for private in (run.agents, run.grants, run.meta, run.secrets):
        assert _mode(private) == (0, 0, 0o700)


def test_grants_are_shared_in_a_group_of_their_own(run: RunDirs) -> None:
    assert not run.grants_state().is_mounted
    assert not run.grants_state().is_shared
    run.prepare()
    state = run.grants_state()
    assert state.is_mounted
    assert state.is_shared
    groups = [mount.shared for mount in read_mounts().mounts if mount.target != run.grants]
    assert state.peer_group not in groups


@pytest.mark.parametrize("is_shared_parent", [False, True], ids=["private-parent", "shared-parent"])
def test_each_leaf_is_attached_exactly_once(root_dir: Path, is_shared_parent: bool) -> None:
    """Below a shared mount, which /run is under systemd, a plain self-bind would attach every leaf twice."""
    base = root_dir / "base"
    base.mkdir()
    mounts.mount_tmpfs(base, label="hive-test-base", size_bytes=1 << 20, mode=0o755)
    if is_shared_parent:
        mounts.make_shared(base)
    run = RunDirs(base / "run")
    run.prepare()
    leaf = run.ensure_agent(BOB, AGENT_UID).grants / "leaf"
    leaf.mkdir()
    mounts.bind(root_dir, leaf)
    assert len(_mounts_at(leaf)) == 1
    run.prepare()
    assert len(_mounts_at(leaf)) == 1


def test_a_prepare_that_was_interrupted_after_the_bind_is_finished(root_dir: Path) -> None:
    base = root_dir / "base"
    base.mkdir()
    mounts.mount_tmpfs(base, label="hive-test-base", size_bytes=1 << 20, mode=0o755)
    mounts.make_shared(base)
    run = RunDirs(base / "run")
    run.grants.mkdir(parents=True)
    mounts.bind(run.grants, run.grants)
    assert run.grants_state().peer_group == read_mounts().find(base).shared  # type: ignore[union-attr]
    run.prepare()
    assert run.grants_state().is_shared
    assert run.grants_state().peer_group != read_mounts().find(base).shared  # type: ignore[union-attr]
    assert len(_mounts_at(run.grants)) == 1


def test_prepare_keeps_leaves_and_their_group_while_containers_run(run: RunDirs, root_dir: Path) -> None:
    run.prepare()
    group = run.grants_state().peer_group
    leaf = run.ensure_agent(BOB, AGENT_UID).grants / "alice"
    leaf.mkdir()
    (root_dir / "state").mkdir()
    (root_dir / "state" / "file").write_bytes(b"")
    mounts.bind(root_dir / "state", leaf)
    run.prepare()
    run.ensure_agent(BOB, AGENT_UID)
    assert (leaf / "file").exists()
    assert run.grants_state().peer_group == group


def test_secrets_live_in_a_small_tmpfs_nothing_is_executed_from(run: RunDirs) -> None:
    run.prepare()
    (mount,) = _mounts_at(run.secrets)
    assert mount.fs_type == "tmpfs"
    assert {"noexec", "nosuid", "nodev"} <= mount.options
    assert "size=16384k" in mount.super_options
    run.ensure_agent(BOB, AGENT_UID)
    (run.secrets / "bob" / "key").write_bytes(b"key")
    run.prepare()
    assert (run.secrets / "bob" / "key").read_bytes() == b"key"


def test_another_mount_in_the_place_of_secrets_is_refused(run: RunDirs) -> None:
    run.secrets.mkdir(parents=True)
    mounts.bind(run.secrets, run.secrets)
    with pytest.raises(HostUnsuitable, match="is mounted there"):
        run.prepare()


def _foreign(path: Path) -> None:
    path.mkdir()
    os.chown(path, OTHER_UID, OTHER_UID)


def _link(path: Path) -> None:
    path.symlink_to("/etc")


def _file(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("make", [_foreign, _link, _file], ids=["foreign", "link", "file"])
@pytest.mark.parametrize("part", ["", "agents", "grants", "secrets"])
def test_prepare_refuses_what_is_not_roots(
    run: RunDirs, root_dir: Path, part: str, make: Callable[[Path], None]
) -> None:
    if part:
        run.root.mkdir()
    make(run.root / part)
    with pytest.raises(UnsafePath):
        run.prepare()
    assert read_mounts().below(root_dir) == ()


def test_an_agents_directories_are_roots_and_safe_to_make_again(run: RunDirs) -> None:
    run.prepare()
    before = os.umask(0o077)
    try:
        paths = run.ensure_agent(BOB, AGENT_UID)
        assert run.ensure_agent(BOB, AGENT_UID) == paths == run.paths(BOB)
    finally:
        os.umask(before)
    for public in (paths.sockets, paths.grants, paths.meta):
        assert _mode(public) == (0, 0, 0o755)
    assert _mode(paths.secrets) == (0, AGENT_UID, 0o750)
    assert paths.socket == run.root / "agents" / "bob" / "hive.sock"


def test_drop_agent_removes_its_socket_and_empty_directories_only(run: RunDirs) -> None:
    run.prepare()
    paths, other = run.ensure_agent(BOB, AGENT_UID), run.ensure_agent(parse_name("alice"), OTHER_UID)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(paths.socket))
    for _ in range(2):
        run.drop_agent(BOB)
    for directory in (paths.sockets, paths.grants, paths.meta, paths.secrets):
        assert not directory.exists()
    for directory in (other.sockets, other.grants, other.meta, other.secrets):
        assert directory.is_dir()


@pytest.mark.parametrize("part", ["sockets", "grants", "meta", "secrets"])
def test_drop_agent_never_deletes_content(run: RunDirs, part: str) -> None:
    run.prepare()
    directory: Path = getattr(run.ensure_agent(BOB, AGENT_UID), part)
    (directory / "file").write_bytes(b"precious")
    with pytest.raises(Conflict, match=f"cannot remove the run directories of bob: {directory}"):
        run.drop_agent(BOB)
    assert (directory / "file").read_bytes() == b"precious"


@pytest.mark.parametrize("below", ["", "alice"], ids=["at", "below"])
@pytest.mark.parametrize("part", ["grants", "meta"])
def test_drop_agent_refuses_while_a_grant_is_mounted(
    run: RunDirs, root_dir: Path, part: str, below: str
) -> None:
    run.prepare()
    paths = run.ensure_agent(BOB, AGENT_UID)
    target: Path = getattr(paths, part) / below
    target.mkdir(exist_ok=True)
    mounts.bind(root_dir, target)
    with pytest.raises(Conflict, match=f"{target} is still mounted"):
        run.drop_agent(BOB)
    assert paths.sockets.is_dir()


def test_teardown_unmounts_what_prepare_mounted(run: RunDirs, root_dir: Path) -> None:
    run.prepare()
    run.ensure_agent(BOB, AGENT_UID)
    for _ in range(2):
        run.teardown()
        assert read_mounts().below(root_dir) == ()
    run.prepare()
    assert run.grants_state().is_shared


def test_teardown_refuses_while_a_leaf_is_mounted(run: RunDirs, root_dir: Path) -> None:
    run.prepare()
    leaf = run.ensure_agent(BOB, AGENT_UID).grants / "alice"
    leaf.mkdir()
    mounts.bind(root_dir / "run" / "agents", leaf)
    with pytest.raises(Conflict, match=f"{leaf} is still mounted"):
        run.teardown()
    assert run.grants_state().is_shared
    assert len(_mounts_at(run.secrets)) == 1


def test_teardown_says_when_a_mount_is_in_use(run: RunDirs) -> None:
    run.prepare()
    with (run.secrets / "held").open("wb"), pytest.raises(Conflict, match="Device or resource busy"):
        run.teardown()
