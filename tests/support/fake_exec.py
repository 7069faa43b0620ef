"""A command run in the fake engine: writes what the test laid down, remembers what was written to it."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

EXIT_KILLED = 137


@dataclass(frozen=True, slots=True)
class ExecAnswer:
    """What a command writes (stream, bytes), its exit status, and whether it then goes on until ended."""

    output: tuple[tuple[int, bytes], ...] = ()
    code: int = 0
    runs_on: bool = False


class FakeExec:
    """The `ExecSession` of the fake: writes what it was told to, remembers what was written to it."""

    def __init__(self, answer: ExecAnswer) -> None:
        self.written = b""
        self.stdin_closed = False
        self.sizes: list[tuple[int, int]] = []
        self.is_terminated = False
        self._output = deque(answer.output)
        self._code = answer.code
        self._is_over = threading.Event()
        if not answer.runs_on:
            self._is_over.set()

    def read(self) -> tuple[int, bytes] | None:
        if self._output:
            return self._output.popleft()
        self._is_over.wait()
        return None

    def write(self, content: bytes) -> None:
        self.written += content

    def close_stdin(self) -> None:
        self.stdin_closed = True

    def resize(self, rows: int, columns: int) -> None:
        self.sizes.append((rows, columns))

    def exit_code(self) -> int:
        return EXIT_KILLED if self.is_terminated else self._code

    def terminate(self) -> None:
        self.is_terminated = self.is_terminated or not self._is_over.is_set()
        self._is_over.set()
