"""Running git on a config repo: one bounded, unprivileged process at a time.

Called by `git_objects`, the only module that knows git's commands, and by nothing else. It exists because
git in a directory somebody else can write is that somebody's code: every process here has a service
account's uid, no inherited environment, no way to gain privileges, limits on time, memory and files, and
leaves no process behind, however it ends.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hive_core.domain.errors import HiveError, HostUnsuitable, Retryable, TimedOut

_KEPT_ERROR_BYTES = 8 * 1024
_CHUNK_BYTES = 1 << 16

# Given on every command line, where they outrank whatever a repo's own config says. `bigFileThreshold`
# makes git stream a large object instead of holding it in memory.
_SETTINGS = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.alternateRefsCommand=true",
    "core.bigFileThreshold=1m",
    "core.fsync=committed",
    "core.fsyncMethod=batch",
    "core.commitGraph=false",
    "core.multiPackIndex=false",
    "protocol.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "pack.threads=1",
    "transfer.fsckObjects=true",
)


@dataclass(frozen=True, slots=True)
class GitLimits:
    """What one git process may use. `wall_s` bounds the call; the rest are the kernel's limits."""

    wall_s: float = 10.0
    cpu_s: int = 10
    memory_bytes: int = 1024 * 1024 * 1024
    file_bytes: int = 64 * 1024 * 1024
    open_files: int = 256


class GitFailed(HiveError):
    """git ended with an error. `detail` is git's own text: for the log, escaped, and nobody else."""

    def __init__(self, message: str, hint: str = "", *, detail: str = "") -> None:
        super().__init__(message, hint)
        self.detail = detail


class GitNotStarted(Retryable):
    """git could not be started: that says nothing about the repo."""


