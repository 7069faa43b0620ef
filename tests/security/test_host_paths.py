"""Bind sources and agents' trees: nothing an agent can arrange makes hive touch anything else."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hive_core.adapters import mounts
from hive_core.adapters.agent_dirs import AgentDirs
from hive_core.adapters.files import check_source
from hive_core.domain.errors import Conflict, TimedOut, UnsafePath
from hive_core.domain.names import parse_name
from tests.support.paths import AGENT_UID, OTHER_UID, root_dir

__all__ = ["root_dir"]
pytestmark = pytest.mark.security
BOB = parse_name("bob")


def _state(root: Path) -> Path:
    return AgentDirs(root / "agents").create(BOB, AGENT_UID).state


def test_a_sound_source_is_known_by_its_inode(root_dir: Path) -> None:
    state = _state(root_dir)
    found = state.stat()
    assert check_source(state, directory=True, owner=AGENT_UID) == (found.st_dev, found.st_ino)


def _swap_for_link(state: Path) -> None:
    state.rmdir()
    state.symlink_to("/etc")


def _swap_for_file(state: Path) -> None:
    state.rmdir()
    state.write_bytes(b"")


def _swap_for_fifo(state: Path) -> None:
    state.rmdir()
    os.mkfifo(state)


def _swap_for_socket(state: Path) -> None:
    state.rmdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(state))


def _take_away(state: Path) -> None:
    state.rmdir()


def _give_away(state: Path) -> None:
    os.chown(state, OTHER_UID, OTHER_UID)


def _link_parent(state: Path) -> None:
    state.parent.rename(state.parent.parent / "elsewhere")
    state.parent.symlink_to("elsewhere")


def _link_parent_without_leaf(state: Path) -> None:
    state.rmdir()
    _link_parent(state)


def _open_parent(state: Path) -> None:
    state.parent.chmod(0o777)


def _group_parent(state: Path) -> None:
    state.parent.parent.chmod(0o770)


def _sticky_parent(state: Path) -> None:
    state.parent.chmod(0o1777)


def _give_parent_away(state: Path) -> None:
    os.chown(state.parent, AGENT_UID, 0)


@pytest.mark.parametrize(
    ("break_it", "component", "words"),
    [
        pytest.param(_swap_for_link, "agents/bob/state", "symbolic link, not a directory", id="link"),
        pytest.param(_swap_for_file, "agents/bob/state", "regular file, not a directory", id="file"),
        pytest.param(_swap_for_fifo, "agents/bob/state", "FIFO, not a directory", id="fifo"),
        pytest.param(_swap_for_socket, "agents/bob/state", "socket, not a directory", id="socket"),
        pytest.param(_take_away, "agents/bob/state", "missing", id="missing"),
        pytest.param(_give_away, "agents/bob/state", f"uid {OTHER_UID}, not {AGENT_UID}", id="owner"),
        pytest.param(_link_parent, "agents/bob", "symbolic link", id="linked-parent"),
        pytest.param(_link_parent_without_leaf, "agents/bob", "symbolic link", id="linked-parent-no-leaf"),
        pytest.param(_open_parent, "agents/bob", "mode 0777", id="writable-parent"),
        pytest.param(_group_parent, "agents", "mode 0770", id="group-writable-grandparent"),
        pytest.param(_sticky_parent, "agents/bob", "mode 1777", id="sticky-parent"),
        pytest.param(_give_parent_away, "agents/bob", f"uid {AGENT_UID}", id="foreign-parent"),
    ],
)
def test_an_unsound_source_is_refused_by_component(
    root_dir: Path, break_it: Callable[[Path], None], component: str, words: str
) -> None:
    state = _state(root_dir)
    break_it(state)
    before = sorted(os.listdir(root_dir / "agents"))
    with pytest.raises(UnsafePath) as refused:
        check_source(state, directory=True, owner=AGENT_UID)
    assert f"cannot use {root_dir / component}: " in refused.value.message
    assert words in refused.value.message
    assert refused.value.hint
    assert sorted(os.listdir(root_dir / "agents")) == before


def test_a_file_source_must_be_a_regular_file(root_dir: Path) -> None:
    paths = AgentDirs(root_dir / "agents").create(BOB, AGENT_UID)
    assert check_source(paths.passwd, directory=False, owner=0)[1] == paths.passwd.stat().st_ino
    with pytest.raises(UnsafePath, match="a directory, not a regular file"):
        check_source(paths.etc, directory=False)


def test_a_source_below_tmp_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafePath, match=r"others can write it"):
        check_source(tmp_path, directory=True)


def test_a_source_swapped_all_the_time_never_shows_the_links_target(root_dir: Path) -> None:
    """The check sees the directory itself or refuses; it never reports the target of the link."""
    state, target = _state(root_dir), root_dir / "target"
    target.mkdir()
    os.chown(target, AGENT_UID, AGENT_UID)
    honest, aside, ended = state.stat(), state.with_name("aside"), threading.Event()

    def swap() -> None:
        while not ended.is_set():
            state.rename(aside)
            state.symlink_to(target)
            state.unlink()
            aside.rename(state)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        outcomes = [_checked(state) for _ in range(2000)]
    finally:
        ended.set()
        swapping.join(10)
    assert set(outcomes) <= {(honest.st_dev, honest.st_ino), None}
    assert None in outcomes


def _checked(state: Path) -> tuple[int, int] | None:
    try:
        return check_source(state, directory=True, owner=AGENT_UID)
    except UnsafePath:
        return None


class Canaries:
    """Things outside an agent's tree that a careless delete, chmod or chown would reach."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "outside"
        self.directory.mkdir()
        self.file = self.directory / "file"
        self.file.write_bytes(b"canary")
        self.own = self.directory / "own"
        self.own.write_bytes(b"the agent's, but elsewhere")
        self.own.chmod(0o400)
        os.chown(self.own, AGENT_UID, AGENT_UID)
        (self.directory / "inner").mkdir(mode=0o500)
        self.before = self.look()

    def look(self) -> list[tuple[str, int, int, int, bytes]]:
        return sorted(
            (
                str(path),
                path.lstat().st_mode,
                path.lstat().st_uid,
                path.lstat().st_ino,
                path.read_bytes() if path.is_file() else b"",
            )
            for path in (self.directory, *self.directory.rglob("*"))
        )


