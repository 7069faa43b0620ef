"""The config repos of a hive: `<root>/<agent>.git`, one bare repo an agent.

The engine layer observes them in every pass and creates, pushes to and retires them for verbs. A main
branch is a publication that only root writes, as a file, after git's account has stored the objects and
they were read back and checked: so nothing an agent or git's account does moves main, and main never names
something that cannot be read. A directory without its marker is not this hive's: it counts as unknown.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hive_core.adapters.files import make_dir, opened_directory, read_regular, write_atomic
from hive_core.adapters.git_objects import COMMIT_ID, BuiltCommit, build_commit
from hive_core.adapters.git_process import GitFailed, GitLimits, GitRunner
from hive_core.adapters.repo_objects import RepoObjects
from hive_core.adapters.repo_survey import RepoFault, RepoSurvey, packed_refs, read_main
from hive_core.adapters.repo_tree import (
    drop_loose,
    hand_over_objects,
    is_laid_out,
    lay_out,
    opened,
    remove_tree,
    sync_objects,
)
from hive_core.domain.config_files import ConfigFile, parse_config_files, path_fault
from hive_core.domain.errors import (
    Conflict,
    HiveError,
    InvalidName,
    InvalidRequest,
    NameUnavailable,
    NotFound,
    RepoDamaged,
    UnsafePath,
)
from hive_core.domain.names import AgentName, parse_name
from hive_core.domain.observed import ObservedRepo, Repos, Unknown

MARKER = ".hive"
RETIRED = "retired"
AUTHOR = "hive <hive@localhost>"
_SUFFIX = ".git"
_IGNORED = frozenset({RETIRED, "lost+found"})
_LEFTOVER = re.compile(r"\.(new|gone)-[0-9a-f]{16}")
_INCARNATION = re.compile(r"[0-9a-z-]{1,64}")
_MAX_MISNAMED = 100
_REMOUNT = "mount it, or restore it from a backup"


class ConfigRepos:
    """The repos directory. `git_uid` and `git_gid` are the account git runs as; safe to use from threads."""

    def __init__(self, root: Path, git_uid: int, git_gid: int, limits: GitLimits | None = None) -> None:
        self._root = root
        self._git_uid = git_uid
        self._git_gid = git_gid
        self._objects = RepoObjects(GitRunner(git_uid, git_gid, limits))
        self._survey = RepoSurvey(root)
        self._hive_id: str | None = None
        self._locks: dict[AgentName, threading.Lock] = {}
        self._locks_guard = threading.Lock()
        self._survey_guard = threading.Lock()

    def prepare(self, hive_id: str, *, expect_marker: bool) -> Unknown | None:
        """Make the directory at the hive's first start, and remove what a crash left half done.

        `expect_marker` says that this hive has had repos before: then a directory without its marker is an
        unmounted one and is left alone. Returns Unknown when the directory is not this hive's.
        """
        self._hive_id = hive_id
        if not expect_marker:
            make_dir(self._root, mode=0o710, gid=self._git_gid)
        fault = self._marker_fault()
        if fault and not expect_marker and self._is_unused():
            write_atomic(self._root / MARKER, f"{hive_id}\n".encode(), 0o644)
            fault = ""
        if fault:
            return Unknown(fault)
        make_dir(self._root, mode=0o710, gid=self._git_gid)
        make_dir(self._root / RETIRED, mode=0o700)
        with opened_directory(self._root) as root_fd:
            for name in os.listdir(root_fd):
                if _LEFTOVER.fullmatch(name):
                    remove_tree(root_fd, name)
        return None

    def observe(self) -> Repos | Unknown:
        """Return every repo and the commit its main names, or why not. Never blocks or runs git."""
        fault = self._marker_fault()
        if fault:
            return Unknown(fault)
        try:
            with opened_directory(self._root) as root_fd, self._survey_guard:
                return self._observe(root_fd)
        except (OSError, UnsafePath) as error:
            return Unknown(f"cannot list {self._root}: {error}")

    def _observe(self, root_fd: int) -> Repos:
        repos: dict[AgentName, ObservedRepo] = {}
        misnamed: list[str] = []
        entries = sorted(os.listdir(root_fd))
        for entry in entries:
            if entry.startswith(".") or entry in _IGNORED:
                continue
            name = _name_of(entry)
            if name is None:
                misnamed.append(ascii(entry[:80])[1:-1])
                continue
            try:
                repos[name] = ObservedRepo(name, self._survey.main(root_fd, entry), "")
            except RepoFault as fault:
                repos[name] = ObservedRepo(name, None, f"config repo {entry}: {fault}")
        self._survey.forget_missing(set(entries))
        return Repos(repos, tuple(misnamed[:_MAX_MISNAMED]))

    def create(self, name: AgentName, files: Sequence[ConfigFile], message: str) -> str:
        """Make a repo whose main is a commit of these files, whole or not at all; return the commit.

        Raises NameUnavailable when there is one already, InvalidRequest, HiveError, TimedOut.
        """
        built = self._build(files, None, message)
        with self._writing(name) as root_fd:
            entry = name + _SUFFIX
            if _is_there(root_fd, entry):
                raise NameUnavailable(
                    f"cannot create config repo {name}: it exists", f"push to it, or rm {name} first"
                )
            temporary = f".new-{secrets.token_hex(8)}"
            try:
                lay_out(root_fd, self._root / temporary, self._git_uid, self._git_gid)
                self._store(root_fd, temporary, built)
                self._publish(temporary, built.id)
                os.rename(temporary, entry, src_dir_fd=root_fd, dst_dir_fd=root_fd)
            except BaseException:
                remove_tree(root_fd, temporary)
                raise
            os.fsync(root_fd)
        return built.id

    def push(self, name: AgentName, files: Sequence[ConfigFile], message: str) -> str:
        """Move main to a new commit of exactly these files and return it; the same files move nothing.

        A main that cannot be read is replaced by a commit without a parent: pushing is how a damaged repo
        is repaired. Raises NotFound, RepoDamaged when the layout is unsound, InvalidRequest, HiveError,
        TimedOut, and Conflict when somebody else moved main meanwhile.
        """
        entry = name + _SUFFIX
        with self._writing(name) as root_fd:
            self._require_sound(root_fd, name)
            if not is_laid_out(root_fd, entry, self._git_gid):
                self._take_over(root_fd, name)
            before = self._named_main(root_fd, entry)
            tree = self._tree_of(entry, before)
            if before is not None and tree is None:
                message = f"{message}\n\nReplaces {before}, which could not be read."
            built = self._build(files, before if tree else None, message)
            if before is not None and tree == built.tree and self._is_whole(entry, before):
                return before
            self._store(root_fd, entry, built)
            if self._named_main(root_fd, entry) != before:
                raise Conflict(f"cannot push to {name}: main was moved meanwhile", "push again")
            self._publish(entry, built.id)
        return built.id

    def read_file(self, name: AgentName, commit: str, path: str, max_bytes: int) -> bytes:
        """Return a regular file of a commit, its size looked up first. Raises RepoDamaged, TimedOut."""
        fault = path_fault(path)
        if fault:
            raise InvalidRequest(f"cannot read {path[:80]!a}: {fault}")
        return self._objects.read_file(self._git_dir(name), _checked_commit(commit), path, max_bytes)

    def read_all(self, name: AgentName, commit: str) -> tuple[ConfigFile, ...]:
        """Return all files of a commit. Raises RepoDamaged when one may not be in a config, TimedOut."""
        return self._objects.read_all(self._git_dir(name), _checked_commit(commit))

    def adopt(self, name: AgentName) -> None:
        """Bring a repo that an operator placed by hand into the layout in which git's account can add to it.

        A push does so by itself. Idempotent. Raises NotFound, and RepoDamaged when one of its fixed files
        is not root's.
        """
        with self._writing(name) as root_fd:
            self._require_sound(root_fd, name)
            self._take_over(root_fd, name)

    def _take_over(self, root_fd: int, name: AgentName) -> None:
        git_dir = self._git_dir(name)
        try:
            main = self._named_main(root_fd, git_dir.name)
            packed = packed_refs(root_fd, git_dir.name, git_dir)
            lay_out(root_fd, git_dir, self._git_uid, self._git_gid)
            hand_over_objects(root_fd, git_dir.name, self._git_uid, self._git_gid)
        except RepoFault as found:
            raise _damaged(name, found) from found
        except OSError as error:
            fault = RepoFault(
                f"{error.filename} cannot be taken over: {error.strerror}", "look at what it is"
            )
            raise _damaged(name, fault) from error
        if main is not None:
            self._publish(git_dir.name, main)
            self._unpack_main(git_dir.name, packed)

    def _unpack_main(self, entry: str, packed: list[str]) -> None:
        """Leave no second main in packed-refs, where an old commit would come back if the file were lost."""
        path = self._root / entry / "packed-refs"
        rest = [line for line in packed if not line.endswith(" refs/heads/main")]
        if any(not line.startswith(("#", "^")) for line in rest):
            write_atomic(path, "".join(f"{line}\n" for line in rest).encode(errors="surrogateescape"), 0o644)
        elif packed:
            path.unlink()

    def retire(self, name: AgentName, incarnation: str) -> bool:
        """Move a repo out of the way; False when there is none. Idempotent."""
        with self._writing(name) as root_fd:
            make_dir(self._root / RETIRED, mode=0o700)
            return _move(root_fd, name + _SUFFIX, _retired(name, incarnation))

    def revive(self, name: AgentName, incarnation: str) -> None:
        """Bring a retired repo back. Raises NameUnavailable, NotFound; idempotent."""
        with self._writing(name) as root_fd:
            source, target = _retired(name, incarnation), name + _SUFFIX
            is_back = _is_there(root_fd, target)
            if is_back and _is_there(root_fd, source):
                raise NameUnavailable(
                    f"cannot revive config repo {name}: there is one already", f"rm {name} first"
                )
            if not is_back and not _move(root_fd, source, target):
                raise NotFound(f"cannot revive config repo {name}: it was not kept")

    def purge(self, name: AgentName) -> None:
        """Delete a repo; one that is gone is fine."""
        with self._writing(name) as root_fd:
            _discard(root_fd, name + _SUFFIX)

    def discard_retired(self, name: AgentName, incarnation: str) -> None:
        """Delete a retired repo; one that is gone is fine."""
        with self._writing(name) as root_fd:
            _discard(root_fd, _retired(name, incarnation))

    def _marker_fault(self) -> str:
        """Return why the directory does not count as this hive's repos, "" when it does."""
        marker = self._root / MARKER
        try:
            found = read_regular(marker, 64).decode("ascii", "replace").strip()
        except FileNotFoundError:
            return f"{self._root} has no file {MARKER}: it is not mounted, or not this hive's; {_REMOUNT}"
        except UnsafePath as fault:
            return f"{fault.message}; {_REMOUNT}"
        if self._hive_id is not None and found != self._hive_id:
            return f"{self._root} belongs to the hive {found!a}; mount this hive's own"
        return ""

    def _is_unused(self) -> bool:
        # A crash while the marker was written may have left its temporary file.
        return all(
            entry == "lost+found" or entry.startswith(f".{MARKER}.") for entry in os.listdir(self._root)
        )

    @contextmanager
    def _writing(self, name: AgentName) -> Iterator[int]:
        """Hold the repo's lock and the directory; refuses one that is not the hive's."""
        with self._locks_guard:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            fault = self._marker_fault()
            if fault:
                raise UnsafePath(f"cannot change config repo {name}: {fault}")
            with opened_directory(self._root) as root_fd:
                yield root_fd

    def _git_dir(self, name: AgentName) -> Path:
        return self._root / (name + _SUFFIX)

    def _require_sound(self, root_fd: int, name: AgentName) -> None:
        entry = name + _SUFFIX
        if not _is_there(root_fd, entry):
            raise NotFound(f"cannot find config repo {name}", f"hivectl init {name}")
        try:
            self._survey.check(root_fd, entry)
        except RepoFault as fault:
            raise _damaged(name, fault) from fault

    def _named_main(self, root_fd: int, entry: str) -> str | None:
        """Return the commit main names, None when it is unborn or no commit id."""
        try:
            return read_main(root_fd, entry, self._root / entry)
        except RepoFault:
            return None

    def _tree_of(self, entry: str, commit: str | None) -> str | None:
        """Return the tree of a commit, None when there is none to read."""
        try:
            return None if commit is None else self._objects.tree_of(self._root / entry, commit)
        except RepoDamaged:
            return None

    def _is_whole(self, entry: str, commit: str) -> bool:
        try:
            self._objects.read_all(self._root / entry, commit)
        except RepoDamaged:
            return False
        return True

    def _build(self, files: Sequence[ConfigFile], parent: str | None, message: str) -> BuiltCommit:
        checked = parse_config_files((file.path, file.content, file.executable) for file in files)
        return build_commit(checked, parent=parent, author=AUTHOR, at_s=int(time.time()), message=message)

    def _store(self, root_fd: int, entry: str, built: BuiltCommit) -> None:
        """Have git's account store the objects, and prove that the commit can be read back whole."""
        git_dir = self._root / entry
        ids = [each.id for each in built.objects]
        try:
            self._objects.store(git_dir, built.objects)
            try:
                self._objects.read_all(git_dir, built.id)
            except RepoDamaged:
                # git takes any file of an object's name for the object, so a damaged one is written anew.
                drop_loose(root_fd, entry, ids)
                self._objects.store(git_dir, built.objects)
                self._objects.read_all(git_dir, built.id)
        except GitFailed as fault:
            hint = "is the disk full? git's own words are in the daemon's log"
            raise HiveError(f"cannot store the config in {git_dir}: git failed", hint) from fault
        sync_objects(root_fd, entry, ids)

    def _publish(self, entry: str, commit: str) -> None:
        write_atomic(self._root / entry / "refs" / "heads" / "main", f"{commit}\n".encode(), 0o644)


