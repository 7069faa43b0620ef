"""hivectl of a live hive on a pseudo-terminal. Used by the integration tests."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

from tests.support.live_hive import LiveHive

ROWS, COLUMNS = 33, 111
DEADLINE_S = 20.0


def on_terminal(hive: LiveHive, *arguments: str) -> tuple[int, bytes]:
    """Run hivectl on a terminal of its own to its end; return its status and all it wrote there."""
    outer, inner = pty.openpty()
    try:
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        with subprocess.Popen(
            hive.hivectl_argv(*arguments),
            env=hive.hivectl_environment(),
            stdin=inner,
            stdout=inner,
            stderr=inner,
            process_group=0,
        ) as process:
            try:
                return _watched(process, outer)
            finally:
                process.kill()
    finally:
        os.close(outer)
        os.close(inner)


def _watched(process: subprocess.Popen[bytes], outer: int) -> tuple[int, bytes]:
    screen = b""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        has_ended = process.poll() is not None
        ready, _, _ = select.select([outer], (), (), 0 if has_ended else 0.05)
        if ready:
            screen += os.read(outer, 65536)
        elif has_ended:
            return process.wait(), screen
        assert time.monotonic() < deadline, f"it does not end: {screen!r}"
