"""Objects made without git are exactly those git makes, and what git would not make is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hive_core.adapters.git_objects import (
    MODE_FILE,
    MODE_TREE,
    GitObject,
    Kind,
    MalformedObject,
    build_commit,
    pack,
    parse_tree,
    tree_id_of,
    walk,
)
from hive_core.domain.config_files import ConfigFile
from tests.support.repo_rig import FILES, root_git

AUTHOR = "hive <hive@localhost>"
ID = "ab" * 20
# Names that sort differently as a file and as a directory.
TRICKY = (
    ConfigFile("a/b", b"1", False),
    ConfigFile("a.b", b"2", True),
    ConfigFile("a-b", b"3", False),
    ConfigFile("a0", b"", False),
    ConfigFile("ü/ö", b"x" * 5000, False),
    ConfigFile("deep/er/still/deeper", b"\0\xff", False),
)


def _built_by_git(work: Path, files: tuple[ConfigFile, ...]) -> str:
    for file in files:
        path = work / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(0o755 if file.executable else 0o644)
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    root_git(work / ".git", f"--work-tree={work}", "add", ".")
    return root_git(work / ".git", "write-tree")


@pytest.mark.parametrize("files", [FILES, TRICKY, TRICKY[::-1]], ids=["plain", "tricky order", "reversed"])
def test_a_tree_has_the_id_that_git_gives_it(tmp_path: Path, files: tuple[ConfigFile, ...]) -> None:
    built = build_commit(files, parent=None, author=AUTHOR, at_s=1, message="x")
    assert built.tree == _built_by_git(tmp_path, files)


def test_a_pack_of_a_commit_passes_git_at_its_strictest(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path)], check=True)
    large = (*TRICKY, ConfigFile("large", bytes(3_000_000), False))
    built = build_commit(large, parent=None, author=AUTHOR, at_s=1_800_000_000, message="Apply\n\nbody")
    stream = pack(built.objects)
    root_git(tmp_path, "index-pack", "--stdin", "--strict", "--fsck-objects", stdin=stream)
    assert root_git(tmp_path, "rev-parse", f"{built.id}^{{tree}}") == built.tree
    assert root_git(tmp_path, "log", "-1", "--format=%an %ae %at %s", built.id) == (
        "hive hive@localhost 1800000000 Apply"
    )
    root_git(tmp_path, "fsck", "--strict", "--full", built.id)
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("message", ["", "  ", "a\0b", "\udc80", "\x1b[2J", "x" * 100_000], ids=ascii)
def test_any_message_makes_a_valid_commit(tmp_path: Path, message: str) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path)], check=True)
    built = build_commit(FILES, parent=None, author=AUTHOR, at_s=1, message=message)
    root_git(tmp_path, "unpack-objects", "-q", "--strict", stdin=pack(built.objects))
    root_git(tmp_path, "fsck", "--strict", built.id)


def test_the_same_content_is_stored_once() -> None:
    same = tuple(ConfigFile(f"d{number}/f", b"same", False) for number in range(10))
    kinds = [
        each.kind for each in build_commit(same, parent=None, author=AUTHOR, at_s=1, message="x").objects
    ]
    assert kinds.count(Kind.BLOB) == 1
    assert kinds.count(Kind.TREE) == 2


def _item(mode: str, name: bytes) -> bytes:
    return mode.encode() + b" " + name + b"\0" + bytes.fromhex(ID)


MALFORMED = {
    "name twice": _item(MODE_FILE, b"a") + _item(MODE_FILE, b"a"),
    "name as file and directory": _item(MODE_FILE, b"a") + _item(MODE_TREE, b"a"),
    "slash in a name": _item(MODE_FILE, b"a/b"),
    "no name": _item(MODE_FILE, b""),
    "mode 100664": _item("100664", b"a"),
    "mode with a zero": _item("040000", b"a"),
    "device": _item("60000", b"a"),
    "id cut off": _item(MODE_FILE, b"a")[:-1],
    "no nul": b"100644 a",
    "rubbish": b"\xff\xfe\x00",
}


@pytest.mark.parametrize("content", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_tree_git_would_not_write_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedObject):
        parse_tree(GitObject(Kind.TREE, content))


@pytest.mark.parametrize(
    "found",
    [
        GitObject(Kind.BLOB, f"tree {ID}\n".encode()),
        GitObject(Kind.COMMIT, b""),
        GitObject(Kind.COMMIT, b"tree HEAD\n"),
        GitObject(Kind.COMMIT, f"tree {ID}{ID[:24]}\n".encode()),
    ],
    ids=["a blob", "empty", "a name", "sha-256"],
)
def test_what_is_no_commit_names_no_tree(found: GitObject) -> None:
    with pytest.raises(MalformedObject, match="is not a commit"):
        tree_id_of(found)


def test_trees_within_trees_without_end_are_not_followed() -> None:
    trees: dict[str, GitObject] = {}
    tree = GitObject(Kind.TREE, b"")
    for _ in range(20):
        trees[tree.id] = tree
        names = [f"d{number}".encode() for number in range(10)]
        content = b"".join(b"40000 " + name + b"\0" + bytes.fromhex(tree.id) for name in names)
        tree = GitObject(Kind.TREE, content)
    trees[tree.id] = tree
    with pytest.raises(MalformedObject, match="more than 1000 directories"):
        list(walk(tree.id, trees, max_trees=1000))


def test_a_tree_that_is_missing_is_named() -> None:
    with pytest.raises(MalformedObject, match=f"tree {ID} is missing"):
        list(walk(ID, {}, max_trees=10))
