"""git's objects as values: made, packed, parsed and checked here, without running git.

Used by `repo_objects` and `repos`. It exists so that a commit id is proof: the daemon works out the ids of
what it stores and checks the hash of all that it reads, from the commit down to each file. The account that
runs git owns the object files and git itself does not check them when reading; a file that was tampered
with, or a tree that two programs would read differently, is refused here.
"""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hive_core.domain.config_files import ConfigFile

COMMIT_ID = re.compile(r"[0-9a-f]{40}")
MODE_FILE = "100644"
MODE_EXECUTABLE = "100755"
MODE_TREE = "40000"
MODE_LINK = "120000"
MODE_SUBMODULE = "160000"

_RAW_ID_BYTES = 20
_MODES = frozenset({MODE_FILE, MODE_EXECUTABLE, MODE_TREE, MODE_LINK, MODE_SUBMODULE})


class Kind(StrEnum):
    """The kinds of object a config uses, in git's words."""

    COMMIT = "commit"
    TREE = "tree"
    BLOB = "blob"


_PACK_KINDS = {Kind.COMMIT: 1, Kind.TREE: 2, Kind.BLOB: 3}


class MalformedObject(ValueError):
    """An object is not what git would write; the text says how."""


@dataclass(frozen=True, slots=True)
class GitObject:
    """An object with the id its content gives it."""

    kind: Kind
    content: bytes
    id: str = field(init=False)

    def __post_init__(self) -> None:
        header = f"{self.kind} {len(self.content)}\0".encode()
        digest = hashlib.sha1(header + self.content, usedforsecurity=False)
        object.__setattr__(self, "id", digest.hexdigest())


@dataclass(frozen=True, slots=True)
class TreeItem:
    """One entry of one tree: a mode of git's, a name without its directory, the id it names."""

    mode: str
    name: bytes
    id: str


@dataclass(frozen=True, slots=True)
class BuiltCommit:
    """A commit that nobody has stored yet, and every object it needs."""

    id: str
    tree: str
    objects: tuple[GitObject, ...]


def build_commit(
    files: Iterable[ConfigFile], *, parent: str | None, author: str, at_s: int, message: str
) -> BuiltCommit:
    """Return the commit that holds exactly these files. `author` is "name <mail>", `at_s` Unix time."""
    objects: dict[str, GitObject] = {}
    root = _Directory()
    for file in files:
        blob = GitObject(Kind.BLOB, file.content)
        objects[blob.id] = blob
        *above, name = file.path.split("/")
        mode = MODE_EXECUTABLE if file.executable else MODE_FILE
        root.below(above).items.append(TreeItem(mode, name.encode(), blob.id))
    tree = _store_directory(root, objects)
    lines = [f"tree {tree.id}"]
    if parent is not None:
        lines.append(f"parent {parent}")
    lines += [f"{role} {author} {at_s} +0000" for role in ("author", "committer")]
    text = message.replace("\0", " ").strip() or "config"
    content = ("\n".join(lines) + f"\n\n{text}\n").encode("utf-8", "backslashreplace")
    commit = GitObject(Kind.COMMIT, content)
    objects[commit.id] = commit
    return BuiltCommit(commit.id, tree.id, tuple(objects.values()))


class _Directory:
    """A directory while its files are being sorted into it."""

    def __init__(self) -> None:
        self.items: list[TreeItem] = []
        self.directories: dict[str, _Directory] = {}

    def below(self, names: Sequence[str]) -> _Directory:
        found = self
        for name in names:
            found = found.directories.setdefault(name, _Directory())
        return found


def _store_directory(directory: _Directory, objects: dict[str, GitObject]) -> GitObject:
    """Add the trees of a directory and all below it to `objects`; its depth is bounded by the path rule."""
    items = list(directory.items)
    for name, child in directory.directories.items():
        items.append(TreeItem(MODE_TREE, name.encode(), _store_directory(child, objects).id))
    items.sort(key=_order)
    content = b"".join(
        item.mode.encode() + b" " + item.name + b"\0" + bytes.fromhex(item.id) for item in items
    )
    tree = GitObject(Kind.TREE, content)
    objects[tree.id] = tree
    return tree


def _order(item: TreeItem) -> bytes:
    """git's order of a tree: by bytes, a directory as if its name ended in a slash."""
    return item.name + b"/" if item.mode == MODE_TREE else item.name


def pack(objects: Sequence[GitObject]) -> bytes:
    """Return the objects as a pack, the form in which git takes many at once."""
    stream = bytearray(struct.pack(">4sLL", b"PACK", 2, len(objects)))
    for each in objects:
        stream += _pack_header(each) + zlib.compress(each.content, 1)
    return bytes(stream + hashlib.sha1(stream, usedforsecurity=False).digest())


def _pack_header(each: GitObject) -> bytes:
    """Kind and size: four bits of the size in the first byte, seven in each further one."""
    size = len(each.content)
    header = bytearray([_PACK_KINDS[each.kind] << 4 | size & 0x0F])
    size >>= 4
    while size:
        header[-1] |= 0x80
        header.append(size & 0x7F)
        size >>= 7
    return bytes(header)


def tree_id_of(commit: GitObject) -> str:
    """Return the id of the tree a commit names."""
    first = commit.content.partition(b"\n")[0].decode("ascii", "replace")
    word, _, tree = first.partition(" ")
    if commit.kind is not Kind.COMMIT or word != "tree" or not COMMIT_ID.fullmatch(tree):
        raise MalformedObject(f"object {commit.id} is not a commit")
    return tree


def parse_tree(tree: GitObject) -> tuple[TreeItem, ...]:
    """Return the entries of a tree; one with a name twice, or an odd mode, is malformed."""
    if tree.kind is not Kind.TREE:
        raise MalformedObject(f"object {tree.id} is not a tree")
    items: list[TreeItem] = []
    names: set[bytes] = set()
    rest = tree.content
    while rest:
        head, found, rest = rest.partition(b"\0")
        mode, _, name = head.partition(b" ")
        raw_id, rest = rest[:_RAW_ID_BYTES], rest[_RAW_ID_BYTES:]
        item = TreeItem(mode.decode("ascii", "replace"), name, raw_id.hex())
        if not found or len(raw_id) != _RAW_ID_BYTES or item.mode not in _MODES or not name or b"/" in name:
            raise MalformedObject(f"tree {tree.id} is malformed")
        if name in names:
            raise MalformedObject(f"tree {tree.id} has the name {name.decode('utf-8', 'replace')!a} twice")
        names.add(name)
        items.append(item)
    return tuple(items)


def walk(root: str, trees: Mapping[str, GitObject], *, max_trees: int) -> Iterator[tuple[bytes, TreeItem]]:
    """Yield (path, entry) of everything below a tree that is no directory; the caller bounds how many.

    Raises MalformedObject when a tree is not among `trees`, or after `max_trees`: a tree may hold one other
    many times over, and so on down.
    """
    waiting = [(b"", root)]
    for _ in range(max_trees):
        if not waiting:
            return
        prefix, tree_id = waiting.pop()
        tree = trees.get(tree_id)
        if tree is None:
            raise MalformedObject(f"tree {tree_id} is missing")
        for item in parse_tree(tree):
            if item.mode == MODE_TREE:
                waiting.append((prefix + item.name + b"/", item.id))
            else:
                yield prefix + item.name, item
    if waiting:
        raise MalformedObject(f"tree {root} holds more than {max_trees} directories")
