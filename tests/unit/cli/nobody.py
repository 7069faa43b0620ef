"""hivectl run as a user who is nobody here, though the checkout may be where only root can read."""

from __future__ import annotations

import subprocess
import sys

# All of hivectl is imported first: its late imports would fail once the process is somebody else.
_PROGRAM = """
import encodings.idna, importlib, os, pkgutil, sys
import hive_api, hivectl
for package in (hivectl, hive_api):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
import hivectl.application
os.seteuid(65534)
sys.exit(hivectl.application.run(sys.argv[1:]))
"""


def run_as_nobody(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Return how a command line ended for a user without any rights of its own."""
    argv = [sys.executable, "-c", _PROGRAM, *arguments]
    return subprocess.run(argv, check=False, capture_output=True, timeout=30)
