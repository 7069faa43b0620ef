"""Runs hivectl as what it is, a process, with pipes or with a terminal. Used by the tests in this folder."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DEADLINE_S = 20.0
ROWS, COLUMNS = 40, 120


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run on a terminal ended, and all it wrote there."""

    status: int
    screen: bytes


class CommandLine:
    """hivectl, speaking to one socket."""

    def __init__(self, socket_path: Path) -> None:
        self.socket_path = socket_path

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run to the end with pipes."""
        return subprocess.run(
            self._argv(arguments),
            check=False,
            input=stdin,
            env=self._env(),
            capture_output=True,
            timeout=DEADLINE_S,
        )

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Yield a started process with pipes; it is killed if it is still there at the end."""
        with subprocess.Popen(
            self._argv(arguments),
            env=self._env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def terminal(
        self, *arguments: str, colour: bool = False, first_on_path: Path | None = None
    ) -> Iterator[Terminal]:
        """Yield a terminal with hivectl running on it."""
        outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = self._env() | ({} if colour else {"NO_COLOR": "1"})
        if first_on_path is not None:
            environment["PATH"] = f"{first_on_path}:{environment['PATH']}"
        with subprocess.Popen(
            self._argv(arguments), env=environment, stdin=inner, stdout=inner, stderr=inner, process_group=0
        ) as process:
            try:
                yield Terminal(process, outer, inner)
            finally:
                process.kill()
                os.close(outer)
                os.close(inner)

    def on_terminal(self, *arguments: str, keys: bytes = b"", colour: bool = False) -> Ended:
        """Run to the end on a terminal whose user types `keys`."""
        with self.terminal(*arguments, colour=colour) as terminal:
            os.write(terminal.outer, keys)
            return terminal.end()

    @staticmethod
    def _argv(arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "hivectl", *arguments]

    def _env(self) -> dict[str, str]:
        ours = {"HIVE_ADMIN_SOCKET": str(self.socket_path), "TERM": "xterm"}
        return {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | ours


@dataclass(slots=True)
class Terminal:
    """A pseudo-terminal with a process on it; `inner` is the process's side, kept open to read its modes."""

    process: subprocess.Popen[bytes]
    outer: int
    inner: int
    screen: bytes = b""

    def wait_for(self, text: bytes) -> None:
        """Read until `text` is on the screen."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.screen:
            assert self._read(deadline), f"{text!r} never came: {self.screen!r}"

    def end(self) -> Ended:
        """Wait for the process to end and return everything it wrote."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end: {self.screen!r}"
            self._read(time.monotonic() + 0.05)
        while self._read(time.monotonic()):
            pass
        return Ended(self.process.returncode, self.screen)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self.outer], (), (), max(0.0, deadline - time.monotonic()))
        if ready:
            self.screen += os.read(self.outer, 65536)
        return bool(ready)
