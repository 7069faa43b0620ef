"""A real child process whose output a test waits for, line by line.

Used by the tests of the harness and of the example agents. A watchdog kills a
child that outlives its deadline: the pipe then ends, and the waiting test fails
with what it has read so far instead of hanging.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

DEADLINE_S = 20.0


class Child:
    """A process in a group of its own, all of which is gone when the `with` block ends."""

    def __init__(
        self, command: Sequence[str], cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self.lines: list[str] = []
        self._watchdog = threading.Timer(DEADLINE_S, self.process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def wait_for(self, text: str) -> str:
        """Read lines until one contains `text` and return it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if text in line:
                return self.lines[-1]
        raise AssertionError(f"no line with {text!r} before the end of the output:\n" + "\n".join(self.lines))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone, as an init would."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Read the rest of the output, wait for the end and return the exit code."""
        assert self.process.stdout is not None
        self.lines += [line.rstrip("\n") for line in self.process.stdout]
        return self.process.wait()

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
