"""git's commands on a config repo, one typed function each: list, read, store.

Called by `repos` and `exports`. A size is always looked up before content is read, everything is bounded,
and what comes back has been checked against the commit id it was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hive_core.adapters.git_objects import (
    MODE_EXECUTABLE,
    MODE_FILE,
    MODE_LINK,
    MODE_SUBMODULE,
    MODE_TREE,
    GitObject,
    Kind,
    MalformedObject,
    pack,
    parse_tree,
    tree_id_of,
    walk,
)
from hive_core.adapters.git_process import GitFailed, GitRunner
from hive_core.domain.config_files import (
    MAX_FILES,
    MAX_TOTAL_BYTES,
    ConfigFile,
    path_fault,
    set_fault,
)
from hive_core.domain.errors import InvalidRequest, RepoDamaged

_MAX_LISTING_BYTES = 4 * 1024 * 1024
_MAX_COMMIT_BYTES = 64 * 1024
_MAX_TREES_BYTES = 4 * 1024 * 1024
_HEADER_BYTES = 128
_MAX_TREES = 64 * 1024
_KINDS = frozenset(kind.value for kind in Kind)
_REPAIR = "push a config again, or restore the repo from a backup"
_KIND_WORDS = {
    MODE_LINK: "a symbolic link",
    MODE_SUBMODULE: "a submodule",
    MODE_TREE: "a directory",
}


class RepoUnreadable(RepoDamaged):
    """A config repo says nothing that can be relied on. `detail` is git's own text, for the log only."""

    def __init__(self, git_dir: Path, reason: str, *, detail: str = "") -> None:
        super().__init__(f"cannot read config repo {git_dir.stem}: {reason}", _REPAIR)
        self.detail = detail


@dataclass(frozen=True, slots=True)
class _Listed:
    """One entry of a listing. `size_bytes` is None where there is none: directory, submodule, lost blob."""

    mode: str
    id: str
    size_bytes: int | None
    path: bytes


class RepoObjects:
    """Reads and writes the objects of bare repos through one runner."""

    def __init__(self, runner: GitRunner) -> None:
        self._runner = runner

    def store(self, git_dir: Path, objects: Sequence[GitObject]) -> None:
        """Write objects into a repo; those it has already cost nothing. Raises GitFailed, TimedOut."""
        self._runner.run(
            git_dir, ["unpack-objects", "-q", "--strict"], stdin=pack(objects), max_output_bytes=0
        )

    def tree_of(self, git_dir: Path, commit: str) -> str:
        """Return the id of the tree of a commit."""
        (found,) = self._contents(git_dir, [commit], _MAX_COMMIT_BYTES)
        return _checked_tree_id(git_dir, found)

    def read_file(self, git_dir: Path, commit: str, path: str, max_bytes: int) -> bytes:
        """Return one regular file of a commit. Raises RepoDamaged saying what is there instead."""
        listed = self._list(git_dir, commit, path)
        if len(listed) != 1 or listed[0].path != path.encode():
            raise RepoUnreadable(git_dir, f"commit {commit[:12]} has no {path}")
        entry = _require_file(git_dir, listed[0], max_bytes)
        directories = [path[:end] for end, character in enumerate(path) if character == "/"]
        wanted = [commit, f"{commit}^{{tree}}", *(f"{commit}:{directory}" for directory in directories)]
        limit = _MAX_COMMIT_BYTES + _MAX_TREES_BYTES + max_bytes
        head, *trees, blob = self._contents(git_dir, [*wanted, entry.id], limit)
        if not _is_reached(git_dir, head, trees, path, entry):
            raise RepoUnreadable(git_dir, f"{path} is not what commit {commit[:12]} names")
        return blob.content

    def read_all(self, git_dir: Path, commit: str) -> tuple[ConfigFile, ...]:
        """Return every file of a commit. Raises RepoDamaged when one may not be in a config."""
        listed = self._list(git_dir, commit, None)
        directories = [entry for entry in listed if entry.mode == MODE_TREE]
        files = [entry for entry in listed if entry.mode != MODE_TREE]
        total_bytes = _refuse_unfit(git_dir, files)
        ids = [*dict.fromkeys(entry.id for entry in (*directories, *files))]
        limit = _MAX_COMMIT_BYTES + _MAX_TREES_BYTES + total_bytes
        head, root, *others = self._contents(git_dir, [commit, f"{commit}^{{tree}}", *ids], limit)
        objects = {found.id: found for found in (root, *others)}
        _refuse_difference(git_dir, _checked_tree_id(git_dir, head), objects, files)
        try:
            return tuple(
                ConfigFile(entry.path.decode(), objects[entry.id].content, entry.mode == MODE_EXECUTABLE)
                for entry in files
            )
        except InvalidRequest as fault:
            raise RepoUnreadable(git_dir, fault.message) from fault

    def _list(self, git_dir: Path, commit: str, path: str | None) -> list[_Listed]:
        which = ["-r", "-t"] if path is None else []
        names = [] if path is None else [path]
        arguments = ["ls-tree", "-z", "-l", "--full-tree", *which, commit, "--", *names]
        try:
            output = self._runner.run(git_dir, arguments, max_output_bytes=_MAX_LISTING_BYTES)
        except GitFailed as fault:
            raise RepoUnreadable(git_dir, _reason(fault, commit), detail=fault.detail) from fault
        return [_parse_listed(git_dir, record) for record in output.split(b"\0") if record]

    def _contents(self, git_dir: Path, wanted: Sequence[str], max_bytes: int) -> list[GitObject]:
        """Return the named objects in order, each checked against its id."""
        request = "".join(f"{name}\n" for name in wanted).encode()
        limit = max_bytes + _HEADER_BYTES * len(wanted)
        try:
            output = self._runner.run(git_dir, ["cat-file", "--batch"], stdin=request, max_output_bytes=limit)
        except GitFailed as fault:
            raise RepoUnreadable(git_dir, _reason(fault, wanted[0]), detail=fault.detail) from fault
        return _parse_batch(git_dir, wanted, output)