def _name_of(entry: str) -> AgentName | None:
    try:
        return parse_name(entry.removesuffix(_SUFFIX)) if entry.endswith(_SUFFIX) else None
    except InvalidName:
        return None


def _checked_commit(commit: str) -> str:
    if not COMMIT_ID.fullmatch(commit):
        raise InvalidRequest(f"cannot read commit {commit[:60]!a}: not 40 hexadecimal digits")
    return commit


def _retired(name: AgentName, incarnation: str) -> str:
    if not _INCARNATION.fullmatch(incarnation):
        raise InvalidRequest(f"cannot name a retired repo after incarnation {incarnation[:80]!a}")
    return f"{RETIRED}/{name}-{incarnation}{_SUFFIX}"


def _damaged(name: AgentName, fault: RepoFault) -> RepoDamaged:
    return RepoDamaged(f"cannot use config repo {name}: {fault.reason}", fault.way_out)


def _is_there(root_fd: int, path: str) -> bool:
    try:
        os.stat(path, dir_fd=root_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _move(root_fd: int, source: str, target: str) -> bool:
    """Rename durably; False when there is nothing to move. Returns True when it was moved already."""
    if not _is_there(root_fd, source):
        return _is_there(root_fd, target)
    os.rename(source, target, src_dir_fd=root_fd, dst_dir_fd=root_fd)
    with opened(root_fd, RETIRED) as retired_fd:
        os.fsync(retired_fd)
    os.fsync(root_fd)
    return True


def _discard(root_fd: int, path: str) -> None:
    """Make a repo invisible at once, then remove it; a crash in between is swept at the next start."""
    temporary = f".gone-{secrets.token_hex(8)}"
    try:
        os.rename(path, temporary, src_dir_fd=root_fd, dst_dir_fd=root_fd)
    except FileNotFoundError:
        return
    os.fsync(root_fd)
    remove_tree(root_fd, temporary)
