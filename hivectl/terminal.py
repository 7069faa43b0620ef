r"""The operator's own terminal while `exec -t` has it: raw, then given back as it was.

Used by hivectl.commands.exec, also for `shell`. What ran inside may have left any mode on, so the end is
always the saved settings and a reset of what programs commonly switch, also when the command died in the
middle.
"""

from __future__ import annotations

import os
import shutil
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

# CAN ends a sequence that was cut off; then: main screen, soft reset, default character set and colours,
# visible cursor, no mouse reports, no bracketed paste, no focus reports, normal keypad and cursor keys.
RESET = (
    b"\x18\x1b[?1049l\x1b[!p\x0f\x1b(B\x1b[0m\x1b[?25h"
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[?1l\x1b>"
)


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Put the terminal on stdin, if there is one, into raw mode; afterwards restore it and reset stdout's."""
    descriptor = sys.stdin.fileno()
    saved = termios.tcgetattr(descriptor) if os.isatty(descriptor) else None
    try:
        if saved is not None:
            tty.setraw(descriptor)
        yield
    finally:
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), RESET)
        if saved is not None:
            # FLUSH drops what was not read: a terminal's late replies to queries are no input for the shell.
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, saved)


def size() -> tuple[int, int]:
    """Return (rows, columns) of the terminal, or a usual size where there is none."""
    columns, rows = shutil.get_terminal_size()
    return rows, columns