def _reason(fault: GitFailed, commit: str) -> str:
    return f"git could not read commit {commit[:12]} ({fault.message.rpartition(': ')[2]})"


def _parse_listed(git_dir: Path, record: bytes) -> _Listed:
    head, tab, path = record.partition(b"\t")
    words = head.decode("ascii", "replace").split()
    if not tab or len(words) != 4:
        raise RepoUnreadable(git_dir, "git listed it in an unknown form")
    mode, _, object_id, size = words
    return _Listed(mode.lstrip("0"), object_id, int(size) if size.isdecimal() else None, path)


def _parse_batch(git_dir: Path, wanted: Sequence[str], output: bytes) -> list[GitObject]:
    found: list[GitObject] = []
    position = 0
    for name in wanted:
        end = output.find(b"\n", position)
        words = output[position : max(end, position)].decode("utf-8", "replace").split(" ")
        if len(words) != 3 or words[1] not in _KINDS or not words[2].isdecimal():
            raise RepoUnreadable(git_dir, f"object {name[:40]} is missing")
        start, size = end + 1, int(words[2])
        each = GitObject(Kind(words[1]), output[start : start + size])
        is_named = name == each.id or ":" in name or "^" in name
        if words[0] != each.id or not is_named:
            raise RepoUnreadable(git_dir, f"the content of object {words[0][:40]} does not match its id")
        found.append(each)
        position = start + size + 1
    return found


def _require_file(git_dir: Path, entry: _Listed, max_bytes: int) -> _Listed:
    shown = ascii(entry.path.decode("utf-8", "replace")[:80])[1:-1]
    if entry.mode not in (MODE_FILE, MODE_EXECUTABLE):
        kind = _KIND_WORDS.get(entry.mode, f"of mode {entry.mode}")
        raise RepoUnreadable(git_dir, f"{shown} is {kind}, not a regular file")
    if entry.size_bytes is None:
        raise RepoUnreadable(git_dir, f"the content of {shown} is missing")
    if entry.size_bytes > max_bytes:
        raise RepoUnreadable(
            git_dir, f"{shown} has {entry.size_bytes} bytes, at most {max_bytes} are allowed"
        )
    return entry


def _refuse_unfit(git_dir: Path, files: Sequence[_Listed]) -> int:
    """Refuse, by its first bad entry, a config that may not be exported; return the size of one that may."""
    fault = set_fault(min(len(files), MAX_FILES + 1), 0)
    total_bytes = 0
    for entry in files[: MAX_FILES + 1]:
        total_bytes += _require_file(git_dir, entry, MAX_TOTAL_BYTES).size_bytes or 0
        fault = fault or set_fault(0, total_bytes)
        try:
            fault = fault or path_fault(entry.path.decode("utf-8"))
        except UnicodeDecodeError:
            fault = fault or "its path is not UTF-8"
        if fault:
            shown = ascii(entry.path.decode("utf-8", "replace")[:80])
            raise RepoUnreadable(git_dir, f"file {shown}: {fault}")
    return total_bytes


def _checked_tree_id(git_dir: Path, commit: GitObject) -> str:
    try:
        return tree_id_of(commit)
    except MalformedObject as fault:
        raise RepoUnreadable(git_dir, str(fault)) from fault


def _is_reached(
    git_dir: Path, head: GitObject, trees: Sequence[GitObject], path: str, entry: _Listed
) -> bool:
    """Whether walking down from the commit by checked trees leads to the entry that was listed."""
    by_id = {tree.id: tree for tree in trees}
    tree_id = _checked_tree_id(git_dir, head)
    *above, name = path.encode().split(b"/")
    try:
        for directory in above:
            tree_id = _entry_id(by_id, tree_id, directory, MODE_TREE)
        return _entry_id(by_id, tree_id, name, entry.mode) == entry.id
    except (MalformedObject, KeyError):
        return False


def _entry_id(by_id: Mapping[str, GitObject], tree_id: str, name: bytes, mode: str) -> str:
    for item in parse_tree(by_id[tree_id]):
        if (item.name, item.mode) == (name, mode):
            return item.id
    raise MalformedObject(f"tree {tree_id} does not have the entry")


def _refuse_difference(
    git_dir: Path, tree_id: str, objects: Mapping[str, GitObject], listed: Sequence[_Listed]
) -> None:
    """Refuse a listing that is not exactly what the checked trees say."""
    reached: set[tuple[bytes, str, str]] = set()
    try:
        for path, item in walk(tree_id, objects, max_trees=_MAX_TREES):
            reached.add((path, item.mode, item.id))
            if len(reached) > len(listed):
                break
    except MalformedObject as fault:
        raise RepoUnreadable(git_dir, str(fault)) from fault
    if reached != {(entry.path, entry.mode, entry.id) for entry in listed}:
        raise RepoUnreadable(git_dir, "its trees do not say what git listed")
