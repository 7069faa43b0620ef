"""The entry point of `hivectl`. Named by the console script; imports the application only once it is guarded.

Loading the application takes most of a fast command's time, so an interrupt is as likely then as later; here
it ends the process quietly at any moment.
"""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line of this process and exit with its status."""
    try:
        # A terminal or pipe that cannot show a character gets its escape, never an exception.
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")
        from hivectl.application import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    sys.exit(status)
