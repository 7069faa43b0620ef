"""The meta repo: the hive's own git repository, whose history is the deploy log.

Written by the reconcile loop when the roster changes. The one place that uses GitPython, and the one
repository in which git runs as root: no agent and no service account can write to it. Even so no hook,
filter of another user's configuration or variable of the daemon's environment has a say, and no child
process or file outlives a call.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from git.cmd import Git
from git.exc import GitCommandError, GitCommandNotFound

from hive_core.adapters.files import make_dir, read_regular, write_atomic
from hive_core.domain.errors import HiveError, HostUnsuitable, UnsafePath

_AUTHOR_NAME = "hive"
_AUTHOR_MAIL = "hive@localhost"
_WALL_S = 10.0
_FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_LOCKS = ("index.lock", "HEAD.lock", "config.lock", "refs/heads/main.lock")
_SETTINGS = {
    "core.sharedRepository": "0644",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "gc.auto": "0",
}
_ENVIRONMENT = {
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_AUTHOR_NAME": _AUTHOR_NAME,
    "GIT_AUTHOR_EMAIL": _AUTHOR_MAIL,
    "GIT_COMMITTER_NAME": _AUTHOR_NAME,
    "GIT_COMMITTER_EMAIL": _AUTHOR_MAIL,
}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One commit of the deploy log: its id, when (Unix seconds), and the first line of its message."""

    id: str
    at_s: int
    subject: str


class MetaRepo:
    """The repository at one path. Made once, at the daemon's start; used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started_at_s = time.time()
        self._git = Git(str(path))
        self._git.update_environment(**_ENVIRONMENT)

    def prepare(self) -> tuple[str, ...]:
        """Make the repository, or bring an existing one in order; returns what had to be repaired, in words.

        The caller holds the hive's lock. A repository too damaged for git is moved aside, not deleted.
        """
        _forget_git_variables()
        make_dir(self._path, mode=0o755)
        notes = self._remove_stale_locks()
        try:
            self._set_up()
        except HiveError as fault:
            kept = self._move_aside()
            if kept is None:
                raise
            notes.append(
                f"meta repo was damaged ({fault.message}); it is kept as {kept} and a new one was begun"
            )
            self._set_up()
        return tuple(notes)

    def commit(self, files: Mapping[str, bytes], message: str) -> str | None:
        """Write the files (name in the top directory to content) and commit them alone.

        Returns the new commit's id, None when the last commit holds them already. Raises HiveError, OSError;
        the files are then written, and the next commit includes them.
        """
        names = sorted(files)
        for name in names:
            if not _FILE_NAME.fullmatch(name):
                raise UnsafePath(f"cannot commit {name[:80]!a} to the meta repo: not a plain file name")
            self._write(name, files[name])
        self._run("add", "--force", "--", *names)
        if not self._run("status", "--porcelain", "--untracked-files=no", "--", *names):
            return None
        self._run("commit", "--quiet", "--no-verify", "--no-gpg-sign", "--only", "-m", message, "--", *names)
        # The one file that git writes without regard to core.sharedRepository.
        (self._path / ".git" / "COMMIT_EDITMSG").unlink(missing_ok=True)
        return self._run("rev-parse", "--verify", "HEAD").strip()

    def log(self, limit: int) -> tuple[LogEntry, ...]:
        """Return the newest commits, newest first; none when nothing was committed yet."""
        if not self._has_commit():
            return ()
        output = self._run("log", f"--max-count={limit}", "-z", "--format=%H %ct %s")
        entries = [record.split(" ", 2) for record in output.split("\0") if record]
        return tuple(LogEntry(commit, int(at_s), subject) for commit, at_s, subject in entries)

    def _set_up(self) -> None:
        self._run("init", "--quiet", "--template=", "--initial-branch=main", "--shared=0644")
        (self._path / ".git").chmod(0o755)
        for key, value in _SETTINGS.items():
            self._run("config", key, value)
        if self._has_commit():
            self._run("status", "--porcelain", "--untracked-files=no")
            self._run("log", "--max-count=1", "--format=%H", "--", ".")

    def _has_commit(self) -> bool:
        git_dir = self._path / ".git"
        return (git_dir / "refs" / "heads" / "main").exists() or (git_dir / "packed-refs").exists()

    def _write(self, name: str, content: bytes) -> None:
        path = self._path / name
        with suppress(FileNotFoundError, UnsafePath):
            if read_regular(path, len(content)) == content:
                return
        write_atomic(path, content, 0o644)

    def _run(self, *arguments: str) -> str:
        command = [
            "git",
            "--literal-pathspecs",
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "core.fsmonitor=false",
        ]
        command += ["-c", "core.attributesFile=/dev/null", "-c", "gc.auto=0", *arguments]
        try:
            return str(self._git.execute(command, kill_after_timeout=_WALL_S, strip_newline_in_stdout=False))
        except GitCommandNotFound as fault:
            raise HostUnsuitable("cannot keep the meta repo: no 'git' on this host", "install git") from fault
        except GitCommandError as fault:
            raise self._failure(arguments[0], fault) from fault

    def _failure(self, verb: str, fault: GitCommandError) -> HiveError:
        held = [name for name in _LOCKS if (self._path / ".git" / name).exists()]
        if held:
            path = self._path / ".git" / held[0]
            return HiveError(
                f"cannot {verb} in the meta repo: {path} is held", f"if no git runs there, remove {path}"
            )
        said = " ".join(str(fault.stderr).split())[:200]
        return HiveError(f"cannot {verb} in the meta repo: git exit {fault.status}: {ascii(said)[1:-1]}")

    def _move_aside(self) -> str | None:
        git_dir = self._path / ".git"
        if not git_dir.exists():
            return None
        kept = self._path / f".git.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        git_dir.rename(kept)
        return str(kept)

    def _remove_stale_locks(self) -> list[str]:
        """Remove lock files that a git which is no more left behind; one that may be in use stays."""
        notes = []
        for name in _LOCKS:
            path = self._path / ".git" / name
            with suppress(FileNotFoundError):
                if path.lstat().st_mtime < self._started_at_s and not _is_git_at_work(self._path):
                    path.unlink()
                    notes.append(f"removed a lock that a dead git had left at {path}")
        return notes


def _forget_git_variables() -> None:
    """Drop every GIT_ variable of this process: started from a hook, it would write to another repository."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]


def _is_git_at_work(path: Path) -> bool:
    """Whether some process named like git has its working directory, or an open file, below a path."""
    inside = f"{path}/"
    for process in Path("/proc").iterdir():
        if not process.name.isdecimal():
            continue
        with suppress(OSError):
            if not (process / "comm").read_text().startswith("git"):
                continue
            links = [process / "cwd", *(process / "fd").iterdir()]
            if any(f"{os.readlink(link)}/".startswith(inside) for link in links):
                return True
    return False