def _plant(place: Path, canaries: Canaries) -> None:
    """Leave everything hostile in a directory that an agent, or a mistake of root's, could leave there."""
    (place / "to-directory").symlink_to(canaries.directory)
    (place / "to-file").symlink_to(canaries.file)
    (place / "to-shadow").symlink_to("/etc/shadow")
    (place / "to-parent").symlink_to("../..")
    (place / "loop").symlink_to("loop")
    os.link(canaries.file, place / "hard")
    os.link(canaries.own, place / "hard-own")
    os.mknod(place / "device", stat.S_IFBLK | 0o666, os.makedev(7, 200))
    os.mkfifo(place / "fifo")
    (place / "setuid").write_bytes(b"#!/bin/sh\n")
    for name in (
        b"line\nbreak",
        b"\x1b]52;c;eA==\x07",
        b"n" * 255,
        b"\xff\xfe",
        b"-delete",
        b" ",
        b"{}",
        b"*",
    ):
        (place / os.fsdecode(name)).mkdir()
        (place / os.fsdecode(name) / "x").write_bytes(b"")
    deep = place / "locked" / "inner"
    deep.mkdir(parents=True)
    (deep / "file").write_bytes(b"")
    for directory, directories, entries in os.walk(place):
        # All but the hard links: to own those would be to own the canaries.
        for entry in {*directories, *entries} - {"hard", "hard-own"}:
            os.chown(os.path.join(directory, entry), AGENT_UID, AGENT_UID, follow_symlinks=False)
    (place / "setuid").chmod(0o4755)
    deep.chmod(0)
    deep.parent.chmod(0)


@pytest.mark.parametrize("part", ["state", "home"])
def test_purge_touches_nothing_outside_the_agents_tree(root_dir: Path, part: str) -> None:
    dirs = AgentDirs(root_dir / "agents")
    place = dirs.create(BOB, AGENT_UID).root / part
    neighbour = dirs.create(parse_name("alice"), OTHER_UID).state / "work"
    neighbour.write_bytes(b"alice's")
    canaries = Canaries(root_dir)
    (place / "to-neighbour").symlink_to(neighbour.parent)
    _plant(place, canaries)
    shadow = os.lstat("/etc/shadow")
    assert canaries.look() == canaries.before

    dirs.purge(BOB, AGENT_UID)

    assert not os.path.lexists(root_dir / "agents" / "bob")
    assert canaries.look() == canaries.before
    assert os.lstat("/etc/shadow") == shadow
    assert neighbour.read_bytes() == b"alice's"


