"""What a tree is found to hold, whatever an agent has put into it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hive_core.adapters import mounts
from hive_core.adapters.disk_usage import Usage, free_space, measure

MIB = 1024**2


@pytest.fixture
def tree(root_dir: Path) -> Path:
    """An empty tree."""
    made = root_dir / "tree"
    made.mkdir()
    return made


def _blocks(*paths: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in paths)


def test_an_empty_tree(tree: Path) -> None:
    assert measure((tree,), 10) == Usage(0, 0, True)


def test_files_and_directories_of_several_trees(tree: Path) -> None:
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").write_bytes(b"x" * 100_000)
    (tree / "c").mkdir()
    (tree / "c" / "file").write_bytes(b"x" * 10_000)
    everything = _blocks(tree / "a" / "b", tree / "a" / "b" / "file", tree / "c" / "file")
    assert measure((tree / "a", tree / "c"), 10) == Usage(everything, 3, True)


def _link_to_itself(tree: Path, big: Path) -> None:
    (tree / "loop").symlink_to(tree)


def _link_to_a_file(tree: Path, big: Path) -> None:
    (tree / "link").symlink_to(big)


def _link_to_a_directory(tree: Path, big: Path) -> None:
    (tree / "link").symlink_to(big.parent)


def _fifo(tree: Path, big: Path) -> None:
    os.mkfifo(tree / "fifo")


def _hole(tree: Path, big: Path) -> None:
    with (tree / "hole").open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(_link_to_itself, id="link-to-itself"),
        pytest.param(_link_to_a_file, id="link-to-a-file"),
        pytest.param(_link_to_a_directory, id="link-to-a-directory"),
        pytest.param(_fifo, id="fifo"),
        pytest.param(_hole, id="sparse-file"),
    ],
)
def test_what_is_one_inode_and_hardly_a_byte(tree: Path, make: Callable[[Path, Path], None]) -> None:
    big = tree.parent / "outside" / "big"
    big.parent.mkdir()
    big.write_bytes(b"x" * MIB)
    make(tree, big)
    found = measure((tree,), 10)
    assert (found.inodes, found.is_complete) == (1, True)
    assert found.used_bytes < 8192


def test_a_file_with_many_names_counts_once(tree: Path) -> None:
    (tree / "one").write_bytes(b"x" * MIB)
    (tree / "inner").mkdir()
    for number in range(5):
        (tree / "inner" / str(number)).hardlink_to(tree / "one")
    assert measure((tree,), 10) == Usage(_blocks(tree / "one", tree / "inner"), 2, True)


def test_another_file_system_below_is_left_out(tree: Path) -> None:
    (tree / "own").write_bytes(b"x" * 10_000)
    other = tree / "other"
    other.mkdir()
    mounts.mount_tmpfs(other, label="hive-test-usage", size_bytes=MIB, mode=0o755)
    (other / "big").write_bytes(b"x" * 500_000)
    assert measure((tree,), 10) == Usage(_blocks(tree / "own"), 1, True)


def test_names_no_terminal_survives(tree: Path) -> None:
    for untrusted_name in (b"\xff\xfe", b"a\nb", b"\x1b[31m", b"x" * 255):
        Path(os.fsdecode(os.fsencode(tree) + b"/" + untrusted_name)).touch()
    assert measure((tree,), 10).inodes == 4


def test_a_directory_its_owner_may_not_list_is_listed_by_root(tree: Path) -> None:
    (tree / "closed").mkdir()
    (tree / "closed" / "file").write_bytes(b"x" * 10_000)
    (tree / "closed").chmod(0)
    assert measure((tree,), 10) == Usage(_blocks(tree / "closed", tree / "closed" / "file"), 2, True)


def test_too_little_time_gives_at_least_so_much(tree: Path) -> None:
    for number in range(10):
        (tree / str(number)).write_bytes(b"x" * 10_000)
    found = measure((tree,), -1)
    assert not found.is_complete
    assert not found.is_too_deep
    assert found.inodes < 10


def test_a_tree_nested_too_deep_says_so_and_the_rest_is_counted(tree: Path) -> None:
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(tree)
        for _ in range(400):
            os.mkdir("deeper")
            os.chdir("deeper")
        Path("hidden").write_bytes(b"x" * MIB)
    finally:
        os.fchdir(before)
        os.close(before)
    (tree / "zz").write_bytes(b"x" * MIB)
    found = measure((tree,), 30)
    assert (found.is_too_deep, found.is_complete) == (True, False)
    assert found.used_bytes >= MIB
    assert found.inodes < 400


def test_a_tree_that_is_a_link_is_not_followed(tree: Path) -> None:
    (tree.parent / "link").symlink_to(tree)
    with pytest.raises(Exception, match="symbolic link"):
        measure((tree.parent / "link",), 10)


def test_what_is_free(root_dir: Path) -> None:
    disk = root_dir / "disk"
    disk.mkdir()
    mounts.mount_tmpfs(disk, label="hive-test-free", size_bytes=MIB, mode=0o755)
    before = free_space(disk)
    (disk / "file").write_bytes(b"x" * 40_960)
    after = free_space(disk)
    assert before.free_bytes - after.free_bytes == 40_960
    assert before.inodes - after.inodes == 1