class GitRunner:
    """Runs git with the uid and gid of the service account; safe to use from several threads."""

    def __init__(self, uid: int, gid: int, limits: GitLimits | None = None) -> None:
        if uid == 0 or gid == 0:
            raise HostUnsuitable(
                "cannot run git on config repos: its account is root's", "use the account hive-git"
            )
        self._uid = uid
        self._gid = gid
        self._limits = limits or GitLimits()
        self._git = _program("git")
        self._setpriv = _program("setpriv")
        self._prlimit = _program("prlimit")

    def run(
        self, git_dir: Path, arguments: Sequence[str], *, stdin: bytes = b"", max_output_bytes: int
    ) -> bytes:
        """Return what `git ARGUMENTS` wrote to its standard output.

        Raises GitFailed when git fails or writes more than it may, TimedOut when it takes too long,
        GitNotStarted.
        """
        doing = f"git {arguments[0]} in {git_dir}"
        try:
            process = subprocess.Popen(
                self._command(git_dir, arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=self._environment(),
                user=self._uid,
                group=self._gid,
                extra_groups=[],
                umask=0o022,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as fault:
            raise GitNotStarted(f"cannot start {doing}: {fault.strerror}") from fault
        conversation = _Conversation(process, stdin, max_output_bytes)
        try:
            conversation.hold(time.monotonic() + self._limits.wall_s)
        finally:
            conversation.end()
        return conversation.answer(doing, self._limits.wall_s)

    def _command(self, git_dir: Path, arguments: Sequence[str]) -> list[str]:
        limits = self._limits
        settings = [word for setting in (f"safe.directory={git_dir}", *_SETTINGS) for word in ("-c", setting)]
        return [
            # Should the daemon be killed, its git dies with it.
            *(self._setpriv, "--no-new-privs", "--pdeathsig", "KILL", "--"),
            *(self._prlimit, f"--cpu={limits.cpu_s}", f"--as={limits.memory_bytes}", "--core=0"),
            *(f"--fsize={limits.file_bytes}", f"--nofile={limits.open_files}", "--"),
            *(self._git, f"--git-dir={git_dir}", "--literal-pathspecs", *settings, *arguments),
        ]

    def _environment(self) -> dict[str, str]:
        """Everything git gets; nothing of the daemon's own environment, where a stray GIT_DIR may be."""
        return {
            "PATH": os.pathsep.join((str(Path(self._git).parent), "/usr/bin", "/bin")),
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ALLOW_PROTOCOL": "",
        }


class _Conversation:
    """One git process and its three pipes, and how the exchange with it ended."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, max_output_bytes: int) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise AssertionError("git is always started with three pipes")
        self._process = process
        self._stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self._left = memoryview(stdin)
        self._max_output_bytes = max_output_bytes
        self._output = bytearray()
        self._errors = bytearray()
        self._is_late = False
        for stream in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(stream.fileno(), False)

    def hold(self, deadline: float) -> None:
        """Feed and read until the process has ended, wrote too much, or the deadline (monotonic) passed."""
        pidfd = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(pidfd, selectors.EVENT_READ)
                selector.register(self._stdin, selectors.EVENT_WRITE, self._feed)
                selector.register(self._stdout, selectors.EVENT_READ, self._take_output)
                selector.register(self._stderr, selectors.EVENT_READ, self._take_errors)
                self._turn_until(selector, deadline)
        finally:
            os.close(pidfd)

    def _turn_until(self, selector: selectors.BaseSelector, deadline: float) -> None:
        while not self._is_over:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                self._is_late = True
                return
            for key, _events in selector.select(left_s):
                if key.data is None:
                    return
                if not key.data():
                    selector.unregister(key.fileobj)
                    if key.fileobj is self._stdin:
                        self._stdin.close()

    def end(self) -> None:
        """End every process of the session and take what is left in the pipes. Idempotent."""
        if self._process.returncode is None:
            # The leader is reaped only after its group is dead: until then its number is nobody else's.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        while not self._is_over and self._read(self._stdout, self._output):
            continue
        while len(self._errors) < _KEPT_ERROR_BYTES and self._read(self._stderr, self._errors):
            continue
        for stream in (self._stdin, self._stdout, self._stderr):
            stream.close()

    def answer(self, doing: str, wall_s: float) -> bytes:
        """Return the output of the ended process, or raise what went wrong."""
        detail = self._errors[:_KEPT_ERROR_BYTES].decode("utf-8", "backslashreplace")
        if self._is_late:
            raise TimedOut(f"cannot finish {doing}: it took longer than {wall_s:g} s")
        if self._is_over:
            raise GitFailed(
                f"cannot finish {doing}: it wrote more than {self._max_output_bytes} bytes", detail=detail
            )
        status = self._process.returncode
        if status != 0:
            how = f"exit status {status}" if status > 0 else f"killed by signal {-status}"
            raise GitFailed(
                f"cannot finish {doing}: {how}", "git's own words are in the daemon's log", detail=detail
            )
        return bytes(self._output)

    @property
    def _is_over(self) -> bool:
        return len(self._output) > self._max_output_bytes

    def _feed(self) -> bool:
        """Write a piece of the input; False once there is no more to write."""
        try:
            if self._left:
                self._left = self._left[os.write(self._stdin.fileno(), self._left[:_CHUNK_BYTES]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            self._left = self._left[:0]
        return bool(self._left)

    def _take_output(self) -> bool:
        return self._read(self._stdout, self._output) != b""

    def _take_errors(self) -> bool:
        del self._errors[_KEPT_ERROR_BYTES:]
        return self._read(self._stderr, self._errors) != b""

    def _read(self, stream: IO[bytes], into: bytearray) -> bytes | None:
        """Take a piece of what is there: b"" at the end, None when there is nothing yet."""
        try:
            chunk = os.read(stream.fileno(), _CHUNK_BYTES)
        except BlockingIOError:
            return None
        into += chunk
        return chunk


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise HostUnsuitable(
            f"cannot run git on config repos: no '{name}' on this host", "install git and util-linux"
        )
    return found