def test_purge_reaches_deeper_than_any_path(root_dir: Path) -> None:
    dirs = AgentDirs(root_dir / "agents")
    state = dirs.create(BOB, AGENT_UID).state
    fd = os.open(state, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("deeper", dir_fd=fd)
        os.chown("deeper", AGENT_UID, AGENT_UID, dir_fd=fd)
        below = os.open("deeper", os.O_RDONLY, dir_fd=fd)
        os.fchmod(fd, 0o500)
        os.close(fd)
        fd = below
    os.close(fd)
    dirs.purge(BOB, AGENT_UID)
    assert not (root_dir / "agents" / "bob").exists()


@pytest.fixture
def find_log(root_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Record with which rights `find` runs, and what it is told to do, before it does it."""
    log = root_dir / "log"
    log.touch()
    log.chmod(0o666)
    (root_dir / "bin").mkdir()
    wrapper = root_dir / "bin" / "find"
    real = shutil.which("find")
    wrapper.write_text(f'#!/bin/sh\necho "$(id -u) $(id -G)" >> {log}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{root_dir / 'bin'}:{os.environ['PATH']}")
    return log


def test_purge_empties_state_and_home_with_the_agents_rights_only(root_dir: Path, find_log: Path) -> None:
    dirs = AgentDirs(root_dir / "agents")
    paths = dirs.create(BOB, AGENT_UID)
    canaries = Canaries(root_dir)
    for place in (paths.state, paths.home):
        _plant(place, canaries)
    dirs.purge(BOB, AGENT_UID)
    runs = find_log.read_text().splitlines()
    # Delete, open what was locked, delete again, in both places; then root its own directory above.
    assert runs == [f"{AGENT_UID} {AGENT_UID}"] * 6 + ["0 0"]


def test_what_root_put_into_a_tree_is_deleted_by_root(root_dir: Path, find_log: Path) -> None:
    dirs = AgentDirs(root_dir / "agents")
    state = dirs.create(BOB, AGENT_UID).state
    canaries = Canaries(root_dir)
    restored = state / "restored" / "by-root"
    restored.mkdir(parents=True)
    (restored / "file").write_bytes(b"")
    (restored / "link").symlink_to(canaries.directory)
    dirs.purge(BOB, AGENT_UID)
    assert not state.parent.exists()
    assert canaries.look() == canaries.before
    assert find_log.read_text().splitlines() == [f"{AGENT_UID} {AGENT_UID}"] * 3 + ["0 0"] * 2


def test_purge_gives_up_in_time_and_can_be_repeated(root_dir: Path) -> None:
    dirs = AgentDirs(root_dir / "agents")
    state = dirs.create(BOB, AGENT_UID).state
    (state / "file").write_bytes(b"")
    with pytest.raises(TimedOut, match="cannot delete"):
        dirs.purge(BOB, AGENT_UID, limit_s=0)
    dirs.purge(BOB, AGENT_UID)
    dirs.purge(BOB, AGENT_UID)
    assert not state.parent.exists()


def test_purge_refuses_a_tree_with_a_mount_in_it(root_dir: Path) -> None:
    dirs = AgentDirs(root_dir / "agents")
    state = dirs.create(BOB, AGENT_UID).state
    (root_dir / "precious").mkdir()
    (root_dir / "precious" / "file").write_bytes(b"precious")
    (state / "a" / "b").mkdir(parents=True)
    mounts.bind(root_dir / "precious", state / "a" / "b")
    with pytest.raises(Conflict, match=f"cannot purge bob: {state}/a/b is a mount"):
        dirs.purge(BOB, AGENT_UID)
    assert (root_dir / "precious" / "file").read_bytes() == b"precious"
    assert (state / "a" / "b" / "file").exists()


@pytest.mark.parametrize("part", ["state", "home"])
def test_purge_refuses_a_linked_or_foreign_part(root_dir: Path, part: str) -> None:
    dirs = AgentDirs(root_dir / "agents")
    place = dirs.create(BOB, AGENT_UID).root / part
    canaries = Canaries(root_dir)
    place.rmdir()
    place.symlink_to(canaries.directory)
    with pytest.raises(UnsafePath, match=f"{part} is a symbolic link"):
        dirs.purge(BOB, AGENT_UID)
    place.unlink()
    place.mkdir()
    (place / "file").write_bytes(b"")
    os.chown(place, OTHER_UID, OTHER_UID)
    with pytest.raises(UnsafePath, match=f"belongs to uid {OTHER_UID}"):
        dirs.purge(BOB, AGENT_UID)
    assert (place / "file").exists()
    assert canaries.look() == canaries.before
